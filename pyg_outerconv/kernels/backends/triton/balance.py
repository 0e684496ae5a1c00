"""Programs of equal work: rows, and pieces of long rows, as jobs; and the launch of kernels.

Nothing here waits for the device: how many pieces there are is bounded by the number of entries,
and which they are is computed where they are read.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

import torch
import triton
from torch import Tensor
from torch.nn import functional as F

from ...capture import is_capturing
from ...lasting import lasting
from .. import triton as package
from .addressing import ceil_div, wide_type
from .occupancy import LAUNCHED, Launched

Result = TypeVar("Result")

# The most entries of one program; longer rows are cut into pieces for several programs. At 16
# entries a step these are 16 steps, and one partial result for 256 gathered rows costs little.
LIMIT = 256

# The most jobs that a program computes together; it is a power of two.
TOGETHER = 32

# Cached results by the identity of a tensor, with its version; they are removed with the tensor.
_memory: dict[int, tuple[weakref.ref[Tensor], int, dict[object, Any]]] = {}


@dataclass(eq=False)
class Pieces:
    """The pieces of the long rows of a CSR matrix, in row order.

    There are T pieces and L long rows, as many as a matrix of so many entries can have. Those that
    are not there have no entries: a piece begins after all entries, and a long row has no pieces
    and the number -1.

    Attributes:
        row: (T,) the row of each piece.
        begin: (T,) the first entry of each piece; it ends after ``limit`` entries, or at the end of
            the row.
        owner: (T,) the position of the row of each piece in ``long``.
        long: (L,) the long rows.
        ptr: (L + 1,) the pieces of long row l are ``ptr[l]:ptr[l + 1]``.
        limit: the most entries of a piece.
        number, long_rows: how many pieces and long rows kernels are started for: T and L, or fewer
            once :meth:`ask` has an answer.
    """

    row: Tensor
    begin: Tensor
    owner: Tensor
    long: Tensor
    ptr: Tensor
    limit: int
    number: int
    long_rows: int
    _answer: tuple[Tensor, torch.cuda.Event] | None = None

    def ask(self, long_rows: Tensor) -> None:
        """Have a GPU tell how many pieces and long rows are there, without waiting for it."""
        if self.ptr.is_cuda and not is_capturing():
            numbers = torch.stack((self.ptr[-1].to(long_rows.dtype), long_rows))
            pinned_numbers = torch.empty_like(numbers, device="cpu", pin_memory=True)
            pinned_numbers.copy_(numbers, non_blocking=True)
            told = torch.cuda.Event()
            told.record(torch.cuda.current_stream(self.ptr.device))
            self._answer = pinned_numbers, told

    def hear(self) -> None:
        """Start kernels for no more than what is there, if the answer is here."""
        if self._answer is None or is_capturing():
            return
        pinned_numbers, told = self._answer
        if told.query():
            number, self.long_rows = pinned_numbers.tolist()
            # Which jobs a program computes together must not depend on when the answer came.
            self.number = min(self.number, ceil_div(number, TOGETHER) * TOGETHER)
            self._answer = None


def pieces_of(
    ptr: Tensor, num_entries: int, limit: int | None = None, above: int | None = None
) -> Pieces | None:
    """The pieces of rows with more than ``above`` entries (by default ``limit``); cached.

    None where rows are too short for any.
    """
    limit = LIMIT if limit is None else limit
    above = limit if above is None else above
    if num_entries <= above:
        return None
    pieces = remembered(ptr, (limit, above), lambda: cut(ptr, num_entries, limit, above))
    pieces.hear()
    return pieces


def cut(ptr: Tensor, num_entries: int, limit: int, above: int) -> Pieces:
    """Cut rows with more than ``above`` entries into pieces of ``limit`` entries."""
    rows, device = ptr.numel() - 1, ptr.device
    most_rows = min(rows, num_entries // (above + 1))
    most = ceil_div(num_entries // limit + most_rows, TOGETHER) * TOGETHER
    degree = ptr.diff()
    count = torch.where(degree > above, (degree - 1) // limit + 1, 0)
    ends = F.pad(count.cumsum(0), (1, 0))
    # The row of the l-th long one; the number of rows where there are fewer.
    rank = (count > 0).cumsum(0)
    place = torch.searchsorted(rank, torch.arange(1, most_rows + 2, device=device))
    piece_ptr = ends.index_select(0, place)
    number = torch.arange(most, device=device)
    owner = torch.searchsorted(piece_ptr, number, right=True) - 1
    row = place.index_select(0, owner).clamp_(max=rows - 1)
    begin = ptr.index_select(0, row) + (number - piece_ptr.index_select(0, owner)) * limit
    begin.masked_fill_(owner == most_rows, num_entries)
    long = place[:-1].masked_fill(place[:-1] == rows, -1)
    owner.clamp_(max=most_rows - 1)
    # In the dtype of ptr, so that kernels compute in 32 bits where they can.
    indices = (x.to(ptr.dtype) for x in (row, begin, owner, long, piece_ptr))
    row, begin, owner, long, piece_ptr = indices
    pieces = Pieces(row, begin, owner, long, piece_ptr, limit, most, most_rows)
    pieces.ask(rank[-1])
    return pieces


def by_row(place: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Sort positions by the row in ``place`` (I,), stably: row pointers and order. Cached."""

    def sort() -> tuple[Tensor, Tensor]:
        ordered, order = place.sort(stable=True)
        rows = torch.arange(num_rows + 1, device=place.device, dtype=place.dtype)
        return torch.searchsorted(ordered, rows), order

    return remembered(place, ("by row", num_rows), sort)


def remembered(tensor: Tensor, key: object, make: Callable[[], Result]) -> Result:
    """The result of ``make()``, cached for an unchanged tensor and a key.

    Nothing is cached while a CUDA graph is captured, which computes when it is replayed.
    """
    if tensor.is_inference():  # changes to such a tensor are not counted
        return make()
    number, version = id(tensor), tensor._version
    cached = _memory.get(number)
    if cached is None or cached[0]() is not tensor or cached[1] != version:
        # As a default: a module may be gone when its last tensors are.
        forget = lambda _, pop=_memory.pop: pop(number, None)  # noqa: E731
        cached = _memory[number] = weakref.ref(tensor, forget), version, {}
    result: Result | None = cached[2].get(key)
    if result is None:
        with lasting(tensor):
            result = make()
        if not is_capturing():
            cached[2][key] = result
    return result


# Launches -----------------------------------------------------------------------------------------


def of_jobs(function: Any) -> Any:
    """A kernel of jobs. Their number differs from graph to graph, and is not compiled into it."""
    return triton.jit(function, do_not_specialize=("jobs", "num_pieces"))


planned = lru_cache(256)
"""Plans of launches are made once for all calls of the same sizes, dtype and kinds of operands.

The kinds have the names of the constants that tell a kernel of them.
"""


class Plan(NamedTuple):
    """What a launch takes from sizes and kinds of operands alone.

    Attributes:
        kernel: what is started.
        together: the number of jobs that a program computes.
        blocks: the number of programs that share these, of blocks of heads and channels.
        sizes: the last arguments.
        constants: what the kernel is compiled for.
    """

    kernel: Any
    together: int
    blocks: int
    sizes: tuple[float, ...]
    constants: Mapping[str, Any]

    def start(self, jobs: int, like: Tensor, arguments: tuple[Any, ...]) -> None:
        """Run the kernel for that many jobs on the device of ``like``."""
        programs = ceil_div(jobs, self.together) * self.blocks
        if programs == 0:
            return
        kernel, constants = self.kernel, self.constants
        if package.TUNED:
            kernel = tuned(kernel)
            constants = {key: constants[key] for key in constants if key != "num_warps"}
        device = like.get_device()
        if device < 0 or device == torch.cuda.current_device():
            code = kernel[(programs,)](*arguments, *self.sizes, **constants)
        else:  # it would run on the current device, and read memory of another one
            with torch.cuda.device(device):
                code = kernel[(programs,)](*arguments, *self.sizes, **constants)
        for kernels in LAUNCHED:
            kernels.append(Launched(self.kernel.__name__, constants, like.dtype.itemsize, code))


def plan(
    kernel: Any,
    dtype: torch.dtype,
    blocks: int,
    sizes: tuple[float, ...],
    together: int = 1,
    **constants: Any,
) -> Plan:
    """The :class:`Plan` of a kernel that sums numbers of ``dtype``, with these constants.

    NVIDIA's assembler may hold some numbers in memory, so that one more program fits beside the
    others, but not where ``maxnreg``, the most registers of a thread, is among the constants.
    """
    if torch.version.hip:  # AMD's compiler knows no such option
        constants.pop("maxnreg", None)
    return Plan(kernel, together, blocks, sizes, {**constants, "ACC": wide_type(dtype)})


def launch(plan: Plan, like: Tensor, ptr: Tensor, pieces: Pieces | None, *operands: Tensor) -> None:
    """Run the jobs of a matrix: its rows, and the pieces of its long rows.

    After the operands a kernel gets the arguments of ``addressing.bounds``. Without pieces it is
    compiled without SPLIT, and does not read those in their place.
    """
    rows = ptr.size(0) - 1
    if pieces is None:
        plan.start(rows, like, (*operands, rows, ptr, ptr, ptr, 0, 0))
        return
    jobs = rows + pieces.number
    cuts = pieces.row, pieces.begin, pieces.number, pieces.limit
    plan.start(jobs, like, (*operands, jobs, ptr, *cuts))


WARPS = (1, 2, 4, 8)


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
