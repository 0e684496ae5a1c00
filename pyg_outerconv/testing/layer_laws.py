"""Laws of a family and of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from ..basis import Family, Structure
from ..nn import OuterConv
from .closeness import TOLERANCE, assert_near, assert_same_gradients


def assert_layer_equals_dense(conv: OuterConv, x: Tensor, edges: Structure) -> None:
    """Φ contracted with x is the layer, in value and in every gradient; so are its messages.

    Gradients are those of x, of all parameters, and of the edge weights where they ask for them.
    """
    arguments: dict[str, Any] = {
        "edge_weight": edges.edge_weight,
        "edge_type": edges.edge_type,
        "size": edges.size,
        "batch": edges.batch,
    }
    ends = x if edges.size[0] == edges.size[1] else (x, None)
    actual = conv(ends, edges.edge_index, **arguments)
    phi = conv.to_dense(edges.edge_index, **arguments)
    expected = torch.einsum("mnpq,mp->nq", phi, x)
    expected = expected if conv.bias is None else expected + conv.bias
    wanted = [x, *conv.parameters()]
    wanted += [] if edges.edge_weight is None else [edges.edge_weight]
    by_messages = _by_messages(conv, ends, edges.edge_index, arguments)
    # Values of a layer may come out zero where the reference cancels; compare with what was added.
    scale = torch.einsum("mnpq,mp->nq", phi.abs(), x.abs()).detach()
    tolerance = TOLERANCE[x.dtype] * max(1.0, _ratio(scale, expected))
    for found in (actual, by_messages):
        assert_near(found, expected, tolerance)
        assert_same_gradients(found, expected, wanted, 5 * tolerance)


def _ratio(scale: Tensor, reference: Tensor) -> float:
    if reference.numel() == 0 or not float(reference.detach().abs().max()):
        return 1.0
    return float(scale.max() / reference.detach().abs().max())


def _by_messages(conv: OuterConv, x: Any, edge_index: Tensor, arguments: dict[str, Any]) -> Tensor:
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
    expected = conv(
        x, edges.edge_index, edges.edge_weight, edges.edge_type, edges.size, edges.batch
    )
    actual = conv(
        x[nodes],
        place[edges.edge_index[:, order].long()],
        None if edges.edge_weight is None else edges.edge_weight[order],
        None if edges.edge_type is None else edges.edge_type[order],
        edges.size,
        None if edges.batch is None else edges.batch[nodes],
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
