"""Small graphs that are classified, as one union."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from pyg_outerconv.lab.data import Dataset, entry
from pyg_outerconv.lab.data.graph import union_of

GIN = "gcn(norm=None)"


def graphs(count: int = 12) -> list[Data]:
    """Graphs of 2 to 6 nodes, some of them isolated, with types of edges."""
    generator = torch.Generator().manual_seed(3)
    data_list = []
    for number in range(count):
        nodes = 2 + number % 5
        edges = torch.randint(nodes, (2, 2 * nodes), generator=generator)
        edges = edges[:, edges[0] != edges[1]].unique(dim=1)
        types = F.one_hot(torch.arange(edges.size(1)) % 4, 4).float()
        x = torch.randn(nodes, 5, generator=generator, dtype=torch.float64)
        y = torch.tensor([number % 2])
        x = x.to(torch.get_default_dtype())
        data_list.append(Data(x=x, edge_index=edges, edge_attr=types, y=y))
    return data_list


def dataset(count: int = 12) -> Dataset:
    """They in the place of a data set."""
    return Dataset(entry("MUTAG"), union_of(graphs(count)), None, "0")
