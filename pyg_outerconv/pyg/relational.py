"""Layers with a matrix for each kind of edge: RGCNConv, FastRGCNConv, RGATConv, SignedConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, PairTensor, Size

from ..attention.edge_context import check_attr, of_given
from ..basis.pattern import Pattern
from ..families import Relation
from ..kernels import sddmm, segment_softmax, spmm
from ..memo import Memo
from ..theta import as_theta
from .layer import DropIn, Recipe, as_linear, both
from .reductions import EACH, reduction
from .tie import Source, linear, same, viewed

_joined = Memo()


class RGCNConv(DropIn, theirs.RGCNConv):
    """Y = Σ_r A_rᵀ X Θ_r + X Θ_root, with A_r reduced by mean, sum, maximum or minimum.

    Θ_r is full, a mixture Σ_b c_rb V_b of ``num_bases`` matrices, or block-diagonal with
    ``num_blocks`` blocks.

    Unlike PyG's, it refuses edge types that are not below ``num_relations`` with a ValueError.
    """

    reductions = EACH
    takes_pairs = True
    least = 100_000
    widens: ClassVar[bool] = True  # it adds up in the default dtype, whatever the features have

    def recipe(self) -> Recipe:
        return self.convolution(
            Relation(self.num_relations, None),
            same("weight"),
            None if self.root is None else viewed("root", 1, *self.root.shape),
            form=form_of(self),
            channels=self.in_channels,
            beside=None if self.comp is None else {"theta.comp": same("comp")},
        )

    def _is_small(self, x: Any, edge_index: Any) -> bool:
        """Not in a compiled graph, which PyG's loop over relations would break."""
        return not torch.compiler.is_compiling() and super()._is_small(x, edge_index)

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        if beside.get("edge_type") is None:
            yield "no edge types"
        source = both(x)[0]
        if source is None or not source.is_floating_point():  # rows of Θ are the features
            if self.num_blocks is not None or self.aggr not in ("add", "sum", "mean"):
                yield "embeddings of nodes in blocks, or compared"
                return
            source = self.weight[0]
            x = (source, source) if isinstance(x, tuple | list) else source
        yield from super()._of_inputs(x, edge_index, *args, **beside)

    def convolve(self, conv: Any, x: Any, edge_index: Adj, edge_type: OptTensor = None) -> Tensor:
        out: Tensor = conv(x, edge_index, edge_type=edge_type)
        wide = torch.get_default_dtype() if self.widens else out.dtype
        return out.to(torch.promote_types(out.dtype, wide))

    def __prepare_scriptable__(self) -> Module:
        """The layer of PyG, with what a call of PyG's ``forward`` keeps and scripts ask for."""
        layer = super().__prepare_scriptable__()
        vars(layer).setdefault("_use_segment_matmul_heuristic_output", False)
        return layer


def form_of(layer: Any) -> str:
    """The form of Θ of a layer with ``num_bases`` or ``num_blocks``."""
    if layer.num_bases is not None:
        return f"basis-decomposed(num_bases={layer.num_bases})"
    return "full" if layer.num_blocks is None else f"block-diagonal(num_blocks={layer.num_blocks})"


class FastRGCNConv(RGCNConv, theirs.FastRGCNConv):  # type: ignore[misc]
    """Y = Σ_r A_rᵀ X Θ_r + X Θ_root, with A_r reduced by mean or sum; see :class:`RGCNConv`."""

    reductions = ("sum", "mean")
    widens = False
    least = 30_000

    def lacks(self) -> list[str]:
        reasons = super().lacks()
        named = {"mean": "mean", "add": "sum", "sum": "sum"}.get(self.aggr)
        if not reasons and reduction(self) != named:
            reasons.append(f"aggr={self.aggr}, which PyG reads in the place of the aggr_module")
        return reasons

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        source = both(x)[0]
        if source is not None and not source.is_floating_point():
            yield "indices of nodes, in whose place PyG takes the numbers of the nodes"
        yield from super()._of_inputs(x, edge_index, *args, **beside)


class RGATConv(DropIn, theirs.RGATConv):
    """Y = Σ_r Σ_h A_{r,h}ᵀ X Θ_{r,h}, A_{r,h} = softmax of scores of ⟨Q_h, X_n Θ_r⟩ and
    ⟨K_h, X_m Θ_r⟩.

    Scores are leaky ReLUs of sums, or products; the softmax is over the edges of a target, or of a
    target and a relation. All is made of the values X Θ_r of nodes: no edge has a Θ or a vector.
    :meth:`recipe` is the convolution without attention; its Θ and X Θ_r are those of the layer.
    """

    trick = "The values of edges come from scores under each relation."

    least = 2**13

    def outside(self) -> list[str]:
        edge = "" if self.lin_edge is None else ", and of edges by lin_edge and e"
        descriptions = [f"shares of the edges of all relations, by q and k of both ends{edge}"]
        descriptions.append(
            "w, or l1, b1, l2 and b2, of the number of edges, where mod asks for it"
        )
        return descriptions if self.bias is None else [*descriptions, "bias"]

    def recipe(self) -> Recipe:
        is_mixed = self.num_bases is not None
        return self.convolution(
            Relation(self.num_relations, None),
            same("basis" if is_mixed else "weight"),
            bias=None,
            form=form_of(self),
            channels=self.in_channels,
            out_channels=self.heads * self.out_channels,
            beside={"theta.comp": same("att")} if is_mixed else None,
        )

    def skipped(self) -> list[Module]:
        return [*super().skipped(), *([] if self.lin_edge is None else [self.lin_edge])]

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        yield from super()._of_inputs(x, edge_index, *args, **beside)
        if beside.get("edge_attr") is not None and self.lin_edge is None:
            yield "edge attributes that no linear map reads"
        if beside.get("edge_type") is None:
            yield "no edge types"

    def convolve(
        self,
        conv: Any,
        x: Tensor,
        edge_index: Adj,
        edge_type: OptTensor = None,
        edge_attr: OptTensor = None,
        size: Size = None,
        **unread: Any,
    ) -> Tensor:
        pattern = conv.basis(x, edge_index, edge_type=edge_type, size=size).edges().pattern
        values = as_theta(conv.theta.parameter(x)).transform(x).flatten(0, 1)  # (M·R, H·C)
        shares = self._shares(pattern, self._scores(pattern, values, edge_attr))
        received = self._received(pattern, shares, values)
        return self._collected(self._preserved(pattern, received, values))

    def _scores(self, pattern: Pattern, values: Tensor, edge_attr: OptTensor) -> Tensor:
        """The scores (E, H·D) of the edges, from numbers of nodes under each relation."""
        query, key = values @ self.q, values @ self.k
        of_edge = None
        if edge_attr is not None:
            folded = self.lin_edge.weight.t() @ self.e
            of_edge = of_given(pattern, check_attr(edge_attr)) @ folded
        if self.attention_mode == "additive-self-attention":
            scores = sddmm(pattern.by_both, query, key, op="add")
            return F.leaky_relu(
                scores if of_edge is None else scores + of_edge, self.negative_slope
            )
        scores = sddmm(pattern.by_both, query.unsqueeze(-1), key.unsqueeze(-1))
        return scores if of_edge is None else scores * of_edge

    def _shares(self, pattern: Pattern, scores: Tensor) -> Tensor:
        """The values (E, H·D) of A: the softmax of a target's scores, perhaps of one relation."""
        within = self.attention_mechanism == "within-relation"
        shares = segment_softmax(pattern.by_both if within else pattern.by_target, scores)
        if self.mod == "f-additive":
            shares = torch.where(shares > 0, shares + 1, shares)
        elif self.mod not in ("additive", "scaled", "f-scaled"):
            shares = F.dropout(shares, self.dropout, self.training)
        return shares

    def _received(self, pattern: Pattern, shares: Tensor, values: Tensor) -> Tensor:
        """Σ_r A_{r,h}ᵀ X Θ_{r,h} for every head and dimension of scores: (N, H, D, C)."""
        of_heads = values.unflatten(-1, (self.heads, self.out_channels))
        of_dims = shares.to(values.dtype).unflatten(-1, (self.heads, self.dim)).unbind(-1)
        return torch.stack([spmm(pattern.by_target, one, of_heads) for one in of_dims], dim=2)

    def _preserved(self, pattern: Pattern, received: Tensor, values: Tensor) -> Tensor:
        """The received values with the number of edges that reach a target brought in."""
        if self.mod == "additive":
            ones = values.new_ones(pattern.num_edges)
            plain = spmm(pattern.by_target, ones, values).unflatten(-1, (self.heads, 1, -1))
            return received + self.w * plain
        if self.mod in ("scaled", "f-scaled"):
            degree = pattern.target_ptr.diff().to(values.dtype).view(-1, 1)
            if self.mod == "scaled":
                degree = (degree @ self.l1 + self.b1).relu() @ self.l2 + self.b2
            return received * degree.view(degree.size(0), 1, 1, -1)
        return received

    def _collected(self, received: Tensor) -> Tensor:
        """The heads side by side, or their mean, and the bias."""
        out = received.flatten(1) if self.concat else received.mean(1).flatten(1)
        return out if self.bias is None else out + self.bias


class SignedConv(DropIn, theirs.SignedConv):
    """Y = [A₊ᵀ X Θ₊ + X Θ'₊ | A₋ᵀ X Θ₋ + X Θ'₋], with the means A₊, A₋ of both kinds of edges.

    Positive and negative edges are two labels. Of the first layer (``first_aggr``), Θ_k fills the
    columns of its own half of the output. In further layers X has the halves of balanced and
    unbalanced paths: a positive edge keeps the half, a negative one exchanges them, so that Θ₊ is
    block-diagonal, and Θ₋ has its blocks beside the diagonal.
    """

    edges_are = "pos_edge_index"
    trick = "Two convolutions, side by side."

    reductions = EACH
    takes_pairs = True
    least = 1_000_000

    def recipe(self) -> Recipe:
        if self.first_aggr:
            theta = linear("lin_pos_l", "lin_neg_l")
            root = Source("lin_pos_r.weight.T | lin_neg_r.weight.T", _side_by_side, _ROOTS)
        else:
            theta = Source("blocks of lin_pos_l.weight.T, lin_neg_l.weight.T", _blocks, _NEIGHBOURS)
            root = Source("blocks lin_pos_r.weight.T, lin_neg_r.weight.T", _diagonal, _ROOTS)
        bias = Source("lin_pos_r.bias | lin_neg_r.bias", _biases)
        return self.convolution(
            Relation(2, None),
            theta,
            root,
            None if self.lin_pos_r.bias is None else bias,
            form="columns" if self.first_aggr else "full",
            channels=self.in_channels if self.first_aggr else 2 * self.in_channels,
            out_channels=2 * self.out_channels,
        )

    def _of_inputs(  # type: ignore[override]
        self, x: Any, pos_edge_index: Any, neg_edge_index: Any = None, **beside: Any
    ) -> Iterator[str]:
        yield from super()._of_inputs(x, pos_edge_index)
        yield from super()._of_inputs(x, neg_edge_index)

    def convolve(
        self, conv: Any, x: Union[Tensor, PairTensor], pos_edge_index: Adj, neg_edge_index: Adj
    ) -> Tensor:
        edge_index, kind = _join(pos_edge_index, neg_edge_index)
        return as_linear(conv(x, edge_index, edge_type=kind))


_NEIGHBOURS, _ROOTS = ("lin_pos_l", "lin_neg_l"), ("lin_pos_r", "lin_neg_r")


def _side_by_side(layer: Any) -> Tensor:
    """(1, P, 2Q)"""
    return torch.cat([layer.lin_pos_r.weight, layer.lin_neg_r.weight]).t().unsqueeze(0)


def _diagonal(layer: Any) -> Tensor:
    """(1, 2P, 2Q)"""
    return torch.block_diag(layer.lin_pos_r.weight, layer.lin_neg_r.weight).t().unsqueeze(0)


def _blocks(layer: Any) -> Tensor:
    """(2, 2P, 2Q): each linear map has a block for neighbours by positive edges, then negative."""
    pos, neg = (getattr(layer, name).weight.t().chunk(2) for name in _NEIGHBOURS)
    crossed = torch.block_diag(neg[1], pos[1]).roll(layer.out_channels, 1)
    return torch.stack([torch.block_diag(pos[0], neg[0]), crossed])


def _biases(layer: Any) -> Tensor:
    return torch.cat([layer.lin_pos_r.bias, layer.lin_neg_r.bias])


def _join(positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Both lists of edges as one, and the label of each edge; kept as long as both lists."""

    def make() -> tuple[Tensor, Tensor]:
        both = torch.cat([positive, negative], dim=1)
        kind = both.new_zeros(both.size(1))
        kind[positive.size(1) :] = 1
        return both, kind

    return _joined.get(None, make, positive, negative)  # type: ignore[no-any-return]
