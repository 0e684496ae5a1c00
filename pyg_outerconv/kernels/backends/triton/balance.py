"""Programs of equal work: rows, and pieces of long rows, as jobs; and the launch of kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from . import TUNE
from .occupancy import LAUNCHED, Launched

Result = TypeVar("Result")

# The most entries of one program; longer rows are cut into pieces for several programs. At 16
# entries a step these are 16 steps, and one partial result for 256 gathered rows costs little.
LIMIT = 256

# Cached results by the identity of a tensor; they are removed with the tensor.
_memory: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Pieces:
    """The T pieces of the L long rows of a CSR matrix, in row order.

    Attributes:
        row: (T,) the row of each piece.
        begin: (T,) the first entry of each piece; it ends after ``limit`` entries, or at the end of
            the row.
        owner: (T,) the position of the row of each piece in ``long``.
        long: (L,) the long rows.
        ptr: (L + 1,) the pieces of long row l are ``ptr[l]:ptr[l + 1]``.
        limit: the most entries of a piece.
    """

    row: Tensor
    begin: Tensor
    owner: Tensor
    long: Tensor
    ptr: Tensor
    limit: int

    @property
    def number(self) -> int:
        """The number T of pieces."""
        return self.row.numel()


def pieces_of(ptr: Tensor, num_entries: int, limit: int, above: int | None = None) -> Pieces | None:
    """The pieces of rows with more than ``above`` entries (by default ``limit``); None without any.

    Cached for ``ptr``, because reading their number waits for the device.
    """
    above = limit if above is None else above
    if num_entries <= above:  # no row is longer, which needs no reading from the device
        return None
    return remembered(ptr, (limit, above), lambda: cut(ptr, limit, above))


def cut(ptr: Tensor, limit: int, above: int) -> Pieces | None:
    """Cut rows with more than ``above`` entries into pieces of ``limit`` entries."""
    degree = ptr.diff()
    long = (degree > above).nonzero().view(-1)
    if long.numel() == 0:
        return None
    count = (degree.index_select(0, long) + (limit - 1)) // limit
    first = torch.zeros(long.numel() + 1, dtype=torch.int64, device=ptr.device)
    first[1:] = count.cumsum(0)
    total = int(first[-1])
    owner = torch.arange(long.numel(), device=ptr.device)
    owner = owner.repeat_interleave(count, output_size=total)
    row = long.index_select(0, owner)
    number = torch.arange(total, device=ptr.device) - first.index_select(0, owner)
    begin = ptr.index_select(0, row).to(torch.int64) + number * limit
    return Pieces(row, begin, owner, long, first, limit)


def by_row(place: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Sort positions by the row in ``place`` (I,), stably: row pointers and order. Cached."""

    def sort() -> tuple[Tensor, Tensor]:
        ordered, order = place.sort(stable=True)
        rows = torch.arange(num_rows + 1, device=place.device, dtype=place.dtype)
        return torch.searchsorted(ordered, rows), order

    return remembered(place, ("by row", num_rows), sort)


def remembered(tensor: Tensor, key: object, make: Callable[[], Result]) -> Result:
    """The result of ``make()``, cached for an unchanged tensor and a key."""
    if tensor.is_inference():  # changes to such a tensor are not counted
        return make()
    cached = _memory.get(tensor)
    if cached is None or cached[0] != tensor._version:
        cached = (tensor._version, {})
        _memory[tensor] = cached
    if key not in cached[1]:
        cached[1][key] = make()
    result: Result = cached[1][key]
    return result


def of_jobs(function: Any) -> Any:
    """A kernel of jobs. Their number differs from graph to graph, and is not compiled into it."""
    return triton.jit(function, do_not_specialize=("jobs", "num_pieces"))


WARPS = (1, 2, 4, 8)


def launch(kernel: Any, programs: int, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Run ``programs`` programs of ``kernel`` on the device of ``like``.

    Without the guard the kernel would run on the current device, and read memory of another one.

    NVIDIA's assembler may hold some numbers in memory, so that one more program fits beside the
    others, but not where ``maxnreg``, the most registers of a thread, is among the constants.
    """
    if programs == 0:
        return
    if torch.version.hip:  # AMD's compiler knows no such option
        constants.pop("maxnreg", None)
    name = kernel.__name__
    if os.environ.get(TUNE) == "1":
        kernel = tuned(kernel)
        del constants["num_warps"]
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        code = kernel[(programs,)](*arguments, **constants)
    for kernels in LAUNCHED:
        kernels.append(Launched(name, constants, like.dtype.itemsize, code))


@cache
def tuned(kernel: Any) -> Any:
    """``kernel`` with the fastest number of warps on this device, measured for each set of sizes.

    Off unless asked for: the number of warps decides in which order a tile is summed, so that
    another process, with other timings, may return a bitwise different result.
    """
    names = ("heads", "channels", "depth", "width", "inputs", "outputs")
    return triton.autotune(
        configs=[triton.Config({}, num_warps=number) for number in WARPS],
        key=[name for name in names if name in kernel.arg_names],
    )(kernel)


def jobs_of(ptr: Tensor, pieces: Pieces | None) -> tuple[int, tuple[Any, ...]]:
    """The number of jobs, and arguments of ``addressing.bounds``: jobs, ptr, pieces, their limit.

    Without pieces the kernel is compiled without SPLIT, and does not read the arguments in their
    place.
    """
    rows = ptr.numel() - 1
    if pieces is None:
        return rows, (rows, ptr, ptr, ptr, 0, 0)
    jobs = rows + pieces.number
    return jobs, (jobs, ptr, pieces.row, pieces.begin, pieces.number, pieces.limit)
