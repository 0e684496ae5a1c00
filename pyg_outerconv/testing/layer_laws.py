"""Laws of layers: over graphs, of attention, and on grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from ..basis import Basis
from ..basis.grid_shift import Axis, GridShift
from ..errors import RefusedValue
from ..families import Family
from ..graph import Graph
from ..graph.structure import Structure
from ..nn import OuterConv, quadri_tensor
from ..signatures import typed
from .reference import TOLERANCE, assert_near, assert_same_gradients, dense_contraction


@typed
def assert_layer_equals_dense(conv: OuterConv, x: Tensor, structure: Structure) -> None:
    """A layer, by contraction and by messages, equals Φ contracted with x, with every gradient.

    For max and min, :func:`dense_contraction` replaces Φ. Gradients are those of x, of all
    parameters, and of the edge weights if the family reads them.
    """
    edge_index, arguments = _as_arguments(conv.family, structure)
    ends = (x, None) if structure.bipartite and conv.family.keeps_nodes else x
    actual = conv(ends, edge_index, **arguments)
    expected, scale = _dense(conv, x, ends, edge_index, arguments)
    expected = expected if conv.bias is None else expected + conv.bias
    weight = getattr(structure, "edge_weight", None)
    weighs = weight is not None and conv.family.makes_use_of("edge_weight")
    wanted = [x, *conv.parameters(), *([weight] if weighs else [])]
    by_messages = _by_messages(conv, ends, edge_index, arguments)
    # Sums may cancel: the tolerance is relative to the sum of absolute values.
    tolerance = TOLERANCE[x.dtype] * max(1.0, _ratio(scale, expected))
    for out in (actual, by_messages):
        assert_near(out, expected, tolerance)
        assert_same_gradients(out, expected, wanted, 5 * tolerance)


def _as_arguments(family: Family, structure: Structure) -> tuple[Any, dict[str, Any]]:
    """A structure as arguments of a layer; an edge list of one set of nodes as its tensors."""
    if not isinstance(structure, Graph) or structure.bipartite:
        return structure, {}
    names = [name for name in ("edge_weight", "edge_type") if family.makes_use_of(name)]
    arguments = {name: getattr(structure, name) for name in (*names, "size", "batch")}
    return structure.edge_index, arguments


def _dense(
    conv: OuterConv, x: Tensor, ends: Any, edge_index: Any, arguments: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The output without bias, and the sum of the absolute values of its terms."""
    if (conv.reduce, conv.label_reduce) == ("sum", "sum"):
        phi = quadri_tensor(conv, edge_index, **arguments)
        scale = torch.einsum("mnpq,mp->nq", phi.abs(), x.abs())
        return torch.einsum("mnpq,mp->nq", phi, x), scale.detach()
    basis, theta = conv.basis(ends, edge_index, **arguments), conv.theta().to(x)
    theta = theta / theta.size(0) if conv.label_aggr == "mean" else theta
    out = dense_contraction(basis, x, theta, conv.reduce, conv.label_reduce)
    edges = basis.edges()
    scale = dense_contraction(edges.with_values(edges.values(x.dtype).abs()), x.abs(), theta.abs())
    if conv.root is not None:
        out = out + x @ conv.root()[0, 0]
        scale = scale + x.abs() @ conv.root()[0, 0].abs()
    return out, scale.detach()


def _ratio(scale: Tensor, reference: Tensor) -> float:
    if reference.numel() == 0 or not float(reference.detach().abs().max()):
        return 1.0
    return float(scale.max() / reference.detach().abs().max())


def _by_messages(conv: OuterConv, x: Any, edge_index: Any, arguments: dict[str, Any]) -> Tensor:
    fuse, conv.fuse = conv.fuse, False
    try:
        return conv(x, edge_index, **arguments)
    finally:
        conv.fuse = fuse


@typed
def assert_batch_equals_graphs(family: Family, graphs: Sequence[Data]) -> None:
    """The basis of a batch is block-diagonal, with the bases of its graphs as blocks.

    Checked for bases that the transform stored, and for those made from the batch.
    """
    if not graphs:
        raise RefusedValue("a batch has graphs", "at least one", "none")
    stored = Batch.from_data_list([family(graph.clone()) for graph in graphs])
    for batch in (stored, Batch.from_data_list(list(graphs))):
        dense = family.basis_of(batch).to_dense()
        blocks = [family.basis_of(graph).to_dense() for graph in graphs]
        expected = torch.stack(
            [torch.block_diag(*(block[k] for block in blocks)) for k in range(family.num_bases)]
        )
        assert_near(dense, expected)


@typed
def assert_permutation_equivariant(conv: OuterConv, x: Tensor, edges: Graph | None = None) -> None:
    """Renumbering the nodes renumbers the output: f(PX) = P f(X), for any order of the edges.

    Attention has this law for every score and support that do not depend on the order of nodes.

    Args:
        conv: a layer whose targets are its sources.
        x: (*batch, N, P).
        edges: the structure that the layer reads; None if it reads numbers of nodes only.

    Raises:
        AssertionError: the law does not hold.
        ValueError: sources and targets are a pair.
    """
    nodes = torch.randperm(x.size(-2))
    place = torch.argsort(nodes)
    if edges is not None:
        edges.require_one_set("renumbering nodes", "none")
    expected = _run(conv, x, edges, None, None)
    actual = _run(conv, x[..., nodes, :], edges, place, place)
    assert_near(actual, expected[..., nodes, :], 100 * TOLERANCE[x.dtype])


@typed
def assert_learned_queries_invariant(
    conv: OuterConv, x: Tensor, edges: Graph | None = None
) -> None:
    """Attention with learned queries is permutation-invariant: f(PX) = f(X).

    Args:
        conv: a layer over a content-based family with learned queries.
        x: (*batch, M, P).
        edges: the edges from nodes to queries, if the support reads edges.

    Raises:
        AssertionError: the law does not hold.
    """
    nodes = torch.randperm(x.size(-2))
    expected = _run(conv, x, edges, None, None)
    actual = _run(conv, x[..., nodes, :], edges, torch.argsort(nodes), None)
    assert_near(actual, expected, 100 * TOLERANCE[x.dtype])


@typed
def assert_stochastic(basis: Basis) -> None:
    """The shares of each target and head are >= 0 and sum to one, or to zero without edges.

    Args:
        basis: the basis that a layer with a stochastic normaliser returns.

    Raises:
        AssertionError: the law does not hold.
    """
    heads = basis.heads()
    assert heads is not None, f"needs the values of heads, not {basis!r}"
    value, pattern = heads.value.detach(), heads.pattern
    assert not value.isnan().any(), "shares are numbers"
    assert bool((value >= 0).all()), "shares are not negative"
    group = pattern.target.long() * pattern.num_labels + pattern.label.long()
    rows = heads.size[1] * pattern.num_labels
    total = value.new_zeros(rows, *value.shape[1:]).index_add(0, group, value)
    assert_near(total, (total > 0.5).to(total.dtype), 10 * TOLERANCE[total.dtype], at_least=1.0)


def _run(
    conv: OuterConv,
    x: Tensor,
    edges: Graph | None,
    sources: Tensor | None,
    targets: Tensor | None,
) -> Tensor:
    """The output for sources and targets at new places, with the edges in a random order."""
    if edges is None:
        return conv(x, None)
    index, order = edges.edge_index.long(), torch.arange(edges.num_edges)
    batch, pos = edges.batch, edges.pos
    if sources is not None:
        order = torch.randperm(edges.num_edges)
        places = zip(index, (sources, targets), strict=True)
        index = torch.stack([end if place is None else place[end] for end, place in places])
        nodes = sources.argsort()
        batch = None if batch is None else batch[nodes]
        if pos is not None and not edges.bipartite:
            pos = (pos[0][nodes],) * 2
    beside: dict[str, Any] = {
        name: getattr(edges, name)[order]
        for name in ("edge_weight", "edge_attr", "edge_type")
        if getattr(edges, name) is not None and conv.family.makes_use_of(name)
    }
    if pos is not None:
        beside["pos"] = pos if edges.bipartite else pos[0]
    ends = (x, None) if edges.bipartite else x
    return conv(ends, index[:, order], size=edges.size, batch=batch, **beside)


@typed
def assert_translation_equivariant(
    conv: OuterConv, x: Tensor, shape: Any, by: Sequence[int]
) -> None:
    """Translating the input of a layer on a grid translates its output.

    With stride s, an input translated by s·b cells gives the output translated by b; transposed, an
    input translated by b gives the output translated by s·b. Along axes with circular padding and
    a length that s divides, all outputs are compared; along other axes those whose inputs are
    inside the grid before and after.

    Args:
        conv: a layer over a family of grids.
        x: (M, P) features of the cells of a full grid.
        shape: the shape of the grid, with M cells, as the layer takes it.
        by: b for each axis.

    Raises:
        AssertionError: a compared output differs, or no output can be compared.
    """
    basis = conv.basis(x, shape)
    assert isinstance(basis, GridShift), f"{conv.family} makes no shifts of a whole grid"
    ahead = [1 if basis.is_transposed else axis.stride for axis in basis.axes]
    behind = [axis.stride if basis.is_transposed else 1 for axis in basis.axes]
    dims = tuple(range(len(basis.axes)))
    cells = x.unflatten(0, basis.input_shape)
    if len(by) != len(basis.axes):
        raise RefusedValue("cells move along each axis", f"{len(basis.axes)} numbers", by)
    moves = [b * step for b, step in zip(by, ahead, strict=True)]
    before = conv(x, shape).unflatten(0, basis.output_shape)
    after = conv(cells.roll(moves, dims).flatten(0, len(dims) - 1), shape)
    after = after.unflatten(0, basis.output_shape)
    places = []
    for axis, b, step in zip(basis.axes, by, behind, strict=True):
        seen = _comparable(axis, basis.is_transposed)
        count = seen.numel()
        if _wraps(axis):
            places.append((torch.arange(count), (torch.arange(count) + b * step) % max(count, 1)))
            continue
        start = torch.arange(max(0, -b * step), min(count, count - b * step))
        here = start[seen[start] & seen[start + b * step]]
        places.append((here, here + b * step))
    expected, actual = before, after
    for dim, (old, new) in enumerate(places):
        expected = expected.index_select(dim, old.to(x.device))
        actual = actual.index_select(dim, new.to(x.device))
    assert expected.numel(), f"no output of {basis!r} moved by {tuple(by)} can be compared"
    assert_near(actual, expected, 100 * TOLERANCE[x.dtype])


def _wraps(axis: Axis) -> bool:
    """Whether the axis is circular and its length is a multiple of the stride."""
    return axis.padding_mode == "circular" and axis.num_inputs == axis.stride * axis.num_outputs


def _comparable(axis: Axis, is_transposed: bool) -> Tensor:
    """Booleans for each output along the axis: whether all its inputs are inside the grid."""
    shifts = torch.tensor(axis.shifts)
    if not is_transposed:
        seen = axis.stride * torch.arange(axis.num_outputs).unsqueeze(1) - shifts
        return ((seen >= 0) & (seen < axis.num_inputs)).all(1)
    # Input m is seen by the outputs n with s·n − d = m.
    sums = torch.arange(axis.num_inputs).unsqueeze(1) + shifts
    whole = sums % axis.stride == 0
    seen = sums.div(axis.stride, rounding_mode="floor")
    inside = ((seen >= 0) & (seen < axis.num_outputs)) | ~whole
    if axis.padding_mode == "zeros":
        return inside.all(1)
    # Reflected or replicated padding: cells near an end also receive from beyond it.
    table = axis.table()
    beyond = axis.stride * torch.arange(axis.num_outputs).unsqueeze(1) - shifts != table
    collects = torch.zeros(axis.num_inputs, dtype=torch.bool)
    collects[table[beyond & (table >= 0)]] = True
    return inside.all(1) & ~collects
