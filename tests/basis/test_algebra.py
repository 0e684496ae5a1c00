"""Stacked, transposed, scaled and selected bases, of each other too."""

import pytest
import torch

from pyg_outerconv import testing
from pyg_outerconv.basis import GCN, Chebyshev, Relation, Walk
from pyg_outerconv.testing import awkward_structures

EDGES = awkward_structures()["multi-edge"]


def bases():
    relation, walk = Relation(3).basis(EDGES), Walk(2).basis(EDGES)
    chebyshev, gcn = Chebyshev(3).basis(EDGES), GCN().basis(EDGES)
    factors = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    return {
        "stack of stacks": relation.stack(walk.stack(gcn), chebyshev),
        "scaled polynomial": walk.scale(factors),
        "scaled scaled edges": relation.scale(2.0).scale(factors),
        "selected edges": relation.select([2, 0, 2]),
        "selected polynomial": chebyshev.select([2, 2, 0]),
        "selected slice": walk.stack(gcn).select(slice(1, None, 2)),
        "selected from the end": walk.select(-1),
        "transposed stack": walk.stack(relation).transpose(),
        "transposed scaled selected": chebyshev.select([1, 0]).scale(3.0).transpose(),
        "selected transposed": relation.transpose().select([1, 1]),
        "transposed twice": relation.stack(walk).transpose().select([4, 0]).transpose(),
    }


@pytest.mark.parametrize("name", bases())
def test_every_law_holds_for_compounds(name):
    basis = bases()[name]
    testing.assert_lazy_equals_explicit(basis)
    testing.assert_transpose(basis)
    testing.assert_adjoint(basis)
    x = torch.randn(basis.size[0], 4, dtype=torch.float64, requires_grad=True)
    theta = torch.randn(basis.num_bases, 1, 4, 3, dtype=torch.float64, requires_grad=True)
    testing.assert_contraction(basis, x, theta)


def test_factors_of_a_scale_learn():
    factors = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    basis = Walk(2).basis(EDGES).scale(factors)
    dense = Walk(2).basis(EDGES).to_dense().detach()
    basis.to_dense().sum().backward()
    testing.assert_near(factors.grad, dense.sum(dim=(1, 2)))


def test_means_distribute_over_the_algebra():
    basis = Relation(3, "sum").basis(EDGES)
    mean = Relation(3, "mean").basis(EDGES).to_dense()
    testing.assert_near(basis.mean().to_dense(), mean)
    testing.assert_near(basis.stack(basis).mean().to_dense(), torch.cat([mean, mean]))
    testing.assert_near(basis.scale(3.0).mean().to_dense(), 3 * mean)
    testing.assert_near(basis.select([1]).mean().to_dense(), mean[1:2])
    counted = basis.support().sum(2, keepdim=True).clamp(min=1)
    dense = basis.to_dense()
    assert counted.shape == (3, 5, 1)
    turned = basis.transpose().mean().to_dense()
    count = torch.zeros(3, 5, dtype=torch.float64).index_put(
        (EDGES.edge_type, EDGES.source),
        torch.ones(EDGES.num_edges, dtype=torch.float64),
        accumulate=True,
    )
    testing.assert_near(turned, dense.transpose(1, 2) / count.clamp(min=1)[:, None])


def test_mean_of_a_polynomial_is_refused_by_name():
    with pytest.raises(ValueError, match=r"a polynomial does not hold.*basis\.edges\(\)"):
        Walk(2).basis(EDGES).mean()
    Walk(2).basis(EDGES).edges().mean()


@pytest.mark.parametrize(
    ("call", "error", "rule"),
    [
        (lambda b: b.select(3), IndexError, r"\[0, 3\), got 3"),
        (lambda b: b.select([0, -4]), IndexError, "got -4"),
        (lambda b: b.scale(torch.ones(2)), ValueError, r"\(3,\), got \(2,\)"),
        (
            lambda b: b.stack(Walk(1).basis(awkward_structures()["one loop"])),
            ValueError,
            "one size",
        ),
        (lambda b: b.stack(b.float()), ValueError, "one type"),
    ],
)
def test_operands_that_do_not_fit_are_refused(call, error, rule):
    with pytest.raises(error, match=rule):
        call(Relation(3).basis(EDGES))
