"""AttentionConv: OuterConv over a basis that comes from the content of the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from ..attention import EdgeFeatures, KeyQuery, Normaliser, Score
from ..attention.queries import Content
from ..attention.sources import AddedSources
from ..basis import Basis
from ..basis.multi_head_edges import MultiHeadEdges
from ..equations import row
from ..errors import RefusedType, RefusedValue, unknown
from ..families import Attention, Family, Hops, parse_family
from ..families.attention import COMBINATIONS, value_width
from ..graph import Features, NodeSet
from ..graph.checks import check_positive
from ..signatures import typed
from ..theta import Theta, ThetaValue, as_heads, scaled
from . import compiled
from .bases import basis_on_support, check_beside_basis
from .call import (
    Call,
    check_devices,
    checked_keys,
    checked_mask,
    nodes_first,
    values_of_present,
    without_absent,
)
from .checks import check_channels, check_ends, check_options
from .outer_conv import OuterConv
from .theta import ThetaModule, view_of


@row("Support", "m is there: key padding", "", option="`source_mask=` at a call")
@row(
    "Support",
    "m is one of A sources beside the nodes, with keys and values that are parameters",
    "Sukhbaatar et al., *Augmenting Self-attention with Persistent Memory* (1907.01470)",
    option="`learned_sources=A`",
)
@row("Support", "m is a source of zeros beside the nodes", "", option="`empty_source=True`")
@row("Values", "Σ_h A_hᵀ X Θ_h", "Andreoli, equation 1", option='`combine="sum"`')
@row(
    "Values",
    "Σ_h A_hᵀ (X V_h + b_h) O_h",
    "1706.03762, section 3.2.2",
    option='`combine="sum", value_channels=V`',
)
@row(
    "Values",
    "heads side by side; their mean",
    "1710.10903, equations 5 and 6",
    option='`combine="concat"`, `"mean"`',
)
class AttentionConv(OuterConv):
    r"""Attention as a convolution whose basis comes from content, of the `"Convolution is outer
    product" <https://arxiv.org/abs/1905.01289>`_ paper (section 4, equation 6)

    .. math::
        \mathbf{Y} = \sum_h \mathbf{A}_h^{\top} \mathbf{X} \mathbf{\Theta}_h, \qquad
        \mathbf{A}_h = f\left(\mathbf{X} \mathbf{\Lambda}_h \mathbf{X}^{\top} \mathbf{T}\right)

    on the edges of a support, over which :math:`f` normalises. It is :class:`OuterConv` with the
    family :class:`~pyg_outerconv.families.Attention`, whose parts are the arguments below.

    Args:
        in_channels (int or tuple): Size :math:`P` of each source, or :obj:`-1` to derive it from
            the first input. A tuple holds the sizes of sources and targets (or queries).
        out_channels (int): Size :math:`Q` of each output sample, of all heads together.
        heads (int, optional): Number :math:`H` of heads. (default: :obj:`1`)
        support (Family or str, optional): Where edges are: :obj:`"complete"`, :obj:`"causal"`,
            :obj:`"slidingwindow(window=64)"`, ... With as many labels as heads, each head has its
            own. (default: the edges that are given)
        align (Family or Module, optional): :math:`\mathbf{T}`, whose :math:`\mathbf{T}^{\top}
            \mathbf{X}` are the queries, or a module that makes queries. A query that is taken from
            one source stands where that is. (default: the identity)
        score (Score or str, optional): How content becomes scores: a name in
            :obj:`pyg_outerconv.attention.SCORES`, with options as in :obj:`"cosine(beta=2.0)"`.
            (default: :obj:`"key-query"`)
        normalise (Normaliser or str, optional): :math:`f`: :obj:`"softmax"`,
            :obj:`"softmax-plus-one"`, :obj:`"sigmoid"`, :obj:`"l1"`, :obj:`"identity"`, with
            options as in :obj:`"softmax(temperature=2.0)"`. (default: :obj:`"softmax"`)
        combine (str, optional): :obj:`"concat"`: heads of :math:`Q/H` channels side by side;
            :obj:`"sum"` of heads of :math:`Q` channels; or their :obj:`"mean"`.
            (default: :obj:`"concat"`, with :obj:`theta` the :obj:`"sum"`)
        channels (int, optional): Size :math:`D` of the keys and queries of a head.
            (default: :math:`Q/H`)
        value_channels (int, optional): With :obj:`combine="sum"`, size :math:`V` of the values of
            a head, which an output projection follows: :math:`\mathbf{\Theta}_h = \mathbf{V}_h
            \mathbf{O}_h`. (default: none, :math:`\mathbf{\Theta}_h` is a matrix of its own)
        value_bias (bool, optional): If set to :obj:`True`, values have a bias.
            (default: :obj:`False`)
        dropout (float, optional): The share of values of the basis that are dropped in training.
            (default: :obj:`0.0`)
        terms (tuple, optional): Modules that add something of the positions or attributes of edges
            to scores, such as :obj:`(ALiBi(heads),)`. (default: none)
        theta (str, optional): The form of :math:`\mathbf{\Theta}`, see :class:`OuterConv`, of heads
            that are added up. (default: what :obj:`combine` and :obj:`value_channels` say)
        edge_dim (int, optional): Size :math:`D_e` of edge features, whose projections are added to
            keys and to values. (default: none)
        learned_sources (int, optional): Number of sources beside the nodes that every output sees,
            whose keys and values are parameters. (default: :obj:`0`)
        empty_source (bool, optional): If set to :obj:`True`, there is one more source that every
            output sees, whose key and value are zero. (default: :obj:`False`)
        **kwargs (optional): Additional arguments of :class:`OuterConv`.

    Shapes:
        - **input:**
          node features :math:`(*, M, P)`, or a pair :math:`((*, M, P), (*, N, P_t))`,
          edge indices :math:`(2, E)`, or another structure that the support reads, or :obj:`None`
          if it reads numbers of nodes only
        - **output:** node features :math:`(*, N, Q)`; an output without edges is the bias plus the
          root term, or zero without these

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit.
        TypeError: an argument has the wrong type.
    """

    @partial(typed, but=("in_channels", "out_channels"))
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        support: Family | str | None = None,
        align: Family | torch.nn.Module | None = None,
        score: Score | str = "key-query",
        normalise: Normaliser | str = "softmax",
        combine: str | None = None,
        channels: int | None = None,
        value_channels: int | None = None,
        value_bias: bool = False,
        dropout: float = 0.0,
        terms: tuple[Any, ...] = (),
        theta: str | None = None,
        edge_dim: int | None = None,
        learned_sources: int = 0,
        empty_source: bool = False,
        **kwargs: Any,
    ):
        check_positive("AttentionConv", heads=heads)
        check_options(self, kwargs, type(self), OuterConv, MessagePassing, but=("family",))
        check_channels("out_channels", out_channels, -1)
        if edge_dim is not None:
            check_channels("edge_dim", edge_dim, -1)
        combine = ("concat" if theta is None else "sum") if combine is None else combine
        theta = form_of(combine, value_channels, theta, out_channels, heads)
        narrow = max(1, out_channels // heads)
        of_values = value_channels or (narrow if combine == "concat" else out_channels)
        if channels is None:
            channels = narrow if edge_dim is None else of_values
        support = Hops() if support is None else parse_family(support)
        check_ends(in_channels, out_channels, theta)
        sizes: Any = {"heads": heads, "dropout": dropout, "channels": channels}
        named = Attention(score, support, normalise, align, terms, **sizes)
        edge = {} if edge_dim is None else {"edge": EdgeFeatures(edge_dim, heads, of_values)}
        family = named.with_modules(in_channels, of_values, **edge)
        check_edge_features(family.score, edge_dim, of_values)
        if combine == "mean":
            kwargs["label_aggr"] = "mean"
        super().__init__(in_channels, out_channels, family, theta=theta, **kwargs)
        self.heads, self.combine = heads, combine
        self.edge_dim = edge_dim
        self._alpha: OptTensor = None  # PyG's AttentionExplainer reads it while messages are sent
        check_values(self.theta, value_bias=value_bias, edge_features=edge_dim is not None)
        width = value_channels_of(self.theta)
        self.value_bias = Parameter(torch.zeros(heads, width)) if value_bias else None
        self.added_sources = sources_of(learned_sources, empty_source, family.score, self.theta)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        reset(self._modules.get("added_sources"))  # not yet set during super().__init__()
        bias = self._parameters.get("value_bias")  # nor is this
        if bias is not None:
            torch.nn.init.zeros_(bias)

    def forward(  # type: ignore[override]
        self,
        x: Features | tuple[Features, Features],
        edge_index: Adj | Basis | Any = None,
        edge_weight: OptTensor = None,
        *,
        edge_type: OptTensor = None,
        size: Size = None,
        batch: OptTensor = None,
        edge_attr: OptTensor = None,
        pos: Tensor | OptPairTensor | None = None,
        source_mask: OptTensor = None,
        alignment: Any = None,
        keys: OptTensor = None,
        return_attention_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Basis]:
        r"""Runs the layer.

        Args:
            x (torch.Tensor or tuple): The node features, see above.
            edge_index (torch.Tensor or Basis, optional): The structure that the support reads; or a
                basis: without values it replaces the edges of the support, with values it replaces
                the learned basis.
            edge_weight (torch.Tensor, optional): The edge weights, for an :obj:`align` that reads
                them; else refused, for attention makes the weights of its edges.
            edge_type (torch.Tensor, optional): The edge types, for supports that read them.
            size (tuple, optional): :math:`(M, N)`.
            batch (torch.Tensor, optional): The graph of each node.
            edge_attr (torch.Tensor, optional): The edge features :math:`(E, D_e)`.
            pos (torch.Tensor or tuple, optional): The positions of the nodes, or of both ends.
            source_mask (torch.Tensor, optional): Booleans :math:`(*, M)`: the sources that are
                present. Edges of absent sources are ignored (key padding), whatever their
                features; if absent sources are also targets, their NaN and inf count as zero.
            alignment (optional): What :obj:`align` reads, if not the same as the support.
            keys (torch.Tensor, optional): Features :math:`(*, M, P_k)` of the sources, which score
                and :obj:`align` read in the place of :math:`x`; values are still those of
                :math:`x`.
            return_attention_weights (bool, optional): If set to :obj:`True`, also returns the
                learned basis. (default: :obj:`False`)

        Returns:
            The node features :math:`(*, N, Q)`, or the pair :obj:`(out, basis)`. A learned basis is
            a :class:`~pyg_outerconv.basis.MultiHeadEdges`, unless linear attention makes its
            factors.
            PyG's pair :obj:`(edge_index, alpha)` is then :obj:`(basis.pattern.index, basis.value)`,
            sources before targets, sorted by target, with :obj:`alpha` of shape :math:`(E, H)`
            where heads share the support; :obj:`basis.pattern.origin` is the place of each edge in
            the list that was given, :obj:`-1` for a self-loop that was added.

        Raises:
            ValueError: shapes do not fit, an index is out of range, or an argument comes that no
                part of the layer reads.
            TypeError: an argument has the wrong type, or the support reads another structure.
        """
        arguments = edge_index, edge_weight, edge_type, size, batch, edge_attr, pos
        call = Call(x, *arguments, flow=self.flow)
        if source_mask is not None:
            source_mask = checked_mask(source_mask, call)
            call = without_absent(call, source_mask)
        if keys is not None:
            keys = checked_keys(keys, call, source_mask)
        if return_attention_weights is not False:
            return_attention_weights = _asked(return_attention_weights)
        is_bare = source_mask is None and alignment is None and keys is None
        if is_bare and self.edge_dim is None and not return_attention_weights:
            out = self._at_once(call)
            if out is None and call.mode.compiles:
                out = self._compiled_products(call)
            if out is not None:
                return out
        content = self._content(call, source_mask, alignment, keys)
        waiting = self._waiting(call) if content.theta is None else []
        basis = self._basis(call, content)
        if return_attention_weights or self.edge_dim is not None:
            basis = basis.heads() or basis
        theta = content.theta
        if theta is None:
            self._materialize(waiting)
            theta = self._parameter(call)
        values = content.values
        if source_mask is not None:  # what absent sources send is cut off, and gradients with it
            call = without_absent(call, source_mask, wholly=True)
            values = None if values is None else values_of_present(values, source_mask)
        if self.added_sources is not None:
            sent, theta = self._sent(call, basis, theta)
            call = call.with_ends(sent, call.target)
        if self._message_forward_hooks:
            with showing_shares(self, basis, edge_index):
                out = self._convolve(call, basis, theta)
        else:
            out = self._convolve(call, basis, theta, values)
        if self.edge_dim is not None:
            out = out + values_of_edges(self, basis, edge_attr, theta)
        return (out, basis) if return_attention_weights else out

    def _compiled_products(self, call: Call) -> Tensor | None:
        """Y for a compiler, with attention of keys and queries as one operator; else None."""
        root = self.root
        is_lazy = self.theta.in_channels < 0 or (root is not None and root.in_channels < 0)
        is_read = call.is_single and call.edge_index is not None and self.added_sources is None
        if is_lazy or not (is_read and self._only_sums()):
            return None
        theta = self._parameter(call)
        assert isinstance(theta, Theta)  # as the constructor checked
        check_devices(self, call)
        sums = compiled.key_query_attention(self, call, theta)
        return None if sums is None else self._with_root_and_bias(theta.collect(sums), call)

    def as_one_operator(self, x: Tensor, edge_index: Tensor) -> Tensor | None:
        """Y for a compiler, with attention as one operator; None where that cannot be."""
        return self._at_once(Call(x, edge_index, flow=self.flow), alone=True)

    def _basis(self, call: Call, content: Content | None = None) -> Basis:
        """The attention matrices of :meth:`forward` for these arguments."""
        content = self._content(call) if content is None else content
        edge_index, sources = call.edge_index, self.added_sources
        is_basis = type(edge_index) is not Tensor and isinstance(edge_index, Basis)
        if is_basis:
            check_beside_basis(call, content)
        if is_basis and edge_index.dtype is None:
            check_devices(self, call)
            basis = basis_on_support(self.family, call, content)
            basis = basis.mean(basis.dtype) if self.folds_mean else basis
            return basis if sources is None else sources.beside(basis)
        if edge_index is None and not issubclass(NodeSet, reads := self._family.reads):
            wanted = f"{reads.expects}; or a support of nodes alone, such as Complete()"
            raise RefusedType(f"{self._family.support} reads {reads.noun}", wanted, None)
        if is_basis and sources is not None and edge_index.size[0] != call.num_sources:
            call = call.with_ends(call.source, call.target)  # a learned basis has these sources
            call.num_sources = (call.num_sources or 0) + sources.count
        basis = super()._basis(call, content)
        return basis if sources is None or is_basis else sources.beside(basis)

    def _sent(self, call: Call, basis: Basis, theta: ThetaValue) -> tuple[Features, ThetaValue]:
        """The features and Θ of all sources, added ones first where the basis has them."""
        sources = self.added_sources
        if sources is None or basis.size[0] == call.num_sources:
            return call.source, theta
        assert isinstance(theta, Theta)  # as the constructor checked
        return sources.joined(call.source, theta)

    def __repr__(self) -> str:
        family = self.family
        parts = [f"heads={self.heads}", f"support={family.support}", f"score={family.score.name!r}"]
        parts += [f"normalise={family.normalise}", f"combine={self.combine!r}"]
        parts += [] if family.align is None else [f"align={family.align}"]
        sources = self.added_sources
        parts += [] if sources is None else [f"added_sources=({sources.extra_repr()})"]
        name = self.__class__.__name__
        return f"{name}({self.in_channels}, {self.out_channels}, {', '.join(parts)})"

    def _content(
        self,
        call: Call,
        source_mask: OptTensor = None,
        alignment: Any = None,
        keys: OptTensor = None,
    ) -> Content:
        """The features, with mask, alignment and Θ; and the values, if the score uses them."""
        content = super()._content(call)
        if keys is not None:
            edge_index, score = call.edge_index, self._family.score
            has_values = isinstance(edge_index, Basis) and edge_index.dtype is not None
            if has_values or score.uses_theta:
                rule = "keys are what scores read of the sources"
                expected = "a score of features, and no basis with values"
                raise RefusedValue(rule, expected, edge_index if has_values else score)
            content = content.but(source=nodes_first(keys))
        values = None
        if content.theta is not None:
            values = self._family.score.values(content.source, content.theta)
        if source_mask is not None:
            source_mask = source_mask.movedim(-1, 0)
        if alignment is not None and self._family.align is None:
            raise RefusedValue("an alignment reads what comes as alignment=", "align=T", "no align")
        return content.but(present=source_mask, alignment=alignment, values=values)

    def _parameter(self, call: Call) -> ThetaValue:
        theta = self.theta_value(call.like)
        return scaled(theta, 1.0 / self.theta.num_labels) if self.label_aggr == "mean" else theta

    def theta_value(self, like: OptTensor = None) -> ThetaValue:
        """Θ as values and outputs of heads, with the value bias, if the form of Θ has values."""
        theta = self.theta.parameter(like)
        if isinstance(theta, Tensor) or theta.heads is None:
            theta = as_heads(theta)
        if self.value_bias is None:
            return theta
        assert isinstance(theta, Theta)  # as the constructor checked
        return theta.but(bias=view_of(self.value_bias))


def _asked(return_attention_weights: Any) -> bool:
    """Whether the basis is asked for: a switch, or None."""
    if not isinstance(return_attention_weights, bool | None):
        rule = "return_attention_weights says whether the learned basis is returned"
        raise RefusedType(rule, "True or False", type(return_attention_weights).__name__)
    return bool(return_attention_weights)


# Options -------------------------------------------------------------------------------------


def check_edge_features(score: Any, edge_dim: int | None, value_channels: int) -> None:
    """Raise ValueError if values have edge features that are not those of keys."""
    shared = getattr(score, "edge", None)
    fits = isinstance(shared, EdgeFeatures) and shared.channels == value_channels
    if edge_dim is not None and not fits:
        expected = f"a score with edge=EdgeFeatures of {value_channels} channels"
        rule = "edge features of values are those of keys"
        raise RefusedValue(rule, expected, shared or score)


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
    value_width(combine, out_channels, heads)
    return "columns" if combine == "concat" else "full"


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


def sources_of(learned: int, empty: bool, score: Score, theta: ThetaModule) -> AddedSources | None:
    """The added sources, if there are any, with keys of the score and values of Θ."""
    if learned < 0:
        raise RefusedValue("learned_sources is a number of sources", ">= 0", learned)
    if not learned and not empty:
        return None
    rule = "added sources have keys and values"
    if not isinstance(score, KeyQuery):
        raise RefusedType(rule, "a KeyQuery score", score)
    if theta.name not in WITH_VALUES:
        raise RefusedValue(rule, f"theta in {WITH_VALUES}", theta.name)
    return AddedSources(learned, empty, score.heads, score.channels, value_channels_of(theta))


# Shares of the edges of edge_index, and the values of edge features -------------------------------


def shares_of_edges(basis: Basis, edge_index: Any) -> Tensor | None:
    """The shares of the edges of ``edge_index``, then of edges that the family added: (E, H).

    Row e is the sum over all edges of the basis that stem from column e of ``edge_index``; an edge
    that the family left out has zeros. PyG's AttentionExplainer reads them.

    Returns:
        None if edges of the basis do not stem from columns of ``edge_index``, or in a batch.
    """
    heads = basis.heads()
    if heads is None or heads.batch or heads.pattern.origin is None:
        return None
    if not isinstance(edge_index, Tensor) or edge_index.is_sparse or edge_index.dim() != 2:
        return None
    pattern, value, num_edges = heads.pattern, heads.value, edge_index.size(1)
    origin = heads.pattern.origin.long()
    added = origin < 0
    row = origin.masked_scatter(added, num_edges + added.long().cumsum(0)[added] - 1)
    shares = value.new_zeros(num_edges + int(added.sum()), pattern.num_labels, value.size(1))
    return shares.index_put((row, pattern.label.long()), value, accumulate=True).flatten(1)


@contextmanager
def showing_shares(conv: AttentionConv, basis: Basis, edge_index: Any) -> Iterator[None]:
    """Context in which PyG's AttentionExplainer can read the shares from the layer.

    This is the only write to a layer during a call; threads may share layers.
    """
    conv._alpha = shares_of_edges(basis, edge_index)
    try:
        yield
    finally:
        conv._alpha = None


def values_of_edges(
    conv: AttentionConv, basis: Basis, edge_attr: Tensor | None, theta: ThetaValue
) -> Tensor:
    """The sum of the values of edge features under the shares of each head: (*batch, N, Q)."""
    if not isinstance(basis, MultiHeadEdges):
        raise RefusedValue("edge features come with the edges of the support", "edges", repr(basis))
    assert isinstance(theta, Theta)  # as the constructor checked
    if conv.explain and conv._edge_mask is not None and basis.pattern.origin is not None:
        mask = conv.edge_mask(basis.pattern.origin.long())
        basis = replace(basis, value=mask.view(-1, *(1,) * (basis.value.dim() - 1)) * basis.value)
    score = conv.family.score
    values = theta.collect(score.edge.of_values(basis, edge_attr, score.fill))
    return values if values.dim() == 2 else values.movedim(0, -2)
