"""PyG's DirGNNConv for families of both directions of the edges, or of the reversed ones."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import DirGNNConv, GCNConv
from torch_geometric.utils import add_remaining_self_loops

from ....families import GCN, Directed, Reverse, Scale
from ..settings import Settings
from .recipe import Recipe, no_peer


def directions(family: Directed | Reverse | Scale, data: Data, settings: Settings) -> Recipe:
    """DirGNNConv, (1 − α) Aᵀ X Θ_0 + α A X Θ_1, with the α that a family has.

    ``scale(directed(gcn), (1 - α, α))`` is this layer, and ``reverse(gcn)`` with α = 1. Without
    factors ``directed(gcn)`` is the same function with α = 1/2 and twice the weights. Its two
    GCNConv have no bias where the root has one, so that both layers have the same parameters.
    """
    factor, inner = (family.factor, family.family) if isinstance(family, Scale) else (None, family)
    gcn = inner.family if isinstance(inner, Directed | Reverse) else None
    is_reverse = isinstance(inner, Reverse)
    if not isinstance(gcn, GCN) or gcn.norm != "sym" or (factor is not None and is_reverse):
        raise no_peer("directed(gcn), scaled or not, or reverse(gcn)", repr(family))
    if gcn.improved or data.get("edge_weight") is not None:
        raise no_peer("edges of weight 1, self-loops too", "other weights")
    alpha, note = _alpha(factor, is_reverse), ""
    if factor is None and not is_reverse:
        note = (
            "it adds up a half of each direction; its weights begin twice as large as ours, so "
            "that both begin as the same function, but a step of training moves it half as far"
        )

    root = settings.root_weight

    def make(p: int, q: int) -> Module:
        return DirGNNConv(GCNConv(p, q, bias=not root), alpha=alpha, root_weight=root)

    edge_index = data.edge_index
    if gcn.add_self_loops:  # which PyG's layer never does
        edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=data.num_nodes)
    return Recipe(
        f"DirGNNConv(GCNConv{', bias=False' if root else ''}"
        f"{'' if alpha == 0.5 else f', alpha={alpha:g}'})",
        make,
        partial(_begin, 2.0 if note else 1.0),
        {"edge_index": edge_index},
        takes_sparse=True,
        note=note,
    )


def _alpha(factor: float | tuple[float, ...] | None, is_reverse: bool) -> float:
    """α of PyG's layer."""
    if factor is None:
        return 1.0 if is_reverse else 0.5
    forward, backward = factor if isinstance(factor, tuple) else (factor, factor)
    if forward + backward != 1 or not 0 <= backward <= 1:
        raise no_peer("factors 1 - α and α with α in [0, 1]", repr(factor))
    return backward


def _begin(times: float, conv: Any, mine: Any) -> None:
    matrices = list(mine.theta.weight)
    parts = [conv.conv_in, conv.conv_out][-len(matrices) :]  # or the reversed edges alone
    for one, matrix in zip(parts, matrices, strict=True):
        one.lin.weight.copy_(times * matrix.t())
    if mine.root is not None:
        conv.lin.weight.copy_(mine.root.weight[0].t())
        torch.nn.init.zeros_(conv.lin.bias)
