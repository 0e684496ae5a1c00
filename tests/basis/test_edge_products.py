"""Products of edge sets, label by label, and the merging of parallel edges."""

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.basis.edge_products import REDUCTIONS, combine, compose_edges, merge_parallel
from pyg_outerconv.families import Relation, Walk
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
    found = compose_edges(FIRST, SECOND)
    key = (found.label.long() * 5 + found.index[0]) * 6 + found.index[1]
    assert key.unique().numel() == found.num_edges
    paths = products(FIRST.with_values(None), SECOND.with_values(None)) > 0
    assert found.support().equal(paths)


def test_second_derivatives_are_those_of_dense_products():
    inputs = [FIRST.value, SECOND.value]

    def second_derivatives(dense):
        gradients = torch.autograd.grad(dense.sin().sum(), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs)

    found = second_derivatives(compose_edges(FIRST, SECOND).to_dense())
    for actual, expected in zip(found, second_derivatives(products(FIRST, SECOND)), strict=True):
        assert_near(actual, expected)


def test_ones_stay_ones_and_count_paths():
    first, second = FIRST.with_values(None), SECOND.with_values(None)
    found = compose_edges(first, second)
    assert found.value is None
    assert_near(found.to_dense(torch.float64), products(first, second).double())


@pytest.mark.parametrize("aggr", ["mean", "max", "min"])
def test_parallel_results_are_merged_by_the_reduction(aggr):
    found = compose_edges(FIRST, SECOND, aggr)
    paths = {}
    for a in range(FIRST.num_edges):
        for b in range(SECOND.num_edges):
            if FIRST.index[1, a] == SECOND.index[0, b]:
                label = int(FIRST.label[a]) * 2 + int(SECOND.label[b])
                key = (label, int(FIRST.index[0, a]), int(SECOND.index[1, b]))
                paths.setdefault(key, []).append(FIRST.value[a] * SECOND.value[b])
    assert found.num_edges == len(paths)
    dense = found.to_dense()
    for key, values in paths.items():
        assert_near(dense[key], getattr(torch.stack(values), REDUCTIONS[aggr])(0))


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_equal_results_takes_the_whole_gradient(aggr, seed):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(2, (2, 14), generator=generator)
    value = torch.randint(-1, 2, (14,), generator=generator).double().requires_grad_()
    found = merge_parallel(index, value, (2, 2), aggr).to_dense()[0]
    for source, target in index.unique(dim=1).t().tolist():
        mine = ((index[0] == source) & (index[1] == target)).nonzero().view(-1)
        best = getattr(value[mine], f"arg{aggr}")()
        expected = torch.zeros(14).double()
        expected[mine[best]] = 1.0
        of_one = torch.autograd.grad(found[source, target], value, retain_graph=True)[0]
        assert found[source, target] == value[mine[best]]
        assert torch.equal(of_one, expected)


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_the_gradient_of_a_walk_of_weight_zero_is_that_of_its_product(aggr):
    conv = OuterConv(
        3, 3, Walk(2, None, aggr=aggr, powers=(2,)), theta="identity", bias=False
    ).double()
    weight = torch.tensor([0.0, 3.0], dtype=torch.float64, requires_grad=True)
    out = conv(torch.eye(3).double(), torch.tensor([[0, 1], [1, 2]]), weight)
    assert torch.autograd.grad(out[2, 0], weight)[0].tolist() == [3.0, 0.0]


def test_merging_keeps_labels_apart():
    index = torch.tensor([[0, 0, 0, 1], [1, 1, 1, 0]])
    value = torch.tensor([1.0, 2.0, 4.0, 8.0])
    found = merge_parallel(index, value, (2, 2), label=torch.tensor([1, 0, 1, 1]), num_labels=2)
    assert found.num_edges == 3
    assert_near(
        found.to_dense(), torch.tensor([[[0.0, 2.0], [0.0, 0.0]], [[0.0, 5.0], [8.0, 0.0]]])
    )


def test_weighted_sums_of_edge_sets_merge_what_they_share():
    relation = Relation(3, None).basis(awkward_structures()["weighted"]).select([0]).edges()
    transposed = relation.transpose().edges()
    found = combine([(2.0, relation), (-1.0, transposed)])
    assert_near(found.to_dense(), 2 * relation.to_dense() - transposed.to_dense())


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
    found = merge_parallel(torch.stack([source, target]), value, size, aggr, label, num_labels)
    groups = {}
    for edge, key in enumerate(zip(*(t.tolist() for t in (target, label, source)), strict=True)):
        groups.setdefault(key, []).append(edge)
    ends = (found.index[1], found.label, found.index[0])
    assert list(zip(*(end.tolist() for end in ends), strict=True)) == sorted(groups)
    expected = torch.stack(
        [getattr(value[groups[key]], REDUCTIONS[aggr])(0) for key in sorted(groups)]
    )
    assert_same(found.value, expected, [value])


def test_products_of_many_labels_keep_their_labels_apart():
    size = (2**20, 2**20)
    ends, labels = torch.tensor([[0, size[0] - 1, 5], [7, 0, 7]]), [3, 2**15, 2**16 - 1]
    first = Pattern.build(ends, torch.tensor(labels), size=size, num_labels=2**16)
    second = Pattern.build(ends.flip(0), torch.tensor(labels), size=size, num_labels=2**16)
    found = compose_edges(first.with_values(torch.ones(3)), second.with_values(torch.ones(3)))
    expected = {
        (m, n, i * 2**16 + j)
        for m, middle, i in zip(*ends.tolist(), labels, strict=True)
        for n, other, j in zip(*ends.tolist(), labels, strict=True)
        if middle == other
    }
    assert set(zip(*found.index.tolist(), found.label.tolist(), strict=True)) == expected
