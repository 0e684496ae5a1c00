"""How long the way of one call is: which functions it enters, in how many files, in how many calls.

python tests/walk.py          # ours on a new graph and cached, and PyG's GCNConv
python tests/walk.py --list   # and the functions, by file
python tests/walk.py --times  # and where the time of forward passes goes, of ours and of PyG's
"""

from __future__ import annotations

import cProfile
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
from torch_geometric.nn import GCNConv, SAGEConv

import pyg_outerconv
from pyg_outerconv import OuterConv
from pyg_outerconv.bench.graphs import karate

NEW, CACHED, PYG = "OuterConv, a new graph", "OuterConv, cached", "PyG's GCNConv, a new graph"

# What ours may enter at most: functions, files.
MOST = {NEW: (60, 25), CACHED: (25, 12)}


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
        found: dict[str, list[str]] = {}
        for code in self.entered:
            file = str(Path(code.co_filename).relative_to(self.folder))
            found.setdefault(file, []).append(code.co_qualname if _NAMED else code.co_name)
        return found

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
    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(before)
    return Walk(folder, entered, calls)


def walks() -> dict[str, Walk]:
    """The three calls, each after one on another graph, which does what is done but once."""
    generator = torch.Generator().manual_seed(0)
    graphs = [torch.randint(34, (2, 156), generator=generator) for _ in range(2)]
    x = torch.randn(34, 16, generator=generator)
    ours, cached = OuterConv(16, 16, "gcn"), OuterConv(16, 16, "gcn", cached=True)
    theirs = GCNConv(16, 16)
    for layer in (ours, cached, theirs):
        layer(x, graphs[0])
    for _ in range(2):
        cached(x, graphs[1])
    return {
        NEW: walk(lambda: ours(x, graphs[1]), pyg_outerconv),
        CACHED: walk(lambda: cached(x, graphs[1]), pyg_outerconv),
        PYG: walk(lambda: theirs(x, graphs[1]), torch_geometric),
    }


# What a forward pass on a new graph spends its time on; the first word that a path has.
ROOMS = {
    "pyg_outerconv/nn/": "the layer: arguments, parameters, root weight",
    "pyg_outerconv/cache.py": "a look at the last graphs",
    "pyg_outerconv/basis/": "edges checked and listed, the basis",
    "pyg_outerconv/contract/": "the order, and what is one problem",
    "pyg_outerconv/kernels/": "kernels",
    "pyg_outerconv/theta/": "the product with Θ",
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
    found: Counter[str] = Counter()
    statistics: Any = pstats.Stats(profile)
    for (file, _, _), (_, _, own, _, _) in statistics.stats.items():
        room = next(room for path, room in ROOMS.items() if path in file)
        found[room] += 1e6 * whole * own / statistics.total_tt
    return found


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
    found = {}
    for name, layer in layers.items():
        found[name] = times(layer, [edge_index.clone() for _ in range(calls)], x)
    print(f"| µs of a call | {' | '.join(layers)} |\n|{' --- |' * (1 + len(layers))}")
    for room in ROOMS.values():
        print(f"| {room} | {' | '.join(f'{one[room]:.0f}' for one in found.values())} |")
    print(f"| all | {' | '.join(f'{one.total():.0f}' for one in found.values())} |")


def main(arguments: list[str]) -> None:
    """Print what there is."""
    found = walks()
    for name, one in found.items():
        functions, files = one.length
        most = " (at most {} in {})".format(*MOST[name]) if name in MOST else ""
        print(
            f"{name}: {functions} functions in {files} files{most}, entered "
            f"{sum(one.entered.values())} times; {one.calls} Python calls in all"
        )
    if "--list" in arguments:
        for name, one in found.items():
            print(f"\n{name}")
            for file, functions in one.files.items():
                print(f"  {file}: {', '.join(functions)}")
    if "--times" in arguments:
        print_times()


if __name__ == "__main__":
    main(sys.argv[1:])
