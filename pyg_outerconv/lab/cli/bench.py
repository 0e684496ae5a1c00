"""Options of ``outerconv bench``."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.option("--quick", is_flag=True, help="Smaller graphs and fewer repeats: two minutes.")
@click.option(
    "--only",
    multiple=True,
    metavar="CASE",
    help="A case, or a group of cases, that --list shows; may be repeated.",
)
@click.option("--list", "only_list", is_flag=True, help="Only list the cases.")
@click.option("--out", help="A new or empty folder; default runs/bench-<number>.")
@click.option("--compare", metavar="OLD_JSON", help="bench.json of an earlier run.")
@click.option("--repeats", type=int, help="Samples of each step; default 9, with --quick 3.")
@click.option(
    "--processes",
    type=int,
    default=1,
    help="Measure in this number of processes, one after the other; report median and "
    "range over them.",
)
@click.option("--scale", type=float, default=1.0, help="Multiply the sizes of graphs; default 1.")
@click.option("--threads", type=int, help="Threads of torch; default: as many as torch chooses.")
@click.option("--device", default="cpu", help="auto, cpu, cuda, cuda:1 or mps; default cpu.")
@click.option(
    "--dtype", default="float32", help="float32, float64, float16 or bfloat16; default float32."
)
@click.option("--seed", type=int, default=0, help="Seed of graphs and parameters.")
@click.option("--no-memory", is_flag=True, help="Do not measure peak memory.")
@click.option("--root", help="Folder of the data, for cases on real graphs.")
def bench(only_list: bool, **options: Any) -> int:
    """Compare the times of layers with those of dense forms and of other libraries.

    Writes bench.json and one HTML page, bench.html.
    """
    from ..bench.command import Options, list_cases, measure_cases

    return (list_cases if only_list else measure_cases)(Options(**options))
