"""Options of an attention layer, and its argument ``source_mask``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..attention import (
    EdgeFeatures,
    Normaliser,
    Score,
    make_normaliser,
    make_score,
)
from ..errors import RefusedType, RefusedValue, unknown
from ..families import Family, Hops, parse_family
from ..graph import Features, SparseMatrix
from .inputs import Inputs
from .theta import ThetaModule


def support_of(given: Family | str | None) -> Family:
    """The support, parsed if it is text; the edges of ``edge_index`` if None."""
    if given is None:
        return Hops()
    return parse_family(given) if isinstance(given, str) else given


def score_of(
    given: Score | str,
    heads: int,
    channels: int,
    in_channels: int | tuple[int, int],
    value_channels: int,
    edge_dim: int | None,
) -> Score:
    """The score, made if it is text; its heads and edge features must be those of the layer."""
    edge = {} if edge_dim is None else {"edge": EdgeFeatures(edge_dim, heads, value_channels)}
    score = make_score(given, heads, channels, in_channels, value_channels, **edge)
    if score.heads != heads:
        raise RefusedValue("a score has the heads of its layer", heads, score.heads)
    shared = getattr(score, "edge", None)
    fits = isinstance(shared, EdgeFeatures) and shared.channels == value_channels
    if edge_dim is not None and not fits:
        expected = f"a score with edge=EdgeFeatures of {value_channels} channels"
        rule = "edge features of values are those of keys"
        raise RefusedValue(rule, expected, shared or score)
    return score


def normaliser_of(given: Normaliser | str, dropout: float) -> Normaliser:
    """The normaliser, made with this dropout if it is text; a module must have the same dropout."""
    options: dict[str, Any] = {"dropout": dropout} if isinstance(given, str) else {}
    normalise = make_normaliser(given, **options)
    if dropout and normalise.dropout != dropout:
        raise RefusedValue("a normaliser has a dropout of its own", 0, dropout)
    return normalise


COMBINATIONS = ("sum", "concat", "mean")
WITH_VALUES = ("full", "columns", "low-rank", "value-output")  # forms of Θ that make values first


def form_of(
    combine: str, value_channels: int | None, theta: str | None, out_channels: int, heads: int
) -> str:
    """The form of Θ for the options of :class:`~.attention_conv.AttentionConv` of these names."""
    if combine not in COMBINATIONS:
        raise RefusedValue(unknown("combine", combine, COMBINATIONS))
    if theta is not None:
        if value_channels is not None or combine == "concat":
            got = f"combine={combine!r}, value_channels={value_channels}"
            raise RefusedValue(
                "heads with a theta of their own are added up", "'sum' or 'mean'", got
            )
        return theta
    if value_channels is not None:
        if combine != "sum":
            raise RefusedValue("an output projection adds up heads", "combine='sum'", repr(combine))
        return f"value-output(channels={value_channels})"
    if combine != "concat":
        return "full"
    if out_channels % heads:
        rule = "heads side by side share out_channels evenly"
        expected = f"out_channels a multiple of {heads}, or combine='sum'"
        raise RefusedValue(rule, expected, out_channels)
    return "columns"


def value_channels_of(theta: ThetaModule) -> int:
    """V, the number of channels of the values of one head."""
    if theta.name == "value-output":
        return theta.option
    return theta.out_channels // (theta.num_labels if theta.name == "columns" else 1)


def check_values(theta: ThetaModule, *, value_bias: bool, edge_features: bool) -> None:
    """Raise ValueError for a value bias or edge features if the form of Θ has no values."""
    for wanted, what in ((value_bias, "a value bias is"), (edge_features, "edge features are")):
        if wanted and theta.name not in WITH_VALUES:
            rule = f"{what} added to values"
            raise RefusedValue(rule, f"theta in {WITH_VALUES}", theta.name)


def checked_mask(source_mask: Any, inputs: Inputs) -> Tensor:
    """The mask after checks: booleans (*, M) on the device of the sources."""
    count = "M" if inputs.num_sources is None else inputs.num_sources
    rule, wanted = "source_mask says which sources there are", f"booleans (*, {count})"
    if not isinstance(source_mask, Tensor):
        raise RefusedType(rule, wanted, type(source_mask).__name__)
    known = inputs.num_sources is not None and source_mask.dim() > 0
    if source_mask.dtype != torch.bool or not known or source_mask.size(-1) != inputs.num_sources:
        got = f"{source_mask.dtype} {tuple(source_mask.shape)}"
        raise RefusedValue(rule, wanted, got)
    if inputs.source is not None and source_mask.device != inputs.source.device:
        raise RefusedValue("source_mask is where x is", inputs.source.device, source_mask.device)
    return source_mask


def without_absent(inputs: Inputs, source_mask: Tensor) -> Inputs:
    """The inputs with NaN and inf replaced by zeros in absent sources.

    Zero times NaN or inf is NaN, so a share of zero would not keep them from other nodes.
    """
    source = _without(inputs.source, source_mask)
    return inputs._replace(source=source, target=source if inputs.is_single else inputs.target)


def _without(x: Features, there: Tensor) -> Features:
    if isinstance(x, SparseMatrix):
        if there.dim() > 1:
            return x  # sparse features have no batch; the values of heads refuse it later
        count = x.sparsity.rowptr.diff().long()
        there = torch.repeat_interleave(there, count, output_size=x.num_entries)
        return x.with_values(x.value.masked_fill(~there & ~x.value.isfinite(), 0.0))
    if x is None or not x.is_floating_point() or there.shape not in (x.shape[-2:-1], x.shape[:-1]):
        return x
    return x.masked_fill(~there.unsqueeze(-1) & ~x.isfinite(), 0.0)
