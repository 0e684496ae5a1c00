"""``edge_basis``: explicit edges with weights of the structure, or of the caller."""

import torch

from pyg_outerconv.families import edge_basis
from pyg_outerconv.graph import Graph

EDGES = Graph.read(torch.tensor([[0, 1], [1, 2]]))


def test_weights_of_the_caller_carry_gradients():
    weight = torch.tensor([2.0, 3.0], requires_grad=True)
    dense = edge_basis(EDGES, weight=weight).to_dense()[0]
    assert (dense[0, 1], dense[1, 2]) == (2.0, 3.0)
    dense.square().sum().backward()
    assert torch.equal(weight.grad, 2 * weight.detach())
