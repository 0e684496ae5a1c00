"""Layers of attention on graphs, with the self-loops, edge features and initial values of PyG."""

from __future__ import annotations

from functools import partial
from typing import Any, Union

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from ...attention import Additive, Cosine, GATv2, Score, SuperGAT, SuperGATMixed
from ...attention.edge_context import LoopAttributes
from ...equations import row
from ...errors import RefusedValue, unknown
from ...families import Hops, parse_family
from ...signatures import typed
from ..attention_conv import AttentionConv
from ..theta import ThetaModule
from ..theta_parts import draw_heads, glorot_of_heads, linear_bias


def as_linear(module: Any) -> None:
    """A weight and its bias, as PyG's TransformerConv draws them."""
    for parameter in (module.weight, getattr(module, "bias", None)):
        linear_bias(parameter, module.weight.size(1))


def as_values(theta: Any, maps: int = 1) -> None:
    """Values and the output projection of torch's MultiheadAttention."""
    glorot_of_heads(theta.value, maps)
    output = theta.output.flatten(0, 1)
    linear_bias(output, output.size(0))


# torch draws the weights of queries, keys and values as one where they have the same channels.
as_packed = partial(draw_heads, maps=3)
as_packed_values = partial(as_values, maps=3)


# Layers -------------------------------------------------------------------------------------------


Fill = Union[str, float, Tensor]  # noqa: UP007


class GraphAttention(AttentionConv):
    """:class:`AttentionConv` with edge features of self-loops, and initial biases as in PyG.

    Args:
        in_channels, out_channels, heads, **options: see :class:`AttentionConv`.
        fill_value: edge features of self-loops, as in PyG's ``add_self_loops``: ``'mean'`` of the
            edges that reach the node, another reduction, a number or a vector; the support then
            adds self-loops in the place of existing ones. None leaves self-loops to the support.
    """

    @typed
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        fill_value: Fill | None = None,
        **options: Any,
    ) -> None:
        if fill_value is not None:
            support = parse_family(options.get("support") or Hops())
            options["support"] = support.set_self_loops(True)
        super().__init__(in_channels, out_channels, heads, **options)
        self.fill_value = fill_value
        self._draw_value_bias()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        fill = getattr(self, "fill_value", None) if name in ("fill_value", "flow") else None
        if fill is not None:  # PyG reduces by the second end, whatever the flow
            of_sources = self.flow == "target_to_source"
            self.family.score.fill = LoopAttributes(fill, of_sources)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._draw_value_bias()

    def _materialize(self, waiting: list[tuple[ThetaModule, int]]) -> None:
        lazy = self.theta.in_channels < 0
        super()._materialize(waiting)
        if lazy:
            self._draw_value_bias()

    def _draw_value_bias(self) -> None:
        bias = self._parameters.get("value_bias")  # there is none yet while the layer is made
        if bias is not None and self.theta.in_channels > 0:
            linear_bias(bias, self.theta.in_channels)


@typed
@row("Ready-made layers", "1710.10903", "PyG `GATConv`")
def gat_conv(
    in_channels: int | tuple[int, int],
    out_channels: int,
    heads: int = 1,
    concat: bool = True,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    add_self_loops: bool = True,
    edge_dim: int | None = None,
    fill_value: Fill = "mean",
    bias: bool = True,
    residual: bool = False,
    **options: Any,
) -> AttentionConv:
    """A_h[m, n] = softmax over m of leaky_relu(⟨a_s, X_m Θ_h⟩ + ⟨a_t, X_n Θ_h⟩).

    From the `"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_ paper, equations 3 to
    6; PyG's ``GATConv``.

    >>> gat_conv(16, 8, heads=4).out_channels
    32

    Args:
        in_channels: P, or (P, P_t) for sources and targets with a Θ each; -1 to derive them from
            the first input.
        out_channels: Q of each head.
        heads: H.
        concat: whether heads are concatenated instead of averaged.
        negative_slope: slope of the leaky ReLU below zero.
        dropout: dropout probability of attention.
        add_self_loops: whether self-loops are added where there are none.
        edge_dim: D_e of ``edge_attr``, which adds ⟨a_e, E W_e⟩ to the score; None for no such term.
        fill_value: edge features of self-loops, see :class:`GraphAttention`.
        bias: whether the output has a bias.
        residual: whether transformed features of the targets are added.
        **options: options of :class:`AttentionConv`; a ``support`` replaces the neighbours and
            self-loops: ``Hops(2, add_self_loops=True)``.

    Shapes:
        x (*, M, P), or a pair ((*, M, P), (*, N, P_t)), and ``edge_index`` (2, E) give
        (*, N, H·Q), or (*, N, Q) if heads are averaged.

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """
    score = Additive(
        heads, out_channels, in_channels, negative_slope=negative_slope, edge_dim=edge_dim
    )
    options = {"bias": bias, "root_weight": residual, "dropout": dropout, **options}
    fill = fill_value if edge_dim is not None else None
    return _layer(in_channels, out_channels, score, concat, add_self_loops, fill, options)


@typed
@row("Ready-made layers", "2105.14491", "PyG `GATv2Conv`")
def gatv2_conv(
    in_channels: int | tuple[int, int],
    out_channels: int,
    heads: int = 1,
    concat: bool = True,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    add_self_loops: bool = True,
    edge_dim: int | None = None,
    fill_value: Fill = "mean",
    bias: bool = True,
    share_weights: bool = False,
    residual: bool = False,
    **options: Any,
) -> AttentionConv:
    """A_h[m, n] = softmax over m of ⟨a, leaky_relu(X_m Θ_h + X_n W_h)⟩.

    From the `"How Attentive are Graph Attention Networks?" <https://arxiv.org/abs/2105.14491>`_
    paper, equation 7; PyG's ``GATv2Conv``.

    >>> gatv2_conv(16, 8, heads=4, concat=False).out_channels
    8

    Args:
        in_channels, out_channels, heads, concat, negative_slope, dropout: see :func:`gat_conv`.
        add_self_loops, fill_value, residual, **options: see :func:`gat_conv`.
        edge_dim: D_e of ``edge_attr``, which adds E W_e inside the leaky ReLU; None for no such
            term.
        bias: whether the output, the values and both ends of the score have a bias.
        share_weights: whether W = Θ.
    """
    score = GATv2(
        heads,
        out_channels,
        in_channels,
        shared=share_weights,
        bias=bias,
        negative_slope=negative_slope,
        edge_dim=edge_dim,
    )
    if score.ends.target is not None:
        score.ends.target.initial = partial(draw_heads, biased=True)
        score.reset_parameters()
    options = {"root_weight": residual, "dropout": dropout, **options}
    options = {"bias": bias, "value_bias": bias, **options}
    fill = fill_value if edge_dim is not None else None
    return _layer(in_channels, out_channels, score, concat, add_self_loops, fill, options)


_SUPER_GAT: dict[str, type[SuperGAT] | type[SuperGATMixed]] = {"SD": SuperGAT, "MX": SuperGATMixed}


@typed
@row("Ready-made layers", "SuperGAT, SD and MX", "PyG `SuperGATConv`")
def super_gat_conv(
    in_channels: int | tuple[int, int],
    out_channels: int,
    heads: int = 1,
    concat: bool = True,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    add_self_loops: bool = True,
    bias: bool = True,
    attention_type: str = "SD",
    **options: Any,
) -> AttentionConv:
    """A_h[m, n] = softmax over m of leaky_relu(⟨X_m Θ_h, X_n Θ_h⟩ / √Q), or of the mixed score.

    The scaled dot product (SD) and the mixed score (MX) of the `"How to Find Your Friendly
    Neighborhood: Graph Attention Design with Self-Supervision"
    <https://openreview.net/forum?id=Wi5KUNlqWty>`_ paper, PyG's ``SuperGATConv`` without its
    self-supervised loss.

    >>> super_gat_conv(16, 8, heads=4).out_channels
    32

    Args:
        in_channels, out_channels, heads, concat, negative_slope, dropout: see :func:`gat_conv`.
        add_self_loops, bias, **options: see :func:`gat_conv`.
        attention_type: ``'SD'`` for :class:`~pyg_outerconv.attention.SuperGAT`, ``'MX'`` for
            :class:`~pyg_outerconv.attention.SuperGATMixed`.

    Raises:
        ValueError: the type is unknown; or see :func:`gat_conv`.
    """
    if attention_type not in _SUPER_GAT:
        raise RefusedValue(unknown("attention_type", attention_type, _SUPER_GAT))
    kind = _SUPER_GAT[attention_type]
    score = kind(heads, out_channels, in_channels, negative_slope=negative_slope)
    options = {"bias": bias, "dropout": dropout, **options}
    return _layer(in_channels, out_channels, score, concat, add_self_loops, None, options)


def _layer(
    in_channels: int | tuple[int, int],
    out_channels: int,
    score: Score,
    concat: bool,
    add_self_loops: bool,
    fill: Fill | None,
    options: dict[str, Any],
) -> AttentionConv:
    """A layer of graph attention whose Θ is drawn as one linear map to all heads."""
    filled = fill if add_self_loops else None
    neighbours = Hops(add_self_loops=add_self_loops or None)
    width = out_channels * (score.heads if concat else 1)
    options = {"score": score, "combine": "concat" if concat else "mean", **options}
    options = {"support": neighbours, **options}
    layer: AttentionConv
    if filled is None and not options.get("value_bias"):
        layer = AttentionConv(in_channels, width, score.heads, **options)
    else:
        layer = GraphAttention(in_channels, width, score.heads, filled, **options)
    layer.theta.initial = draw_heads
    layer.theta.reset_parameters()
    return layer


@typed
@row("Ready-made layers", "1803.03735", "PyG `AGNNConv`")
def agnn_conv(
    requires_grad: bool = True, add_self_loops: bool = True, **options: Any
) -> AttentionConv:
    """Y = Aᵀ X with A[m, n] = softmax over m of β cos(X_m, X_n).

    From the `"Attention-based Graph Neural Network for Semi-supervised Learning"
    <https://arxiv.org/abs/1803.03735>`_ paper; PyG's ``AGNNConv``.

    >>> sum(p.numel() for p in agnn_conv().parameters())
    1

    Args:
        requires_grad: whether β, which is 1 at first, is a parameter.
        add_self_loops: whether self-loops are added where there are none.
        **options: options of :class:`AttentionConv`.
    """
    support = Hops(add_self_loops=True if add_self_loops else None)
    score = Cosine(1, learned=requires_grad)
    options = {"support": support, "theta": "identity", "bias": False, **options}
    return AttentionConv(-1, -1, 1, score=score, **options)


# Keys and queries on graphs -----------------------------------------------------------------------


@row("Ready-made layers", "2009.03509", "PyG `TransformerConv`", option="`transformer_conv`")
class TransformerConv(GraphAttention):
    r"""Y = (1 - β) Z + β R, where Z is key-query attention and R = X_t W_r + b_r a skip.

    .. math:: Z_n = \Big\Vert_h \sum_{e: m \to n} \alpha_{eh} (X_m V_h + b_h + E_e W_h), \qquad
        \alpha_{eh} \propto \exp \langle X_n W^q_h + b^q_h, X_m W^k_h + b^k_h + E_e W_h \rangle
        / \sqrt{Q}

    with β = σ(⟨w, (Z, R, Z - R)⟩) for each node; without ``beta``, Y = Z + R. From the `"Masked
    Label Prediction" <https://arxiv.org/abs/2009.03509>`_ paper, equations 3 to 5; PyG's
    ``TransformerConv``, with its initial weights.

    >>> TransformerConv(16, 8, heads=4, beta=True).out_channels
    32

    Args:
        in_channels: P, or (P, P_t) for sources and targets; -1 to derive them from the first input.
        out_channels: Q of each head.
        heads: H.
        concat: whether heads are concatenated instead of averaged.
        beta: whether the skip is gated.
        dropout: dropout probability of attention.
        edge_dim: D_e of ``edge_attr``, whose projections are added to keys and values.
        bias: whether keys, queries, values and the skip have a bias.
        root_weight: whether there is a skip.
        **options: options of :class:`AttentionConv`.

    Raises:
        ValueError: an option is out of range.
    """

    @typed
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **options: Any,
    ) -> None:
        total = out_channels * (heads if concat else 1)
        super().__init__(
            in_channels,
            total,
            heads,
            score=f"key-query(bias={bias})",
            combine="concat" if concat else "mean",
            channels=out_channels,
            value_bias=bias,
            dropout=dropout,
            edge_dim=edge_dim,
            bias=False,
            **{"support": Hops(), **options},
        )
        score = self.family.score
        for part in (self.theta, score.key, score.query, score.edge):
            if part is not None:
                part.initial = as_linear
                part.reset_parameters()
        of_target = in_channels[1] if isinstance(in_channels, tuple) else in_channels
        self.skip = Linear(of_target, total, bias=bias) if root_weight else None
        self.gate = Linear(3 * total, 1, bias=False) if beta and root_weight else None

    def reset_parameters(self) -> None:
        super().reset_parameters()
        for part in (self._modules.get("skip"), self._modules.get("gate")):
            if part is not None:
                part.reset_parameters()  # type: ignore[operator]

    def forward(  # type: ignore[override]
        self, x: Any, edge_index: Any = None, edge_weight: Tensor | None = None, **beside: Any
    ) -> Any:
        outputs = super().forward(x, edge_index, edge_weight, **beside)
        if self.skip is None:
            return outputs
        out, *basis = outputs if isinstance(outputs, tuple) else (outputs,)
        target = x[self.flow == "source_to_target"] if isinstance(x, tuple | list) else x
        if target is None:
            raise RefusedValue("a skip is of the targets", "a pair of features", "None")
        skip = self.skip(target)
        if self.gate is None:
            out = out + skip
        else:
            gate = self.gate(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
            out = gate * skip + (1 - gate) * out
        return (out, *basis) if basis else out


transformer_conv = TransformerConv
