"""Sets of edges: their products, parallel ones merged, some dropped, nodes renumbered."""

import itertools
import math

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import EdgeBasis, Pattern, Polynomial, drop_edges
from pyg_outerconv.basis.edge_products import REDUCTIONS, combine, compose_edges, merge_parallel
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near, awkward_structures


def edges(size, num_labels, count, values=True, seed=0):
    """Edges at random, parallel ones among them, with values that learn."""
    generator = torch.Generator().manual_seed(seed)
    index = [torch.randint(max(end, 1), (count,), generator=generator) for end in size]
    label = torch.randint(num_labels, (count,), generator=generator)
    pattern = Pattern.build(torch.stack(index), label, size=size, num_labels=num_labels)
    value = torch.randn(count, dtype=torch.float64, generator=generator)
    return EdgeBasis(pattern, value.requires_grad_() if values else None)


FIRST, SECOND = edges((5, 4), 3, 12), edges((4, 6), 2, 11, seed=1)


def products(first, second):
    return torch.einsum("iml,jln->ijmn", first.to_dense(), second.to_dense()).flatten(0, 1)


def test_at_most_one_edge_of_a_label_joins_two_nodes():
    composed = compose_edges(FIRST, SECOND)
    key = (composed.label.long() * 5 + composed.index[0]) * 6 + composed.index[1]
    assert key.unique().numel() == composed.num_edges
    paths = products(FIRST.with_values(None), SECOND.with_values(None)) > 0
    assert composed.support().equal(paths)


def test_second_derivatives_are_those_of_dense_products():
    inputs = [FIRST.value, SECOND.value]

    def second_derivatives(dense):
        gradients = torch.autograd.grad(dense.sin().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs)

    composed_gradients = second_derivatives(compose_edges(FIRST, SECOND).to_dense())
    for actual, expected in zip(
        composed_gradients, second_derivatives(products(FIRST, SECOND)), strict=True
    ):
        assert_near(actual, expected)


def test_ones_stay_ones_and_count_paths():
    first, second = FIRST.with_values(None), SECOND.with_values(None)
    composed = compose_edges(first, second)
    assert composed.value is None
    assert_near(composed.to_dense(torch.float64), products(first, second).double())


@pytest.mark.parametrize("aggr", ["mean", "max", "min"])
def test_parallel_results_are_merged_by_the_reduction(aggr):
    composed = compose_edges(FIRST, SECOND, aggr)
    paths = {}
    for a in range(FIRST.num_edges):
        for b in range(SECOND.num_edges):
            if FIRST.index[1, a] == SECOND.index[0, b]:
                label = int(FIRST.label[a]) * 2 + int(SECOND.label[b])
                key = (label, int(FIRST.index[0, a]), int(SECOND.index[1, b]))
                paths.setdefault(key, []).append(FIRST.value[a] * SECOND.value[b])
    assert composed.num_edges == len(paths)
    dense = composed.to_dense()
    for key, values in paths.items():
        assert_near(dense[key], getattr(torch.stack(values), REDUCTIONS[aggr])(0))


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_equal_results_takes_the_whole_gradient(aggr, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(2, (2, 14), generator=generator)
    value = torch.randint(-1, 2, (14,), generator=generator).double().requires_grad_()
    merged = merge_parallel(index, value, (2, 2), aggr).to_dense()[0]
    for source, target in index.unique(dim=1).t().tolist():
        mine = ((index[0] == source) & (index[1] == target)).nonzero().view(-1)
        best = getattr(value[mine], f"arg{aggr}")()
        expected = torch.zeros(14).double()
        expected[mine[best]] = 1.0
        of_one = torch.autograd.grad(merged[source, target], value, retain_graph=True)[0]
        assert merged[source, target] == value[mine[best]]
        assert torch.equal(of_one, expected)


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_the_gradient_of_a_walk_of_weight_zero_is_that_of_its_product(aggr):
    conv = OuterConv(
        3, 3, Walk(2, None, aggr=aggr, powers=(2,)), theta="identity", bias=False
    ).double()
    weight = torch.tensor([0.0, 3.0], dtype=torch.float64, requires_grad=True)
    out = conv(torch.eye(3).double(), torch.tensor([[0, 1], [1, 2]]), weight)
    assert torch.autograd.grad(out[2, 0], weight)[0].tolist() == [3.0, 0.0]


def test_weighted_sums_of_edge_sets_merge_what_they_share():
    relation = Relation(3, None).basis(awkward_structures()["weighted"]).select([0]).edges()
    transposed = relation.transpose().edges()
    combined = combine([(2.0, relation), (-1.0, transposed)])
    assert_near(combined.to_dense(), 2 * relation.to_dense() - transposed.to_dense())


@pytest.mark.parametrize("aggr", sorted(REDUCTIONS))
@pytest.mark.parametrize("seed", range(3))
def test_merging_tells_edges_apart_where_all_nodes_and_labels_exceed_int64(seed, aggr):
    generator = torch.Generator().manual_seed(seed)
    size, num_labels = (2**21, 2**20), 2**24  # 2**65 places
    # Few values of each, high and low, so that some edges are parallel and keys would collide.
    source, target, label = (
        (torch.randint(3, (60,), generator=generator) * (count // 2)).clamp(max=count - 1)
        for count in (*size, num_labels)
    )
    value = torch.randn(60, dtype=torch.float64, generator=generator, requires_grad=True)
    merged = merge_parallel(torch.stack([source, target]), value, size, aggr, label, num_labels)
    groups = {}
    for edge, key in enumerate(zip(*(t.tolist() for t in (target, label, source)), strict=True)):
        groups.setdefault(key, []).append(edge)
    ends = (merged.index[1], merged.label, merged.index[0])
    assert list(zip(*(end.tolist() for end in ends), strict=True)) == sorted(groups)
    expected = torch.stack(
        [getattr(value[groups[key]], REDUCTIONS[aggr])(0) for key in sorted(groups)]
    )
    assert_same(merged.value, expected, [value])


def test_products_of_many_labels_keep_their_labels_apart():
    size = (2**20, 2**20)
    ends, labels = torch.tensor([[0, size[0] - 1, 5], [7, 0, 7]]), [3, 2**15, 2**16 - 1]
    first = Pattern.build(ends, torch.tensor(labels), size=size, num_labels=2**16)
    second = Pattern.build(ends.flip(0), torch.tensor(labels), size=size, num_labels=2**16)
    composed = compose_edges(first.with_values(torch.ones(3)), second.with_values(torch.ones(3)))
    expected = {
        (m, n, i * 2**16 + j)
        for m, middle, i in zip(*ends.tolist(), labels, strict=True)
        for n, other, j in zip(*ends.tolist(), labels, strict=True)
        if middle == other
    }
    assert set(zip(*composed.index.tolist(), composed.label.tolist(), strict=True)) == expected


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
    order = edges.pattern.order.long()
    assert torch.equal(edge_index[:, order], torch.stack([source, target]))


def test_places_and_nodes_are_inverse():
    there = Chebyshev(2).basis(renamed_path(30), size=(30, 30)).reorder()
    assert isinstance(there.basis, Polynomial)
    assert torch.equal(there.nodes[there.place], torch.arange(30))


@pytest.mark.parametrize("size", [0, 1, 5])
def test_graphs_without_edges(size):
    none = torch.empty(2, 0, dtype=torch.long)
    there = Relation(1, None).basis(none, size=(size, size)).reorder()
    assert sorted(there.nodes.tolist()) == list(range(size))
