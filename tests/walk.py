"""How long the way of one call is: which functions it enters, in how many files, in how many calls.

python tests/walk.py          # ours on a new graph, cached and larger, a drop-in, and PyG's layers
python tests/walk.py --list   # and the functions, by file
python tests/walk.py --times  # and where the time of forward passes goes, of ours and of PyG's
"""

from __future__ import annotations

import cProfile
import gc
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import torch_geometric
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

import pyg_outerconv
from pyg_outerconv import OuterConv
from pyg_outerconv import pyg as drop_in
from pyg_outerconv.lab.bench.graphs import karate

NEW, CACHED = "OuterConv, a new graph", "OuterConv, cached"
LARGE, DROP_IN = "OuterConv, 60k edges, a new graph", "drop-in GATConv, 60k edges, a new graph"
PYG, PYG_GAT = "PyG's GCNConv, a new graph", "PyG's GATConv, 60k edges, a new graph"

# What ours may enter at most: functions, files, and Python calls in all, of which a few depend on
# what ran before. Lowered with each step that shortens a way.
MOST = {
    NEW: (35, 16, 57),
    CACHED: (20, 9, 34),
    LARGE: (75, 27, 146),
    DROP_IN: (80, 28, 225),
}


@dataclass(frozen=True)
class Walk:
    """What one call enters.

    Attributes:
        folder: whose functions are told apart.
        entered: how often each function of the folder is entered, comprehensions left out.
        calls: how often any Python function is, or a comprehension.
    """

    folder: Path
    entered: Counter[CodeType]
    calls: int

    @property
    def files(self) -> dict[str, list[str]]:
        """Names of functions by file, as first entered."""
        names: dict[str, list[str]] = {}
        for code in self.entered:
            file = str(Path(code.co_filename).relative_to(self.folder))
            names.setdefault(file, []).append(code.co_qualname if _NAMED else code.co_name)
        return names

    @property
    def length(self) -> tuple[int, int]:
        """Numbers of functions and of files."""
        return len(self.entered), len(self.files)


_NAMED = sys.version_info >= (3, 11)
_COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}  # newer ones inline most


def walk(call: Callable[[], Any], module: Any) -> Walk:
    """Run a call, and count the functions of a package that it enters."""
    folder = Path(module.__file__).resolve().parent
    inside = f"{folder}/"
    entered: Counter[CodeType] = Counter()
    calls = 0

    def enter(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        if event == "call":
            calls += 1
            code = frame.f_code
            if code.co_filename.startswith(inside) and code.co_name not in _COMPREHENSIONS:
                entered[code] += 1

    before = sys.getprofile()
    gc.collect()  # or what earlier calls left is freed within this one, by functions of ours
    gc.disable()
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(before)
        gc.enable()
    return Walk(folder, entered, calls)


def walks() -> dict[str, Walk]:
    """The calls, each after others on another graph, which do what is done but once."""
    generator = torch.Generator().manual_seed(0)
    small = [torch.randint(34, (2, 156), generator=generator) for _ in range(2)]
    large = [torch.randint(10_000, (2, 60_000), generator=generator) for _ in range(2)]
    x = torch.randn(34, 16, generator=generator)
    wide = torch.randn(10_000, 64, generator=generator)
    ours, cached = OuterConv(16, 16, "gcn"), OuterConv(16, 16, "gcn", cached=True)
    at_scale = OuterConv(64, 64, "gcn")
    for _ in range(2):
        cached(x, small[1])
    return {
        NEW: _second(ours, x, small, pyg_outerconv),
        CACHED: walk(lambda: cached(x, small[1]), pyg_outerconv),
        LARGE: _second(at_scale, wide, large, pyg_outerconv),
        DROP_IN: _second(drop_in.GATConv(64, 16, heads=4), wide, large, pyg_outerconv),
        PYG: _second(GCNConv(16, 16), x, small, torch_geometric),
        PYG_GAT: _second(GATConv(64, 16, heads=4), wide, large, torch_geometric),
    }


def _second(
    layer: Callable[..., Any], x: torch.Tensor, graphs: list[torch.Tensor], module: Any
) -> Walk:
    """The call on the second graph, after one on the first."""
    layer(x, graphs[0])
    return walk(lambda: layer(x, graphs[1]), module)


# What a forward pass on a new graph spends its time on; the first word that a path has.
ROOMS = {
    "pyg_outerconv/nn/": "the layer: arguments, parameters, root weight",
    "pyg_outerconv/memo.py": "a look at the last graphs",
    "pyg_outerconv/graph/": "edges checked and weighted",
    "pyg_outerconv/basis/": "edges listed, the basis",
    "pyg_outerconv/contract/": "the order, and what is one problem",
    "pyg_outerconv/kernels/": "kernels",
    "pyg_outerconv/theta.py": "the product with Θ",
    "torch_geometric": "PyG",
    "/torch/": "torch's Python",
    "": "operators of torch, numpy and scipy, and built-in functions",
}


def times(layer: Callable[..., Any], graphs: list[torch.Tensor], x: torch.Tensor) -> Counter[str]:
    """Microseconds of a call on a new graph, by room, without what calls from there take.

    The profiler makes calls longer: its shares are taken of the time that calls take without it.
    """
    half = len(graphs) // 2
    with torch.no_grad():
        layer(x, graphs[0].clone())
        start = time.perf_counter()
        for graph in graphs[:half]:
            layer(x, graph)
        whole = (time.perf_counter() - start) / half
        profile = cProfile.Profile()
        profile.enable()
        for graph in graphs[half:]:
            layer(x, graph)
        profile.disable()
    microseconds: Counter[str] = Counter()
    statistics: Any = pstats.Stats(profile)
    for (file, _, _), (_, _, own, _, _) in statistics.stats.items():
        room = next(room for path, room in ROOMS.items() if path in file)
        microseconds[room] += 1e6 * whole * own / statistics.total_tt
    return microseconds


def print_times(calls: int = 4000) -> None:
    """A table of the time of two layers on the karate club, one thread, beside that of PyG's."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    edge_index, x = karate(generator), torch.randn(34, 16, generator=generator)
    layers = {
        "SAGEConv": SAGEConv(16, 16),
        "ours": OuterConv(16, 16, "relation(num_relations=1)", root_weight=True),
        "GCNConv": GCNConv(16, 16),
        "ours, GCN": OuterConv(16, 16, "gcn"),
    }
    columns = {}
    for name, layer in layers.items():
        columns[name] = times(layer, [edge_index.clone() for _ in range(calls)], x)
    print(f"| µs of a call | {' | '.join(layers)} |\n|{' --- |' * (1 + len(layers))}")
    for room in ROOMS.values():
        print(f"| {room} | {' | '.join(f'{one[room]:.0f}' for one in columns.values())} |")
    print(f"| all | {' | '.join(f'{one.total():.0f}' for one in columns.values())} |")


def main(arguments: list[str]) -> None:
    """Print what there is."""
    walks_by_name = walks()
    for name, one in walks_by_name.items():
        functions, files = one.length
        most = " (at most {} in {}, {} calls)".format(*MOST[name]) if name in MOST else ""
        print(
            f"{name}: {functions} functions in {files} files{most}, entered "
            f"{sum(one.entered.values())} times; {one.calls} Python calls in all"
        )
    if "--list" in arguments:
        for name, one in walks_by_name.items():
            print(f"\n{name}")
            for file, functions in one.files.items():
                print(f"  {file}: {', '.join(functions)}")
    if "--times" in arguments:
        print_times()


if __name__ == "__main__":
    main(sys.argv[1:])
