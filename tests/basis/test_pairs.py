"""Compact forms: the pairs of a node and a label that have edges, and nothing else."""

import pickle

import pytest
import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils._pytree import tree_leaves

from pyg_outerconv.basis import Pattern, pattern
from pyg_outerconv.basis import pairs as compact
from pyg_outerconv.basis.pairs import count_pairs
from pyg_outerconv.kernels import CSR, spmm
from pyg_outerconv.testing import assert_near


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


def matrix(csr, value):
    """(R, C) of values in row order, from the pointers of the rows."""
    rows = torch.arange(csr.shape[0]).repeat_interleave(csr.ptr.diff().long())
    zeros = torch.zeros(csr.shape, dtype=value.dtype)
    return zeros.index_put((rows, csr.index.long()), value, accumulate=True)


def transposed(csr, value):
    """(R, C) once more, from the pointers of the columns."""
    ptr, row, order = csr.columns
    columns = torch.arange(csr.shape[1]).repeat_interleave(ptr.diff().long())
    zeros = torch.zeros(csr.shape, dtype=value.dtype)
    return zeros.index_put((row.long(), columns), value[order.long()], accumulate=True)


def values_of(made):
    """Values that tell all sums of edges apart."""
    return torch.rand(made.num_edges, dtype=torch.float64) + 1


def label_of(pairs):
    return torch.arange(pairs.ptr.numel() - 1).repeat_interleave(pairs.ptr.diff().long())


def in_row_order(value, order):
    return value if order is None else value[order.long()]


@each_pattern
@pytest.mark.parametrize("direction", [matrix, transposed])
def test_pairs_of_sources_hold_the_basis(name, direction):
    made = PATTERNS[name]()
    value, pairs = values_of(made), made.source_pairs
    assert pairs.csr.shape == (made.size[1], made.num_source_pairs)
    found = direction(pairs.csr, in_row_order(value, pairs.order))  # (N, U)
    dense = torch.zeros(made.num_labels, *made.size, dtype=torch.float64)
    dense[label_of(pairs), pairs.node.long()] = found.t()
    assert_near(dense, made.with_values(value).to_dense())


@each_pattern
@pytest.mark.parametrize("direction", [matrix, transposed])
def test_pairs_of_targets_hold_the_basis(name, direction):
    made = PATTERNS[name]()
    value, pairs = values_of(made), made.target_pairs
    assert pairs.csr.shape == (made.num_target_pairs, made.size[0])
    found = direction(pairs.csr, in_row_order(value, pairs.order))  # (U, M)
    dense = torch.zeros(made.num_labels, *made.size, dtype=torch.float64)
    dense[label_of(pairs), :, pairs.node.long()] = found
    assert_near(dense, made.with_values(value).to_dense())


@each_pattern
@pytest.mark.parametrize("direction", [matrix, transposed])
def test_blocks_hold_the_basis_label_by_label(name, direction):
    made = PATTERNS[name]()
    value = values_of(made)
    dense = torch.zeros(made.num_labels, *made.size, dtype=torch.float64)
    for block in made.label_blocks:
        assert block.csr.shape == (block.target.numel(), block.source.numel())
        found = direction(block.csr, value[block.order.long()])
        place = (block.label, block.source.long()[:, None], block.target.long())
        dense[place] = found.t()
    assert_near(dense, made.with_values(value).to_dense())


@each_pattern
def test_pairs_are_distinct_sorted_and_have_edges(name):
    made = PATTERNS[name]()
    for pairs, node, count in (
        (made.source_pairs, made.source, made.num_source_pairs),
        (made.target_pairs, made.target, made.num_target_pairs),
    ):
        expected = sorted(set(zip(made.label.tolist(), node.tolist(), strict=True)))
        found = zip(label_of(pairs).tolist(), pairs.node.tolist(), strict=True)
        assert list(found) == expected
        assert count == len(expected)
        assert pairs.ptr.numel() == made.num_labels + 1
        assert int(pairs.ptr[0]) == 0
        assert int(pairs.ptr[-1]) == count


@each_pattern
def test_blocks_are_of_the_labels_that_have_edges(name):
    made = PATTERNS[name]()
    blocks = made.label_blocks
    assert [block.label for block in blocks] == sorted(set(made.label.tolist()))
    for block in blocks:
        mine = made.label == block.label
        assert block.source.tolist() == made.source[mine].unique().tolist()
        assert block.target.tolist() == made.target[mine].unique().tolist()
        assert sorted(block.order.tolist()) == mine.nonzero().view(-1).tolist()


@each_pattern
def test_entries_of_every_form_are_those_of_the_pattern_once_each(name):
    made = PATTERNS[name]()
    every = list(range(made.num_edges))
    for pairs in (made.source_pairs, made.target_pairs):
        assert sorted(pairs.csr.T.order.tolist()) == every
        if pairs.order is not None:
            assert sorted(pairs.order.tolist()) == every
    assert sorted(i for block in made.label_blocks for i in block.order.tolist()) == every


@each_pattern
@pytest.mark.parametrize("limit", [None, 0], ids=["int32", "int64"])
def test_indices_have_the_type_of_the_pattern(name, limit, monkeypatch):
    if limit is not None:
        monkeypatch.setattr(pattern, "INT32_LIMIT", limit)
    made = PATTERNS[name]()
    assert made.source.dtype == (pattern.SHORT if limit is None else torch.int64)
    for pairs in (made.source_pairs, made.target_pairs):
        tensors = [pairs.node, pairs.ptr, pairs.csr.ptr, pairs.csr.index, *pairs.csr.columns]
        tensors += [] if pairs.order is None else [pairs.order]
        assert {tensor.dtype for tensor in tensors} == {made.source.dtype}
    for block in made.label_blocks:
        tensors = [block.source, block.target, block.order, block.csr.ptr, block.csr.index]
        tensors += block.csr.columns
        assert {tensor.dtype for tensor in tensors} == {made.source.dtype}


def test_indices_are_wide_where_nodes_times_labels_pass_two_to_the_31():
    # Keys of the last nodes and labels would be negative in int32.
    nodes, labels = 2**16, 2**15 + 1
    ends = torch.tensor([[nodes - 1, 0, nodes - 1, 5], [nodes - 1, nodes - 1, 3, nodes - 1]])
    label = torch.tensor([labels - 1, labels - 1, 0, labels - 1])
    made = Pattern.build(ends, label, size=(nodes, nodes), num_labels=labels)
    assert made.source.dtype == torch.int64
    sources, targets = made.source_pairs, made.target_pairs
    assert sources.node.tolist() == [nodes - 1, 0, 5, nodes - 1]
    assert targets.node.tolist() == [3, nodes - 1]
    assert made.num_source_pairs == 4
    assert made.num_target_pairs == 2
    assert [block.label for block in made.label_blocks] == [0, labels - 1]
    x = torch.randn(nodes, 2)
    found = spmm(targets.csr, None, x)
    assert_near(found, torch.stack([x[-1], x[-1] + x[0] + x[5]]))


def test_the_largest_keys_of_int32_do_not_overflow():
    # The last key is 2 ** 31 - 3, and the limit itself is wide already.
    nodes, labels = 2**15, 2**16 - 1
    assert nodes * labels < pattern.INT32_LIMIT
    ends = torch.tensor([[nodes - 1, 1], [nodes - 1, 1]])
    made = Pattern.build(ends, torch.tensor([labels - 1, 0]), size=(nodes,) * 2, num_labels=labels)
    assert made.source.dtype == pattern.SHORT
    assert made.source_pairs.node.tolist() == made.target_pairs.node.tolist() == [1, nodes - 1]
    assert made.num_source_pairs == made.num_target_pairs == 2


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
    found = []

    def function(x):
        found.append(make())
        return x.sum()

    torch.func.grad(function)(torch.ones(1))
    return found[0]


def within_inference_mode(make):
    with torch.inference_mode():
        return make()


def within_vmap(make):
    found = []
    torch.vmap(lambda x: (found.append(make()), x)[1])(torch.ones(2))
    return found[0]


@pytest.mark.parametrize("within", [within_inference_mode, within_func_grad, within_vmap])
@pytest.mark.parametrize("form", FORMS)
def test_made_within_any_mode_they_serve_training_and_can_be_pickled(form, within):
    made = build(20, (5, 5), 3)
    found = within(lambda: getattr(made, form))
    assert getattr(made, form) is found, "made once"
    held = [vars(x) if isinstance(x, CSR) else x for x in tree_leaves(dict(vars(made)))]
    tensors = [x for x in tree_leaves(held) if isinstance(x, torch.Tensor)]
    assert len(tensors) > 7
    assert not any(is_functorch_wrapped_tensor(tensor) for tensor in tensors)
    again = getattr(pickle.loads(pickle.dumps(made)), form)
    for one in (found, again):
        one = one[0] if form == "label_blocks" else one
        csr = getattr(one, "csr", one)
        x = torch.randn(csr.shape[1], 2, requires_grad=True)
        spmm(csr, None, x).sum().backward()
        assert_near(x.grad, csr.T.ptr.diff()[:, None].float().expand(-1, 2))
