"""Heads of attention by name, whose modules are made when a layer knows its channels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..attention import NORMALISERS, SCORES, make_normaliser, make_score
from ..basis.base import Basis
from ..equations import row
from ..errors import RefusedValue, unknown
from ..graph.checks import check_positive
from .attention import Attention
from .content_family import Heads
from .family import Family
from .support.neighbours import Hops

COMBINATIONS = ("concat", "mean", "sum")


class HeadsByName(Heads):
    """Attention by a name in text; :meth:`sized` makes a layer's :class:`Attention` from it."""

    combine: str
    dropout: float

    symmetries = ("permutation-equivariant",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(type(self).__name__, heads=self.heads)
        if self.combine not in COMBINATIONS:
            raise RefusedValue(unknown("combine", self.combine, COMBINATIONS))
        if not 0 <= self.dropout < 1:
            raise RefusedValue("dropout is a share of attention weights", "[0, 1)", self.dropout)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"head {head} of {self.scored_by()[0]}" for head in range(self.heads))

    @property
    def width(self) -> int | None:
        """D of keys and queries; None for the channels of a value."""
        return None

    @property
    def normaliser(self) -> str:
        """f, as text."""
        return "softmax"

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The name of the score, and its options."""
        raise NotImplementedError(f"{type(self).__name__} says no score")

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether the support needs no edges."""
        return self.support.takes_nodes_alone

    def combinations(self) -> list[tuple[str, int]]:
        """Heads side by side, their mean, or a sum."""
        return [(self.combine, self.heads)]

    def averaged(self, heads: int = 0) -> Family:
        """The same heads, or as many others, whose mean is taken in the place of all beside."""
        combine = "mean" if self.combine == "concat" else self.combine
        return replace(self, combine=combine, heads=heads or self.heads)  # type: ignore[type-var]

    def sized(
        self, in_channels: int | tuple[int, int], out_channels: int, shares: bool = False
    ) -> Attention:
        """The attention of a layer of these channels.

        Raises:
            ValueError: heads side by side do not divide Q, or an option does not fit the score.
        """
        return Attention(
            self.score_for(in_channels, out_channels, shares),
            self.support,
            make_normaliser(self.normaliser, dropout=self.dropout),
        )

    def score_for(self, in_channels: int | tuple[int, int], out_channels: int, shares: bool) -> Any:
        """The score for a layer of these channels, see :meth:`sized`."""
        if out_channels < 1:
            rule = f"{type(self).__name__} makes values for a layer of known out_channels"
            raise RefusedValue(rule, "out_channels >= 1", out_channels)
        if self.combine == "concat" and out_channels % self.heads:
            rule = "heads side by side share out_channels evenly"
            expected = f"out_channels a multiple of {self.heads}, or combine=mean"
            raise RefusedValue(rule, expected, out_channels)
        value = out_channels // self.heads if self.combine == "concat" else out_channels
        name, options = self.scored_by()
        if SCORES.kind_in(name).uses_theta and not (shares and self.combine != "sum"):
            options = {"own": True, **options}
        return make_score(name, self.heads, self.width or value, in_channels, value, **options)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """Refused: only the layer's :class:`Attention` has parameters.

        Raises:
            ValueError: always.
        """
        rule = f"{type(self).__name__} makes its basis in a layer, which knows the channels"
        raise RefusedValue(rule, f"OuterConv(in_channels, out_channels, {self})", "no layer")


@dataclass(frozen=True)
class _OverEdges(HeadsByName):
    """Heads over the edges of the graph, with or without self-loops, as an option says."""

    heads: int = 1
    combine: str = "concat"
    dropout: float = 0.0

    @property
    def support(self) -> Family:  # type: ignore[override]
        """The edges of the graph, with or without self-loops."""
        return Hops(add_self_loops=self.add_self_loops or None)


@row("Ready-made layers", "1710.10903", 'PyG `GATConv`; text `"gat(heads=8)"`', option="`GAT`")
@dataclass(frozen=True)
class GAT(_OverEdges):
    r"""Attention of the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper.

    .. math:: A_h[m, n] = \text{softmax}_m \, \text{leaky\_relu}\left(
        \langle a^s_h, X_m \Theta_h \rangle + \langle a^t_h, X_n \Theta_h \rangle\right)

    (equations 3, 5 and 6). ``OuterConv(P, 64, "gat(heads=8)")`` is ``GATConv(P, 8, heads=8)`` of
    PyG. In a :class:`Stack` heads stand beside matrices of the graph, as in
    ``"stack(gat(heads=8), gcn)"``.
    If heads are added up, or are part of a family that is no stack, their scores read a projection
    of their own instead of X Θ.

    Args:
        heads (int, optional): H, which is K. (default: ``1``)
        combine (str, optional): ``'concat'``: heads of Q/H channels side by side; ``'mean'`` of
            heads of Q channels, as in GAT's last layer; or their ``'sum'``. (default: ``'concat'``)
        dropout (float, optional): the share of attention weights that training drops.
            (default: ``0.0``)
        negative_slope (float, optional): slope of the leaky ReLU below zero. (default: ``0.2``)
        add_self_loops (bool, optional): whether every node attends to itself. (default: ``True``)

    Raises:
        ValueError: an option is out of range; when a layer is made, H does not divide Q.
    """

    equation = "A_h = softmax of leaky_relu(<a_s, X_m T_h> + <a_t, X_n T_h>)"

    negative_slope: float = 0.2
    add_self_loops: bool = True  # type: ignore[assignment]

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The additive score."""
        return "additive", {"negative_slope": self.negative_slope}


@row(
    "Ready-made layers", "2105.14491", 'PyG `GATv2Conv`; text `"gatv2(heads=8)"`', option="`GATv2`"
)
@dataclass(frozen=True)
class GATv2(_OverEdges):
    r"""Attention of the `"How Attentive are Graph Attention Networks?"
    <https://arxiv.org/abs/2105.14491>`_ paper.

    .. math:: A_h[m, n] = \text{softmax}_m \langle a_h, \text{leaky\_relu}(
        X_m \Theta_h + X_n W_h + b_h) \rangle

    (equation 7). It can compute the same functions as PyG's ``GATv2Conv``, whose values have a
    bias: here this is part of the bias of the layer.

    Args:
        heads, combine, dropout, negative_slope, add_self_loops (optional): see :class:`GAT`.
        share_weights (bool, optional): whether W = Θ and b = 0. (default: ``False``)

    Raises:
        ValueError: an option is out of range; when a layer is made, H does not divide Q.
    """

    equation = "A_h = softmax of <a, leaky_relu(X_m T_h + X_n W_h + b_h)>"

    negative_slope: float = 0.2
    add_self_loops: bool = True  # type: ignore[assignment]
    share_weights: bool = False

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The score of GATv2."""
        shared = self.share_weights
        options = {"shared": shared, "bias": not shared, "negative_slope": self.negative_slope}
        return "gatv2", options


@row(
    "Ready-made layers",
    "2009.03509, equations 3 and 4",
    'PyG `TransformerConv` with `root_weight`; text `"transformer(heads=4)"`',
    option="`Transformer`",
)
@dataclass(frozen=True)
class Transformer(_OverEdges):
    r"""Scaled products of keys and queries on the edges of the graph.

    .. math:: A_h[m, n] = \text{softmax}_m \langle X_n W^q_h + b^q_h, X_m W^k_h \rangle / \sqrt{D}

    From the `"Masked Label Prediction" <https://arxiv.org/abs/2009.03509>`_ paper, equations 3 and
    4; with ``root_weight=True`` the layer is PyG's ``TransformerConv``.

    Args:
        heads, combine, dropout (optional): see :class:`GAT`.
        add_self_loops (bool, optional): whether every node attends to itself. (default: ``False``)

    Raises:
        ValueError: an option is out of range; when a layer is made, H does not divide Q.
    """

    equation = "A_h = softmax of <X_n W_q + b_q, X_m W_k> / sqrt(D)"

    add_self_loops: bool = False  # type: ignore[assignment]

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The score of keys and queries, with biases."""
        return "key-query", {"bias": True}


@row(
    "Values",
    "heads of any score as a family of labels",
    "",
    option='`"multi_head(4, score=cosine)"`, in a `Stack` too',
)
@dataclass(frozen=True)
class MultiHead(HeadsByName):
    r"""Attention by the names of its score, support and normaliser.

    .. math:: A_h = f\left(s_h(X, X)\right)

    ``multi_head(4, score=cosine(beta=2.0))``, ``multi_head(2, score=dot-product,
    support=hops(2))``. You can also write the ``name`` of a score of your own.

    Args:
        heads (int, optional): H, which is K. (default: ``1``)
        score (str, optional): a name in ``pyg_outerconv.attention.SCORES`` with its options.
            (default: ``'key-query'``)
        support (Family, optional): the edges. (default: ``Hops()``, those of the graph)
        normalise (str, optional): f: ``'softmax'``, ``'softmax-plus-one'``, ``'sigmoid'``,
            ``'l1'`` or ``'identity'``. (default: ``'softmax'``)
        combine, dropout (optional): see :class:`GAT`.
        channels (int, optional): D of keys and queries. (default: the channels of a value)

    Raises:
        ValueError: a name is unknown or an option out of range; when a layer is made, H does not
            divide Q, or the score refuses its options.
    """

    equation = "A_h = f(score_h(X, X)) on the edges of a support"

    heads: int = 1
    score: str = "key-query"
    support: Family = field(default_factory=Hops)
    normalise: str = "softmax"
    combine: str = "concat"
    dropout: float = 0.0
    channels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        SCORES.read(self.score)
        NORMALISERS.read(self.normalise)
        if self.channels is not None:
            check_positive(type(self).__name__, channels=self.channels)
        if self.heads % self.support.num_bases:
            expected = f"a multiple of {self.support.num_bases} heads"
            raise RefusedValue("the labels of a support divide the heads", expected, self.heads)

    @property
    def width(self) -> int | None:
        """D of keys and queries; None for the channels of a value."""
        return self.channels

    @property
    def normaliser(self) -> str:
        """f, as text."""
        return self.normalise

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The score by its name, with the options in the text."""
        return self.score, {}

    def set_self_loops(self, add: bool) -> Family:
        """The same recipe with or without added self-loops in the support."""
        return replace(self, support=self.support.set_self_loops(add))
