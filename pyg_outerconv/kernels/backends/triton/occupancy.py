"""A model of how much of a GPU's bandwidth a kernel can use: registers, resident warps, bytes.

Memory answers after some 0.8 µs, so that a processor must have asked for 32 KiB at a time to be
served at full rate: 3.35 TB/s · 0.8 µs / 132 processors are 20 KiB on an H100, on an H200 29 KiB. A
program asks for a tile of rows, once it has read their indices, which takes as long: so half of the
resident programs wait for rows. It is a model of gathers, no measurement: caches, L2 and what the
programs of long and short rows do to each other are not in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

REGISTERS, WARPS, PROGRAMS, SHARED = 65536, 64, 32, 227 << 10
"""What a processor of an A100 or H100 has for the programs on it (an A100 shares 163 KiB)."""

NEEDED = 32 << 10
"""The bytes that a processor must have asked for."""

STREAMED = {"segment_sum_kernel", "softmax_kernel"}
"""Kernels whose numbers lie one after another, and are not looked up by indices."""


class Launched(NamedTuple):
    """A kernel that was started: its name, its constants, the bytes of a number, and its code."""

    name: str
    constants: Mapping[str, Any]
    itemsize: int
    code: Any


LAUNCHED: list[list[Launched]] = []


@contextmanager
def launched() -> Iterator[list[Launched]]:
    """The kernels that are started in the block."""
    kernels: list[Launched] = []
    LAUNCHED.append(kernels)
    try:
        yield kernels
    finally:
        LAUNCHED[:] = [other for other in LAUNCHED if other is not kernels]


class Occupancy(NamedTuple):
    """What is predicted of a kernel: resident warps, and its share of the bandwidth."""

    warps: int
    share: float

    def __str__(self) -> str:
        return f"{self.warps} of {WARPS} warps, {self.share:.0%} of the bandwidth"


def predicted(
    name: str,
    constants: Mapping[str, Any],
    itemsize: int,
    registers: int,
    warps: int,
    shared: int = 0,
    degree: float = 16.0,
) -> Occupancy:
    """The occupancy of a kernel.

    Args:
        name: that of the kernel.
        constants: its block sizes, ``BLOCK_…``, and what else it is compiled for.
        itemsize: the bytes of a number.
        registers: of a thread.
        warps: of a program.
        shared: bytes of shared memory of a program.
        degree: the entries of a row.
    """
    of_program = warps * 32 * max(8, -(-registers // 8) * 8)
    most = [REGISTERS // of_program, WARPS // warps, PROGRAMS]
    programs = min([*most, SHARED // shared] if shared else most)
    entries = constants.get("BLOCK_E") or constants.get("BLOCK_T") or constants.get("BLOCK_M", 1)
    used = degree / (-(-degree // entries) * entries)
    sizes = (size for key, size in constants.items() if key[:6] == "BLOCK_" and key[6] not in "DC")
    asked = programs * prod(sizes) * sum(row_widths(name, constants)) * itemsize * used
    steps = 1 if name in STREAMED else 2
    return Occupancy(programs * warps, min(1.0, asked / steps / NEEDED))


def row_widths(name: str, constants: Mapping[str, Any]) -> list[int]:
    """The numbers of each row that a kernel reads for an entry: features, or keys and values."""
    widths = [constants[key] for key in ("BLOCK_D", "BLOCK_C") if key in constants] or [1]
    if constants.get("ENDS"):  # a key is one number
        return widths[1:]
    return widths * 2 if name == "chosen_sum_kernel" else widths  # it reads who was chosen, too
