"""The peers: imported where installed, and layers of PyG's with the weights of ours."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import ChebConv, GATConv, GCNConv, RGCNConv, SAGEConv
from torch_geometric.utils import to_torch_csr_tensor

from ...families import GCN, Chebyshev, Relation
from ...nn import OuterConv
from ...nn.attention.graph_attention import gat_conv
from ...pyg import outer_conv
from .case import DGL, PYG_COMPILED, SCATTER, Contender, Context, layer_contender

HEADS, RELATIONS, TERMS = 4, 3, 3
_MODULES = {SCATTER: "torch_scatter", DGL: "dgl"}


def load_peer(name: str, absent: dict[str, str]) -> Any:
    """The module of a peer, or None with the reason put into ``absent``."""
    try:
        return importlib.import_module(_MODULES[name])
    except Exception as error:  # an extension built for another torch fails in its own ways
        missing = isinstance(error, ModuleNotFoundError) and error.name == _MODULES[name]
        absent[name] = "not installed" if missing else f"{type(error).__name__}: {error}"
        return None


def compiled(
    context: Context,
    absent: dict[str, str],
    step: Callable[..., Tensor],
    arguments: tuple[Tensor, ...],
    x: Tensor,
    parameters: Iterable[Tensor],
    direction: Tensor,
) -> list[Contender]:
    """PyG's layer under ``torch.compile``; in a quick run none, the reason put into ``absent``."""
    if context.quick:
        absent[PYG_COMPILED] = "left out of a quick run, which compiling would take most of"
        return []
    torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    fused = torch.compile(step)
    return [layer_contender(PYG_COMPILED, lambda: fused(*arguments), x, parameters, direction)]


def adjacency(edge_index: Tensor, weight: Tensor | None, nodes: int) -> Tensor:
    """The transposed matrix of some edges as torch CSR, which PyG's layers take as ``adj_t``."""
    matrix: Tensor = to_torch_csr_tensor(edge_index.flip(0), weight, size=(nodes, nodes))
    return matrix


def set_parameter(parameter: Tensor, value: Tensor) -> None:
    """Give one layer the weights of another."""
    with torch.no_grad():
        parameter.copy_(value)


@dataclass(frozen=True)
class Pair:
    """A layer of ours and PyG's.

    Attributes:
        ours, theirs: called with x, ``edge_index``, and edge types if they are ``typed``.
        typed: whether edges have types, of which there are ``RELATIONS``.
        kept: PyG's layer with ``cached=True``, where it has that option.
    """

    ours: Module
    theirs: Module
    typed: bool = False
    kept: Module | None = None


def _gcn(p: int, q: int, cached: bool) -> Pair:
    ours = OuterConv(p, q, GCN(), cached=cached or None)
    peers = GCNConv(p, q), GCNConv(p, q, cached=True)
    for peer in peers:
        set_parameter(peer.lin.weight, ours.theta()[0, 0].t())
    return Pair(ours, peers[0], kept=peers[1])


def _sage(p: int, q: int, cached: bool) -> Pair:
    ours = OuterConv(p, q, Relation(), root_weight=True, cached=cached or None)
    theirs = SAGEConv(p, q)
    _take(ours, theta=_column(theirs.lin_l), root=_column(theirs.lin_r), bias=theirs.lin_l.bias)
    return Pair(ours, theirs)


def _chebyshev(p: int, q: int, cached: bool) -> Pair:
    ours = OuterConv(p, q, Chebyshev(TERMS), cached=cached or None)
    theirs = ChebConv(p, q, K=TERMS)
    _take(ours, theta=torch.cat([_column(lin) for lin in theirs.lins]), bias=theirs.bias)
    return Pair(ours, theirs)


def _rgcn(p: int, q: int, cached: bool) -> Pair:
    ours = OuterConv(p, q, Relation(RELATIONS), root_weight=True, cached=cached or None)
    theirs = RGCNConv(p, q, RELATIONS)
    _take(ours, theta=theirs.weight, root=theirs.root[None], bias=theirs.bias)
    return Pair(ours, theirs, typed=True)


def _gat(p: int, q: int, cached: bool) -> Pair:
    theirs = GATConv(p, q // HEADS, heads=HEADS)
    ours = gat_conv(p, q // HEADS, heads=HEADS, cached=cached or None)
    ours.load_state_dict(outer_conv(theirs).state_dict())
    return Pair(ours, theirs)


def _column(lin: Any) -> Tensor:
    """Θ (1, P, Q) of a ``Linear``, whose weight is (Q, P)."""
    weight: Tensor = lin.weight
    return weight.t()[None]


def _take(ours: OuterConv, **values: Tensor) -> None:
    parameters = dict(ours.named_parameters())
    for name, value in values.items():
        set_parameter(parameters[name if name == "bias" else f"{name}.weight"], value)


PAIRS: dict[str, Callable[[int, int, bool], Pair]] = {
    "gcn": _gcn,
    "sage": _sage,
    "chebyshev": _chebyshev,
    "rgcn": _rgcn,
    "gat": _gat,
}
"""Functions from (P, Q, whether ours has ``cached=True``) to a pair: GCN, GraphSAGE with means,
Chebyshev of 3 terms, R-GCN of 3 relations with means, GAT of 4 heads side by side."""
