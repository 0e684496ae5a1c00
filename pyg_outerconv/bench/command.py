"""The command ``outerconv bench``."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import RefusedValue, refusal, unknown

if TYPE_CHECKING:
    from .case import Case

EXTRAS = ("matplotlib", "tqdm", "psutil")
TYPES = ("float32", "float64", "float16", "bfloat16")
QUICK_REPEATS, REPEATS = 3, 9
FAILED = 1


class Bench:
    """Measure against dense forms and other libraries on this machine; JSON and one HTML page."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags of this command."""
        add = parser.add_argument
        add("--quick", action="store_true", help="smaller graphs and fewer repeats: two minutes")
        add(
            "--only",
            action="append",
            default=[],
            metavar="CASE",
            help="a case or a group of them that --list shows; may come several times",
        )
        add("--list", action="store_true", help="list the cases and leave")
        add("--out", help="a new or empty folder; default runs/bench-<number>")
        add("--compare", metavar="OLD_JSON", help="bench.json of an earlier run")
        add("--repeats", type=int, help=f"samples of each step; {REPEATS}, quick {QUICK_REPEATS}")
        add(
            "--processes",
            type=int,
            default=1,
            help="measure in so many processes, one after the other; median and range over them",
        )
        add("--scale", type=float, default=1.0, help="sizes of graphs times this; default 1")
        add("--threads", type=int, help="of torch; default: what torch takes")
        add("--device", default="cpu", help="auto, cpu, cuda, cuda:1, mps")
        add("--dtype", default="float32", help=", ".join(TYPES))
        add("--seed", type=int, default=0, help="of graphs and parameters")
        add("--no-memory", action="store_true", help="leave peak memory out")
        add("--root", help="folder of the data, for cases on real graphs")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """List, or measure and write."""
        check_arguments(arguments)
        check_extras()
        from .case import CASES, select
        from .cases import register_all

        register_all()
        chosen = select(arguments.only, CASES)
        if arguments.quick and not arguments.only:
            chosen = [found for found in chosen if found.quick]
        if arguments.list:
            print(listing(chosen))
            return 0
        from .campaign import Campaign

        arguments.repeats = arguments.repeats or (QUICK_REPEATS if arguments.quick else REPEATS)
        campaign = Campaign(arguments, chosen)
        campaign.run()
        return FAILED if campaign.failed else 0


def check_arguments(arguments: argparse.Namespace) -> None:
    """Refuse flags that are out of range.

    Raises:
        ValueError: naming the first one.
    """
    for name in ("repeats", "processes", "threads"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise RefusedValue(refusal(f"--{name} must be positive", ">= 1", value))
    if not 0 < arguments.scale <= 1:
        raise RefusedValue(refusal("--scale must be a share", "(0, 1]", arguments.scale))
    if arguments.dtype not in TYPES:
        raise RefusedValue(unknown("dtype", arguments.dtype, TYPES))
    if not 0 <= arguments.seed < 2**63:
        raise RefusedValue(refusal("--seed must be a seed", "[0, 2^63)", arguments.seed))


def check_extras(names: Sequence[str] = EXTRAS) -> None:
    """Refuse to run where a module of the extra ``bench`` is not installed.

    Raises:
        ValueError: naming what is missing, and the extra.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise RefusedValue(
            f"outerconv bench needs {' and '.join(missing)}, not installed here: "
            "pip install 'pyg_outerconv[bench]'"
        )


def listing(cases: Sequence[Case]) -> str:
    """Groups, names and descriptions."""
    width = max(len(found.name) for found in cases)
    lines: list[str] = []
    for group in dict.fromkeys(found.group for found in cases):
        lines.append(group)
        lines += [
            f"  {found.name.ljust(width)}  {found.description}"
            for found in cases
            if found.group == group
        ]
    return "\n".join(lines)
