"""Attention with additive scores of one number for each end (GAT), in one primitive."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from . import ends_listed, ends_sorted
from .dispatch import forced, recording
from .head_copies import HeadCopies
from .listed import Listed
from .primitive import is_differentiated, is_lean, is_plain, wants_gradients
from .sddmm import sddmm
from .softmax import segment_softmax
from .sparsity import Sparsity
from .spmm import spmm

Entries = Listed | HeadCopies


def can_attend_ends(*tensors: Tensor) -> bool:
    """Whether :func:`attend_ends` may run: tensors of one dtype on a CPU, plain autograd alone."""
    dtype = tensors[0].dtype
    return (
        dtype in (torch.float32, torch.float64)
        and all(tensor.is_cpu and tensor.dtype == dtype for tensor in tensors)
        and forced() is None
        and not recording()
        and is_lean()
        and is_plain(*tensors)
        and not torch.is_autocast_enabled("cpu")
    )


def attend_ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor, entries: Entries, slope: float
) -> Tensor:
    """Graph attention (Veličković et al., *Graph Attention Networks*, equations 1 to 4).

    With ``v[m, h] = x[m] value[h]``, the entry e of row n and column m has the share
    ``softmax_n(leaky_relu(<of_source[h], v[m, h]> + <of_target[h], v[n, h]>))``, and
    ``out[n, h] = sum_{e in row n} share[e, h] v[column of e, h]``. One dense product computes the
    values and the terms of the scores; one sparse product sums. Differentiable any number of times;
    second derivatives go through :func:`.sddmm`, :func:`.segment_softmax` and :func:`.spmm`.

    Args:
        x: (N, P).
        value: (H, P, V).
        of_source: (H, V).
        of_target: (H, V).
        entries: at least one, of a matrix N × N; with :class:`HeadCopies` no tensor of entries ×
            channels is held, with :class:`Listed` it is.
        slope: the slope of the leaky ReLU below zero.

    Returns:
        (N, H, V); zeros for rows without entries.
    """
    tensors = x, value, of_source, of_target
    if wants_gradients() and any(tensor.requires_grad for tensor in tensors):
        return _AttendEnds.apply(*tensors, entries, slope)  # type: ignore[no-any-return]
    return _forward(*tensors, entries, slope, False)[0]


class _AttendEnds(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        value: Tensor,
        of_source: Tensor,
        of_target: Tensor,
        entries: Entries,
        slope: float,
    ) -> Tensor:
        inputs = x, value, of_source, of_target
        out, *saved = _forward(*inputs, entries, slope, True)
        ctx.entries, ctx.slope = entries, slope
        ctx.save_for_backward(*inputs, *saved)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, value, of_source, of_target, packed, *saved = ctx.saved_tensors
        wanted, entries = ctx.needs_input_grad[:4], ctx.entries
        if is_differentiated() or not is_plain(grad):
            inputs = [x, value, of_source, of_target]
            return *_gradients_by_primitives(inputs, entries, ctx.slope, grad, wanted), None, None
        passes = _module_of(entries)
        of_product = passes.backward(entries, tuple(saved), grad, ctx.slope)
        of_x = torch.mm(of_product, packed.t()) if wanted[0] else None
        if not any(wanted[1:]):
            return of_x, None, None, None, None, None
        of_value, of_scores = passes.unpack(torch.mm(x.t(), of_product), value.size(0))
        vectors = torch.stack((of_source, of_target), dim=1)
        of_vectors = torch.bmm(of_scores.transpose(1, 2), value)
        return of_x, torch.baddbmm(of_value, of_scores, vectors), *of_vectors.unbind(1), None, None


def _forward(
    x: Tensor,
    value: Tensor,
    of_source: Tensor,
    of_target: Tensor,
    entries: Entries,
    slope: float,
    has_backward: bool,
) -> tuple[Tensor, ...]:
    """The result, and the tensors that the backward pass reads besides the inputs."""
    passes = _module_of(entries)
    packed = passes.pack(value, torch.bmm(value, torch.stack((of_source, of_target), dim=2)))
    out, *saved = passes.forward(entries, torch.mm(x, packed), value.size(0), slope, has_backward)
    return out, packed, *saved


def _module_of(entries: Entries) -> Any:
    """The module with the passes for this kind of entries."""
    return ends_listed if isinstance(entries, Listed) else ends_sorted


# Derivatives of derivatives --------------------------------------------------------------------


def _gradients_by_primitives(
    inputs: list[Tensor], entries: Entries, slope: float, grad: Tensor, wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients in the inputs, by primitives that are differentiable themselves."""
    differentiates = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, because an input may be computed from another one, or be the same tensor.
        inputs = [tensor.view_as(tensor) for tensor in inputs]
        asked = [tensor for tensor, is_wanted in zip(inputs, wanted, strict=True) if is_wanted]
        x, value, of_source, of_target = inputs
        out = _attend_by_primitives(x, value, of_source, of_target, entries, slope)
        found = iter(torch.autograd.grad(out, asked, grad, create_graph=differentiates))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def _attend_by_primitives(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor, entries: Entries, slope: float
) -> Tensor:
    """The result of :func:`attend_ends`, by other primitives."""
    values, at_source, at_target = _ends(x, value, of_source, of_target)
    if isinstance(entries, Listed):
        share = entries.shares(leaky_relu(entries.add(at_target, at_source), slope))
        return entries.sums(share, values)
    return spmm(entries.sparsity, _shares(entries.sparsity, at_source, at_target, slope), values)


def shares_of_ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor, sparsity: Sparsity, slope: float
) -> Tensor:
    """The share of each entry in :func:`attend_ends`, (E, H), by other primitives."""
    _, at_source, at_target = _ends(x, value, of_source, of_target)
    return _shares(sparsity, at_source, at_target, slope)


def _ends(
    x: Tensor, value: Tensor, of_source: Tensor, of_target: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The values (N, H, V), and the terms of scores (N, H) of sources and of targets."""
    values = (x @ value.transpose(0, 1).flatten(1)).unflatten(1, value.shape[::2])
    return values, (values * of_source).sum(-1), (values * of_target).sum(-1)


def _shares(sparsity: Sparsity, at_source: Tensor, at_target: Tensor, slope: float) -> Tensor:
    """The softmax of the scores of each target, (E, H)."""
    score = leaky_relu(sddmm(sparsity, at_target, at_source, op="add"), slope)
    return segment_softmax(sparsity, score)
