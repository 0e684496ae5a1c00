"""Options of an attention layer."""

from __future__ import annotations

from typing import Any

from ..attention import (
    EdgeFeatures,
    Normaliser,
    Score,
    make_normaliser,
    make_score,
)
from ..errors import RefusedValue, unknown
from ..families import Family, Hops, parse_family
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
