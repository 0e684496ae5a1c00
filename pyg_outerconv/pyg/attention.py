"""Attention over edges: GATConv, GATv2Conv, TransformerConv, SuperGATConv and AGNNConv."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, ClassVar, Optional, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, PairTensor, Size
from torch_geometric.utils import add_self_loops, remove_self_loops

from ..basis import EdgeBasis
from ..basis.pattern import Pattern
from ..errors import RefusedType
from ..kernels import sddmm
from ..kernels.attend_few import attend_few
from ..kernels.edge_sums import Listed
from ..kernels.index_checks import is_exporting, surely
from ..kernels.one_more_row import with_one_more, without_last
from ..nn.attention import agnn_conv, gat_conv, gatv2_conv, super_gat_conv, transformer_conv
from .layer import DropIn, Recipe, as_linear, as_weighted, both
from .tie import HOOKS, Source, heads, linear, same, viewed

FEW = "few edges"
"""In the place of a convolution: the call is traced by :meth:`TracedAttention.few`."""


def ends(layer: Any, source: Any, target: Any) -> int | tuple[int, int]:
    """Input channels: one number where both ends share a linear map, else a pair."""
    width: int = source.in_channels
    return width if isinstance(layer.in_channels, int) else (width, target.in_channels)


def sources_of(layer: Any, conv: Module, paths: Mapping[str, str]) -> dict[str, Source]:
    """The parameters of a convolution as functions of a layer's, by their paths in it."""
    parameters, sources = dict(conv.named_parameters()), {}
    for name, path in paths.items():
        if name not in parameters:
            continue
        shape, part = parameters[name].shape, path.removesuffix(".weight")
        if part != path and len(shape) == 3:  # of a linear map, which the convolution does not call
            sources[name] = linear(part) if name == "root.weight" else heads(part, layer.heads)
        else:
            own = attrgetter(path)(layer)  # None where a bias was taken out
            is_same = own is not None and own.shape == shape
            sources[name] = same(path) if is_same else viewed(path, *shape)
            sources[name] = sources[name]._replace(linears=() if part == path else (part,))
    return sources


class EdgeAttention(DropIn):
    """Attention over edges, perhaps with attributes, whose shares may be dropped.

    Attributes:
        ignores_attributes: whether PyG takes attributes that no linear map reads.
    """

    transforms_first = True
    ignores_attributes: ClassVar[bool] = False

    def lacks(self) -> list[str]:
        all_dropped = [f"dropout={self.dropout} leaves no attention"] if self.dropout >= 1 else []
        return super().lacks() + all_dropped

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        is_read, edge_attr = self.lin_edge is not None, beside.get("edge_attr")
        if edge_attr is None and is_read:
            yield "no edge attributes for lin_edge"
        elif not (edge_attr is None or is_read or self.ignores_attributes):
            yield "edge attributes that no linear map reads"
        has_targets = not isinstance(x, tuple | list) or x[1] is not None
        if not has_targets and self.add_self_loops and isinstance(edge_index, EdgeIndex):
            yield "an EdgeIndex, to which PyG adds a target for each source"


class TracedAttention(EdgeAttention):
    """Attention that a compiler sees whole where edges are few, by the steps of :meth:`few`.

    PyG's messages would be traced in their place, with more to be looked at in each call.

    Attributes:
        times_least: edges are few up to so many times ``least``.
    """

    times_least: ClassVar[int] = 1

    def few(self, x: Tensor, entries: Listed) -> Tensor:
        """Values received by the heads, (N, H, V), by steps that a compiler sees whole."""
        raise NotImplementedError

    def _whole(self, arguments: Mapping[str, Any]) -> Any:
        return FEW if self._sees_few(arguments) else None

    def _sees_few(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a compiler traces a call over few edges, of features and edges alone."""
        if is_exporting():
            return False
        x, edge_index = arguments["x"], arguments["edge_index"]
        for name in arguments:
            if name not in ("x", "edge_index") and arguments[name] is not None:
                return False
        if type(x) is not Tensor or type(edge_index) is not Tensor or x.dim() != 2:
            return False
        if not (x.is_cpu and x.is_floating_point() and self.node_dim in (-2, 0)):
            return False
        if torch.is_autocast_enabled("cpu") or edge_index.layout is not torch.strided:
            return False
        is_plain = self.lin_edge is None and not (self.training and self.dropout > 0)
        if not is_plain or self.explain:
            return False
        width = self.heads * self.out_channels
        if not surely(edge_index.size(-1) * width < self.least * self.times_least):
            return False
        return self._is_bare() and not any(vars(self)[name] for name in HOOKS)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _is_bare(self) -> bool:
        """Whether the recipe says all that this layer does, asked while a compiler traces it."""
        tied = self._tied()
        return tied.conv is not None and not tied.watch.is_seen()

    def over_few(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Heads side by side, or their mean, over few edges: (N, Q)."""
        forth = self.flow == "source_to_target"
        source, target = edge_index.unbind(0) if forth else edge_index.flip(0).unbind(0)
        nodes = x.size(0)
        out = self.few(x, Listed(target, source, (nodes, nodes)))
        return out.flatten(1) if self.concat else out.mean(1)

    def with_residual(self, out: Tensor, x: Tensor) -> Tensor:
        """The result (N, Q) with the residual and the bias that a layer may have."""
        out = out if self.res is None else out + self.res(x)
        return out if self.bias is None else out + self.bias

    def of_heads(self, x: Tensor) -> Tensor:
        """(N, H·V) as (N, H, V)."""
        return x.unflatten(1, (self.heads, self.out_channels))


def looped(
    layer: Any, x: Any, edge_index: Tensor, edge_attr: OptTensor = None, size: Size = None
) -> tuple[Any, EdgeBasis, OptTensor]:
    """Features and edges for a compiler: without their self-loops, and with one at each node.

    How many self-loops there are it does not know. Where sources and targets are the same nodes,
    they become those of one more node, the last, so that the number of edges is known.
    """
    if isinstance(x, Tensor):
        nodes = x.size(-2)
        edge_index = torch.where(edge_index[0] == edge_index[1], nodes, edge_index)
        x, nodes = with_one_more(x), nodes + 1
        size = nodes, nodes
    else:
        edge_index, edge_attr = remove_self_loops(edge_index, edge_attr)
        ends = [one for one in x if one is not None]
        size = (x[0].size(0), ends[-1].size(0)) if size is None else size
        nodes = min(size)
    fill = getattr(layer, "fill_value", None)
    edge_index, edge_attr = add_self_loops(edge_index, edge_attr, fill, nodes)
    edge_index = edge_index if layer.flow == "source_to_target" else edge_index.flip(0)
    pattern = Pattern.of_list(edge_index, size=size, origin=edge_index.size(1))
    return x, EdgeBasis(pattern), edge_attr


def attended(
    layer: Any, conv: Any, x: Any, edge_index: Adj, edge_attr: OptTensor = None, size: Size = None
) -> Tensor:
    """The result of a convolution of attention, whose self-loops a compiler sees as such."""
    if not (layer.add_self_loops and torch.compiler.is_compiling()):
        return conv(x, edge_index, edge_attr=edge_attr, size=size)  # type: ignore[no-any-return]
    wide, edges, edge_attr = looped(layer, x, edge_index, edge_attr, size)
    out: Tensor = conv(wide, edges, edge_attr=edge_attr)
    return without_last(out) if isinstance(x, Tensor) else out


class GATConv(TracedAttention, theirs.GATConv):
    """Y = Σ_h A_hᵀ X Θ_h, A_h[m, n] = softmax_m leaky_relu(⟨a_s, X_m Θ_h⟩ + ⟨a_t, X_n Θ_h⟩)."""

    takes_pairs = True
    ignores_attributes = True
    least = 2**18

    def recipe(self) -> Recipe:
        path = "lin_src" if self.lin is None else "lin"
        conv = gat_conv(
            ends(self, getattr(self, path), self.lin_dst),
            self.out_channels,
            self.heads,
            self.concat,
            self.negative_slope,
            self.dropout,
            self.add_self_loops,
            None if self.lin_edge is None else self.lin_edge.in_channels,
            self.fill_value,
            bias=self.bias is not None,
            residual=self.res is not None,
            flow=self.flow,
        )
        paths = {
            "theta.weight": f"{path}.weight",
            "functions.0.att_source": "att_src",
            "functions.0.att_target": "att_dst",
            "functions.0.ends.target.weight": "lin_dst.weight",
            "functions.0.edge.projection.weight": "lin_edge.weight",
            "functions.0.edge.att": "att_edge",
            "bias": "bias",
            "root.weight": "res.weight",
        }
        return conv, sources_of(self, conv, paths)

    def few(self, x: Tensor, entries: Listed) -> Tensor:
        linear = self.lin_src if self.lin is None else self.lin
        values = self.of_heads(linear(x))
        at_source, at_target = (values * self.att_src).sum(-1), (values * self.att_dst).sum(-1)
        score = F.leaky_relu(entries.add(at_target, at_source), self.negative_slope)
        loops = None
        if self.add_self_loops:
            loops = F.leaky_relu(at_source + at_target, self.negative_slope)
        return attend_few(entries, score, values, loops)

    def convolve(
        self,
        conv: Any,
        x: Any,
        edge_index: Adj,
        edge_attr: OptTensor = None,
        size: Size = None,
        return_attention_weights: Optional[bool] = None,
    ) -> Any:
        if conv is FEW:
            return self.with_residual(self.over_few(x, edge_index), x)
        edge_attr = None if self.lin_edge is None else edge_attr
        if not torch.compiler.is_compiling():
            return as_weighted(conv(x, edge_index, edge_attr=edge_attr, size=size), self, "att_src")
        out = None
        if self.add_self_loops and edge_attr is None and size is None and isinstance(x, Tensor):
            out = conv.as_one_operator(x, edge_index)
        if out is None:
            out = attended(self, conv, x, edge_index, edge_attr, size)
        return as_weighted(out, self, "att_src")


class GATv2Conv(TracedAttention, theirs.GATv2Conv):
    """Y = Σ_h A_hᵀ (X Θ_h + b_h), A_h[m, n] = softmax_m ⟨a, leaky_relu(X_m Θ_h + X_n W_h + b)⟩."""

    takes_pairs = True
    least = 2**19
    # Loops of a compiler take less time than sorted edges up to here. A loop of the backward pass
    # holds one tensor of so many numbers.
    times_least = 8

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        if (self.bias is None) is not (getattr(self.lin_l, "bias", None) is None):
            reasons.append("a bias of values or of outputs alone")
        return reasons

    def recipe(self) -> Recipe:
        conv = gatv2_conv(
            ends(self, self.lin_l, self.lin_r),
            self.out_channels,
            self.heads,
            self.concat,
            self.negative_slope,
            self.dropout,
            self.add_self_loops,
            None if self.lin_edge is None else self.lin_edge.in_channels,
            self.fill_value,
            self.lin_l.bias is not None,
            self.share_weights,
            self.res is not None,
            flow=self.flow,
        )
        paths = {
            "theta.weight": "lin_l.weight",
            "functions.0.att": "att",
            "value_bias": "lin_l.bias",
            "functions.0.ends.target.weight": "lin_r.weight",
            "functions.0.ends.target.bias": "lin_r.bias",
            "functions.0.edge.weight": "lin_edge.weight",
            "bias": "bias",
            "root.weight": "res.weight",
        }
        return conv, sources_of(self, conv, paths)

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
        if both(x)[1] is None:
            yield "no features of targets"

    def few(self, x: Tensor, entries: Listed) -> Tensor:
        at_source = self.of_heads(self.lin_l(x))
        at_target = at_source if self.share_weights else self.of_heads(self.lin_r(x))

        def score(z: Tensor) -> Tensor:
            return (F.leaky_relu(z, self.negative_slope) * self.att).sum(-1)

        loops = score(at_source + at_target) if self.add_self_loops else None
        sent = at_source.index_select(0, entries.col)
        of_edges = score(at_target.index_select(0, entries.row) + sent)
        return attend_few(entries, of_edges, at_source, loops, sent)

    def convolve(
        self,
        conv: Any,
        x: Union[Tensor, PairTensor],
        edge_index: Adj,
        edge_attr: OptTensor = None,
        **unread: Any,
    ) -> Tensor:
        if conv is FEW:
            return self.with_residual(self.over_few(x, edge_index), x)  # type: ignore[arg-type]
        return as_weighted(attended(self, conv, x, edge_index, edge_attr), self, "att")


class TransformerConv(TracedAttention, theirs.TransformerConv):
    """Y = Σ_h A_hᵀ (X V_h + b_h) + X W, A_h[m, n] = softmax_m ⟨X_n Q_h, X_m K_h⟩ / √C.

    With ``beta`` the skip X W is gated; features of edges are added to keys and to values.
    """

    takes_pairs = True
    add_self_loops = False
    least = 2**20

    def unused(self) -> tuple[str, ...]:
        return () if self.root_weight else ("lin_skip.", "lin_beta.")

    def recipe(self) -> Recipe:
        conv = transformer_conv(
            ends(self, self.lin_key, self.lin_query),
            self.out_channels,
            self.heads,
            self.concat,
            self.root_weight and self.lin_beta is not None,
            self.dropout,
            None if self.lin_edge is None else self.lin_edge.in_channels,
            self.lin_key.bias is not None,
            self.root_weight,
            flow=self.flow,
        )
        paths = {
            "theta.weight": "lin_value.weight",
            "functions.0.key.weight": "lin_key.weight",
            "functions.0.query.weight": "lin_query.weight",
            "value_bias": "lin_value.bias",
            "functions.0.key.bias": "lin_key.bias",
            "functions.0.query.bias": "lin_query.bias",
            "functions.0.edge.weight": "lin_edge.weight",
            "skip.weight": "lin_skip.weight",
            "skip.bias": "lin_skip.bias",
            "gate.weight": "lin_beta.weight",
        }
        return conv, sources_of(self, conv, paths)

    def _of_inputs(self, x: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, *args, **beside)
        edge_attr = beside.get("edge_attr")
        if edge_attr is not None and edge_attr.dim() != 2:
            yield f"edge attributes of {edge_attr.dim()} dimensions"

    def few(self, x: Tensor, entries: Listed) -> Tensor:
        query, key, value = (
            self.of_heads(linear(x)) for linear in (self.lin_query, self.lin_key, self.lin_value)
        )
        score = entries.dot(query, key) / math.sqrt(self.out_channels)
        return attend_few(entries, score, value)

    def convolve(
        self, conv: Any, x: Any, edge_index: Adj, edge_attr: OptTensor = None, **unread: Any
    ) -> Tensor:
        if conv is FEW:
            out = self.over_few(x, edge_index)
            if not self.root_weight:
                return out
            skip = self.lin_skip(x)
            if self.lin_beta is None:
                return out + skip
            gate = self.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
            return gate * skip + (1 - gate) * out
        return conv(x, edge_index, edge_attr=edge_attr)  # type: ignore[no-any-return]


# By how alike both ends are ----------------------------------------------------------------------


class SuperGATConv(EdgeAttention, theirs.SuperGATConv):
    """Y = Σ_h A_hᵀ X Θ_h, A_h[m, n] = softmax_m leaky_relu(s_h[m, n]), with scores s of products.

    ``'SD'``: s_h[m, n] = ⟨X_m Θ_h, X_n Θ_h⟩ / √C; ``'MX'``: the score of GAT times
    σ(⟨X_m Θ_h, X_n Θ_h⟩). In training the products of sampled edges are kept for
    ``get_attention_loss()``.
    """

    lin_edge: Any = None
    least = 2**18

    def recipe(self) -> Recipe:
        conv = super_gat_conv(
            self.lin.in_channels,
            self.out_channels,
            self.heads,
            self.concat,
            self.negative_slope,
            self.dropout,
            self.add_self_loops,
            self.bias is not None,
            self.attention_type,
            flow=self.flow,
        )
        paths = {
            "theta.weight": "lin.weight",
            "functions.0.att_source": "att_l",
            "functions.0.att_target": "att_r",
            "bias": "bias",
        }
        return conv, sources_of(self, conv, paths)

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        edge_index: Adj,
        neg_edge_index: OptTensor = None,
        batch: OptTensor = None,
    ) -> Tensor:
        out = attended(self, conv, x, edge_index)
        if self.training:
            self._keep_products(x, edge_index, neg_edge_index, batch)
        if self.attention_type == "SD":  # of features alone
            return as_linear(out) if self.bias is None else as_weighted(out, self, "bias")
        return as_weighted(out, self, "att_l")

    def _keep_products(
        self, x: Tensor, edge_index: Tensor, negative: OptTensor, batch: OptTensor
    ) -> None:
        """Set ``att_x``, the products of sampled edges and of pairs without edges, and ``att_y``.

        The samples are drawn as PyG draws them.
        """
        if self.add_self_loops:
            edge_index, _ = remove_self_loops(edge_index)
            edge_index, _ = add_self_loops(edge_index, num_nodes=x.size(0))
        positive = self.positive_sampling(edge_index)
        if negative is None:
            negative = self.negative_sampling(edge_index, x.size(0), batch)
        if negative.dtype != edge_index.dtype:
            rule = "negative edges are pairs of nodes, as edges are"
            raise RefusedType(rule, edge_index.dtype, negative.dtype)
        values = self.lin(x).view(-1, self.heads, self.out_channels)
        scale = self.out_channels**-0.5 if self.attention_type == "SD" else 1.0
        products = _products(values, scale, torch.cat([positive, negative], dim=1))
        is_edge = products.new_zeros(products.size(0))
        is_edge[: positive.size(1)] = 1.0
        self.__dict__.update(att_x=products, att_y=is_edge)  # no option: the recipe stays


def _products(x: Tensor, scale: float, pairs: Tensor) -> Tensor:
    """scale ⟨x_m, x_n⟩ of each head, (E, H), for x (N, H, C) and pairs of nodes (2, E)."""
    pattern = Pattern.build(pairs, size=(x.size(0), x.size(0)))
    products = sddmm(pattern.by_target, x * scale, x)
    return torch.zeros_like(products).index_copy(0, pattern.order.long(), products)


class AGNNConv(DropIn, theirs.AGNNConv):
    """Y = Aᵀ X, A[m, n] = softmax_m β cos(X_m, X_n)."""

    least = 2**18

    def recipe(self) -> Recipe:
        conv = agnn_conv(self.requires_grad, self.add_self_loops, flow=self.flow)
        return conv, {"functions.0.beta": same("beta")}

    def convolve(self, conv: Any, x: Tensor, edge_index: Adj) -> Tensor:
        conv.theta.in_channels = conv.theta.out_channels = x.size(-1)  # Θ is the identity
        out = attended(self, conv, x, edge_index)
        return out.to(torch.promote_types(out.dtype, self.beta.dtype))
