"""The matrices of several heads, which have entries at the same places, as one matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from .absent_pairs import gradients_of
from .backends.native_csr import row_sums, sampled, times, torch_csr
from .csr import CSR
from .edge_lists import by_rows, spread
from .edge_sums import SAFE
from .lasting import lasting
from .primitive import is_differentiated, is_plain

MOST_COPIED = 2**22
"""Up to so many entries times heads, one product serves all heads; beyond, each head has one.

One matrix reads operands as they are, and their rows while they are in a cache: with 4 heads of 16
channels on 50k nodes and 600k edges it takes 9 ms where a product for each head takes 16. On twice
as many nodes they no longer fit, and both take as long; then indices of copies only cost memory.
"""

MOST_STACKED = 2**16
"""Up to so many entries times heads, head below head, one product serves all heads of a new graph.

A step of attention with 4 heads of 16 channels takes .89 of the time of a product for each head on
1,220 nodes and 4,530 edges, .85 on twice as many, and no less on 5,000 nodes and 18,000 edges.
"""

OFTEN = 8
"""One matrix for all heads is made once the entries were used so often. It shortens each pass, but
to make it takes about as long as the attention of a layer does."""

_INTEGERS: dict[torch.dtype, Any] = {torch.int32: np.int32, torch.int64: np.int64}
_View = tuple[Tensor, Tensor, Tensor | None]
Combine = Callable[[Tensor, Tensor], Tensor]


class HeadCopies:
    """The matrices S_h (R × C) of H heads with entries at the same places.

    Dense operands are (rows, H, V), or (rows, H). One matrix (R·H × C·H) has the entry
    of row r, column c and head h in row ``r H + h`` and column ``c H + h``; values are in the order
    of its rows. Where there is no such matrix yet, values are head by head, each head in row order,
    and operands are copied for a matrix whose diagonal has a block for each head.

    Args:
        csr: the places of the E entries.
        heads: H.
        is_one: whether there is one matrix, if it is not too large.

    Attributes:
        num_values: E·H.
        row, col: where each entry is in x (rows, H), for :meth:`at`.
        is_final: whether they are one matrix, or may not be.
        uses: how often :func:`copies_for` has returned them.
    """

    def __init__(self, csr: CSR, heads: int, is_one: bool = True) -> None:
        # The matrix keeps its copies; a reference in turn would keep both until a collection.
        self._csr, self._shape, self.heads = ref(csr), csr.shape, heads
        self.num_values = csr.index.numel() * heads
        with lasting(csr.index):
            rows = torch.arange(csr.shape[0], dtype=csr.index.dtype)
            row = spread(rows, csr.ptr, csr.index.numel())
            fits = max(csr.shape) * heads <= np.iinfo(_INTEGERS[csr.index.dtype]).max
            may_be_one = fits and self.num_values <= MOST_COPIED
            self._is_one = is_one and may_be_one
            self.is_final, self.uses = self._is_one or not may_be_one, 0
            self._entries = csr.ptr, row, csr.index
            stacked = fits and self.num_values <= MOST_STACKED
            self._together = heads if self._is_one or stacked else 1
            if self._is_one:
                ptr, self.row, self.col, _ = _copied(*self._entries, heads)
                self._by_row = ptr, self.col
            else:
                self.row, self.col = row, csr.index
                self._by_row = csr.ptr, csr.index
                if self._together > 1:
                    self._by_row = _diagonal(csr.ptr, csr.index, heads, csr.shape[1])
            firsts = range(0, heads, self._together)
            self._groups = [slice(first, first + self._together) for first in firsts]
        self._transposed: _View | None = None

    @property
    def csr(self) -> CSR:
        """The places of the entries."""
        ptr, _, index = self._entries
        return self._csr() or CSR.of(ptr, index, self._shape[1])

    def times(self, value: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
        """S_h x_h, (R, H, V), or S_hᵀ x_h, for values (E·H,) and x (C, H, V)."""
        ptr, index, order = self._by_column() if transposed else (*self._by_row, None)
        cols, width = x.size(0) * self._together, x.size(2)
        if self._is_one:
            value = value if order is None else value.index_select(0, order)
            out = times(torch_csr(ptr, index, value, cols), x.reshape(cols, width))
            # No view, which could not be changed in place.
            return out.resize_(self._shape[transposed], self.heads, width)
        values = value.view(self.heads, -1)
        out = x.new_empty((self._shape[transposed], self.heads, width))
        for heads in self._groups:
            of_heads = values[heads].squeeze(0)  # torch gathers a vector faster than a single row
            of_heads = of_heads if order is None else of_heads.index_select(-1, order)
            matrix = torch_csr(ptr, index, of_heads.view(-1), cols)
            # As `_by_head`, whose call at every product would be one more on the way of a layer.
            rows = x[:, heads].transpose(0, 1).reshape(-1, width).contiguous()
            part = times(matrix, rows)
            out[:, heads] = part.view(self._together, -1, width).transpose(0, 1)
        return out

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """⟨a_h[row of e], b_h[column of e]⟩, (E·H,), for a (R, H, V) and b (C, H, V)."""
        if self._is_one:
            return sampled(*self._by_row, a.flatten(0, 1), b.flatten(0, 1))
        if len(self._groups) == 1:
            return sampled(*self._by_row, _by_head(a, slice(None)), _by_head(b, slice(None)))
        out = a.new_empty(self.num_values)
        for heads, part in zip(self._groups, out.view(len(self._groups), -1), strict=True):
            sampled(*self._by_row, _by_head(a, heads), _by_head(b, heads), out=part)
        return out

    def sums(self, value: Tensor) -> Tensor:
        """Sum the values (E·H,) of each row: (R, H)."""
        rows, cols = self._shape
        ones = value.new_ones(cols * self._together)
        out = value.new_empty((self.heads // self._together, rows * self._together))
        for one, total in zip(value.view(out.size(0), -1), out, strict=True):
            torch.addmv(
                total, torch_csr(*self._by_row, one, ones.numel()), ones, beta=0.0, out=total
            )
        return out.view(rows, self.heads) if self._is_one else out.view(self.heads, rows).t()

    def sums_transposed(self, value: Tensor) -> Tensor:
        """Sum the values (E·H,) of each column: (C, H)."""
        cols = self._shape[1]
        # index_add_ takes ten times as long with indices of 32 bits.
        if self._is_one:
            out = value.new_zeros(cols * self.heads).index_add_(0, self.col.long(), value)
            return out.view(cols, self.heads)
        out = value.new_zeros((self.heads, cols))
        return out.index_add_(1, self.col.long(), value.view(self.heads, -1)).t()

    def at(
        self, x: Tensor, place: Tensor, out: Tensor | None = None, combine: Combine | None = None
    ) -> Tensor:
        """The number of each entry, (E·H,), at its ``row`` or ``col``, for x (rows, H).

        ``out``: memory for them; or numbers that ``combine`` changes by them, such as Tensor.add_.
        """
        shape = (-1,) if self._is_one else (self.heads, -1)
        numbers = x.reshape(-1) if self._is_one else x.t().contiguous()
        if out is None or combine is None:
            into = None if out is None else out.view(shape)
            return torch.index_select(numbers, -1, place, out=into).view(-1)
        if self.num_values <= MOST_COPIED:
            return combine(out, torch.index_select(numbers, -1, place).view(-1))
        # Head by head: memory of more than 32 MB is mapped anew at each use, page by page, which
        # takes four times as long as to gather the numbers.
        gathered = x.new_empty(place.numel())
        for own, of_head in zip(out.view(shape), numbers, strict=True):
            combine(own, torch.index_select(of_head, 0, place, out=gathered))
        return out

    def shares(self, score: Tensor) -> Tensor:
        """The softmax of scores (E·H,) over the entries of each row, in place.

        Large scores are reduced by the largest of their row.
        """
        least, most = score.aminmax() if score.numel() else (0.0, 0.0)
        if not (float(least) >= -SAFE and float(most) <= SAFE):
            if self._is_one:
                highest = row_sums(self._by_row[0], score, "max").view(-1, self.heads)
            else:
                by_entry = score.view(self.heads, -1).t().contiguous()
                highest = row_sums(self._entries[0], by_entry, "max")
            highest.masked_fill_(highest == -torch.inf, 0.0)
            self.at(highest, self.row, score, Tensor.sub_)
        total = self.sums(score.exp_()).clamp_(min=torch.finfo(score.dtype).tiny)
        return self.at(total.reciprocal_(), self.row, score, Tensor.mul_)

    def _by_column(self) -> _View:
        """The transposed matrix: pointers, indices, and where the value of each entry is."""
        if self._transposed is not None:
            return self._transposed
        (starts, rows, columns), cols = self._entries, self._shape[1]
        with lasting(rows):
            kept = vars(self.csr)
            if "columns" not in kept:  # the rows that are at hand make it faster to sort
                kept["columns"] = by_rows(columns, rows, cols)
            ptr, row, order = kept["columns"]
            if self._is_one:
                col = spread(torch.arange(cols, dtype=row.dtype), ptr, row.numel())
                *_, before = _copied(starts, rows, columns, self.heads)
                ptr, _, row, place = _copied(ptr, col, row, self.heads)
                of_values = np.empty(self.num_values, _INTEGERS[row.dtype])
                of_values[place] = before.take(order.numpy(), 1)
                order = torch.from_numpy(of_values)
            elif self._together > 1:
                ptr, row = _diagonal(ptr, row, self.heads, self._shape[0])
        self._transposed = ptr, row, order
        return self._transposed


def copies_for(csr: CSR, heads: int, at_once: bool = False) -> HeadCopies:
    """The matrices of some heads, which the matrix of each keeps.

    ``at_once``: whether they are one at their first use, and not once they were used often. A
    compiled graph asks for it, whose backward pass finds them anew.
    """
    kept: dict[int, HeadCopies] = vars(csr).setdefault("head_copies", {})
    copies = kept.get(heads)
    if copies is None:
        copies = kept[heads] = HeadCopies(csr, heads, at_once)
    copies.uses += 1
    if not copies.is_final and (at_once or copies.uses > OFTEN):
        copies = kept[heads] = HeadCopies(csr, heads)
    return copies


def _by_head(x: Tensor, heads: slice) -> Tensor:
    """The rows of some heads of x (rows, H, V), head by head: (rows · heads, V)."""
    # MKL is three times slower on strided rows, which a view of one head has, than on others.
    return x[:, heads].transpose(0, 1).reshape(-1, x.size(2)).contiguous()


def _diagonal(ptr: Tensor, index: Tensor, count: int, cols: int) -> tuple[Tensor, Tensor]:
    """Pointers and columns of a matrix with this one in each of so many blocks of its diagonal."""
    block = torch.arange(count, dtype=ptr.dtype).unsqueeze(-1)
    starts = (ptr[1:] + block * index.numel()).view(-1)
    return torch.cat((ptr[:1], starts)), (index + block * cols).view(-1)


def _copied(
    ptr: Tensor, row: Tensor, col: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
    """The matrix of all heads: pointers, rows, columns, and (H, E) where each entry is in it."""
    starts, rows, columns = ptr.numpy(), row.numpy(), col.numpy()
    kind, count = starts.dtype.type, np.diff(starts)
    head = np.arange(heads, dtype=starts.dtype)
    pointers = np.empty(count.size * heads + 1, starts.dtype)
    of_rows = starts[:-1, None] * kind(heads) + count[:, None] * head
    pointers[:-1], pointers[-1] = of_rows.reshape(-1), starts[-1] * heads
    first = starts.take(rows) * kind(heads - 1) + np.arange(rows.size, dtype=starts.dtype)
    place = first + count.take(rows) * head[:, None]
    out = np.empty((2, place.size), starts.dtype)
    for number, of_head in enumerate(place):
        out[0, of_head] = rows * kind(heads) + kind(number)
        out[1, of_head] = columns * kind(heads) + kind(number)
    return torch.from_numpy(pointers), *map(torch.from_numpy, out), place


# Attention in two passes -------------------------------------------------------------------------


class Passes(NamedTuple):
    """The two passes of an attention whose operands are tensors (nodes, H, …).

    Attributes:
        name: that of its operators.
        operands: the names of the operands; the last has a row for each column of the matrix.
        kept: how many numbers the backward pass reads of each entry and head.
        forward: from entries, operands, a factor and memory (kept, E·H), the result (R, H, V).
        backward: from entries, operands, the result, what is kept, the gradient and the factor, the
            gradient in each operand.
        shape: the shape of the result, given the operands.
        by_primitives: from a :class:`~.csr.CSR`, the operands and the factor, the result by other
            primitives, of which derivatives of derivatives are made.
    """

    name: str
    operands: tuple[str, ...]
    kept: int
    forward: Callable[..., Tensor]
    backward: Callable[..., tuple[Tensor, ...]]
    shape: Callable[..., tuple[int, int, int]]
    by_primitives: Callable[..., Tensor]


class InPasses(torch.autograd.Function):
    """The result for contiguous operands on a CPU, where plain autograd alone looks on."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, entries: HeadCopies, factor: float, *operands: Tensor
    ) -> Tensor:
        kept = operands[0].new_empty(passes.kept, entries.num_values)
        out = passes.forward(entries, operands, factor, kept)
        ctx.save_for_backward(*operands, out, kept)
        ctx.rest = passes, entries, factor
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (*operands, out, kept), (passes, entries, factor) = ctx.saved_tensors, ctx.rest
        if not is_differentiated() and is_plain(grad):
            read = out, kept, grad.contiguous(), factor
            return None, None, None, *passes.backward(entries, operands, *read)

        def run(*operands: Tensor) -> Tensor:
            return passes.by_primitives(entries.csr, operands, factor)

        wanted = ctx.needs_input_grad[3:]
        gradients = iter(gradients_of(run, wanted)(*operands, grad))
        return None, None, None, *[next(gradients) if one else None for one in wanted]
