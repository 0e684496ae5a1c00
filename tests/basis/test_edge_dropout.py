"""Dropped edges: what keeps its mean, and powers, which are not multiplied out."""

import itertools
import math

import pytest
import torch

from pyg_outerconv.basis import Polynomial, drop_edges
from pyg_outerconv.families import Identity, Relation
from pyg_outerconv.testing import assert_near

PATH = torch.tensor([[0, 1], [1, 2]])


DERIVED = {
    "itself": lambda basis: basis,
    "selected": lambda basis: basis.select([2, 0, 2]),
    "mixed": lambda basis: basis.mix(torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]]).double()),
    "scaled": lambda basis: basis.scale(torch.tensor([2.0, -1.0, 0.5])),
    "transposed": lambda basis: basis.transpose(),
    "restricted": lambda basis: basis.restrict([0, 2], [1, 3, 2]),
    "repeated": lambda basis: basis.kron(Identity().basis(PATH)),
    "all of it": lambda basis: basis.scale(3.0).T.select([2, 1]).mix(torch.ones(1, 2).double()).T,
}


@pytest.mark.parametrize("derived", DERIVED)
@pytest.mark.parametrize("recurrence", ["monomial", "chebyshev"])
@pytest.mark.parametrize("whole", [False, True], ids=["any", "whole"])
def test_powers_drop_the_edges_of_their_operator_and_are_not_multiplied_out(
    recurrence, derived, whole, monkeypatch
):
    index = torch.cat([torch.arange(6).repeat(2, 1), torch.randint(6, (2, 9))], 1)
    operator = Relation(1, None).basis(index, torch.randn(15).double(), size=(6, 6))
    make = DERIVED[derived]
    basis = make(Polynomial(operator, recurrence, 3)).double()
    generator = torch.Generator().manual_seed(3)
    kept = drop_edges(operator, 0.4, whole=whole, generator=generator)
    expected = make(Polynomial(kept, recurrence, 3)).double().to_dense()
    with monkeypatch.context() as patch:
        patch.setattr(Polynomial, "edges", lambda _: pytest.fail("powers were multiplied out"))
        dropped = drop_edges(basis, 0.4, whole=whole, generator=torch.Generator().manual_seed(3))
    assert 0 < int((kept.value == 0).sum()) < 15
    assert_near(dropped.to_dense(), expected)


def mean_of_all_draws(basis, p, count, monkeypatch):
    """The mean of ``drop_edges`` over everything that ``count`` edges can draw, exactly."""
    total = 0
    for bits in itertools.product([False, True], repeat=count):
        left = iter(bits)

        def rand(number, left=left, **_):
            return torch.tensor([float(next(left)) for _ in range(number)])

        monkeypatch.setattr(torch, "rand", rand)
        chance = math.prod(1 - p if bit else p for bit in bits)
        total = total + chance * drop_edges(basis, p).to_dense(torch.float64)
        assert next(left, None) is None, "every edge draws once"
    monkeypatch.undo()
    return total


def few(seed):
    index = torch.randint(3, (2, 4), generator=torch.Generator().manual_seed(seed))
    weight = torch.rand(4, generator=torch.Generator().manual_seed(seed)).double() + 0.5
    return Relation(1, None).basis(index, weight, size=(3, 3)).edges()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda a, b: a, 1),
        (lambda a, b: a.T.scale(-2.0).select([0, 0]), 1),
        (lambda a, b: a.stack(b).mix(torch.tensor([[1.0, -3.0]]).double()), 2),
        (lambda a, b: a.compose(b), 2),
        (lambda a, b: a.compose(a), 2),
        (lambda a, b: a.kron(b.T), 2),
        (lambda a, b: a.kron(b).restrict([4, 0], [1, 7, 2]), 2),
    ],
)
def test_sums_and_products_of_two_keep_their_mean(make, parts, seed, monkeypatch):
    basis = make(few(seed), few(seed + 10))
    assert_near(mean_of_all_draws(basis, 0.3, 4 * parts, monkeypatch), basis.to_dense())


def test_powers_do_not_keep_their_mean_where_a_walk_takes_an_edge_twice(monkeypatch):
    loop = Relation(1, None).basis(torch.tensor([[0], [0]]), torch.tensor([2.0]).double())
    mean = mean_of_all_draws(Polynomial(loop.edges(), "monomial", 4), 0.75, 1, monkeypatch)
    assert_near(mean.flatten(), torch.tensor([1, 2, 4 / 0.25, 8 / 0.25**2]).double())
