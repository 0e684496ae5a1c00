"""The command ``outerconv bench``: its options, and what it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fields import require_modules, setting

if TYPE_CHECKING:
    from .case import Case

QUICK_REPEATS, REPEATS = 3, 9


@dataclass(frozen=True)
class Options:
    """The options of ``outerconv bench``, which are made from these fields."""

    quick: bool = setting(False, "Smaller graphs and fewer repeats: two minutes", said="")
    only: tuple[str, ...] = setting(
        (), "A case, or a group of cases, that --list shows", metavar="CASE"
    )
    out: str | None = setting(None, "A new or empty folder", said="runs/bench-<number>")
    compare: str | None = setting(None, "bench.json of an earlier run", metavar="OLD_JSON")
    repeats: int | None = setting(
        None, "Samples of each step", at_least=1, said=f"{REPEATS}, with --quick {QUICK_REPEATS}"
    )
    processes: int = setting(
        1,
        "Measure in this number of processes, one after the other; report median and range over "
        "them",
        at_least=1,
    )
    scale: float = setting(1.0, "Multiply the sizes of graphs", above=0, at_most=1)
    threads: int | None = setting(
        None, "Threads of torch", at_least=1, said="as many as torch chooses"
    )
    device: str = setting("cpu", "Device: auto, cpu, cuda, cuda:1 or mps")
    dtype: str = setting(
        "float32",
        "Type of features and parameters",
        words=("float32", "float64", "float16", "bfloat16"),
    )
    seed: int = setting(0, "Seed of graphs and parameters", at_least=0, below=2**63)
    no_memory: bool = setting(False, "Do not measure peak memory", said="")
    root: str | None = setting(None, "Folder of the data, for cases on real graphs")
    only_list: bool = setting(False, "Only list the cases", option="list", said="")

    @property
    def samples(self) -> int:
        """The number of samples of each step."""
        return self.repeats or (QUICK_REPEATS if self.quick else REPEATS)


EXTRAS = ("matplotlib", "tqdm", "psutil", "jinja2", "pandas")
FAILED = 1


def bench(options: Options) -> int:
    """Run ``outerconv bench``: list the chosen cases, or measure them and write the report.

    Returns:
        The exit code, which says whether one broke off.
    """
    cases = chosen_cases(options)
    if not options.only_list:
        from .campaign import Campaign

        campaign = Campaign(options, cases)
        campaign.run()
        return FAILED if campaign.failed else 0
    width = max(len(case.name) for case in cases)
    for group in dict.fromkeys(case.group for case in cases):
        print(group)
        for case in cases:
            if case.group == group:
                print(f"  {case.name.ljust(width)}  {case.description}")
    return 0


def chosen_cases(options: Options) -> list[Case]:
    """The cases that ``--only`` names, else all, or those of a quick run."""
    require_modules("outerconv bench needs", EXTRAS, "'pyg_outerconv[bench]'")
    from .case import CASES, select
    from .cases import register_all

    register_all()
    chosen = select(options.only, CASES)
    if options.quick and not options.only:
        chosen = [case for case in chosen if case.quick]
    return chosen
