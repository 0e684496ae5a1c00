"""Rows of very different length, cut into pieces of bounded length. Plain torch, no kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")

# Entries that one program goes through; longer rows are shared by several. At 16 entries a step
# these are 16 steps, and one partial result for 256 gathered rows costs next to nothing.
LIMIT = 256

# What was worked out from a tensor, by its identity; it dies with the tensor.
_memory: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class Pieces:
    """The T pieces of the L long rows of a CSR pointer, in order.

    Attributes:
        row: (T,) the row that each piece is of.
        begin: (T,) its first entry; it ends ``limit`` entries on, or with its row.
        owner: (T,) the position of its row among the long ones.
        long: (L,) the long rows.
        ptr: (L + 1,) the pieces of long row l are ``ptr[l]:ptr[l + 1]``.
        limit: how many entries a piece has at most.
    """

    row: Tensor
    begin: Tensor
    owner: Tensor
    long: Tensor
    ptr: Tensor
    limit: int

    @property
    def number(self) -> int:
        """T."""
        return self.row.numel()


def pieces_of(ptr: Tensor, num_entries: int, limit: int, above: int | None = None) -> Pieces | None:
    """The pieces of rows of more than ``above`` entries (``limit``, if not given), or None.

    Remembered for ``ptr``, because their number has to come from the device.
    """
    above = limit if above is None else above
    if num_entries <= above:  # then no row is longer, and the device need not be asked
        return None
    return remembered(ptr, (limit, above), lambda: cut(ptr, limit, above))


def cut(ptr: Tensor, limit: int, above: int) -> Pieces | None:
    """Cut rows of more than ``above`` entries into pieces of ``limit``."""
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
    """Where each row's entries are: (ptr, order), in which equal places keep their order.

    Remembered for ``place``.
    """

    def sort() -> tuple[Tensor, Tensor]:
        ordered, order = place.sort(stable=True)
        rows = torch.arange(num_rows + 1, device=place.device, dtype=place.dtype)
        return torch.searchsorted(ordered, rows), order

    return remembered(place, ("by row", num_rows), sort)


def remembered(tensor: Tensor, key: object, make: Callable[[], Made]) -> Made:
    """``make()``, once for each unmodified tensor and key."""
    if tensor.is_inference():  # changes to such a tensor are not counted
        return make()
    known = _memory.get(tensor)
    if known is None or known[0] != tensor._version:
        known = (tensor._version, {})
        _memory[tensor] = known
    if key not in known[1]:
        known[1][key] = make()
    made: Made = known[1][key]
    return made
