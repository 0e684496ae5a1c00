"""PyG's own models before and after ``accelerate``: one large graph, batches of graphs, samples.

Prints the time of a training step with PyG's layers, with ours, and the ratio; both run in turns in
one process, on the same batches. A model is accelerated with its first batch as the sample.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader, RandomNodeLoader
from torch_geometric.nn import RGCNConv
from torch_geometric.nn.models import GAT, GCN, GraphSAGE

from pyg_outerconv.pyg import accelerate

RELATIONS = 8


class RGCN(torch.nn.Module):
    """Two layers of PyG's RGCNConv, as its example has them."""

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int):
        super().__init__()
        widths = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = torch.nn.ModuleList(
            RGCNConv(one, other, RELATIONS) for one, other in pairwise(widths)
        )

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Features of the last layer."""
        for conv in self.convs[:-1]:
            x = conv(x, edge_index, edge_type).relu()
        out: Tensor = self.convs[-1](x, edge_index, edge_type)
        return out


MODELS: dict[str, Callable[..., torch.nn.Module]] = {
    "GCN": GCN,
    "GraphSAGE": GraphSAGE,
    "GAT": lambda *sizes: GAT(*sizes, heads=4),
    "RGCN": RGCN,
}


def random_graph(nodes: int, edges: int, channels: int) -> Data:
    """A graph with features and types of edges."""
    return Data(
        x=torch.randn(nodes, channels),
        edge_index=torch.randint(nodes, (2, edges)),
        edge_type=torch.randint(RELATIONS, (edges,)),
    )


def arguments(name: str, data: Data) -> tuple[Tensor, ...]:
    """What a model is called with."""
    if name != "RGCN":
        return data.x, data.edge_index
    kinds = data.get("edge_type")
    if kinds is None:
        kinds = data.edge_index.sum(0) % RELATIONS
    return data.x, data.edge_index, kinds


def batches(regime: str, quick: bool, root: Path | None) -> list[Data]:
    """The graphs of one epoch."""
    if regime == "large":
        nodes, edges = (2_000, 20_000) if quick else (100_000, 1_200_000)
        return [random_graph(nodes, edges, 64)] * 3
    if regime == "samples":
        nodes, edges = (2_000, 20_000) if quick else (50_000, 600_000)
        graph = random_graph(nodes, edges, 64)
        return list(RandomNodeLoader(graph, num_parts=8, shuffle=True))
    if root is None:
        raise SystemExit("proteins needs --root, the folder of TUDataset")
    dataset = TUDataset(str(root), "PROTEINS", use_node_attr=True)
    return list(DataLoader(dataset[: 256 if quick else len(dataset)], batch_size=64, shuffle=True))


def compared(name: str, graphs: list[Data], repeats: int) -> tuple[float, float, int]:
    """Milliseconds of a step with PyG's layers and with ours, and how many layers were replaced."""
    torch.manual_seed(0)
    theirs = MODELS[name](graphs[0].x.size(1), 64, 2, 16)
    ours = copy.deepcopy(theirs)
    replaced = accelerate(ours, *arguments(name, graphs[0])).replaced
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(repeats + 1):
        for model, taken in zip((theirs, ours), times, strict=True):
            for data in graphs:
                begin = perf_counter()
                model.zero_grad()
                model(*arguments(name, data)).square().mean().backward()
                if repeat:
                    taken.append(1e3 * (perf_counter() - begin))
    return median(times[0]), median(times[1]), len(replaced)


def rows(regimes: list[str], quick: bool, root: Path | None, repeats: int) -> Iterator[str]:
    """Lines of the table."""
    yield "| graphs | model | layers replaced | PyG, ms | accelerated, ms | ratio |"
    yield "|---|---|---|---|---|---|"
    for regime in regimes:
        graphs = batches(regime, quick, root)
        for name in MODELS:
            theirs, ours, count = compared(name, graphs, repeats)
            ratio = f"{theirs / ours:.2f}"
            yield f"| {regime} | {name} | {count} | {theirs:.2f} | {ours:.2f} | {ratio} |"


def main(argv: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["large", "samples", "proteins"]
    parser.add_argument("--only", choices=kinds, nargs="+", default=kinds)
    parser.add_argument("--root", type=Path, help="folder of PyG's TUDataset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small graphs, to try the script")
    options = parser.parse_args(argv)
    for line in rows(options.only, options.quick, options.root, options.repeats):
        print(line, flush=True)


if __name__ == "__main__":
    main()
