"""Attention with additive scores of one number for each end (GAT), in one primitive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.functional import leaky_relu

from .absent_pairs import gradients_of
from .attend_entries import sums_of_ends
from .attend_operator import sorted_operator
from .backend import Backend, defines
from .backends.small import listed_sums
from .csr import CSR
from .dispatch import RECORDERS, forced, pick
from .edge_sums import SAFE, Listed
from .head_copies import HeadCopies, InPasses, Passes
from .index_checks import PLAIN
from .mode import mode
from .primitive import is_differentiated, is_plain
from .sddmm import sddmm
from .softmax import softmax_of_rows

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


def in_one_step(*tensors: Tensor) -> bool:
    """Whether values, scores and sums of these tensors are left to the backend of attention.

    Not on a CPU, where the sums are torch's, unless a backend is asked for that fuses them.
    """
    first, asked = tensors[0], mode().backend
    if first.is_cpu and (asked is None or not defines(asked, Backend.attend)):
        return False
    if first.is_meta or torch.is_autocast_enabled(first.device.type):
        return False
    for tensor in tensors:
        if tensor.dtype != first.dtype or tensor.device != first.device:
            return False
    return True


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

    x is (N, P), ``value`` (H, P, V), both vectors are (H, V), and the result is (N, H, V), zeros
    for rows without entries. With :class:`HeadCopies` no tensor of entries × channels is held, with
    :class:`Listed` it is. A compiler passes a :class:`~.csr.CSR`.
    """
    tensors = x, value, of_source, of_target
    if isinstance(entries, CSR):
        edges = entries.ptr, entries.index, x.size(0)
        return attend_compiled(_of_sorted, *tensors, edges, slope)
    if isinstance(entries, HeadCopies):
        product = torch.mm(x, packed(value, of_source, of_target))
        product = product.view(-1, value.size(0), value.size(2) + 2)
        if product.requires_grad:
            return InPasses.apply(SUMS_OF_ENDS, entries, slope, product)  # type: ignore[no-any-return]
        return _forward_sorted(entries, [product], slope)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _AttendEnds.apply(*tensors, entries, slope)  # type: ignore[no-any-return]
    return _AttendEnds.forward(None, *tensors, entries, slope)


class _AttendEnds(torch.autograd.Function):
    """Over listed edges, with the dense product of the values."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Tensor,
        of_source: Tensor,
        of_target: Tensor,
        entries: Listed,
        slope: float,
    ) -> Tensor:
        """The result; ``ctx`` is None where there is no backward pass."""
        heads, _, width = value.shape
        matrix = value.transpose(0, 1).flatten(1)
        values = torch.mm(x, matrix).view(-1, heads, width)
        *saved, out = _forward_listed(entries, values, of_source, of_target, slope)
        if ctx is not None:
            ctx.entries, ctx.slope = entries, slope
            ctx.save_for_backward(x, value, of_source, of_target, matrix, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, value, of_source, of_target, matrix, *saved = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:4]
        if is_differentiated() or not is_plain(grad):
            run = partial(attend_by_primitives, entries=ctx.entries, slope=ctx.slope)
            gradients = iter(gradients_of(run, wanted)(x, value, of_source, of_target, grad))
            return *[next(gradients) if one else None for one in wanted], None, None
        read: Any = *saved, grad, ctx.slope
        of_product, *of_ends = _backward_listed(ctx.entries, *read)
        of_x = torch.mm(of_product, matrix.t()) if wanted[0] else None
        if not any(wanted[1:]):
            return of_x, None, None, None, None, None
        of_matrix = torch.mm(x.t(), of_product).view(x.size(1), value.size(0), -1).transpose(0, 1)
        return of_x, of_matrix, *of_ends, None, None


def packed(value: Tensor, of_source: Tensor, of_target: Tensor) -> Tensor:
    """Θ (H, P, V) and the parameters of scores (H, P, 2), head by head: (P, H (V + 2))."""
    of_scores = torch.bmm(value, torch.stack((of_source, of_target), dim=2))
    return torch.cat((value, of_scores), dim=2).transpose(0, 1).flatten(1)


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
# scores.


def _forward_sorted(
    entries: HeadCopies, operands: Sequence[Tensor], slope: float, kept: Tensor | None = None
) -> Tensor:
    """The result; ``kept`` gets scores and shares, (2, E·H)."""
    (product,) = operands
    at_source, at_target = product[..., -2:].permute(2, 0, 1).contiguous()
    score = entries.at(at_target, entries.row, None if kept is None else kept[0])
    entries.at(at_source, entries.col, score, Tensor.add_)
    into = score if kept is None else kept[1]
    share = entries.shares(torch.ops.aten.leaky_relu.out(score, slope, out=into))
    return entries.times(share, product[..., :-2])


def _backward_sorted(
    entries: HeadCopies,
    operands: Sequence[Tensor],
    out: Tensor,
    kept: Tensor,
    grad: Tensor,
    slope: float,
) -> tuple[Tensor]:
    """The gradient in the product, (N, H, V + 2)."""
    (product,), (score, share) = operands, kept
    of_score = entries.sampled(grad, product[..., :-2])
    entries.at((grad * out).sum(-1), entries.row, of_score, Tensor.sub_)
    of_score *= share
    torch.ops.aten.leaky_relu_backward.grad_input(
        of_score, score, slope, False, grad_input=of_score
    )
    of_product = torch.empty_like(product)
    of_product[..., :-2] = entries.times(share, grad, transposed=True)
    of_product[..., -2] = entries.sums_transposed(of_score)
    of_product[..., -1] = entries.sums(of_score)
    return (of_product,)


def _by_primitives(csr: CSR, operands: Sequence[Tensor], slope: float) -> Tensor:
    (product,) = operands
    return sums_of_ends(csr, product[..., -1], product[..., -2], product[..., :-2], slope)


SUMS_OF_ENDS = Passes(
    "sums_of_ends",
    ("product",),
    2,
    _forward_sorted,
    _backward_sorted,
    lambda product: (*product.shape[:2], product.size(2) - 2),
    _by_primitives,
)

_of_sorted = sorted_operator(SUMS_OF_ENDS)


def attend_compiled(
    sums: Callable[..., Tensor],
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    edges: tuple[Any, ...],
    slope: float,
) -> Tensor:
    """:func:`attend_ends` for a compiler, with ``sums``, which :func:`.as_operator` made."""
    product = torch.mm(x, packed(value, of_source, of_target))
    product = product.view(-1, value.size(0), value.size(2) + 2)
    return sums(product, slope, *edges)


# Derivatives of derivatives --------------------------------------------------------------------


def attend_by_primitives(
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    entries: Listed | CSR,
    slope: float,
) -> Tensor:
    """The result of :func:`attend_ends`, by other primitives, which serve any dtype and device."""
    values, at_source, at_target = _ends(x, value, of_source, of_target)
    if isinstance(entries, Listed):
        share = entries.shares(leaky_relu(entries.add(at_target, at_source), slope))
        return entries.sums(share, values)
    return sums_of_ends(entries, at_target, at_source, values, slope)


def shares_of_ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor, csr: CSR, slope: float
) -> Tensor:
    """The share of each entry in :func:`attend_ends`, (E, H), by other primitives."""
    _, at_source, at_target = _ends(x, value, of_source, of_target)
    score = leaky_relu(sddmm(csr, at_target, at_source, op="add"), slope)
    return softmax_of_rows(csr.ptr, score, pick("segment_softmax", csr, score))


def _ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The values (N, H, V), and the terms of scores (N, H) of sources and of targets."""
    values = (x @ value.transpose(0, 1).flatten(1)).unflatten(1, value.shape[::2])
    return values, (values * of_source).sum(-1), (values * of_target).sum(-1)
