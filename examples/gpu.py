"""Training steps of layers beside PyG's on a GPU: waits for the device, kernels started, times.

    python examples/gpu.py                          # 100,000 nodes, 1,200,000 edges, 64 channels
    python examples/gpu.py --nodes 34 --edges 156

A step is a forward and a backward pass over edges that the layer has seen before, by default, as a
training loop has it; PyG's layers get the same tensors. ``gpu.md`` holds what an H100 and an H200
printed.
"""

import argparse
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

from pyg_outerconv import AttentionConv, OuterConv
from pyg_outerconv import pyg as drop_in
from pyg_outerconv.families import Relation, Walk
from pyg_outerconv.lab.gpu import device_times, synchronizations

CHANNELS, HEADS, KINDS = 64, 4, 8
EACH = CHANNELS // HEADS

# Ours, PyG's, and whether ours reads the types of edges; FastRGCNConv always does.
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], bool]] = {
    "GCN": (
        lambda: OuterConv(CHANNELS, CHANNELS, "gcn"),
        lambda: pyg.GCNConv(CHANNELS, CHANNELS),
        False,
    ),
    "max": (
        lambda: OuterConv(CHANNELS, CHANNELS, Walk(1), aggr="max"),
        lambda: pyg.SAGEConv(CHANNELS, CHANNELS, aggr="max"),
        False,
    ),
    "R-GCN": (
        lambda: OuterConv(CHANNELS, CHANNELS, Relation(KINDS)),
        lambda: pyg.FastRGCNConv(CHANNELS, CHANNELS, KINDS),
        True,
    ),
    "Chebyshev": (
        lambda: OuterConv(CHANNELS, CHANNELS, "chebyshev(3)"),
        lambda: pyg.ChebConv(CHANNELS, CHANNELS, 3),
        False,
    ),
    "GAT": (
        lambda: AttentionConv(CHANNELS, CHANNELS, heads=HEADS, score="additive"),
        lambda: pyg.GATConv(CHANNELS, EACH, heads=HEADS),
        False,
    ),
    "Transformer": (
        lambda: AttentionConv(CHANNELS, CHANNELS, heads=HEADS),
        lambda: pyg.TransformerConv(CHANNELS, EACH, heads=HEADS),
        False,
    ),
} | {
    f"drop-in {name}": (
        partial(getattr(drop_in, name), CHANNELS, *sizes, **options),
        partial(getattr(pyg, name), CHANNELS, *sizes, **options),
        name == "RGCNConv",
    )
    for name, sizes, options in (
        ("GCNConv", (CHANNELS,), {}),
        ("SAGEConv", (CHANNELS,), {}),
        ("GATConv", (EACH,), {"heads": HEADS}),
        ("GATv2Conv", (EACH,), {"heads": HEADS}),
        ("TransformerConv", (EACH,), {"heads": HEADS}),
        ("RGCNConv", (CHANNELS, KINDS), {}),
        ("ChebConv", (CHANNELS, 3), {}),
    )
}


def milliseconds(step: Callable[[], object], repeats: int = 15) -> float:
    """The median time of a step between two events on the stream."""
    times = []
    for n in range(3 + repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times += [start.elapsed_time(end)] if n >= 3 else []
    return median(times)


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each layer."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_200_000)
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.exit(1, "there is no CUDA device here\n")
    torch.manual_seed(0)
    edges = torch.randint(asked.nodes, (2, asked.edges), device="cuda")
    kinds = torch.randint(KINDS, (asked.edges,), device="cuda")
    x = torch.randn(asked.nodes, CHANNELS, device="cuda", requires_grad=True)
    sizes = f"{asked.nodes} nodes, {asked.edges} edges, {CHANNELS} channels"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {sizes}\n")
    titles = ["waits", "kernels", "forward, ms", "training, ms"]
    titles = ["layer", *titles, *(f"PyG's {title}" for title in titles), "PyG over ours"]
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for name, (ours, theirs, has_kinds) in LAYERS.items():
        cells, rows = [], []
        for make, takes_kinds in ((ours, has_kinds), (theirs, has_kinds)):
            layer = make().cuda()
            beside = {"edge_type": kinds} if takes_kinds else {}

            def forward(layer: nn.Module = layer, beside: dict[str, Tensor] = beside) -> Tensor:
                out: Tensor = layer(x, edges, **beside)
                return out

            def training(forward: Callable[[], Tensor] = forward) -> None:
                forward().sum().backward()

            training()
            waits = synchronizations(training)
            started = sum(map(len, device_times(training, repeats=1).values()))
            with torch.no_grad():
                alone = milliseconds(forward)
            whole = milliseconds(training)
            cells += [f"{waits}", f"{started}", f"{alone:.2f}", f"{whole:.2f}"]
            rows.append((alone, whole))
        (a, b), (c, d) = rows
        print(f"| {name} | {' | '.join(cells)} | {c / a:.1f} / {d / b:.1f} |", flush=True)


if __name__ == "__main__":
    main()
