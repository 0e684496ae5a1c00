"""Real graphs to measure on where their files are here, else random ones of their counts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.separate import separate
from torch_geometric.io import read_tu_data

from .. import data
from ..data.graph import MASKS
from .case import Context
from .graphs import random_graph, small_graphs, zipf_types

# Nodes, edges, features, the share of these that is not zero, classes.
CITATION = {"Cora": (2708, 10556, 1433, 0.0127, 7), "CiteSeer": (3327, 9104, 3703, 0.0086, 6)}
FB15K_NODES, FB15K_EDGES, FB15K_RELATIONS = 14_541, 272_115, 237
CLASSES, FEATURES, COUNT = 2, 3, 1113  # of PROTEINS
FILES = ("A", "graph_indicator", "graph_labels", "node_labels")


def citation_graph(context: Context, name: str) -> tuple[Data, str]:
    """A citation graph with its classes and masks, and where it is from."""
    if context.scale == 1 and data.is_here(name, context.root):
        found = data.load(name, context.root).data
        found.x = found.x.float()
        return found, "real"
    nodes, edges, width, density, classes = CITATION[name]
    nodes, edges, width = (context.size(count, 16, quick=False) for count in (nodes, edges, width))
    generator = context.generator()
    x = (torch.rand(nodes, width, generator=generator) < density).float()
    edge_index = random_graph(nodes, edges, generator)
    y = torch.randint(classes, (nodes,), generator=generator)
    order = torch.randperm(nodes, generator=generator)
    masks = {
        key: torch.zeros(nodes, dtype=torch.bool).index_fill(0, order[low:high], True)
        for key, (low, high) in zip(
            MASKS, pairwise((0, nodes // 20, nodes // 4, nodes)), strict=True
        )
    }
    return Data(x, edge_index, y=y, **masks), f"random, with the counts of {name}"


def fb15k_237(context: Context) -> tuple[Tensor, Tensor, int, int, str]:
    """Edges, types, nodes and labels of FB15k-237 with reverses, and where they are from.

    The training triples if PyG's raw files are below the root, else a random graph of the same
    counts, with relations of very unequal size.
    """
    raw = data.data_root(context.root) / "FB15k_237" / "raw"
    files = [raw / f"{part}.txt" for part in ("train", "valid", "test")]
    if context.share == 1 and all(file.is_file() for file in files):
        index, types, nodes = _read_triples(files)
        relations, origin = FB15K_RELATIONS, "real, training triples"
    else:
        generator = context.generator()
        nodes = context.size(FB15K_NODES, at_least=16)
        relations = context.size(FB15K_RELATIONS, at_least=3)
        index = random_graph(nodes, context.size(FB15K_EDGES), generator)
        types = zipf_types(index.size(1), relations, generator)
        origin = "random, with the counts of FB15k-237"
    both = torch.cat([index, index.flip(0)], dim=1)
    return both, torch.cat([types, types + relations]), nodes, 2 * relations, origin


def _read_triples(files: list[Path]) -> tuple[Tensor, Tensor, int]:
    """Nodes and relations numbered as they first come, over all files; the first file's edges."""
    options = {"sep": "\t", "header": None, "dtype": str, "na_filter": False, "quoting": 3}
    parts = [pd.read_csv(file, **options) for file in files]
    triples = pd.concat(parts)
    ends, names = pd.factorize(triples[[0, 2]].to_numpy().ravel())
    types, _ = pd.factorize(triples[1])
    count = len(parts[0])
    index = torch.from_numpy(ends).view(-1, 2)[:count].t().contiguous()
    return index, torch.from_numpy(types)[:count], len(names)


def proteins(context: Context) -> tuple[list[Data], str]:
    """The graphs of PROTEINS, or as many random ones; and which."""
    raw = data.data_root(context.root) / "TUDataset" / "PROTEINS" / "raw"
    if context.scale == 1 and all((raw / f"PROTEINS_{name}.txt").is_file() for name in FILES):
        together, slices, _ = read_tu_data(str(raw), "PROTEINS")
        together.x = together.x[:, -FEATURES:]  # labels of nodes, without their attribute
        numbers = range(slices["x"].numel() - 1)
        graphs = [separate(Data, together, one, slices, decrement=False) for one in numbers]
        origin = "real"
    else:
        graphs, origin = _random_proteins(context), "random, as many as PROTEINS has"
    for graph in graphs:
        graph.x = graph.x.to(context.dtype)
    return [graph.to(context.device) for graph in graphs], origin


def _random_proteins(context: Context) -> list[Data]:
    generator, made = context.generator(), []
    for _ in range(context.size(COUNT, 8, quick=False)):
        edge_index, graph = small_graphs(1, generator)
        label = torch.randint(CLASSES, (1,), generator=generator)
        kinds = torch.randint(FEATURES, graph.shape, generator=generator)
        made.append(Data(x=F.one_hot(kinds, FEATURES).float(), edge_index=edge_index, y=label))
    return made
