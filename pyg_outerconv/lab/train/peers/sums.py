"""PyG's layers of plain sums and means over neighbours: GINConv, GraphConv, SAGEConv."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch.nn import Linear, Module
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, GraphConv, SAGEConv

from ....families import GCN, Identity, Stack
from .recipe import Recipe


def gin(family: GCN, data: Data) -> Recipe | None:
    """GIN's layer with ε = 0 and one matrix, for ``gcn(norm=None)``: X (A + I)ᵀ Θ.

    A further layer (``update='mlp'``) makes it GIN's network of two.

    Returns:
        None where the family is another sum, or edges have weights or are self-loops.
    """
    plain = family.norm is None and family.add_self_loops and not family.improved
    if not plain or data.get("edge_weight") is not None or data.has_self_loops():
        return None
    return Recipe("GINConv", partial(_linear, GINConv), _begin_gin, {"edge_index": data.edge_index})


def neighbours_and_itself(family: Stack, data: Data) -> Recipe | None:
    """GraphConv for the sum over neighbours stacked with the node itself, SAGEConv for the mean.

    Returns:
        None where the family is another stack, or edges have weights.
    """
    parts = family.families
    if len(parts) != 2 or {type(part) for part in parts} != {GCN, Identity}:
        return None
    at = 0 if isinstance(parts[0], GCN) else 1
    sums = parts[at]
    assert isinstance(sums, GCN)
    means = sums.norm == "target"
    if sums.add_self_loops or not (means or sums.norm is None):
        return None
    if data.get("edge_weight") is not None:
        return None
    names = ("lin_l", "lin_r") if means else ("lin_rel", "lin_root")
    name, make = ("SAGEConv", SAGEConv) if means else ("GraphConv", GraphConv)
    return Recipe(name, make, partial(_begin_two, names, at), {"edge_index": data.edge_index})


def _linear(kind: type[Module], in_channels: int, out_channels: int) -> Module:
    return kind(Linear(in_channels, out_channels))


def _begin_gin(conv: Any, mine: Any) -> None:
    conv.nn.weight.copy_(mine.theta.weight[0].t())
    torch.nn.init.zeros_(conv.nn.bias)


def _begin_two(names: tuple[str, str], at: int, conv: Any, mine: Any) -> None:
    """Θ of the neighbours, which is number ``at``, and of the node itself."""
    for name, number in zip(names, (at, 1 - at), strict=True):
        linear = getattr(conv, name)
        linear.weight.copy_(mine.theta.weight[number].t())
        if linear.bias is not None:
            torch.nn.init.zeros_(linear.bias)
