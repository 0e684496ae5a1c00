"""Laws of a family and of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from ..basis import Family, Structure
from ..basis.any_structure import AnyStructure
from ..nn import OuterConv
from .closeness import TOLERANCE, assert_near, assert_same_gradients
from .dense import dense_contraction


def assert_layer_equals_dense(conv: OuterConv, x: Tensor, structure: AnyStructure) -> None:
    """Φ contracted with x is the layer, in value and in every gradient; so are its messages.

    Where a layer compares inputs or labels, :func:`dense_contraction` stands in the place of Φ.
    Gradients are those of x, of all parameters, and of the edge weights where they ask for them.
    """
    given, arguments = _given(structure)
    ends = x if structure.size[0] == structure.size[1] else (x, None)
    actual = conv(ends, given, **arguments)
    expected, scale = _dense(conv, x, ends, given, arguments)
    expected = expected if conv.bias is None else expected + conv.bias
    weight = arguments.get("edge_weight")
    wanted = [x, *conv.parameters(), *([] if weight is None else [weight])]
    by_messages = _by_messages(conv, ends, given, arguments)
    # Values of a layer may come out zero where the reference cancels; compare with what was added.
    tolerance = TOLERANCE[x.dtype] * max(1.0, _ratio(scale, expected))
    for found in (actual, by_messages):
        assert_near(found, expected, tolerance)
        assert_same_gradients(found, expected, wanted, 5 * tolerance)


def _given(structure: AnyStructure) -> tuple[Any, dict[str, Any]]:
    """A structure as the arguments of a layer: edges are taken apart."""
    if not isinstance(structure, Structure):
        return structure, {}
    names = ("edge_weight", "edge_type", "size", "batch")
    return structure.edge_index, {name: getattr(structure, name) for name in names}


def _dense(
    conv: OuterConv, x: Tensor, ends: Any, edge_index: Any, arguments: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The layer without its bias, and the same with everything positive and added up."""
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


def assert_permutation_equivariant(conv: OuterConv, x: Tensor, edges: Structure) -> None:
    """Renumbering nodes and reordering edges renumbers the output and changes nothing else."""
    edges.require_square("renumbering nodes")
    nodes, order = torch.randperm(edges.size[0]), torch.randperm(edges.num_edges)
    place = torch.empty_like(nodes)
    place[nodes] = torch.arange(edges.size[0])
    attributes = {} if edges.edge_attr is None else {"edge_attr": edges.edge_attr}
    near, far = edges.pos or (None, None)
    moved = [None if end is None else end[nodes] for end in (near, far)]
    same = far is near  # one set of nodes is given as one tensor
    expected = conv(
        x,
        edges.edge_index,
        edges.edge_weight,
        edges.edge_type,
        edges.size,
        edges.batch,
        pos=near if same else edges.pos,
        **attributes,
    )
    actual = conv(
        x[nodes],
        place[edges.edge_index[:, order].long()],
        None if edges.edge_weight is None else edges.edge_weight[order],
        None if edges.edge_type is None else edges.edge_type[order],
        edges.size,
        None if edges.batch is None else edges.batch[nodes],
        pos=moved[0] if same else tuple(moved),
        **{name: attribute[order] for name, attribute in attributes.items()},
    )
    assert_near(actual, expected[nodes], 100 * TOLERANCE[x.dtype])


def assert_batch_equals_graphs(family: Family, graphs: Sequence[Data]) -> None:
    """The basis of a batch has the bases of its graphs as diagonal blocks, stored or not."""
    stored = Batch.from_data_list([family(graph.clone()) for graph in graphs])
    for batch in (stored, Batch.from_data_list(list(graphs))):
        dense = family.basis_of(batch).to_dense()
        blocks = [family.basis_of(graph).to_dense() for graph in graphs]
        expected = torch.stack(
            [torch.block_diag(*(block[k] for block in blocks)) for k in range(family.num_bases)]
        )
        assert_near(dense, expected)
