"""``edge_basis``: explicit edges with weights of the structure, or of the caller."""

import pytest
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


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((torch.ones(2),), TypeError, r"values go by weight=: expected an integer, got a tensor"),
        ((torch.float32,), TypeError, r"values go by weight=: .*got torch.float32"),
        ((True,), TypeError, "expected an integer, got True"),
    ],
)
def test_what_is_no_number_of_labels_is_told_of_weight(given, error, message):
    with pytest.raises(error, match=message):
        edge_basis(EDGES, *given)


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (torch.ones(3), ValueError, r"one entry for each edge: expected shape \(2,\), got \(3,\)"),
        ([1.0, 2.0], TypeError, "weight must be a tensor"),
        (torch.tensor([1.0, torch.nan]), ValueError, "weight must be finite"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weight, error, message):
    with pytest.raises(error, match=message):
        edge_basis(EDGES, weight=weight)
