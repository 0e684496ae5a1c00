"""Laws of a family and of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from ..families import Family
from ..graph import EdgeList
from ..graph.structure import Structure
from ..nn import OuterConv
from .closeness import TOLERANCE, assert_near, assert_same_gradients
from .dense import dense_contraction


def assert_layer_equals_dense(conv: OuterConv, x: Tensor, structure: Structure) -> None:
    """A layer, by contraction and by messages, equals Φ contracted with x, with every gradient.

    For max and min, :func:`dense_contraction` replaces Φ. Gradients are those of x, of all
    parameters, and of the edge weights if the family reads them.
    """
    given, arguments = _given(conv.family, structure)
    ends = (x, None) if structure.bipartite and conv.family.keeps_nodes else x
    actual = conv(ends, given, **arguments)
    expected, scale = _dense(conv, x, ends, given, arguments)
    expected = expected if conv.bias is None else expected + conv.bias
    weight = getattr(structure, "edge_weight", None)
    weighs = weight is not None and conv.family.makes_use_of("edge_weight")
    wanted = [x, *conv.parameters(), *([weight] if weighs else [])]
    by_messages = _by_messages(conv, ends, given, arguments)
    # Sums may cancel: the tolerance is relative to the sum of absolute values.
    tolerance = TOLERANCE[x.dtype] * max(1.0, _ratio(scale, expected))
    for found in (actual, by_messages):
        assert_near(found, expected, tolerance)
        assert_same_gradients(found, expected, wanted, 5 * tolerance)


def _given(family: Family, structure: Structure) -> tuple[Any, dict[str, Any]]:
    """A structure as arguments of a layer; an edge list of one set of nodes as its tensors."""
    if not isinstance(structure, EdgeList) or structure.bipartite:
        return structure, {}
    names = [name for name in ("edge_weight", "edge_type") if family.makes_use_of(name)]
    given = {name: getattr(structure, name) for name in (*names, "size", "batch")}
    return structure.edge_index, given


def _dense(
    conv: OuterConv, x: Tensor, ends: Any, edge_index: Any, arguments: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The output without bias, and the sum of the absolute values of its terms."""
    if (conv.reduce, conv.label_reduce) == ("sum", "sum"):
        phi = conv.to_dense(edge_index, **arguments)
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


def assert_permutation_equivariant(conv: OuterConv, x: Tensor, edges: EdgeList) -> None:
    """A layer is permutation-equivariant, and does not depend on the order of edges."""
    edges.require_one_set("renumbering nodes", "none")
    nodes, order = torch.randperm(edges.size[0]), torch.randperm(edges.num_edges)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(edges.size[0])
    beside = {name: getattr(edges, name) for name in ("edge_weight", "edge_type", "edge_attr")}
    beside = {
        name: part
        for name, part in beside.items()
        if part is not None and conv.family.makes_use_of(name)
    }
    near, far = edges.pos or (None, None)
    moved = [None if end is None else end[nodes] for end in (near, far)]
    same = far is near  # one set of nodes is given as one tensor
    expected = conv(
        x,
        edges.edge_index,
        size=edges.size,
        batch=edges.batch,
        pos=near if same else edges.pos,
        **beside,
    )
    actual = conv(
        x[nodes],
        place[edges.edge_index[:, order].long()],
        size=edges.size,
        batch=None if edges.batch is None else edges.batch[nodes],
        pos=moved[0] if same else tuple(moved),
        **{name: part[order] for name, part in beside.items()},
    )
    assert_near(actual, expected[nodes], 100 * TOLERANCE[x.dtype])


def assert_batch_equals_graphs(family: Family, graphs: Sequence[Data]) -> None:
    """The basis of a batch is block-diagonal, with the bases of its graphs as blocks.

    Checked for bases that the transform stored, and for those made from the batch.
    """
    stored = Batch.from_data_list([family(graph.clone()) for graph in graphs])
    for batch in (stored, Batch.from_data_list(list(graphs))):
        dense = family.basis_of(batch).to_dense()
        blocks = [family.basis_of(graph).to_dense() for graph in graphs]
        expected = torch.stack(
            [torch.block_diag(*(block[k] for block in blocks)) for k in range(family.num_bases)]
        )
        assert_near(dense, expected)
