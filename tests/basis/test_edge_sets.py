"""Edge sets within a basis: what dropping edges keeps, and nodes renumbered."""

import itertools
import math

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import EdgeBasis, Polynomial, drop_edges
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack
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


FAMILIES = [GCN(), Chebyshev(3), Relation(3), Stack(GCN(), Chebyshev(2), Identity())]


def renamed_path(size):
    """Edges of a path whose nodes were renamed at random."""
    name = torch.randperm(size)
    return torch.stack([name[:-1], name[1:]])


def bandwidth(basis):
    source, target = basis.edges().index.long()
    return int((source - target).abs().max())


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_the_convolution_is_the_same_and_lazy_bases_stay_lazy(family):
    edge_index = torch.randint(20, (2, 60))
    types = torch.randint(3, (60,)) if isinstance(family, Relation) else None
    weight = torch.rand(60, dtype=torch.float64, requires_grad=True)
    basis = family.basis(edge_index, weight, edge_type=types, size=(20, 20))
    there = basis.reorder()
    assert type(there.basis) is type(basis)
    conv, x = OuterConv(4, 3, family).double(), torch.randn(20, 4, dtype=torch.float64)
    expected = conv(x, basis)
    actual = conv(x[there.nodes], there.basis)[there.place]
    assert_same(actual, expected, [weight])


def test_neighbours_come_near_each_other():
    basis = GCN(add_self_loops=False).basis(renamed_path(200), size=(200, 200))
    assert bandwidth(basis) > 50
    assert bandwidth(basis.reorder().basis) == 1


def test_values_go_with_their_edges_and_edges_with_the_users_list():
    edge_index = torch.randint(9, (2, 30))
    basis = Relation(1, None).basis(edge_index, torch.arange(30.0), size=(9, 9))
    there = basis.reorder()
    edges = there.basis.edges()
    assert isinstance(edges, EdgeBasis)
    source, target = edge_index[:, edges.pattern.origin.long()]
    assert torch.equal(there.place[source], edges.pattern.source.long())
    assert torch.equal(there.place[target], edges.pattern.target.long())
    assert torch.equal(edges.value, edges.pattern.origin.float())
    given = edges.pattern.order.long()
    assert torch.equal(edge_index[:, given], torch.stack([source, target]))


def test_places_and_nodes_are_inverse():
    there = Chebyshev(2).basis(renamed_path(30), size=(30, 30)).reorder()
    assert isinstance(there.basis, Polynomial)
    assert torch.equal(there.nodes[there.place], torch.arange(30))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_graphs_without_edges(size):
    none = torch.empty(2, 0, dtype=torch.long)
    there = Relation(1, None).basis(none, size=(size, size)).reorder()
    assert sorted(there.nodes.tolist()) == list(range(size))
