"""Layers made of a family with some options: polynomials by name, and the fastest form of any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_geometric.data import Data

from ..errors import RefusedValue
from ..families import Attention, Diffusion, Family, Walk, parse_family
from ..signatures import typed
from .attention_conv import AttentionConv
from .outer_conv import OuterConv
from .theta_parts import check_reduction, draw_heads, theta_of


@typed
def sg_conv(in_channels: int, out_channels: int, length: int = 1, **options: Any) -> OuterConv:
    """Y = (T^L)ᵀ X Θ with the normalised adjacency matrix T with self-loops.

    From the `"Simplifying Graph Convolutional Networks" <https://arxiv.org/abs/1902.07153>`_ paper.

    >>> sg_conv(16, 7, length=2).family.labels
    ('forward walks of length 2',)

    Args:
        in_channels: P.
        out_channels: Q.
        length: L, PyG's ``K``.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: the length is negative.
    """
    family = Walk(length, norm="sym", powers=(length,), add_self_loops=True)
    return OuterConv(in_channels, out_channels, family, **options)


@typed
def ssg_conv(
    in_channels: int, out_channels: int, alpha: float, length: int = 1, **options: Any
) -> OuterConv:
    """Y = (α I + (1 − α)/L Σ_{k=1..L} T^k)ᵀ X Θ, with T as in :func:`sg_conv`.

    From the `"Simple Spectral Graph Convolution" <https://openreview.net/forum?id=CYO5T-YjWZV>`_
    paper.

    >>> conv = ssg_conv(16, 7, alpha=0.1, length=4)
    >>> [round(weight, 3) for weight in conv.family.coefficients]
    [0.1, 0.225, 0.225, 0.225, 0.225]

    Args:
        in_channels: P.
        out_channels: Q.
        alpha: α.
        length: L, PyG's ``K``.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: the length is not positive.
    """
    if length < 1:
        raise RefusedValue("a mean over powers has one", "length >= 1", length)
    family = Diffusion((alpha, *((1 - alpha) / length,) * length))
    return OuterConv(in_channels, out_channels, family, **options)


@typed
def appnp(length: int, alpha: float, **options: Any) -> OuterConv:
    """L steps of personalised PageRank, X ← (1 − α) Tᵀ X + α X₀, without parameters.

    From the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_ paper, equation 4, as
    Y = (Σ_{k<L} α(1 − α)^k T^k + (1 − α)^L T^L)ᵀ X, with T as in :func:`sg_conv`.

    >>> sum(p.numel() for p in appnp(10, 0.1).parameters())
    0

    Args:
        length: L, PyG's ``K``.
        alpha: α, more than 0 and at most 1.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: a number is out of range.
    """
    options = {"theta": "identity", "bias": False, **options}
    return OuterConv(-1, -1, Diffusion("ppr", alpha=alpha, length=length), **options)


@typed
def mix_hop(
    in_channels: int, out_channels: int, powers: Sequence[int] = (0, 1, 2), **options: Any
) -> OuterConv:
    """Y = (T^j)ᵀ X Θ_j, concatenated over J powers j: J·Q channels. T is as in :func:`sg_conv`.

    From the `"MixHop" <https://arxiv.org/abs/1905.00067>`_ paper. Θ_j is the j-th block of columns
    of a wider matrix (``theta='columns'``), so that the sum over labels concatenates.

    >>> mix_hop(16, 8, powers=(0, 1, 3)).out_channels
    24

    Args:
        in_channels: P.
        out_channels: Q of each power.
        powers: the J powers, in the order of the output.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: there is no power, or one is negative.
    """
    length = max(powers, default=-1)
    if min(powers, default=-1) < 0:
        raise RefusedValue("powers are mixed", "one or more, each >= 0", tuple(powers))
    family = Walk(length, norm="sym", powers=tuple(powers), add_self_loops=True)
    options = {"theta": "columns", **options}
    return OuterConv(in_channels, out_channels * len(powers), family, **options)


@typed
def gdc_conv(
    in_channels: int, out_channels: int, kind: str | tuple[float, ...] = "ppr", **options: Any
) -> OuterConv:
    """Y = (Σ_k θ_k T^k)ᵀ X Θ with T as in :func:`sg_conv`, without the edges of the diffused graph.

    From the `"Diffusion Improves Graph Learning" <https://arxiv.org/abs/1911.05485>`_ paper,
    without its sparsification; :class:`~pyg_outerconv.families.Diffusion` has more options.

    >>> gdc_conv(16, 7, "heat").family.labels
    ('heat walks of length 0 to 10',)

    Args:
        in_channels: P.
        out_channels: Q.
        kind: ``'ppr'``, ``'heat'`` or the numbers θ_k.
        **options: options of :class:`OuterConv`.

    Raises:
        ValueError: the kind is unknown, or no finite numbers.
    """
    return OuterConv(in_channels, out_channels, Diffusion(kind), **options)


# A layer in its fastest form ---------------------------------------------------------------------


def layer_of(
    in_channels: int | tuple[int, int], out_channels: int, family: Family | str, **options: Any
) -> OuterConv:
    """``OuterConv(in_channels, out_channels, family, **options)``, in its fastest form.

    Where the family is heads of attention alone, side by side or averaged, this is an
    :class:`AttentionConv` with the same parameters by name, which makes values once and scores of
    GAT together with them.

    >>> type(layer_of(16, 64, "gat(heads=8)")).__name__
    'AttentionConv'
    """
    recipe = parse_family(family)
    theta = options.get("theta", "full")
    if not isinstance(recipe, Attention) or recipe.combine == "sum":
        return OuterConv(in_channels, out_channels, recipe, **options)
    check_reduction(recipe, options.pop("label_aggr", "sum"))
    attention = recipe.sized(in_channels, out_channels, shares=True)
    theta_of(recipe, options.pop("theta", theta), -1, out_channels)  # refuses another theta
    layer = AttentionConv(
        in_channels,
        out_channels,
        attention.heads,
        support=attention.support,
        align=attention.align,
        score=attention.score,
        normalise=attention.normalise,
        combine=attention.combine,
        terms=attention.terms,
        **options,
    )
    layer.theta.initial = draw_heads
    layer.theta.reset_parameters()
    return layer


def structure_of(family: Family, data: Data) -> Any:
    """What a layer of :func:`layer_of` is called with beside the features, made once for a graph.

    A basis; for heads of attention alone the edges of their support; for other families that read
    features the structure itself, on which all that depends on no features is kept.
    """
    if not family.makes_use_of("x"):
        return family.basis_of(data)
    if isinstance(family, Attention) and family.combine != "sum":
        return family.support.basis_of(data)
    return family.structure_in(data)
