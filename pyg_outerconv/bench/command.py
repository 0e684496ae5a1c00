"""The command ``outerconv bench``."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import RefusedValue
from .options import Options

if TYPE_CHECKING:
    from .case import Case

EXTRAS = ("matplotlib", "tqdm", "psutil", "jinja2")
FAILED = 1


def list_cases(options: Options) -> int:
    """Print the chosen cases by group; return the exit code."""
    print(listing(chosen_cases(options)))
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
