"""torch's ``scaled_dot_product_attention`` with derivatives of any order."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad

from .primitive import Primitive, folded, is_differentiated
from .tiles import exact

_FLASH = 1  # torch's number for its fused kernel


def lowered(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """torch's attention, (..., H, N, V), for (..., H, N, D), (..., H, M, D) and (..., H, M, V).

    ``mask`` is added to the scores; targets whose row of it is -inf get zeros.
    """
    channels = value.size(-1)
    width = max(query.size(-1), channels)
    # Fused kernels require equally many channels.
    query, key, value = (
        x if x.size(-1) == width else F.pad(x, (0, width - x.size(-1))) for x in (query, key, value)
    )
    empty = None
    if mask is not None:
        empty = (mask == -torch.inf).all(-1, keepdim=True)
        mask = mask.masked_fill(empty, 0.0)
    out = torch_attention(query, key, value, mask, causal, scale, dropout_p)
    out = out if empty is None else out.masked_fill(empty, 0.0)
    return out[..., :channels]


def torch_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """``F.scaled_dot_product_attention`` of (B, H, N, D), (B, H, M, D) and (B, H, M, V).

    torch's fused kernels have neither second derivatives nor forward mode. So gradients that are
    differentiated themselves, and tangents, are computed here with all N × M shares. On a CPU the
    fused backward kernel can be called by name; on other devices the backward pass runs the forward
    kernel once more. There, these derivatives raise if shares are dropped.
    """
    if scale <= 0.0:
        # torch scales masked scores: -inf times a scale ≤ 0 is inf or NaN.
        query, scale = query * scale, 1.0
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    unfused = dropout_p > 0 or (mask is not None and mask.requires_grad)
    if not (unfused or torch.compiler.is_compiling()) and (
        forward_ad._current_level >= 0
        or any(map(is_functorch_wrapped_tensor, operands))
        or (torch.is_grad_enabled() and any(x.requires_grad for x in operands))
    ):
        return _TorchAttention.apply(query, key, value, mask, causal, scale)[0]  # type: ignore[no-any-return]
    return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, causal, scale=scale)


class _TorchAttention(Primitive):
    """torch's attention; backward is fused too, unless it is differentiated itself."""

    operands = 4

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> tuple[Tensor, Tensor]:
        arguments = (query, key, value, mask, 0.0, causal)
        by_name = query.device.type == "cpu"
        if not by_name or torch._fused_sdp_choice(*arguments, scale=scale) != _FLASH:
            out = F.scaled_dot_product_attention(*arguments, scale=scale)
            return out, out.new_empty(0)
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # type: ignore[no-any-return]
            query, key, value, 0.0, causal, attn_mask=mask, scale=scale
        )

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, out, logsumexp = ctx.saved_tensors
        causal, scale = ctx.rest
        found: tuple[Tensor, ...]
        if is_differentiated():
            found = _gradients(query, key, value, mask, causal, scale, grad)
        elif not logsumexp.numel():
            found = _recomputed_gradients(query, key, value, mask, causal, scale, grad)
        else:
            found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, query, key, value, out, logsumexp, 0.0, causal, attn_mask=mask, scale=scale
            )
        return *found, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        (*operands, mask), (causal, scale) = primals, ctx.rest
        query, key, value = (exact(x) for x in operands)
        of_query, of_key, of_value = (exact(x) for x in tangents[:3])
        share = _shares(query * scale, key, mask, causal)
        of_score = (of_query @ key.mT + query @ of_key.mT) * scale
        of_score = of_score if mask is None else of_score + tangents[3]
        out = _softmax_derivative(share, of_score) @ value + share @ of_value
        return out.to(primals[2].dtype), None

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        operands = folded(info, in_dims, arguments[:4], 0)
        out, logsumexp = cls.apply(*operands, *arguments[4:])
        return (out.unflatten(0, (-1, info.batch_size)), logsumexp), (1, None)


def _recomputed_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    grad: Tensor,
) -> tuple[Tensor, ...]:
    """The gradients by torch's backward kernel, after another call of its forward kernel."""
    with torch.enable_grad():
        query, key, value = (x.detach().requires_grad_() for x in (query, key, value))
        out = F.scaled_dot_product_attention(query, key, value, mask, 0.0, causal, scale=scale)
        return torch.autograd.grad(out, (query, key, value), grad)


def _gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    scale: float,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients by products that are differentiable themselves; holds (B, H, N, M)."""
    dtype = query.dtype
    query, key, value, grad = (exact(x) for x in (query, key, value, grad))
    query = query * scale
    share = _shares(query, key, mask, causal)
    of_score = _softmax_derivative(share, grad @ value.mT)
    found = of_score @ key * scale, of_score.mT @ query, share.mT @ grad
    return found[0].to(dtype), found[1].to(dtype), found[2].to(dtype)


def _shares(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """The softmax of scores, (B, H, N, M), for queries that are already scaled."""
    score = query @ key.mT
    if mask is not None:
        score = score + mask
    if causal:
        ahead = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).triu(1)
        score = score.masked_fill(ahead, -torch.inf)
    return score.softmax(-1)


def _softmax_derivative(share: Tensor, along: Tensor) -> Tensor:
    """Multiply ``along`` (B, H, N, M) with the Jacobian matrix of softmax, which is symmetric."""
    weighted = share * along
    return weighted - share * weighted.sum(-1, keepdim=True)
