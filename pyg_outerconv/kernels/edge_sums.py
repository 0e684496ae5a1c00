"""Sums over edges in any order, for graphs so small that sorting would cost more."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.autograd import Function

from .backend import BACKENDS, Request
from .backends.reference import Reference
from .backends.small import Small, coo_product, listed_dots, listed_product
from .dispatch import RECORDERS, log_call
from .index_checks import PLAIN
from .mode import Mode, mode
from .primitive import is_plain

MOST = 2**22
"""The largest number of edges times channels, if torch has one thread.

With t threads, which the product of sorted edges would use, the limit is divided by t.
"""

MOST_MESSAGES = 160 * 2**10
"""The largest number of edges times channels, if the messages of all edges are held.

They fit into a cache. Attention in training then takes half the time that it takes on sorted edges
at 80k numbers, and as long at twice as many as here.
"""

TINY = 2**14
"""Up to so many edges times channels a graph is tiny: sums with gradients are torch's own."""


def most(x: Tensor, here: Mode, holds_messages: bool = False) -> int:
    """The largest number of edges times channels for :func:`edge_sums`; -1 where it may not run.

    It runs on a CPU and by plain autograd: a trace, for one, would store the edges of this graph.

    Args:
        x: the features that are propagated, or others of their class, dtype and device.
        here: what surrounds the call.
        holds_messages: whether the messages of all edges are held.
    """
    # One that is asked for and missing is refused where sorted edges are multiplied.
    there = here.backend is None or (here.backend == Small.name and coo_product() is not None)
    if not (here.is_plain and there and x.is_cpu and x.dtype in Small.dtypes and type(x) in PLAIN):
        return -1
    if holds_messages or coo_product() is None:
        return min(MOST_MESSAGES, MOST)
    return MOST // here.threads


def is_small(num_edges: int, x: Tensor, holds_messages: bool = False) -> bool:
    """Whether :func:`edge_sums` may run for so many edges and features x (rows, *)."""
    return num_edges * (x.numel() // max(1, x.size(0))) <= most(x, mode(), holds_messages)


def are_few(num_edges: int, x: Tensor) -> bool:
    """Whether messages of x (nodes, *) along so many edges may be held, and no call is recorded."""
    here = mode()
    if not here.is_plain or RECORDERS:  # asked first, for a compiler would guard on the sizes
        return False
    numbers = num_edges * (x.numel() // max(1, x.size(0)))
    return numbers <= MOST_MESSAGES and numbers <= most(x, here, holds_messages=True)


def edge_sums(
    ends: Tensor, value: Tensor | None, x: Tensor, num_rows: int, transposed: bool = False
) -> Tensor:
    """``out[n] = sum_{e: target[e] = n} value[e] x[source[e]]``, for edges in any order.

    No messages are held: scipy's product of a matrix in coordinate format adds the rows of edges
    up, in one thread, as fast as MKL's product of sorted rows in one thread while x is in a cache:
    in 105 µs for 9.2k edges of 64 channels, where MKL's takes 115 to 145 once rows are sorted, and
    a gather and a scatter by torch 430. Where gradients are taken of a tiny graph, torch multiplies
    its own matrix in coordinate format, at half the speed, but without a function of autograd in
    Python. Torch gathers and scatters where scipy's function, which is not public, is missing, and
    on a tiny graph of whose values gradients are taken.

    Args:
        ends: (2, E) integers, sources and targets.
        value: (E,) of the dtype of ``x``, or None for ones.
        x: (rows, channels), few enough (see :func:`most`).
        num_rows: N.
        transposed: whether sources and targets are exchanged.

    Returns:
        (N, channels), zero for targets without edges; differentiable any number of times.
    """
    of_values = value is not None and value.requires_grad
    needs_grad = (x.requires_grad or of_values) and torch.is_grad_enabled()
    is_tiny = needs_grad and ends.size(1) * x.size(1) <= TINY
    gathers = (is_tiny and of_values) or coo_product() is None
    if RECORDERS:
        shape = (num_rows, x.size(0))
        size = ends.size(1), x.size(1)
        ran = Reference.name if gathers or is_tiny else Small.name  # its tools are torch's, too
        log_call(BACKENDS[ran], Request("spmm", "cpu", x.dtype, ends.dtype, shape, *size))
    if is_tiny and not of_values:
        return _torch_product(ends, value, x, num_rows, transposed)
    if gathers:
        source, target = ends.unbind(0)
        source, target = (target, source) if transposed else (source, target)
        return add_up(source, target, value, x, num_rows)
    if needs_grad:
        return _EdgeSums.apply(x, value, ends, num_rows, transposed)  # type: ignore[no-any-return]
    return listed_product(ends, value, x, num_rows, transposed)


def add_up(
    source: Tensor, target: Tensor, value: Tensor | None, x: Tensor, num_rows: int
) -> Tensor:
    """:func:`edge_sums` for x (rows, *, P) and values (E, *), by torch's gathers and scatters."""
    sent = x.index_select(0, source)
    if value is not None:
        sent = sent * value.unsqueeze(-1)
    return sent.new_zeros((num_rows, *sent.shape[1:])).index_add_(0, target, sent)


def _torch_product(
    ends: Tensor, value: Tensor | None, x: Tensor, num_rows: int, transposed: bool
) -> Tensor:
    """:func:`edge_sums` by torch's product of a matrix in coordinate format.

    The format calls distinct positions in order coalesced. Its product asks for neither, but sorts
    what is not called so in the backward pass.
    """
    value = x.new_ones(ends.size(1)) if value is None else value
    place, shape = ends if transposed else ends.flip(0), (num_rows, x.size(0))
    matrix = torch.sparse_coo_tensor(place, value, shape, check_invariants=False, is_coalesced=True)
    return torch.mm(matrix, x)


class _EdgeSums(Function):
    """:func:`edge_sums`; the gradient in x exchanges sources and targets."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, value: Tensor | None, ends: Tensor, num_rows: int, transposed: bool
    ) -> Tensor:
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, value, ends)
        ctx.num_sources, ctx.transposed = x.size(0), transposed
        return listed_product(ends, value, x, num_rows, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, value, ends = ctx.saved_tensors
        ends = ends.flip(0) if ctx.transposed else ends
        of_x = of_value = None
        if ctx.needs_input_grad[0]:
            if is_small(ends.size(1), grad) and not is_legacy_batchedtensor(grad):
                of_x = edge_sums(ends, value, grad, ctx.num_sources, transposed=True)
            else:
                of_x = add_up(ends[1], ends[0], value, grad, ctx.num_sources)
        if ctx.needs_input_grad[1]:
            of_value = listed_dots(x, grad, ends[0], ends[1])
        return of_x, of_value, None, None, None


SAFE = 20.0
"""exp of scores up to this absolute value neither overflows nor vanishes in float32; nor do its
products of three, which second derivatives are made of."""


def is_safe(score: Tensor) -> bool:
    """Whether no score, of at least one, exceeds ``SAFE`` in absolute value."""
    least, most = score.aminmax()
    return float(least) >= -SAFE and float(most) <= SAFE


class Listed(NamedTuple):
    """The E entries of an R × C matrix in any order; values are in the same order.

    ``segment_softmax`` accepts it in place of a :class:`~.csr.CSR`. The methods use
    torch's gathers and scatters, are differentiable any number of times, and hold tensors of
    entries × channels; :func:`~.edge_sums.is_small` tells whether these are small.

    Attributes:
        row: (E,) int64, the row of each entry.
        col: (E,) int64, the column of each entry.
        shape: (R, C).
    """

    row: Tensor
    col: Tensor
    shape: tuple[int, int]

    @property
    def num_entries(self) -> int:
        """The number E of entries."""
        return self.row.numel()

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """``a[row of e] + b[column of e]``, (E, *), for a (R, *) and b (C, *)."""
        return a.index_select(0, self.row) + b.index_select(0, self.col)

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        """``⟨a[row of e], b[column of e]⟩``, (E, *), for a (R, *, D) and b (C, *, D)."""
        return (a.index_select(0, self.row) * b.index_select(0, self.col)).sum(-1)

    def shares(self, score: Tensor) -> Tensor:
        """The softmax of scores (E, *) over the entries of each row; zeros where all are -inf."""
        rows = (self.shape[0], *score.shape[1:])
        safe = bool(score.numel()) and is_plain(score) and is_safe(score.detach())
        if not safe:
            most = self.highest(score.detach())
            score = score - most.masked_fill(most == -torch.inf, 0.0).index_select(0, self.row)
        raised = score.exp()
        total = raised.new_zeros(rows).index_add_(0, self.row, raised)
        if not safe:
            total = total.masked_fill(total == 0, 1.0)
        return raised / total.index_select(0, self.row)

    def highest(self, score: Tensor) -> Tensor:
        """The largest of the scores (E, *) of each row, (R, *); -inf in rows without entries."""
        row = self.row.view(-1, *(1,) * (score.dim() - 1)).expand_as(score)
        most = score.new_full((self.shape[0], *score.shape[1:]), -torch.inf)
        return most.scatter_reduce_(0, row, score, "amax")

    def sums(self, value: Tensor, x: Tensor) -> Tensor:
        """Sum ``value[e] x[column of e]`` over each row: (R, *, P), for (E, *) and (C, *, P)."""
        return add_up(self.col, self.row, value, x, self.shape[0])
