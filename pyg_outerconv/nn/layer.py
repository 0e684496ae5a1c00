"""The layer over a family, and the structure of a graph that it is called with."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import Data

from ..attention import make_normaliser
from ..families import Family, parse_family
from ..families.heads_by_name import HeadsByName
from .attention_conv import AttentionConv
from .outer_conv import OuterConv
from .theta_parts import check_reduction, glorot_of_heads, theta_of


def layer_of(
    in_channels: int | tuple[int, int], out_channels: int, family: Family | str, **options: Any
) -> OuterConv:
    """``OuterConv(in_channels, out_channels, family, **options)``, in its fastest form.

    Where the family is heads of attention alone, side by side or averaged, this is an
    :class:`AttentionConv` with the same parameters by name, which makes values once and scores of
    GAT together with them.

    >>> type(layer_of(16, 64, "gat(heads=8)")).__name__
    'AttentionConv'

    Args:
        in_channels, out_channels, family, **options: see :class:`OuterConv`.

    Raises:
        TypeError, ValueError: see :class:`OuterConv`.
    """
    recipe = parse_family(family)
    theta = options.get("theta", "full")
    if not isinstance(recipe, HeadsByName) or recipe.combine == "sum":
        return OuterConv(in_channels, out_channels, recipe, **options)
    check_reduction(recipe, options.pop("label_aggr", "sum"))
    score = recipe.score_for(in_channels, out_channels, shares=True)
    theta_of(recipe, options.pop("theta", theta), -1, out_channels)  # refuses another theta
    layer = AttentionConv(
        in_channels,
        out_channels,
        recipe.heads,
        support=recipe.edges,
        score=score,
        normalise=make_normaliser(recipe.normaliser, dropout=recipe.dropout),
        combine=recipe.combine,
        **options,
    )
    layer.theta.initial = _as_heads
    layer.theta.reset_parameters()
    return layer


def structure_of(family: Family, data: Data) -> Any:
    """What a layer of :func:`layer_of` is called with beside the features, made once for a graph.

    A basis; for heads of attention alone the edges of their support; for other families that read
    features the structure itself, on which all that depends on no features is kept.

    Raises:
        ValueError: the family refuses the graph.
    """
    if not family.makes_use_of("x"):
        return family.basis_of(data)
    if isinstance(family, HeadsByName) and family.combine != "sum":
        return family.edges.basis_of(data)
    return family.structure_in(data)


def _as_heads(theta: Any) -> None:
    glorot_of_heads(theta.weight)
