"""Parts of a contraction that do not fit are refused, and kinds of features that do are equal."""

import pytest
import torch
from contractions import features, normal, parameter, random_edges

from pyg_outerconv.contract import Problem, contract, contraction_path
from pyg_outerconv.families import GCN, Identity, Relation, Walk
from pyg_outerconv.testing import assert_near, awkward_structures, dense_contraction

EDGES = awkward_structures()["multi-edge"]


@pytest.mark.parametrize(
    ("x", "theta", "rule"),
    [
        (torch.ones(5, 4), torch.ones(2, 1, 4, 3), r"each label: expected \(3, G, P/G, Q/G\)"),
        (torch.ones(5, 4), torch.ones(3, 4, 3), r"each label: expected \(3, G, P/G, Q/G\)"),
        (torch.ones(4, 4), torch.ones(3, 1, 4, 3), r"expected \(5, 4\), got \(4, 4\)"),
        (torch.ones(5, 3), torch.ones(3, 1, 4, 3), r"expected \(5, 4\), got \(5, 3\)"),
        (torch.ones(5), torch.ones(3, 1, 4, 3), r"expected \(5, 4\), got \(5,\)"),
        (None, torch.ones(3, 1, 4, 3), "5 in_channels, got 4"),
        (None, torch.ones(3, 2, 2, 3), "G = 1, got 2"),
        (torch.tensor([0, 1, 2]), torch.ones(3, 1, 4, 3), r"expected \(5,\), got \(3,\)"),
        (torch.tensor([0, 1, 2, 3, 4]), torch.ones(3, 1, 4, 3), r"\[0, 4\), got \[0, 4\]"),
        (torch.tensor([0, 1, 2, 3, -1]), torch.ones(3, 1, 4, 3), r"\[0, 4\), got \[-1, 3\]"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(x, theta, rule):
    basis = Relation(3).basis(EDGES).float()
    contract(basis, torch.ones(5, 4), torch.ones(3, 1, 4, 3))  # whose order is known from now on
    for function in (contract, contraction_path):
        with pytest.raises(ValueError, match=rule):
            function(basis, x, theta)


def test_types_that_differ_are_refused():
    basis = Relation(3).basis(EDGES, dtype=torch.float32).float()
    x, theta = torch.ones(5, 4), torch.ones(3, 1, 4, 3)
    contract(basis, x, theta)  # whose order is known from now on
    with pytest.raises(TypeError, match="x must have the dtype of theta"):
        contract(basis, x.double(), theta)
    with pytest.raises(TypeError, match=r"the dtype of x; basis.to\(x.dtype\) casts it"):
        contract(basis.double(), x, theta)
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
