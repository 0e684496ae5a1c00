"""The command ``outerconv bench``: its options, and what it starts."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import RefusedValue, unknown

if TYPE_CHECKING:
    from .case import Case

TYPES = ("float32", "float64", "float16", "bfloat16")
QUICK_REPEATS, REPEATS = 3, 9


@dataclass(frozen=True)
class Options:
    """The options of ``outerconv bench``; see ``outerconv bench --help``.

    Raises:
        ValueError: a value is out of range.
    """

    quick: bool = False
    only: tuple[str, ...] = ()
    out: str | None = None
    compare: str | None = None
    repeats: int | None = None
    processes: int = 1
    scale: float = 1.0
    threads: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    no_memory: bool = False
    root: str | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "processes", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RefusedValue(f"--{name} must be positive", ">= 1", value)
        if not 0 < self.scale <= 1:
            raise RefusedValue("--scale must be a share", "(0, 1]", self.scale)
        if self.dtype not in TYPES:
            raise RefusedValue(unknown("dtype", self.dtype, TYPES))
        if not 0 <= self.seed < 2**63:
            raise RefusedValue("--seed must be a seed", "[0, 2^63)", self.seed)

    @property
    def samples(self) -> int:
        """The number of samples of each step."""
        return self.repeats or (QUICK_REPEATS if self.quick else REPEATS)


EXTRAS = ("matplotlib", "tqdm", "psutil", "jinja2", "pandas")
FAILED = 1


def list_cases(options: Options) -> int:
    """Print the chosen cases by group; return the exit code."""
    cases = chosen_cases(options)
    width = max(len(found.name) for found in cases)
    for group in dict.fromkeys(found.group for found in cases):
        print(group)
        for found in cases:
            if found.group == group:
                print(f"  {found.name.ljust(width)}  {found.description}")
    return 0


def measure_cases(options: Options) -> int:
    """Measure the chosen cases and write the report; return the exit code."""
    cases = chosen_cases(options)
    from .campaign import Campaign

    campaign = Campaign(options, cases)
    campaign.run()
    return FAILED if campaign.failed else 0


def chosen_cases(options: Options) -> list[Case]:
    """The cases that ``--only`` names, else all, or those of a quick run.

    Raises:
        ValueError: a name is unknown, or a module of the extra ``bench`` is not installed.
    """
    check_extras()
    from .case import CASES, select
    from .cases import register_all

    register_all()
    chosen = select(options.only, CASES)
    if options.quick and not options.only:
        chosen = [found for found in chosen if found.quick]
    return chosen


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
