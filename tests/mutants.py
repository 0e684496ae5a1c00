"""How much of the core is held by tests: small faults drawn room by room, and those that are seen.

python tests/mutants.py                        # 60 faults from seed 0, the share that is killed
python tests/mutants.py --seed 1 --rooms nn    # others, of some rooms
python tests/mutants.py --list                 # only say which

A fault is a comparison turned around, a sum made a difference, a condition negated, a number off
by one. The quick tests of the fault's own room run first, then those of all of the mathematics,
then the default tier of its room and what is refused. A fault that makes tests hang is killed, too.
Nothing on disk is changed: a process in which torch and PyG are imported is forked, and imports the
file with the fault in it. First the same tests run without a fault, for what fails anyway kills
nothing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.machinery
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pyg_outerconv"
ROOMS = (
    "registry", "kernels", "memo", "theta", "graph", "basis", "contract",
    "attention", "families", "nn", "pyg", "transforms", "testing",
)  # fmt: skip
QUICK = ("-m", "fast")
REFUSALS = "tests/test_refusals.py"
NONE_SELECTED = 5  # pytest's exit status where a folder has no quick test
# Tests of a room that has no folder of its own, or more than it.
TESTS = {
    "attention": ["tests/attention", "tests/nn/attention"],
    "registry": ["tests/test_registry.py", "tests/families/test_families.py"],
    "memo": ["tests/test_memo.py"],
    "theta": ["tests/test_theta.py"],
    "testing": ["tests/families", "tests/contract"],
}

PAIRS = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
)
OPPOSITES: dict[type[ast.AST], Any] = {
    one: other for left, right in PAIRS for one, other in ((left, right), (right, left))
} | {ast.FloorDiv: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """One fault: a file, the number of the place in it, and how the line reads then."""

    room: str
    file: Path
    place: int
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text}"

    def code(self) -> Any:
        """The file with the fault, compiled."""
        tree = ast.parse(self.file.read_text())
        _mend(list(places(tree))[self.place])
        return compile(ast.fix_missing_locations(tree), str(self.file), "exec")


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Where a file can be wrong: in functions, but for annotations and what errors say."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for statement in function.body:
                yield from _places(statement)


def _places(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr):
        return  # functions inside functions have a turn of their own
    if _can_fail(node):
        yield node
    for field, child in ast.iter_fields(node):
        for one in child if isinstance(child, list) else [child]:
            if isinstance(one, ast.AST) and field != "annotation":
                yield from _places(one)


def _can_fail(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[first, *_]):
            return type(first) in OPPOSITES
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator):
            words = any(isinstance(part, ast.JoinedStr) for part in ast.walk(node))
            return type(operator) in OPPOSITES and not words
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            return not isinstance(test, ast.Compare)
        case ast.Constant(value=value):
            return type(value) in (int, bool)
    return False


def _mend(node: ast.AST) -> None:
    """Turn the place around."""
    match node:
        case ast.Compare():
            node.ops[0] = OPPOSITES[type(node.ops[0])]()
        case ast.BinOp() | ast.BoolOp():
            node.op = OPPOSITES[type(node.op)]()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int()):
            node.value = node.value + 1


def draw(room: str, count: int, seed: int) -> list[Mutant]:
    """Faults of a room, any of :func:`_every`."""
    every = _every(room)
    chosen = random.Random(f"{seed} {room}").sample(every, min(count, len(every)))
    return [_described(room, file, place) for file, place in chosen]


@cache
def _every(room: str) -> list[tuple[Path, int]]:
    """Each place where a file of the room can be wrong, by its number in the file.

    Triton's kernels are left out, whose tests need its interpreter.
    """
    folder = PACKAGE / room
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    return [
        (file, place)
        for file in files
        if "triton" not in str(file.relative_to(PACKAGE))
        for place in range(len(list(places(ast.parse(file.read_text())))))
    ]


def _described(room: str, file: Path, place: int) -> Mutant:
    node = list(places(ast.parse(file.read_text())))[place]
    before, after = copy.deepcopy(node), node
    _mend(after)
    shown = [ast.unparse(ast.fix_missing_locations(_head(one))) for one in (before, after)]
    return Mutant(room, file, place, node.lineno, " -> ".join(shown))  # type: ignore[attr-defined]


def _head(node: ast.AST) -> ast.AST:
    return node.test if isinstance(node, (ast.If, ast.While)) else node


def survives(fault: Mutant, seconds: float) -> bool:
    """Whether quick tests of its room and of the mathematics pass, then all of its room."""
    own = _tests_of(fault.room)
    return (
        _passes(fault, [*own, *QUICK], seconds)
        and _passes(fault, ["tests", *QUICK], seconds)
        and _passes(fault, [*own, REFUSALS], 4 * seconds)
    )


def check_tests(rooms: Iterable[str], seconds: float) -> None:
    """End the program where tests fail without a fault: they would kill everything."""
    for tests in (["tests", *QUICK], [REFUSALS], *map(_tests_of, rooms)):
        if not _passes(None, tests, 4 * seconds):
            sys.exit(f"{' '.join(tests)}: fails without a fault, or takes too long")


def _tests_of(room: str) -> list[str]:
    return TESTS.get(room, [f"tests/{room}"])


def _passes(fault: Mutant | None, arguments: list[str], seconds: float) -> bool:
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        os._exit(_run(fault, arguments))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) in (0, NONE_SELECTED)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _run(fault: Mutant | None, arguments: list[str]) -> int:
    """The exit status of pytest, in a process that reads the file with the fault."""
    if fault:
        code, read = fault.code(), importlib.machinery.SourceFileLoader.get_code

        def get_code(self: Any, fullname: str) -> Any:
            return code if self.path == str(fault.file) else read(self, fullname)

        importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign]
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    flags = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header"]
    return int(pytest.main([*flags, *arguments]))


def main(words: list[str]) -> None:
    """Draw, run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=5, help="faults of each room")
    parser.add_argument("--rooms", nargs="+", default=ROOMS, choices=ROOMS)
    parser.add_argument("--seconds", type=float, default=300, help="of the quick tests, at most")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(words)
    mutants = [one for room in options.rooms for one in draw(room, options.each, options.seed)]
    if options.list:
        print(*mutants, sep="\n")
        return
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import torch_geometric.nn  # noqa: F401  what forks then have

    check_tests(options.rooms, options.seconds)
    killed: Counter[str] = Counter()
    for mutant in mutants:
        alive = survives(mutant, options.seconds)
        killed[mutant.room] += not alive
        print("survives" if alive else "killed  ", mutant, flush=True)
    for room in options.rooms:
        print(f"{room}: {killed[room]} of {sum(one.room == room for one in mutants)}")
    print(f"{killed.total()} of {len(mutants)} killed ({killed.total() / len(mutants):.0%})")


if __name__ == "__main__":
    main(sys.argv[1:])
