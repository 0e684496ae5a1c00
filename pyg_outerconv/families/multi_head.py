"""Heads of attention by name, whose modules are made when a layer knows its channels."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..attention import NORMALISERS, SCORES
from ..equations import row
from ..errors import RefusedValue
from ..graph.checks import check_positive
from .family import Family
from .heads_by_name import HeadsByName
from .support.hops import Hops


@dataclass(frozen=True)
class _OverEdges(HeadsByName):
    """Heads over the edges of the graph, with or without self-loops, as an option says."""

    heads: int = 1
    combine: str = "concat"
    dropout: float = 0.0

    @property
    def edges(self) -> Family:
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
    def edges(self) -> Family:
        """The support."""
        return self.support

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
