"""Layers with a matrix for each kind of edge: RGCNConv, FastRGCNConv, SignedConv."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Union

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as theirs
from torch_geometric.typing import Adj, OptTensor, PairTensor

from ..families import Relation
from ..memo import Memo
from ..nn import OuterConv
from .layer import DropIn, Recipe, as_linear
from .reductions import check_reduction, reduction
from .tie import Source, linear, same, viewed

_joined = Memo()


class RGCNConv(DropIn, theirs.RGCNConv):
    r"""Y = Σ_r A_rᵀ X Θ_r + X Θ_root, with A_r reduced by mean, sum, maximum or minimum.

    Θ_r is full, a mixture Σ_b c_rb V_b of ``num_bases`` matrices, or block-diagonal with
    ``num_blocks`` blocks. From the `"Modeling Relational Data with Graph Convolutional Networks"
    <https://arxiv.org/abs/1703.06103>`_ paper, equations 2 to 4.

    Unlike PyG's, it refuses edge types that are not below ``num_relations`` with a ValueError.
    """

    takes_pairs = True
    least = 100_000
    widens: ClassVar[bool] = True  # it adds up in the default dtype, whatever the features have

    def lacks(self) -> list[str]:
        return check_reduction(self)

    def recipe(self) -> Recipe:
        aggr = reduction(self)
        bias, root = self.bias is not None, self.root is not None
        conv = OuterConv(
            self.in_channels,
            self.out_channels,
            Relation(self.num_relations, "mean" if aggr == "mean" else None),
            bias=bias,
            theta=self._form(),
            aggr="sum" if aggr == "mean" else aggr,
            root_weight=root,
            flow=self.flow,
        )
        sources = {"theta.weight": same("weight")}
        if self.comp is not None:
            sources["theta.comp"] = same("comp")
        if root:
            sources["root.weight"] = viewed("root", 1, *self.root.shape)
        return conv, {**sources, "bias": same("bias")} if bias else sources

    def _is_small(self, x: Any, edge_index: Any) -> bool:
        """Not in a compiled graph, which PyG's loop over relations would break."""
        return not torch.compiler.is_compiling() and super()._is_small(x, edge_index)

    def _form(self) -> str:
        """The form of Θ."""
        if self.num_bases is not None:
            return f"basis-decomposed(num_bases={self.num_bases})"
        return (
            "full" if self.num_blocks is None else f"block-diagonal(num_blocks={self.num_blocks})"
        )

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        if beside.get("edge_type") is None:
            yield "no edge types"
        is_pair = isinstance(x, tuple | list)
        source = x[0] if is_pair else x
        if source is None or not source.is_floating_point():  # rows of Θ are the features
            if self.num_blocks is not None or self.aggr not in ("add", "sum", "mean"):
                yield "embeddings of nodes in blocks, or compared"
                return
            source = self.weight[0]
            x = (source, source) if is_pair else source
        yield from super()._of_inputs(x, edge_index)

    def convolve(self, conv: Any, x: Any, edge_index: Adj, edge_type: OptTensor = None) -> Tensor:
        out: Tensor = conv(x, edge_index, edge_type=edge_type)
        wide = torch.get_default_dtype() if self.widens else out.dtype
        return out.to(torch.promote_types(out.dtype, wide))

    def __prepare_scriptable__(self) -> Module:
        """The layer of PyG, with what a call of PyG's ``forward`` keeps and scripts ask for."""
        layer = super().__prepare_scriptable__()
        vars(layer).setdefault("_use_segment_matmul_heuristic_output", False)
        return layer


class FastRGCNConv(RGCNConv, DropIn, theirs.FastRGCNConv):  # type: ignore[misc]
    r"""Y = Σ_r A_rᵀ X Θ_r + X Θ_root, with A_r reduced by mean or sum; see :class:`RGCNConv`."""

    widens = False
    least = 30_000

    def lacks(self) -> list[str]:
        found = check_reduction(self, "sum", "mean")
        named = {"mean": "mean", "add": "sum", "sum": "sum"}.get(self.aggr)
        if not found and reduction(self) != named:
            found.append(f"aggr={self.aggr}, which PyG reads in the place of the aggr_module")
        return found

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        source = x[0] if isinstance(x, tuple | list) else x
        if source is not None and not source.is_floating_point():
            yield "indices of nodes, in whose place PyG takes the numbers of the nodes"
        yield from super()._of_inputs(x, edge_index, **beside)


class SignedConv(DropIn, theirs.SignedConv):
    r"""Y = [A₊ᵀ X Θ₊ + X Θ'₊ | A₋ᵀ X Θ₋ + X Θ'₋], with the means A₊, A₋ of both kinds of edges.

    Positive and negative edges are two labels. Of the first layer (``first_aggr``), Θ_k fills the
    columns of its own half of the output. In further layers X has the halves of balanced and
    unbalanced paths: a positive edge keeps the half, a negative one exchanges them, so that Θ₊ is
    block-diagonal, and Θ₋ has its blocks beside the diagonal. From the
    `"Signed Graph Convolutional Network" <https://arxiv.org/abs/1808.06354>`_ paper,
    equations 3 to 6.
    """

    edges_are = "pos_edge_index"
    trick = "Two convolutions, side by side."

    takes_pairs = True
    least = 1_000_000

    def lacks(self) -> list[str]:
        return check_reduction(self)

    def recipe(self) -> Recipe:
        aggr, bias = reduction(self), self.lin_pos_r.bias is not None
        conv = OuterConv(
            self.in_channels if self.first_aggr else 2 * self.in_channels,
            2 * self.out_channels,
            Relation(2, "mean" if aggr == "mean" else None),
            bias=bias,
            theta="columns" if self.first_aggr else "full",
            aggr="sum" if aggr == "mean" else aggr,
            root_weight=True,
            flow=self.flow,
        )
        if self.first_aggr:
            theta = linear("lin_pos_l", "lin_neg_l")
            root = Source("lin_pos_r.weight.T | lin_neg_r.weight.T", _side_by_side, _ROOTS)
        else:
            theta = Source("blocks of lin_pos_l.weight.T, lin_neg_l.weight.T", _blocks, _NEIGHBOURS)
            root = Source("blocks lin_pos_r.weight.T, lin_neg_r.weight.T", _diagonal, _ROOTS)
        sources = {"theta.weight": theta, "root.weight": root}
        if bias:
            sources["bias"] = Source("lin_pos_r.bias | lin_neg_r.bias", _biases)
        return conv, sources

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
