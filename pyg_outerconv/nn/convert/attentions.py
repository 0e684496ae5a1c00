"""torch's MultiheadAttention and AttentionConv."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ...attention import KeyQuery
from ...errors import RefusedValue, refusal
from ...families import Family
from ..attention.multi_head import multi_head_attention
from ..attention_conv import AttentionConv
from .weights import copy_to_heads, copy_weight

ATTENTIONS = (nn.MultiheadAttention,)


def from_attention(module: Any, support: Family | str = "complete") -> AttentionConv:
    """The AttentionConv equal to torch's layer with the support as its mask.

    Raises:
        ValueError: it has ``bias_k``, ``bias_v`` or ``add_zero_attn``, or ``vdim`` ≠ ``kdim``.
    """
    for holds, what, got in (
        (module.bias_k is None, "add_bias_kv=False", "add_bias_kv=True"),
        (not module.add_zero_attn, "add_zero_attn=False", "add_zero_attn=True"),
        (module.kdim == module.vdim, "vdim = kdim", f"{module.vdim} and {module.kdim}"),
    ):
        if not holds:
            raise RefusedValue(refusal("keys and values come from the sources alone", what, got))
    layer = multi_head_attention(
        module.embed_dim,
        module.num_heads,
        module.dropout,
        module.in_proj_bias is not None,
        None if module.kdim == module.embed_dim else module.kdim,
        support=support,
    ).to(module.out_proj.weight.device, module.out_proj.weight.dtype)
    heads, score = module.num_heads, layer.family.score
    ours = (score.query.weight, score.key.weight, layer.theta.value)
    for parameter, weight in zip(ours, _weights(module), strict=True):
        copy_to_heads(parameter, weight)
    output = module.out_proj.weight
    copy_weight(layer.theta.output, output.t().unflatten(0, (heads, -1)), output)
    if module.in_proj_bias is not None:
        biases = (score.query.bias, score.key.bias, layer.value_bias)
        for parameter, bias in zip(biases, module.in_proj_bias.chunk(3), strict=True):
            copy_weight(parameter, bias.unflatten(0, (heads, -1)), module.in_proj_bias)
        copy_weight(layer.bias, module.out_proj.bias, module.out_proj.bias)
    return layer


def to_attention(layer: AttentionConv) -> nn.MultiheadAttention:
    """The MultiheadAttention with the same projections, batches first.

    A support other than complete must be passed to torch's layer as ``attn_mask``, True where there
    is no edge.

    Raises:
        ValueError: torch has no equal layer.
    """
    _check(layer)
    score: Any = layer.family.score
    theta: Any = layer.theta
    heads, embed_dim = layer.heads, layer.out_channels
    bias, kdim = layer.value_bias is not None, theta.in_channels
    module = nn.MultiheadAttention(
        embed_dim,
        heads,
        layer.family.normalise.dropout,
        bias,
        kdim=kdim,
        vdim=kdim,
        batch_first=True,
        device=theta.output.device,
        dtype=theta.output.dtype,
    )
    ours = (score.query.weight, score.key.weight, theta.value)
    with torch.no_grad():
        for weight, parameter in zip(_weights(module), ours, strict=True):
            weight.copy_(parameter.transpose(0, 1).flatten(1).t())
        module.out_proj.weight.copy_(theta.output.flatten(0, 1).t())
        if bias:
            biases: list[Any] = [score.query.bias, score.key.bias, layer.value_bias]
            module.in_proj_bias.copy_(torch.cat([one.flatten() for one in biases]))
            module.out_proj.bias.copy_(layer.bias)  # type: ignore[arg-type]
    if not any(parameter.requires_grad for parameter in layer.parameters()):
        module.requires_grad_(False)
    return module


def _weights(module: Any) -> tuple[Tensor, ...]:
    """The weights of queries, keys and values, each (H·D, P)."""
    if module.in_proj_weight is None:
        return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    return module.in_proj_weight.chunk(3)  # type: ignore[no-any-return]


def _check(layer: AttentionConv) -> None:
    """Raise ValueError if torch's layer has no equal option."""
    family, theta = layer.family, layer.theta
    score, normalise = family.score, family.normalise
    if theta.in_channels < 0:
        raise RefusedValue(refusal("a layer is converted with its weights", "weights", "none yet"))
    key_query = type(score) is KeyQuery
    channels = score.key.channels if key_query else 0
    biases = [layer.bias, layer.value_bias]
    biases += [score.key.bias, score.query.bias] if key_query else []
    for holds, what, got in (
        (type(layer) is AttentionConv, "no subclass of AttentionConv", type(layer).__name__),
        (key_query, "keys and queries", score.name),
        (
            key_query and math.isclose(score.scale, channels**-0.5, rel_tol=1e-6),
            "the scale 1/√D",
            getattr(score, "scale", 1),
        ),
        (theta.name == "value-output", "an output projection", f"combine={layer.combine!r}"),
        (
            layer.heads * channels == layer.heads * theta.option == layer.out_channels,
            "as many channels of all heads as of the output",
            f"{layer.heads} heads of {channels} and {theta.option}",
        ),
        (
            not key_query or score.query.in_channels == layer.out_channels,
            f"queries of {layer.out_channels} channels",
            score.query.in_channels if key_query else None,
        ),
        (len({bias is None for bias in biases}) == 1, "all biases or none", "some"),
        (normalise.is_softmax and normalise.temperature == 1, "a softmax", normalise),
        (family.align is None and not family.terms, "no alignment, no terms", "some"),
        (layer.root is None, "no root weight", "one"),
    ):
        if not holds:
            raise RefusedValue(refusal("torch's MultiheadAttention has less", what, got))
