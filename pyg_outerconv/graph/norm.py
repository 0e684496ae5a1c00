"""Degrees, self-loops, and the normalisation of edge weights by degrees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.utils import add_remaining_self_loops

from ..errors import RefusedValue, unknown
from ..kernels.csr import CSR
from ..kernels.edge_lists import counts, pointers, share_of_degrees, with_missing_loops
from ..kernels.index_checks import can_read
from ..kernels.spmm import spmm
from .checks import holds
from .graph import Graph


@dataclass(frozen=True)
class Norm:
    """Weights divided by powers of degrees, w / (d(m)^p d(n)^q) for an edge m → n.

    Attributes:
        at_source, at_target: p and q.
        of_targets: whether d is the in-degree at both ends. It is so where sources are targets;
            else, as without it, d(m) is the out-degree.
    """

    at_source: float
    at_target: float
    of_targets: bool = False

    def formula(self, weights: str) -> str:
        """The formula of the matrix, where ``weights`` is that of W."""
        is_both = self.at_source and self.at_target and not self.of_targets
        sent, received = ("D_out", "D_in") if is_both else ("D", "D")
        left = f"{sent}^-{_written(self.at_source)} " if self.at_source else ""
        right = f" {received}^-{_written(self.at_target)}" if self.at_target else ""
        if not (left or right):
            return weights
        degrees = "degrees" if is_both else "in-degrees" if self.at_target else "out-degrees"
        return f"{left}{weights}{right}, D the {degrees} of {weights.strip('()')}"


def _written(power: float) -> str:
    return "1/2" if power == 0.5 else f"{power:g}"


NORMS = {
    "sym": Norm(0.5, 0.5, of_targets=True),
    "source": Norm(1.0, 0.0),
    "target": Norm(0.0, 1.0),
    "both": Norm(0.5, 0.5),
    None: Norm(0.0, 0.0),
}
"""All norms by their names."""

_OTHER_WORDS = {
    "rw": "'source' divides by the degree of the sending node, 'target' by that of the receiving",
    "sum": "None divides by nothing",
    "dir": "'both' divides by the roots of the out-degree and of the in-degree",
}


def check_norm(norm: str | None, norms: Iterable[str | None] = NORMS) -> None:
    """Refuse an unknown norm."""
    if norm in norms:
        return
    if norm in _OTHER_WORDS:
        raise RefusedValue("a norm says what it divides by", _OTHER_WORDS[norm], norm)
    raise RefusedValue(unknown("norm", norm, map(str, norms)))


def degree(weight: Tensor, nodes: Tensor, num_nodes: int, are_ones: bool = False) -> Tensor:
    """(num_nodes,) the sum of edge weights at each node; ``nodes`` (E,) is one end of each edge.

    Summed in float32 at least, because bfloat16 cannot count past 256. ``are_ones`` says that all
    weights are 1: these are counted on a GPU, which needs no order.
    """
    wide = torch.promote_types(weight.dtype, torch.float32)
    weight = weight.to(wide)
    if weight.is_cuda and are_ones:
        return counts(nodes, num_nodes).to(wide)
    if weight.is_cuda:
        return sums_in_order(weight, nodes, num_nodes)
    return weight.new_zeros(num_nodes).index_add(0, nodes, weight)


def sums_in_order(weight: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    """The same sums, added up in the order of the edges: with ``index_add`` a GPU adds in any."""
    ptr = pointers(nodes, num_nodes)
    order = nodes.argsort(stable=True).to(ptr.dtype)
    return spmm(CSR.of(ptr, order, weight.numel()), None, weight.unsqueeze(1)).squeeze(1)


def divisor(
    weight: Tensor,
    nodes: Tensor,
    num_nodes: int,
    what: str,
    signed: bool = False,
    has_negative: bool | None = None,
    are_ones: bool = False,
) -> Tensor:
    """(num_nodes,) the degrees to divide weights by; infinity for a degree of 0.

    Edges at a node of degree 0 get weight 0. Callers divide, w/d, instead of multiplying by 1/d:
    the derivative w/d² is then computed as (w/d)/d, whereas 1/d² overflows at d = 1e-20.

    ``has_negative``: whether a weight is negative, where that is known; ``are_ones``: as in
    :func:`degree`.
    """
    degrees = degree(weight, nodes, num_nodes, are_ones)
    if signed:
        return torch.where(degrees != 0, degrees, torch.inf)
    if has_negative is None:
        has_negative = bool(weight.numel()) and not holds(weight.detach().min() >= 0)
    if has_negative:
        _check_signs(weight.detach(), nodes, degrees.detach(), what)
    return torch.where(degrees > 0, degrees, torch.inf)


def _check_signs(weight: Tensor, nodes: Tensor, degrees: Tensor, what: str) -> None:
    wrong = (degrees <= 0) & (degree(weight.abs(), nodes, degrees.numel()) > 0)
    if not holds(~wrong.any()):
        node = int(wrong.nonzero()[0])
        raise RefusedValue(
            f"{what} divides by degrees, the sums of the weights at each node",
            "weights that are not negative, or whose sums are positive; "
            "Relation(1, None) and Walk(norm=None) divide by nothing",
            f"weights that add up to {float(degrees[node]):g} at node {node}",
        )


def with_self_loops(edges: Graph, dtype: torch.dtype | None, fill: float = 1.0) -> Graph:
    """Add a self-loop of weight ``fill`` at every node without one; existing loops are kept.

    So does PyG where edges come as an index; its three paths differ.
    """
    if edges.bipartite:
        edges.require_one_set("adding self-loops", "add_self_loops=False")
    if edges.only_sums:
        return _with_loops_everywhere(edges, dtype, fill)
    edge_index, num_nodes = edges.edge_index, edges.size[0]
    summary = None if edge_index.is_cpu else edges.summary
    looped = None if summary is None else summary.num_looped
    missing = None if looped is None else num_nodes - looped
    edge_index = with_missing_loops(edge_index, num_nodes, missing)
    if fill == 1.0 and edges.edge_weight is None:
        return edges.with_added(edge_index, None)
    count = edge_index.size(1) - edges.num_edges
    value = torch.full((count,), fill, dtype=edges.weight(dtype).dtype, device=edges.device)
    return edges.with_added(edge_index, value)


def with_last_loops(edges: Graph, dtype: torch.dtype | None, fill: float) -> Graph:
    """Keep the last of several self-loops at a node, as PyG does; ``fill`` where there are none.

    The edges themselves where no node has several.
    """
    if edges.bipartite:
        return edges
    is_loop = edges.source == edges.target
    if edges.only_sums and not can_read(edges.edge_index):
        place = torch.arange(is_loop.numel(), device=edges.device)
        last = place.new_zeros(edges.size[0]).scatter_reduce(
            0, edges.target.long(), torch.where(is_loop, place, -1), "amax", include_self=False
        )
        weight = edges.weight(dtype)
        hidden = is_loop & (place != last[edges.target.long()])
        return edges.but(edge_weight=torch.where(hidden, 0.0, weight).to(weight.dtype))
    summary = None if edges.edge_index.is_cpu else edges.summary
    if summary is not None and summary.num_loops == summary.num_looped:
        return edges
    nodes = edges.source[is_loop]
    if nodes.numel() < 2 or nodes.unique().numel() == nodes.numel():
        return edges
    edge_index, weight = add_remaining_self_loops(  # with its gradients, too
        edges.edge_index, edges.edge_weight, fill, edges.size[0]
    )
    return edges.but(edge_index=edge_index, edge_weight=weight)


def _with_loops_everywhere(edges: Graph, dtype: torch.dtype | None, fill: float) -> Graph:
    """Add N self-loops, of weight 0 at nodes that have one; their number is known to a compiler."""
    is_loop, num_nodes = edges.source == edges.target, edges.size[0]
    target = edges.target
    loops = target.new_zeros(num_nodes).index_add(0, target, is_loop.to(target.dtype))
    value = torch.where(loops > 0, 0.0, fill).to(edges.weight(dtype).dtype)
    nodes = torch.arange(num_nodes, device=edges.device, dtype=edges.edge_index.dtype)
    return edges.with_diagonal(value, nodes)


def transition(
    edges: Graph,
    norm: str | None,
    dtype: torch.dtype | None,
    add_self_loops: bool,
    improved: bool = False,
    as_pyg: bool = False,
) -> Graph:
    """Edges after self-loops were added and weights divided by powers of degrees (:data:`NORMS`).

    - 'sym': w / √(d(m) d(n)), with d the in-degree of both as in PyG; for bipartite edges the
      out-degree of the source and the in-degree of the target.
    - 'source': w / d_out(m), so that the weights that leave a node sum to one.
    - 'target': w / d_in(n), so that the weights that reach a node sum to one.
    - 'both': w / √(d_out(m) d_in(n)).
    - None: w.

    Args:
        edges: the edges W.
        norm: one of these.
        dtype: dtype of the weights if there are none.
        add_self_loops: whether every node without a self-loop gets one.
        improved: whether added self-loops weigh 2.
        as_pyg: whether PyG's ``gcn_norm`` is followed in what it does with several self-loops at a
            node (the last is kept), with ``improved`` (it needs weights) and with negative weights,
            where a root of a negative degree is NaN.
    """
    if norm not in NORMS:
        check_norm(norm)
    has_negative = edges.edge_weight is not None and edges.has_negative
    if add_self_loops:  # which are positive
        fill = 2.0 if improved else 1.0
        if as_pyg:
            fill = 1.0 if edges.edge_weight is None else fill
            edges = with_last_loops(edges, dtype, fill)
        edges = with_self_loops(edges, dtype, fill)
    if norm is None:
        return edges
    powers, of_targets = NORMS[norm], NORMS[norm].of_targets and not edges.bipartite
    at_source, at_target = powers.at_source, powers.at_target
    if edges.edge_weight is None and can_read(edges.edge_index):
        ends = edges.edge_index, edges.size
        dtype = dtype or torch.get_default_dtype()
        share = share_of_degrees(*ends, at_source, at_target, dtype, of_targets=of_targets)
        return edges.but(edge_weight=share)
    weight, (num_sources, num_targets) = edges.weight(dtype), edges.size
    source, target, narrow = edges.source, edges.target, weight.dtype
    about = f"norm={norm!r}", as_pyg, has_negative, edges.edge_weight is None
    received = sent = None
    if at_target or of_targets:
        received = divisor(weight, target, num_targets, *about)
    if at_source:
        sent = received if of_targets else divisor(weight, source, num_sources, *about)
    if sent is not None:
        weight = weight / _power(sent, at_source)[source]
    if received is not None and at_target:
        weight = weight / _power(received, at_target)[target]
    return edges.but(edge_weight=weight.to(narrow))


def _power(degrees: Tensor, power: float) -> Tensor:
    """Degrees to a power; a root is faster, and exact."""
    if power == 1.0:
        return degrees
    return degrees.sqrt() if power == 0.5 else degrees**power
