"""A convolution over so few edges that to look for a basis or a plan takes longer than to sum.

The edges are checked, weighted and summed as they are listed: Y = Σ_k (A_kᵀ X) Θ_k.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..graph.graph import Graph
from ..kernels.edge_sums import edge_sums
from ..theta import ThetaValue, as_theta
from .bases import bases
from .call import Call, check_devices

if TYPE_CHECKING:
    from .outer_conv import OuterConv

NOTE = "a tiny graph: a layer sums its edges as they are listed, then takes Θ, without a plan"


def convolution(
    conv: OuterConv, call: Call, theta: ThetaValue, bias: Tensor | None
) -> Tensor | None:
    """Y (N, Q) of a tiny graph, with the bias, for a family that only makes edges.

    None where Θ or the bias do not fit x, which is refused where a basis is made.
    """
    x, theta = call.source, as_theta(theta)
    assert isinstance(x, Tensor)  # as Call.is_tiny says
    num_labels, groups, rows, _ = theta.shape
    if theta.dtype is not x.dtype or groups * rows != x.size(1) or theta.device != x.device:
        return None
    if torch.is_autocast_enabled("cpu") or not (bias is None or bias.is_cpu):
        return None
    if call.beside:
        check_devices(conv, call)
    num_nodes = x.size(0)
    if conv.cached and not call.beside:
        key = "edges of a tiny graph", conv._family, conv.flow, num_nodes, x.dtype
        ends, value = bases.get(key, partial(_edges, conv, call, x, True), call.edge_index)
    else:
        ends, value = _edges(conv, call, x)
    return theta.combine(edge_sums(ends, value, x, num_nodes * num_labels), num_nodes, bias)


def _edges(
    conv: OuterConv, call: Call, x: Tensor, keeps: bool = False
) -> tuple[Tensor, Tensor | None]:
    """(2, E) the source and the row n·K + k of each edge of the basis, and their values (E,).

    ``keeps``: whether a cache gets them, which must not hold the tensor that it knows a graph by.
    """
    family, num_nodes = conv._family, x.size(0)
    if call.beside:
        family.refuse_unread(call.beside)
        size = num_nodes, num_nodes
        graph = Graph.read(call.edge_index, size=size, dtype=x.dtype, **call.beside)
    else:
        graph = Graph.of_few(call.edge_index, num_nodes)
    graph = graph if conv.flow == "source_to_target" else graph.reversed()
    graph = family.weighted(graph, x.dtype)
    ends = graph.with_rows(family.num_bases)
    return ends.clone() if keeps and ends is call.edge_index else ends, graph.edge_weight
