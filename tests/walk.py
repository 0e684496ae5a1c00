"""How long the way of one call is: which functions it enters, in how many files, in how many calls.

python tests/walk.py          # ours on a new graph and cached, and PyG's GCNConv
python tests/walk.py --list   # and the functions, by file
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
import torch_geometric
from torch_geometric.nn import GCNConv

import pyg_outerconv
from pyg_outerconv import OuterConv

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


if __name__ == "__main__":
    main(sys.argv[1:])
