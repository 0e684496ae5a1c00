"""The parts of an attention layer, made of the names and numbers that its constructor takes."""

from __future__ import annotations

from typing import Any

from ..attention import (
    EdgeFeatures,
    Normaliser,
    Score,
    make_normaliser,
    make_score,
    require_edge_features,
)
from ..errors import RefusedValue, refusal
from ..families import Family, Hops, parse_family


def support_of(given: Family | str | None) -> Family:
    """The support that was named or given; the edges themselves if none was."""
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
    """The score that was named, of keys and queries of so many channels, or given.

    Raises:
        ValueError: it has other heads; or no edge features that values could share.
    """
    edge = {} if edge_dim is None else {"edge": EdgeFeatures(edge_dim, heads, value_channels)}
    score = make_score(given, heads, channels, in_channels, value_channels, **edge)
    if score.heads != heads:
        raise RefusedValue(refusal("a score has the heads of its layer", heads, score.heads))
    if edge_dim is not None:
        require_edge_features(score, value_channels)
    return score


def normaliser_of(given: Normaliser | str, dropout: float) -> Normaliser:
    """The normaliser that was named, with a dropout, or given.

    Raises:
        ValueError: it was given, and has another dropout.
    """
    options: dict[str, Any] = {"dropout": dropout} if isinstance(given, str) else {}
    normalise = make_normaliser(given, **options)
    if dropout and normalise.dropout != dropout:
        raise RefusedValue(refusal("a normaliser has a dropout of its own", 0, dropout))
    return normalise
