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
        found = super().lacks()
        named = {"mean": "mean", "add": "sum", "sum": "sum"}.get(self.aggr)
        if not found and reduction(self) != named:
            found.append(f"aggr={self.aggr}, which PyG reads in the place of the aggr_module")
        return found

    def _of_inputs(self, x: Any, edge_index: Any, *args: Any, **beside: Any) -> Iterator[str]:
        source = both(x)[0]
        if source is not None and not source.is_floating_point():
            yield "indices of nodes, in whose place PyG takes the numbers of the nodes"
        yield from super()._of_inputs(x, edge_index, *args, **beside)


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
