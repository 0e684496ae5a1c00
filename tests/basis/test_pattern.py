"""Patterns: sorted once, both directions, movable; pairs of a node and a label with edges."""

import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from probes import Largest
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_leaves
from versions import TORCH

from pyg_outerconv import use_backend
from pyg_outerconv.basis import EdgeBasis, Pattern, pattern
from pyg_outerconv.basis import pairs as compact
from pyg_outerconv.basis.pairs import count_pairs
from pyg_outerconv.basis.pattern import SHORT
from pyg_outerconv.kernels import CSR, products, spmm
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[3, 0, 2, 2, 0, 3], [1, 1, 0, 2, 1, 1]])
LABEL = torch.tensor([1, 0, 1, 0, 0, 0])


def example(**options):
    return Pattern.build(EDGES, LABEL, size=(4, 3), num_labels=2, **options)


def test_edges_are_sorted_by_target_then_label_and_nothing_is_merged():
    edge_pattern = example()
    assert edge_pattern.index.tolist() == [[2, 0, 0, 3, 3, 2], [0, 1, 1, 1, 1, 2]]
    assert edge_pattern.label.tolist() == [1, 0, 0, 0, 1, 0]
    assert edge_pattern.order.tolist() == [2, 1, 4, 5, 0, 3], "parallel edges keep their order"
    assert edge_pattern.num_edges == 6


def test_both_directions_and_the_permutation_between_them():
    edge_pattern = example()
    assert edge_pattern.target_ptr.tolist() == [0, 1, 5, 6]
    assert edge_pattern.source_ptr.tolist() == [0, 2, 2, 4, 6]
    assert edge_pattern.by_target_label.ptr.tolist() == [0, 0, 1, 4, 5, 6, 6]
    assert edge_pattern.by_target.T.ptr.tolist() == [0, 2, 2, 2, 2, 3, 4, 5, 6]
    assert edge_pattern.by_target.ptr is edge_pattern.target_ptr
    assert torch.equal(edge_pattern.by_target_label.T.ptr, edge_pattern.source_ptr)
    sources = (
        edge_pattern.source[edge_pattern.by_source] * 2 + edge_pattern.label[edge_pattern.by_source]
    )
    assert bool((sources.diff() >= 0).all())
    for csr in (edge_pattern.by_target, edge_pattern.by_target_label, edge_pattern.ends):
        ptr, row, order = csr.columns
        rows = torch.arange(csr.shape[0]).repeat_interleave(csr.ptr.diff())
        columns = torch.arange(csr.shape[1]).repeat_interleave(ptr.diff())
        assert torch.equal(csr.index[order].long(), columns)
        assert torch.equal(rows[order], row.long())


def test_edges_are_listed_label_by_label():
    ptr, order = example().by_label
    assert ptr.tolist() == [0, 4, 6]
    assert order.tolist() == [1, 2, 3, 5, 0, 4]
    assert ptr.dtype == order.dtype == SHORT


@pytest.mark.parametrize("as_given", [True, False])
def test_means_of_few_edges_count_no_row_without_any(as_given):
    many = Pattern.build(EDGES, LABEL, size=(4, 3), num_labels=10**6)
    share = torch.tensor([1.0, 1 / 3, 1.0, 1.0, 1 / 3, 1 / 3])  # in input order
    with Largest() as largest:
        actual = many.mean_weights(torch.float32, as_given)
    assert_near(actual, share if as_given else share[many.order])
    assert largest.nbytes < 2**10


def test_indices_are_int32_where_products_fit_and_int64_beyond(monkeypatch):
    assert example().source.dtype == example().by_source.dtype == SHORT
    assert torch.int32 == SHORT or TORCH < (2, 11)
    monkeypatch.setattr(pattern, "INT32_LIMIT", 7)
    wide = example()
    assert wide.source.dtype == wide.target_ptr.dtype == torch.int64
    assert torch.equal(wide.index, example().index.long())


def test_with_values_never_sorts(monkeypatch):
    edge_pattern = example()
    basis = edge_pattern.with_values(torch.rand(6))

    def refuse(*_, **__):
        raise AssertionError("sorted again")

    monkeypatch.setattr(torch, "sort", refuse)
    monkeypatch.setattr(torch, "argsort", refuse)
    again = basis.with_values(torch.rand(6, requires_grad=True))
    assert again.pattern is edge_pattern
    transposed = again.transpose().edges()
    assert transposed.size == (3, 4)
    transposed.to_dense().sum().backward()


def test_transposed_pattern_equals_one_built_from_turned_edges():
    transposed = example().transposed
    fresh = Pattern.build(EDGES.flip(0), LABEL, size=(3, 4), num_labels=2)
    for name in ("target", "label", "target_ptr", "source_ptr"):
        assert torch.equal(getattr(transposed, name), getattr(fresh, name)), name
    assert torch.equal(
        transposed.index[:, transposed.by_source], transposed.transposed.index.flip(0)
    ), "turning twice leads back"
    assert torch.equal(transposed.transposed.source, example().source)


def test_nothing_can_be_assigned():
    basis = example().with_values(torch.rand(6))
    with pytest.raises(FrozenInstanceError):
        basis.value = None
    with pytest.raises(FrozenInstanceError):
        basis.pattern.size = (1, 1)
    with pytest.raises(FrozenInstanceError):
        basis.scale(2.0).factor = None


def test_a_turned_pattern_knows_where_its_edges_come_from():
    edge_index, origin = torch.tensor([[3, 0, 2, 0], [1, 2, 0, 1]]), torch.tensor([5, -1, 7, 6])
    pattern = Pattern.build(edge_index, size=(4, 3), origin=origin)
    for one, edges in ((pattern, edge_index), (pattern.transposed, edge_index.flip(0))):
        assert torch.equal(edges[:, one.order.long()], one.index.long())
        assert torch.equal(origin[one.order.long()], one.origin)


def test_every_tensor_of_a_pattern_moves():
    moved = Pattern.build(torch.tensor([[0], [0]]), size=(1, 1), origin=torch.tensor([0])).map(
        lambda tensor: tensor.to("meta")
    )
    assert moved.listed.is_meta
    both = moved.by_source, moved.source_ptr, moved.target_ptr, moved.order, moved.origin
    tensors = (moved.source, moved.target, moved.label, *both)
    assert all(tensor.is_meta for tensor in tensors)


def test_nothing_is_sorted_before_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.basis.pattern.sort_edges", None)
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", 2**15)
    pattern = example()
    assert (pattern.num_edges, pattern.device.type, pattern.size) == (6, "cpu", (4, 3))
    basis = EdgeBasis.of_list(pattern, torch.ones(6))
    assert basis.dtype == torch.float32
    assert basis.mean().propagate(torch.ones(4, 1)).shape == (3, 2, 1)


@pytest.mark.parametrize("most", [-1, 2**15])
def test_edges_without_labels_are_of_the_first(most, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", most)
    basis = Pattern.build(torch.tensor([[0, 1, 1], [1, 0, 1]]), size=(2, 2), num_labels=3)
    basis, x = basis.with_values(torch.rand(3)), torch.rand(2, 4)
    dense = basis.to_dense()
    assert_near(basis.propagate(x), torch.einsum("kmn,mp->nkp", dense, x))
    z = torch.rand(2, 3, 4)
    assert_near(basis.gather(z), torch.einsum("kmn,mkp->np", dense, z))


@pytest.mark.parametrize("sorted_before", [True, False])
@pytest.mark.parametrize("edges", [50, pattern.KEEP_UNSORTED + 1])
def test_what_was_sorted_is_moved_with_its_labels_and_origins(edges, sorted_before):
    index, label = torch.randint(9, (2, edges)), torch.randint(3, (edges,))
    for origin in (None, edges - 5, torch.arange(edges).flip(0)):
        for labels in (1, 3):
            edge_label = None if labels == 1 else label
            built = Pattern.of_list(
                index, edge_label, size=(9, 9), num_labels=labels, origin=origin
            )
            if sorted_before:
                assert built.order.numel() == edges
            moved = built.map(torch.clone)
            assert moved is not built
            for name in ("source", "target", "label", "origin", "order", "target_ptr", "by_source"):
                one, other = getattr(moved, name), getattr(built, name)
                assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("most", [-1, 2**15])
def test_gradients_reach_values_that_were_looked_at(most, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", most)
    weight, x = torch.rand(6, requires_grad=True), torch.rand(4, 3)
    basis = EdgeBasis.of_list(example(), weight * 2)
    with torch.no_grad():
        assert not basis.value.requires_grad
    value = basis.value
    assert basis.value is value
    for variant in (
        basis,
        basis.times(3.0),
        basis.mean(),
        basis.map(lambda one: 1 * one if one.is_floating_point() else one),
    ):
        out = variant.propagate(x).square().sum()
        of_value, of_weight = torch.autograd.grad(out, [value, weight], retain_graph=True)
        assert_near(of_weight[basis.pattern.order.long()], 2 * of_value)


@pytest.fixture
def large(monkeypatch):
    """A basis of constant values that counts as large, the values, and features."""
    monkeypatch.setattr("pyg_outerconv.basis.edges.KEEP_UNSORTED", 0)
    value = torch.tensor([0.5, -2.0, 3.0, 0.25, 1.5, -1.0], dtype=torch.float64)
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    with use_backend("native"):
        yield example().with_values(value), value, x


def test_constant_values_are_permuted_once_for_the_gradient_in_features(large, monkeypatch):
    orders = []
    monkeypatch.setattr(products, "in_order", lambda value, order: orders.append(order) or value)
    basis, value, x = large
    above = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    for factor in (1.0, 2.0):  # written to in place, they are permuted anew
        value *= factor
        matrices = basis.to_dense()
        for twice in (False, True):
            (of_x,) = torch.autograd.grad(basis.propagate(x), x, above, create_graph=twice)
            assert_near(of_x, torch.einsum("kmn,nkp->mp", matrices, above))
        (of_above,) = torch.autograd.grad(of_x, above, x)
        assert_near(of_above, torch.einsum("kmn,mp->nkp", matrices, x))
    assert set(orders) == {None}, "no pass permutes values"


def test_forward_mode_permutes_values_by_itself(large):
    basis, _, x = large

    def cubes(x):
        return basis.propagate(x).pow(3).sum()

    along = torch.randn_like(x)
    (of_x,) = torch.autograd.grad(cubes(x), x, create_graph=True)
    (of_along,) = torch.autograd.grad(of_x, x, along)
    _, tangent = torch.func.jvp(torch.func.grad(cubes), (x.detach(),), (along,))
    assert_near(tangent, of_along)
    out = cubes(x)
    with forward_ad.dual_level():
        above = forward_ad.make_dual(torch.ones_like(out), torch.full_like(out, 2.0))
        primal, tangent = forward_ad.unpack_dual(torch.autograd.grad(out, x, above)[0])
        assert_near(tangent, 2 * primal)


def test_a_list_that_is_written_to_later_does_not_matter():
    edge_index = torch.tensor([[0, 1], [1, 0]])
    pattern = Pattern.build(edge_index, size=(2, 2))
    edge_index.zero_()
    assert pattern.index.tolist() == [[1, 0], [0, 1]]


def test_a_pattern_that_does_not_move_keeps_what_was_made_of_it():
    basis = example().with_values(torch.rand(6))
    source_pairs = basis.pattern.source_pairs
    for twin in (basis.double(), basis.detach(), basis.to("cpu"), basis.to(torch.device("cpu"))):
        assert twin.pattern is basis.pattern
        assert twin.pattern.source_pairs is source_pairs
    cloned = basis.pattern.map(torch.clone)
    assert cloned is not basis.pattern
    assert "source_pairs" not in vars(cloned)
    assert torch.equal(cloned.index, basis.index)


def test_many_edges_between_few_nodes_need_wide_indices(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.basis.pattern.INT32_LIMIT", 10)
    for count, dtype in ((9, SHORT), (10, torch.int64)):
        pattern = Pattern.build(torch.zeros(2, count).long(), size=(1, 1))
        assert {pattern.source.dtype, pattern.order.dtype, pattern.target_ptr.dtype} == {dtype}


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("edges", [50, pattern.KEEP_UNSORTED + 1])
def test_sorted_values_beside_edges_that_are_not_yet_sorted(edges, labels, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.edge_sums.MOST", 2**22)
    index, label = torch.randint(9, (2, edges)), torch.randint(labels, (edges,))
    value, x, z = torch.rand(edges).double(), *torch.randn(2, 9, 3).double()
    z = z.unsqueeze(1).expand(-1, labels, -1)

    def basis():
        built = Pattern.build(index, label, size=(9, 9), num_labels=labels)
        return EdgeBasis(built, value)

    dense = basis().to_dense()
    assert_near(basis().propagate(x), torch.einsum("kmn,mp->nkp", dense, x))
    assert_near(basis().gather(z), torch.einsum("kmn,mkp->np", dense, z))


def build(count, size, num_labels, used=None):
    """Random edges, of the first ``used`` labels."""
    index = torch.stack([torch.randint(max(nodes, 1), (count,)) for nodes in size])
    label = torch.randint(max(num_labels if used is None else used, 1), (count,))
    return Pattern.build(index, label, size=size, num_labels=num_labels)


PATTERNS = {
    "square": lambda: build(40, (6, 6), 3),
    "tall": lambda: build(25, (9, 3), 4),
    "wide": lambda: build(25, (3, 9), 4),
    "sparse": lambda: build(7, (50, 40), 5),
    "one label": lambda: build(20, (5, 6), 1),
    "empty labels": lambda: Pattern.build(
        torch.randint(4, (2, 9)),
        torch.tensor([2, 2, 5, 5, 5, 2, 5, 2, 2]),
        size=(4, 4),
        num_labels=8,
    ),
    "last label empty": lambda: build(20, (5, 5), 4, used=3),
    "parallel edges": lambda: Pattern.build(
        torch.zeros(2, 6).long(), torch.tensor([1, 0, 1, 1, 0, 1]), size=(2, 2), num_labels=2
    ),
    "zero edges": lambda: build(0, (4, 5), 3),
    "no labels": lambda: build(0, (4, 5), 0),
    "no nodes": lambda: build(0, (0, 0), 3),
    "transposed": lambda: build(30, (7, 4), 3).transposed,
}

each_pattern = pytest.mark.parametrize("name", PATTERNS)


def label_of(pairs):
    return torch.arange(pairs.ptr.numel() - 1).repeat_interleave(pairs.ptr.diff().long())


@each_pattern
def test_pairs_are_distinct_sorted_and_have_edges(name):
    edge_pattern = PATTERNS[name]()
    for pairs, node, count in (
        (edge_pattern.source_pairs, edge_pattern.source, edge_pattern.num_source_pairs),
        (edge_pattern.target_pairs, edge_pattern.target, edge_pattern.num_target_pairs),
    ):
        expected = sorted(set(zip(edge_pattern.label.tolist(), node.tolist(), strict=True)))
        actual = zip(label_of(pairs).tolist(), pairs.node.tolist(), strict=True)
        assert list(actual) == expected
        assert count == len(expected)
        assert pairs.ptr.numel() == edge_pattern.num_labels + 1
        assert int(pairs.ptr[0]) == 0
        assert int(pairs.ptr[-1]) == count


@each_pattern
def test_blocks_are_of_the_labels_that_have_edges(name):
    edge_pattern = PATTERNS[name]()
    blocks = edge_pattern.label_blocks
    assert [block.label for block in blocks] == sorted(set(edge_pattern.label.tolist()))
    for block in blocks:
        mine = edge_pattern.label == block.label
        assert block.source.tolist() == edge_pattern.source[mine].unique().tolist()
        assert block.target.tolist() == edge_pattern.target[mine].unique().tolist()
        assert sorted(block.order.tolist()) == mine.nonzero().view(-1).tolist()


@each_pattern
@pytest.mark.parametrize("limit", [None, 0], ids=["int32", "int64"])
def test_indices_have_the_type_of_the_pattern(name, limit, monkeypatch):
    if limit is not None:
        monkeypatch.setattr(pattern, "INT32_LIMIT", limit)
    edge_pattern = PATTERNS[name]()
    assert edge_pattern.source.dtype == (pattern.SHORT if limit is None else torch.int64)
    for pairs in (edge_pattern.source_pairs, edge_pattern.target_pairs):
        tensors = [pairs.node, pairs.ptr, pairs.csr.ptr, pairs.csr.index, *pairs.csr.columns]
        tensors += [] if pairs.order is None else [pairs.order]
        assert {tensor.dtype for tensor in tensors} == {edge_pattern.source.dtype}
    for block in edge_pattern.label_blocks:
        tensors = [block.source, block.target, block.order, block.csr.ptr, block.csr.index]
        tensors += block.csr.columns
        assert {tensor.dtype for tensor in tensors} == {edge_pattern.source.dtype}


def test_indices_are_wide_where_nodes_times_labels_pass_two_to_the_31():
    # Keys of the last nodes and labels would be negative in int32.
    nodes, labels = 2**16, 2**15 + 1
    ends = torch.tensor([[nodes - 1, 0, nodes - 1, 5], [nodes - 1, nodes - 1, 3, nodes - 1]])
    label = torch.tensor([labels - 1, labels - 1, 0, labels - 1])
    edge_pattern = Pattern.build(ends, label, size=(nodes, nodes), num_labels=labels)
    assert edge_pattern.source.dtype == torch.int64
    sources, targets = edge_pattern.source_pairs, edge_pattern.target_pairs
    assert sources.node.tolist() == [nodes - 1, 0, 5, nodes - 1]
    assert targets.node.tolist() == [3, nodes - 1]
    assert edge_pattern.num_source_pairs == 4
    assert edge_pattern.num_target_pairs == 2
    assert [block.label for block in edge_pattern.label_blocks] == [0, labels - 1]
    x = torch.randn(nodes, 2)
    actual = spmm(targets.csr, None, x)
    assert_near(actual, torch.stack([x[-1], x[-1] + x[0] + x[5]]))


def test_the_largest_keys_of_int32_do_not_overflow():
    # The last key is 2 ** 31 - 3, and the limit itself is wide already.
    nodes, labels = 2**15, 2**16 - 1
    assert nodes * labels < pattern.INT32_LIMIT
    ends = torch.tensor([[nodes - 1, 1], [nodes - 1, 1]])
    edge_pattern = Pattern.build(
        ends, torch.tensor([labels - 1, 0]), size=(nodes,) * 2, num_labels=labels
    )
    assert edge_pattern.source.dtype == pattern.SHORT
    assert (
        edge_pattern.source_pairs.node.tolist()
        == edge_pattern.target_pairs.node.tolist()
        == [1, nodes - 1]
    )
    assert edge_pattern.num_source_pairs == edge_pattern.num_target_pairs == 2


@pytest.mark.parametrize(
    ("node", "label", "expected"),
    [([], [], 0), ([3], [1], 1), ([0, 0, 0], [0, 0, 1], 2), ([0, 1, 1], [1, 0, 0], 2)],
)
def test_pairs_are_counted_without_being_listed(node, label, expected, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("sorted")

    monkeypatch.setattr(torch, "sort", refuse)
    monkeypatch.setattr(compact, "_sort_pairs", refuse)
    assert count_pairs(torch.tensor(node), torch.tensor(label), 2) == expected


FORMS = ["by_target", "by_target_label", "ends", "source_pairs", "target_pairs", "label_blocks"]


def within_func_grad(make):
    outputs = []

    def function(x):
        outputs.append(make())
        return x.sum()

    torch.func.grad(function)(torch.ones(1))
    return outputs[0]


def within_inference_mode(make):
    with torch.inference_mode():
        return make()


def within_vmap(make):
    outputs = []
    torch.vmap(lambda x: (outputs.append(make()), x)[1])(torch.ones(2))
    return outputs[0]


@pytest.mark.parametrize("within", [within_inference_mode, within_func_grad, within_vmap])
@pytest.mark.parametrize("form", FORMS)
def test_made_within_any_mode_they_serve_training_and_can_be_pickled(form, within):
    edge_pattern = build(20, (5, 5), 3)
    derived_form = within(lambda: getattr(edge_pattern, form))
    assert getattr(edge_pattern, form) is derived_form, "made once"
    attributes = [
        vars(x) if isinstance(x, CSR) else x for x in tree_leaves(dict(vars(edge_pattern)))
    ]
    tensors = [x for x in tree_leaves(attributes) if isinstance(x, torch.Tensor)]
    assert len(tensors) > 7
    assert not any(is_functorch_wrapped_tensor(tensor) for tensor in tensors)
    again = getattr(pickle.loads(pickle.dumps(edge_pattern)), form)
    for one in (derived_form, again):
        one = one[0] if form == "label_blocks" else one
        csr = getattr(one, "csr", one)
        x = torch.randn(csr.shape[1], 2, requires_grad=True)
        spmm(csr, None, x).sum().backward()
        assert_near(x.grad, csr.T.ptr.diff()[:, None].float().expand(-1, 2))
