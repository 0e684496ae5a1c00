"""Attention with additive scores of one number for each end (GAT), in one primitive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import leaky_relu

from .absent_pairs import gradients_of
from .backends.native_csr import row_sums, sampled, times, torch_csr
from .backends.small import listed_sums
from .csr import CSR, Columns
from .dispatch import RECORDERS, forced
from .edge_lists import by_rows, remembered, spread
from .edge_sums import SAFE, Listed, is_safe
from .ends import shares_of_terms, sums_of_ends
from .index_checks import PLAIN
from .lasting import lasting
from .mode import mode
from .primitive import is_differentiated, is_plain

MOST_SENT = 2**18
"""Up to so many edges times channels, messages are held; they fit into a cache.

Edges are then gathered as they were given. On a new graph of 2.9k edges, 64 channels, that takes
1.7 ms in training where sorting takes 2.2, and on one of 6.3k edges 4.1 against 3.2.
"""


def can_attend_ends(*tensors: Tensor) -> bool:
    """Whether :func:`attend_ends` may run: tensors of one dtype on a CPU, plain autograd alone."""
    dtype, here = tensors[0].dtype, mode()
    if dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return False
    if here.backend is not None or RECORDERS:
        return False
    for tensor in tensors:
        plain = here.compiles or type(tensor) in PLAIN
        if not (tensor.is_cpu and tensor.dtype == dtype and plain):
            return False
    if here.compiles:  # a call that is differentiated forwards goes through primitives
        return forward_ad._current_level < 0 and forced() is None
    return here.is_plain


def attend_ends(
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    entries: Listed | HeadCopies | CSR,
    slope: float,
) -> Tensor:
    """Graph attention (Veličković et al., *Graph Attention Networks*, equations 1 to 4).

    With ``v[m, h] = x[m] value[h]``, the entry e of row n and column m has the share
    ``softmax_n(leaky_relu(<of_source[h], v[m, h]> + <of_target[h], v[n, h]>))``, and
    ``out[n, h] = sum_{e in row n} share[e, h] v[column of e, h]``. One dense product computes the
    values and the terms of the scores; one sparse product sums. Differentiable any number of times;
    second derivatives go through :func:`attend_by_primitives`.

    Args:
        x: (N, P).
        value: (H, P, V).
        of_source: (H, V).
        of_target: (H, V).
        entries: of a matrix N × N; with :class:`HeadCopies` no tensor of entries × channels is
            held, with :class:`Listed` it is. A compiler passes a :class:`~.csr.CSR`.
        slope: the slope of the leaky ReLU below zero.

    Returns:
        (N, H, V); zeros for rows without entries.
    """
    tensors = x, value, of_source, of_target
    if isinstance(entries, CSR):
        return attend_compiled(_of_sorted, *tensors, (entries.ptr, entries.index), slope)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _AttendEnds.apply(*tensors, entries, slope)  # type: ignore[no-any-return]
    return _AttendEnds.forward(None, *tensors, entries, slope)


class _AttendEnds(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Tensor,
        of_source: Tensor,
        of_target: Tensor,
        entries: Listed | HeadCopies,
        slope: float,
    ) -> Tensor:
        """The result; ``ctx`` is None where there is no backward pass."""
        heads, _, width = value.shape
        if isinstance(entries, Listed):
            matrix = value.transpose(0, 1).flatten(1)
            values = torch.mm(x, matrix).view(-1, heads, width)
            *saved, out = _forward_listed(entries, values, of_source, of_target, slope)
        else:
            matrix = packed(value, of_source, of_target)
            product = torch.mm(x, matrix).view(-1, heads, width + 2)
            out, *saved = forward_sorted(entries, product, slope, ctx is not None)
        if ctx is not None:
            ctx.entries, ctx.slope = entries, slope
            ctx.save_for_backward(x, value, of_source, of_target, matrix, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, value, of_source, of_target, matrix, *saved = ctx.saved_tensors
        wanted, entries = ctx.needs_input_grad[:4], ctx.entries
        if is_differentiated() or not is_plain(grad):
            run = partial(attend_by_primitives, entries=entries, slope=ctx.slope)
            found = iter(gradients_of(run, wanted)(x, value, of_source, of_target, grad))
            return *[next(found) if one else None for one in wanted], None, None
        read: Any = *saved, grad, ctx.slope
        if isinstance(entries, Listed):
            of_product, *of_ends = _backward_listed(entries, *read)
        else:
            of_product = backward_sorted(entries, *read)
        of_x = torch.mm(of_product, matrix.t()) if wanted[0] else None
        if not any(wanted[1:]):
            return of_x, None, None, None, None, None
        of_matrix = torch.mm(x.t(), of_product).view(x.size(1), value.size(0), -1).transpose(0, 1)
        if isinstance(entries, Listed):
            return of_x, of_matrix, *of_ends, None, None
        return of_x, *_unpacked(of_matrix, value, of_source, of_target), None, None


def packed(value: Tensor, of_source: Tensor, of_target: Tensor) -> Tensor:
    """Θ (H, P, V) and the parameters of scores (H, P, 2), head by head: (P, H (V + 2))."""
    of_scores = torch.bmm(value, torch.stack((of_source, of_target), dim=2))
    return torch.cat((value, of_scores), dim=2).transpose(0, 1).flatten(1)


def _unpacked(
    of_packed: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor
) -> tuple[Tensor, ...]:
    """The gradients in what :func:`packed` takes, given that in its result, (H, P, V + 2)."""
    of_value, of_scores = of_packed[..., :-2], of_packed[..., -2:]
    vectors = torch.stack((of_source, of_target), dim=1)
    of_vectors = torch.bmm(of_scores.transpose(1, 2), value)
    return torch.baddbmm(of_value, of_scores, vectors), *of_vectors.unbind(1)


# The passes over edges in any order, or sorted ------------------------------------------------
#
# Few edges are gathered with the values (N, H, V) by numpy and scipy, whose calls take a third of
# the time of torch's on so few numbers.


def _forward_listed(
    entries: Listed, values: Tensor, of_source: Tensor, of_target: Tensor, slope: float
) -> tuple[Tensor, ...]:
    """The result, and what the backward pass reads."""
    row, col, count = entries.row.numpy(), entries.col.numpy(), entries.shape[0]
    of_nodes = values.numpy()
    # A copy, for what numpy has a view of cannot be resized, as FSDP resizes parameters.
    vectors = torch.stack((of_source, of_target)).detach()
    with np.errstate(invalid="ignore"):  # infinite scores give NaN, as everywhere
        at_source, at_target = [np.add.reduce(of_nodes * one, -1) for one in vectors.numpy()]
        sent = of_nodes.take(col, 0)
        score = at_source.take(col, 0) + at_target.take(row, 0)
        share = np.where(score > 0, score, score * slope)
        if share.size and not (share.min() >= -SAFE and share.max() <= SAFE):
            highest = np.full((count, share.shape[1]), -np.inf, share.dtype)
            np.maximum.at(highest, row, share)
            highest[highest == -np.inf] = 0.0
            share -= highest.take(row, 0)
        np.exp(share, out=share)
        share /= listed_sums(share, row, count).take(row, 0)
        out = listed_sums(sent * share[..., None], row, count)
    of_edges = [torch.from_numpy(one) for one in (sent, score, share)]
    return vectors, values, *of_edges, torch.from_numpy(out)


def _backward_listed(
    entries: Listed,
    vectors: Tensor,
    values: Tensor,
    sent: Tensor,
    score: Tensor,
    share: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor, ...]:
    """The gradients in the values, (N, H V), and in the vectors of the scores, (H, V) each."""
    row, col, count = entries.row.numpy(), entries.col.numpy(), entries.shape[0]
    of_nodes, shares = values.numpy(), share.numpy()
    with np.errstate(invalid="ignore", over="ignore"):
        above = grad.numpy(force=True).take(row, 0)
        of_score = np.add.reduce(sent.numpy() * above, -1)
        of_score *= shares
        of_score -= shares * listed_sums(of_score, row, count).take(row, 0)
        of_score = np.where(score.numpy() > 0, of_score, of_score * slope)
        above *= shares[..., None]
        of_values = listed_sums(above, col, count)
        of_ends = []
        for end, vector in zip((col, row), vectors.numpy(), strict=True):
            at_end = listed_sums(of_score, end, count)[..., None]
            of_values += at_end * vector
            of_ends.append(torch.from_numpy(np.add.reduce(at_end * of_nodes, 0)))
    return torch.from_numpy(of_values).flatten(1), *of_ends


# Sorted edges: ``product`` (N, H, V + 2) holds values, and the terms of sources and of targets in
# scores. The forward pass returns the result and what the backward pass reads; that returns the
# gradient in the product, (N, H (V + 2)).


def forward_sorted(
    entries: HeadCopies,
    product: Tensor,
    slope: float,
    has_backward: bool,
    into: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """The result, and the values, scores, weights and their sums, heads first.

    ``into``: memory for scores and weights (H, E).
    """
    values = product[..., :-2].transpose(0, 1).contiguous()
    at_source, at_target = product[..., -2:].permute(2, 1, 0).contiguous()
    of_scores, of_weights = into or (None, None)
    score = torch.index_select(at_target, 1, entries.row, out=of_scores)
    score += at_source.index_select(1, entries.col)
    if of_weights is None:
        weight = leaky_relu(score, slope, inplace=not has_backward)
    else:
        weight = torch.ops.aten.leaky_relu.out(score, slope, out=of_weights)
    weight = entries.raised(weight)
    total = entries.sums(weight).clamp_(min=torch.finfo(weight.dtype).tiny)
    sums = entries.times(weight, values).transpose(0, 1)
    out = sums.new_empty(sums.shape)
    torch.div(sums, total.t().unsqueeze(-1), out=out)
    return out, values, score, weight, total


def backward_sorted(
    entries: HeadCopies,
    values: Tensor,
    score: Tensor,
    weight: Tensor,
    total: Tensor,
    grad: Tensor,
    slope: float,
) -> Tensor:
    """The gradient in the product, (N, H (V + 2)), of what the forward pass returns."""
    heads, nodes, width = values.shape
    of_sums = torch.div(grad.transpose(0, 1), total.unsqueeze(-1), out=torch.empty_like(values))
    of_score = entries.sampled(of_sums, values).mul_(weight)
    mean = entries.sums(of_score).div_(total)
    of_score.addcmul_(weight, mean.index_select(1, entries.row), value=-1.0)
    of_score = torch.ops.aten.leaky_relu_backward(of_score, score, slope, False)
    found = grad.new_empty(nodes, heads, width + 2)
    found[..., :-2] = entries.times(weight, of_sums, transposed=True).transpose(0, 1)
    found[..., -2] = entries.sums_transposed(of_score).t()
    found[..., -1] = entries.sums(of_score).t()
    return found.flatten(1)


# A compiler sees the passes over sorted edges as one node each, and the dense product by itself ---


def attend_compiled(
    sums: Callable[..., Any],
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    edges: tuple[Any, ...],
    slope: float,
) -> Tensor:
    """:func:`attend_ends` for a compiler, with ``sums`` that :func:`sums_as_operator` made."""
    product = torch.mm(x, packed(value, of_source, of_target))
    product = product.view(-1, value.size(0), value.size(2) + 2)
    return sums(product, slope, *edges)[0]  # type: ignore[no-any-return]


def sums_as_operator(
    name: str,
    schema: str,
    room: Callable[..., int],
    entries_of: Callable[..., tuple[HeadCopies, int]],
) -> Callable[..., Any]:
    """The passes over sorted edges as an operator, and their gradient as another.

    Args:
        name: that of the operator.
        schema: the arguments that tell the edges.
        room: the number of edges for which scores and weights are saved, at least as many as there
            are, from these arguments; a compiler must know it.
        entries_of: the edges, from H, a number or None, and these arguments; and a number by which
            the backward pass, which gets other tensors, finds them again.

    Returns:
        The operator, of the product (N, H, V + 2), the slope and the edges: the sums, and what the
        backward pass reads. It is differentiable once; forward mode goes through primitives.
    """

    def shapes(product: Tensor, edges: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
        nodes, heads, width = product.size(0), product.size(1), product.size(2) - 2
        return (
            (nodes, heads, width),
            (heads, nodes, width),
            (2, heads * room(*edges)),
            (heads, nodes),
        )

    def forward(product: Tensor, slope: float, *edges: Any) -> tuple[Tensor, ...]:
        heads = product.size(1)
        entries, number = entries_of(heads, None, *edges)
        saved = product.new_empty(shapes(product, edges)[2])
        scores, weights = saved[:, : heads * entries.num_entries].view(2, heads, -1)
        into = scores, weights
        out, values, *_, total = forward_sorted(entries, product, slope, True, into)
        return out, values, saved, total, torch.tensor(number)

    def backward(
        values: Tensor,
        saved: Tensor,
        total: Tensor,
        number: Tensor,
        grad: Tensor,
        slope: float,
        *edges: Any,
    ) -> Tensor:
        heads, nodes, width = values.shape
        entries, _ = entries_of(heads, int(number), *edges)
        score, weight = saved[:, : heads * entries.num_entries].view(2, heads, -1)
        found = backward_sorted(entries, values, score, weight, total, grad, slope)
        return found.view(nodes, heads, width + 2)

    def like_forward(product: Tensor, slope: float, *edges: Any) -> tuple[Tensor, ...]:
        number = product.new_empty((), dtype=torch.int64)
        return *[product.new_empty(shape) for shape in shapes(product, edges)], number

    def like_backward(values: Tensor, *_: Any) -> Tensor:
        heads, nodes, width = values.shape
        return values.new_empty(nodes, heads, width + 2)

    def setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, ctx.slope, *ctx.edges = inputs
        ctx.save_for_backward(*output[1:])

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        found = gradient(*ctx.saved_tensors, grad, ctx.slope, *ctx.edges)
        return found, None, *(None,) * len(ctx.edges)

    results, operator = ", ".join(["Tensor"] * 5), torch.library.custom_op
    given = f"(Tensor product, float slope, {schema}) -> ({results})"
    sums = operator(f"pyg_outerconv::{name}", forward, mutates_args=(), schema=given)
    sums.register_fake(like_forward)
    sums.register_autograd(differentiate, setup_context=setup)
    saved = "Tensor values, Tensor saved, Tensor total, Tensor number, Tensor grad"
    given = f"({saved}, float slope, {schema}) -> Tensor"
    gradient = operator(f"pyg_outerconv::{name}_gradient", backward, mutates_args=(), schema=given)
    gradient.register_fake(like_backward)
    return getattr(torch.ops.pyg_outerconv, name).default


def _copies(rowptr: Tensor, col: Tensor, heads: int) -> HeadCopies:
    """The entries (E,) of an N × N matrix, sorted by row, for all heads."""
    nodes = torch.arange(rowptr.numel() - 1, dtype=col.dtype)
    csr = CSR.of(rowptr, col, nodes.numel())
    return HeadCopies(csr, spread(nodes, rowptr, col.numel()), heads)


def _sorted_entries(
    heads: int, number: int | None, rowptr: Tensor, col: Tensor
) -> tuple[HeadCopies, int]:
    return remembered(_copies, rowptr, col, heads), 0


_of_sorted = sums_as_operator(
    "sums_of_ends", "Tensor ptr, Tensor index", lambda ptr, index: index.size(0), _sorted_entries
)


# Derivatives of derivatives --------------------------------------------------------------------


def attend_by_primitives(
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    entries: Listed | HeadCopies | CSR,
    slope: float,
) -> Tensor:
    """The result of :func:`attend_ends`, by other primitives, which serve any dtype and device."""
    values, at_source, at_target = _ends(x, value, of_source, of_target)
    if isinstance(entries, Listed):
        share = entries.shares(leaky_relu(entries.add(at_target, at_source), slope))
        return entries.sums(share, values)
    csr = entries.csr if isinstance(entries, HeadCopies) else entries
    return sums_of_ends(csr, at_target, at_source, values, slope)


def shares_of_ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor, csr: CSR, slope: float
) -> Tensor:
    """The share of each entry in :func:`attend_ends`, (E, H), by other primitives."""
    _, at_source, at_target = _ends(x, value, of_source, of_target)
    return shares_of_terms(csr, at_target, at_source, slope)


def _ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The values (N, H, V), and the terms of scores (N, H) of sources and of targets."""
    values = (x @ value.transpose(0, 1).flatten(1)).unflatten(1, value.shape[::2])
    return values, (values * of_source).sum(-1), (values * of_target).sum(-1)


# One product for all heads ------------------------------------------------------------------------


MOST_COPIED = 2**19
"""Up to so many entries times heads, one product serves all heads; beyond, each head has one."""

_View = tuple[Tensor, Tensor, int]


class HeadCopies:
    """The matrices S_h (R × C) of H heads with entries at the same places.

    Values (H, E), in row order, and operands (H, rows, V) have the heads first, so that those of a
    head are contiguous and need no copy. Small matrices become the diagonal blocks of one matrix.

    Args:
        csr: the places of the E entries.
        row: (E,) the row of each entry, in row order.
        heads: H.

    Attributes:
        col: (E,) the column of each entry, in row order.
        shape: (R, C).
        num_entries: E.
    """

    def __init__(self, csr: CSR, row: Tensor, heads: int) -> None:
        self.csr, self.row, self.col, self.heads = csr, row, csr.index, heads
        self.shape, self.num_entries = csr.shape, row.numel()
        self._is_one = self.num_entries * heads <= MOST_COPIED
        self._copies: dict[bool, _View] = {}

    def times(self, value: Tensor, x: Tensor, transposed: bool = False) -> Tensor:
        """S_h x_h, (H, R, V), or S_hᵀ x_h, for values (H, E), in row order, and x (H, C, V)."""
        if transposed:
            _, _, order = self._sorted_by_column()
            value = value.index_select(1, order)
        ptr, index, cols = self._view(transposed)
        if self._is_one:
            matrix = torch_csr(ptr, index, value.view(-1), self.heads * cols)
            width = x.size(2)
            return times(matrix, x.view(-1, width)).view(self.heads, -1, width)
        out = x.new_empty((self.heads, ptr.numel() - 1, x.size(2)))
        for head in range(self.heads):
            out[head] = times(torch_csr(ptr, index, value[head], cols), x[head])
        return out

    def sampled(self, a: Tensor, b: Tensor) -> Tensor:
        """⟨a_h[row of e], b_h[column of e]⟩, (H, E), for a (H, R, V) and b (H, C, V)."""
        ptr, index, _ = self._view(transposed=False)
        if self._is_one:
            width = a.size(2)
            found = sampled(ptr, index, a.view(-1, width), b.view(-1, width))
            return found.view(self.heads, -1)
        out = a.new_empty((self.heads, self.num_entries))
        for head in range(self.heads):
            out[head] = sampled(ptr, index, a[head], b[head])
        return out

    def sums(self, value: Tensor) -> Tensor:
        """Sum the values (H, E) of each row: (H, R)."""
        ptr, index, cols = self._view(transposed=False)
        rows = self.shape[0]
        out = value.new_empty((self.heads, rows))
        count = 1 if self._is_one else self.heads
        ones = value.new_ones(self.heads // count * cols)
        for values, total in zip(value.view(count, -1), out.view(count, -1), strict=True):
            matrix = torch_csr(ptr, index, values, ones.numel())
            torch.addmv(total, matrix, ones, beta=0.0, out=total)
        return out

    def sums_transposed(self, value: Tensor) -> Tensor:
        """Sum the values (H, E), in row order, of each column: (H, C)."""
        # index_add_ takes ten times as long with indices of 32 bits.
        out = value.new_zeros((self.heads, self.shape[1]))
        return out.index_add_(1, self.col.long(), value)

    def raised(self, score: Tensor) -> Tensor:
        """exp of scores (H, E), in place; large scores are reduced by the largest of their row."""
        if score.numel() and not is_safe(score):
            highest = row_sums(self.csr.ptr, score.t().contiguous(), "max").t()
            highest = highest.masked_fill(highest == -torch.inf, 0.0)
            score -= highest.index_select(1, self.row)
        return score.exp_()

    def _view(self, transposed: bool) -> _View:
        """Pointers, indices and number of columns of a head's matrix, or of that of all heads."""
        view = self._copies.get(transposed)
        if view is not None:
            return view
        ptr, index, cols = self.csr.ptr, self.csr.index, self.shape[1]
        if transposed:
            ptr, index, _ = self._sorted_by_column()
            cols = self.shape[0]
        if self._is_one:  # the block-diagonal matrix of a copy for each head
            with lasting(self.row):
                starts, columns = ptr.numpy(), index.numpy()
                head = np.arange(self.heads, dtype=starts.dtype)[:, None]
                pointers = np.empty(self.heads * (starts.size - 1) + 1, starts.dtype)
                of_head = pointers[:-1].reshape(self.heads, -1)
                np.add(starts[:-1], head * starts.dtype.type(columns.size), out=of_head)
                pointers[-1] = self.heads * columns.size
                indices = np.add(columns, head * columns.dtype.type(cols)).reshape(-1)
                ptr, index = torch.from_numpy(pointers), torch.from_numpy(indices)
        self._copies[transposed] = ptr, index, cols
        return ptr, index, cols

    def _sorted_by_column(self) -> Columns:
        """The entries by column, which the rows that are at hand make faster to sort."""
        if "columns" not in vars(self.csr):
            with lasting(self.row):
                vars(self.csr)["columns"] = by_rows(self.col, self.row, self.shape[1])
        return self.csr.columns
