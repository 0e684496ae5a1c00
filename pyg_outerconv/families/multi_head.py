"""Heads of attention by name, whose modules are made when a layer knows its channels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..equations import row
from .attention import Attention
from .family import Family
from .options import check_options
from .support.neighbours import Hops


@dataclass(frozen=True)
class HeadsByName(Attention):
    """:class:`Attention` by names alone, which a text can say."""

    heads: int = 1
    score: str = "key-query"
    support: Family = field(default_factory=Hops)
    normalise: str = "softmax"
    combine: str = "concat"
    dropout: float = 0.0
    channels: int | None = None
    align: None = field(default=None, init=False, repr=False)
    terms: tuple[Any, ...] = field(default=(), init=False, repr=False)


@dataclass(frozen=True)
class _OverEdges(HeadsByName):
    """Heads over the edges of the graph, with or without self-loops, as an option says."""

    score: str = field(default="", init=False, repr=False)
    support: Family = field(default_factory=Hops, init=False, repr=False)
    normalise: str = field(default="softmax", init=False, repr=False)
    channels: None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_options(self)  # of which score and support are made
        object.__setattr__(self, "score", self.score_text)
        object.__setattr__(self, "support", Hops(add_self_loops=self.add_self_loops or None))
        super().__post_init__()

    @property
    def score_text(self) -> str:
        """The score and its options, as text."""
        raise NotImplementedError(f"{type(self).__name__} says no score")

    set_self_loops = Family.set_self_loops  # an option of its own, not of the support


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

    @property
    def score_text(self) -> str:
        return f"additive(negative_slope={self.negative_slope})"


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

    @property
    def score_text(self) -> str:
        shared = self.share_weights
        slope = self.negative_slope
        return f"gatv2(shared={shared}, bias={not shared}, negative_slope={slope})"


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

    @property
    def score_text(self) -> str:
        return "key-query(bias=True)"


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
