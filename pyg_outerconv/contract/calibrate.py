"""Measuring the constants of the cost model: a few seconds, once for a machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ..basis.pattern import Pattern
from ..kernels import Sparsity, spmm
from ..kernels.grouped import known_groups
from .machine import Constants

REPEATS = 7
CHANNELS = 64
DEGREE = 12
LEAST_ENTRIES = 400_000
# Rows of the operands that sparse products read from: from cache to memory.
ROWS = (1_000, 4_000, 16_000, 64_000, 256_000)
# Of intermediate results: allocators keep small ones, and large ones are new every time.
MOVED_ROWS = (4_000, 64_000, 256_000, 512_000)
GROUPS = 256


@torch.no_grad()
def calibrate(device: str = "cpu", dtype: torch.dtype = torch.float32) -> Constants:
    """Measure this machine, by the kernels that contractions use.

    Raises:
        ValueError: no backend serves the type on the device.
    """
    place = torch.device(device)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator).to(place, dtype)

    sparse = []
    for rows in ROWS:
        sparsity = _random(rows, generator, place)
        x, value = draw(rows, CHANNELS), draw(sparsity.num_entries)
        spent = _least(place, lambda s=sparsity, v=value, x=x: spmm(s, v, x))  # type: ignore[misc]
        sparse.append((rows, sparsity.num_entries, spent))
    x, weight = draw(ROWS[3], CHANNELS), draw(CHANNELS, CHANNELS)
    out = x @ weight
    dense = _least(place, lambda: torch.mm(x, weight, out=out))
    moved = []
    for rows in MOVED_ROWS:
        whole = draw(rows, CHANNELS)
        moved.append((rows, _least(place, whole.clone)))
    few = _random(8, generator, place)
    small = draw(8, 1)
    call = _least(place, lambda: spmm(few, None, small))
    grouped = draw(GROUPS, CHANNELS)
    ptr, rows_of = (torch.arange(n, device=place) for n in (GROUPS + 1, GROUPS))
    thetas, ends = draw(GROUPS, CHANNELS, 1), {"gather": rows_of, "scatter": rows_of}
    group = _least(place, lambda: known_groups(grouped, ptr, thetas, **ends, num_rows=GROUPS))
    line = CHANNELS * dtype.itemsize
    return Constants(
        dense_flops=2.0 * x.numel() * CHANNELS / dense,
        # What is left when a call is paid for.
        gather=tuple(
            (float(rows * line), max(spent - call, spent / 10) / (entries * line))
            for rows, entries, spent in sparse
        ),
        move=tuple((float(rows * line), spent / (rows * line)) for rows, spent in moved),
        call_seconds=call,
        group_seconds=max(group - call, group / 10) / GROUPS,
        source="measured",
    )


def rounded(found: Constants) -> Constants:
    """The constants with three digits, which is more than a clock can tell."""

    def short(number: float) -> float:
        return float(f"{number:.3g}")

    return replace(
        found,
        dense_flops=short(found.dense_flops),
        gather=tuple((size, short(rate)) for size, rate in found.gather),
        move=tuple((size, short(rate)) for size, rate in found.move),
        call_seconds=short(found.call_seconds),
        group_seconds=short(found.group_seconds),
    )


def _random(rows: int, generator: torch.Generator, device: torch.device) -> Sparsity:
    entries = max(rows * DEGREE, LEAST_ENTRIES if rows >= ROWS[0] else 0)
    index = torch.randint(rows, (2, entries), generator=generator)
    return Pattern.build(index.to(device), size=(rows, rows)).by_target


def _least(device: torch.device, run: Callable[[], object]) -> float:
    """Seconds of the fastest of some calls: what else the machine does can only add to it."""

    def settle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    run()
    settle()
    spent = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        run()
        settle()
        spent.append(time.perf_counter() - started)
    return min(spent)
