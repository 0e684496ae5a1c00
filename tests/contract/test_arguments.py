"""Kinds of features that are equal, and what a problem says of its parts."""

import pytest
import torch
from contractions import features, normal, parameter, random_edges

from pyg_outerconv.contract import Problem, contract
from pyg_outerconv.families import GCN, Identity, Relation, Walk
from pyg_outerconv.testing import assert_near, awkward_structures, dense_contraction

EDGES = awkward_structures()["multi-edge"]


def test_under_autocast_a_basis_may_be_of_its_type():
    basis = Relation(3).basis(EDGES, dtype=torch.float32).float()
    x, theta = torch.ones(5, 4), torch.ones(3, 1, 4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert contract(basis.to(torch.bfloat16), x, theta).dtype == torch.bfloat16


@pytest.mark.parametrize("family", [Relation(3), Walk(2), Identity(), GCN()], ids=str)
def test_no_features_are_an_identity_matrix_of_features(family):
    basis = family.basis(EDGES)
    theta = torch.randn(basis.num_bases, 1, 5, 3, dtype=torch.float64, requires_grad=True)
    expected = dense_contraction(basis, torch.eye(5, dtype=torch.float64), theta)
    actual = contract(basis, None, theta)
    assert_near(actual, expected)
    (gradient,) = torch.autograd.grad(actual.sum(), theta, retain_graph=True)
    assert_near(gradient, torch.autograd.grad(expected.sum(), theta)[0])
    table = torch.randn(basis.num_bases, 1, 7, 3, dtype=torch.float64)
    for dtype in (torch.long, torch.int32):
        index = torch.tensor([6, 2, 2, 0, 5], dtype=dtype)
        one_hot = torch.nn.functional.one_hot(index.long(), 7).double()
        expected = dense_contraction(basis, one_hot, table)
        assert_near(contract(basis, index, table), expected)


def test_what_a_problem_says_of_its_gradients():
    plain, learned = random_edges(5, 9, 3, values=False), random_edges(5, 9, 3)
    polynomial = Walk(2).basis(awkward_structures(torch.float32)["weighted"]).float()
    assert polynomial.operator.value.requires_grad
    for of_x in (False, True):
        for of_theta in (False, True):
            for matrices in (None, 2):
                x = normal(5, 4, dtype=torch.float32, grad=of_x)
                theta = parameter(3, 1, 4, 2, matrices, torch.float32, of_theta)
                for basis, of_basis in ((plain, False), (learned, True), (polynomial, True)):
                    case = Problem(basis, x, theta)
                    assert case.gradients == (of_x, of_theta, of_basis)
                    with torch.no_grad():
                        assert Problem(basis, x, theta).gradients == (False, False, False)
                assert not Problem(learned.detach(), x, theta).gradients[2]
    mixture = parameter(3, 1, 4, 2, 2, torch.float32, grad=False)
    mixture = mixture.but(coefficient=mixture.coefficient.detach().requires_grad_())
    assert Problem(plain, None, mixture).gradients == (False, True, False)
    sparse = features("sparse", 5, 4, torch.float32)
    assert Problem(plain, sparse, mixture).gradients == (True, True, False)
