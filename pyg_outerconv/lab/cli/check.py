"""Options of ``outerconv check``."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--device", default="auto", help="auto (CUDA where there is a GPU), cpu, cuda or cuda:1."
)
def check(device: str) -> int:
    """Compare what this machine computes with the backend reference in float64.

    Every primitive of every backend that is here, in every type, and a few layers: value, first and
    second derivatives, forward mode, and whether the same bits come twice. Takes about a minute.
    The exit code is 1 if something differs by more than rounding; each failure is a line to report.
    """
    from ..check import check as run

    return run(device)
