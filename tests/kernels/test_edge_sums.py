"""Sums and softmax over edges in any order: dense ones, every derivative, and no messages."""

import tracemalloc

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from pyg_outerconv import OuterConv, record, use_backend
from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import edge_sums as module
from pyg_outerconv.kernels import head_copies
from pyg_outerconv.kernels.backends import small
from pyg_outerconv.kernels.edge_lists import SHORT, share_of_degrees
from pyg_outerconv.kernels.edge_sums import SAFE, Listed, edge_sums, is_safe, is_small
from pyg_outerconv.kernels.head_copies import HeadCopies
from pyg_outerconv.testing import assert_near

SIZES = [(0, 4, 3), (12, 5, 4), (40, 3, 6), (200, 30, 30)]


def edges_of(count, sources, targets, dtype=torch.int64):
    return torch.randint(sources, (count,), dtype=dtype), torch.randint(
        targets, (count,), dtype=dtype
    )


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("has_tool", [True, False])
@pytest.mark.parametrize(("count", "sources", "targets"), SIZES)
def test_equals_the_dense_product(
    count, sources, targets, weighted, has_tool, dtype, index, monkeypatch
):
    assert small.coo_product() is not None  # a scipy without it makes all of this slow
    if not has_tool:
        monkeypatch.setattr(module, "coo_product", lambda: None)
    source, target = edges_of(count, sources, targets, index)
    x = torch.randn(5, sources, dtype=dtype).t()  # not contiguous
    value = torch.randn(2 * count, dtype=dtype)[::2] if weighted else None
    dense = x.new_zeros(targets, sources)
    ones = x.new_ones(count) if value is None else value
    dense.index_put_((target.long(), source.long()), ones, accumulate=True)
    torch.testing.assert_close(
        edge_sums(torch.stack([source, target]), value, x, targets), dense @ x
    )


@pytest.mark.parametrize("has_tool", [True, False])
@pytest.mark.parametrize("tile", [1, 2**15])
def test_every_derivative(has_tool, tile, monkeypatch):
    monkeypatch.setattr(small, "TILE", tile)  # of the gradient of values
    if not has_tool:
        monkeypatch.setattr(module, "coo_product", lambda: None)
    source, target = edges_of(12, 5, 4)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    value = torch.randn(12, dtype=torch.float64, requires_grad=True)

    def sums(x, value):
        return edge_sums(torch.stack([source, target]), value, x, 4)

    assert torch.autograd.gradcheck(sums, (x, value), check_batched_grad=True)
    assert torch.autograd.gradgradcheck(sums, (x, value), check_batched_grad=True)
    out, unit = sums(x, value), torch.eye(12, dtype=torch.float64).view(12, 4, 3)

    def back(grad):
        return torch.autograd.grad(out, (x, value), grad, retain_graph=True)

    for all_at_once, one_by_one in zip(
        torch.func.vmap(back)(unit), zip(*map(back, unit), strict=True), strict=True
    ):
        torch.testing.assert_close(all_at_once, torch.stack(one_by_one))


@pytest.mark.parametrize(("has_tool", "name"), [(True, "small"), (False, "reference")])
def test_a_record_says_what_adds_up(has_tool, name, monkeypatch):
    if not has_tool:
        monkeypatch.setattr(module, "coo_product", lambda: None)
        monkeypatch.setattr(small, "coo_product", lambda: None)
    with record() as calls:
        edge_sums(torch.stack(edges_of(12, 5, 4)), None, torch.randn(5, 3), 4)
    assert [call.backend for call in calls] == [name]


def test_a_backend_that_is_asked_for_and_missing_is_refused(monkeypatch):
    conv, edges = OuterConv(3, 4, "gcn"), torch.stack(edges_of(12, 5, 5))
    conv(torch.ones(5, 3), edges)
    for place in (module, small):
        monkeypatch.setattr(place, "coo_product", lambda: None)
    with pytest.raises(ValueError, match="no coo_matmat_dense"), use_backend("small"):
        conv(torch.ones(5, 3), edges)


def test_tensors_that_are_spelled_out_elsewhere():
    ends = torch.stack(edges_of(12, 5, 4))
    x, value = torch.randn(5, 3, requires_grad=True), torch.rand(12)
    wanted = edge_sums(ends, -value, -x, 4)
    actual = edge_sums(ends, torch._neg_view(value), torch._neg_view(x), 4)
    torch.testing.assert_close(actual, wanted)
    for grad in (torch._neg_view(torch.ones(4, 3)), torch._efficientzerotensor((4, 3))):
        spelled_out = torch.ones(4, 3) * (-1 if grad.is_neg() else 0)
        (wanted,) = torch.autograd.grad(edge_sums(ends, value, x, 4), x, spelled_out)
        (actual,) = torch.autograd.grad(edge_sums(ends, value, x, 4), x, grad)
        torch.testing.assert_close(actual, wanted)


def test_no_messages_are_held():
    source, target = edges_of(2000, 100, 100)
    x, value = torch.randn(100, 64, requires_grad=True), torch.rand(2000)
    tracemalloc.start()  # of numpy
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:  # of torch
        edge_sums(torch.stack([source, target]), value, x, 100).sum().backward()
        _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    quarter = 2000 * 64  # bytes: of what one message an edge would take
    assert 100 * 64 * 4 <= most < quarter
    assert max(event.cpu_memory_usage for event in profiled.events()) < quarter


def test_what_wants_to_see_a_kernel_does(monkeypatch):
    monkeypatch.setattr(module, "MOST", 2**16)
    x = torch.randn(4, 2)
    assert is_small(6, x)
    assert not is_small(6, x.half())
    assert not is_small(module.MOST, x)
    assert not is_small(1 + module.MOST // (2 * torch.get_num_threads()), x)
    assert not is_small(1 + module.MOST_MESSAGES // 2, x, holds_messages=True)
    with torch.autograd.forward_ad.dual_level():
        assert not is_small(6, x)
    assert torch.func.vmap(lambda row: row * is_small(6, x))(x).eq(0).all()


@pytest.mark.parametrize("count", [0, 50, SHORT + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_shares_of_degrees(count, dtype):
    ends = torch.randint(3, 9, (2, count))
    sent, received = (torch.bincount(end, minlength=12).to(dtype)[end] for end in ends)
    for powers in ((1.0, 0.0), (0.0, 1.0), (0.5, 0.5), (0.7, 0.3)):
        actual = share_of_degrees(ends, (12, 12), *powers, dtype)
        wanted = sent ** -powers[0] * received ** -powers[1]
        torch.testing.assert_close(actual, wanted, rtol=0, atol=1e-6)


ROW = torch.tensor([2, 0, 2, 0, 4, 2])


@pytest.mark.parametrize("absent", [False, True])
@pytest.mark.parametrize("size", [1.0, 2 * SAFE, 2000.0])
def test_scores_of_any_size_become_shares_of_their_row(size, absent, monkeypatch):
    edges = Listed(ROW, torch.arange(6) % 3, (5, 3))
    score = size * torch.randn(6, 2, dtype=torch.float64)
    if absent:
        score[4] = -torch.inf  # the only one of its row
    wanted = torch.zeros_like(score)
    for row in (0, 2) if absent else (0, 2, 4):
        own = torch.eq(ROW, row)
        wanted[own] = score[own].softmax(0)
    assert_near(edges.shares(score), wanted)

    row, order = ROW.sort(stable=True)
    csr = Pattern.build(torch.stack([edges.col, ROW]), size=(3, 5)).by_target
    # One matrix for both heads, in the order of its rows; head below head; one for each head; and
    # so many entries that numbers are combined head by head.
    for is_one, stacked, copied in ((True, 12, 12), (False, 12, 12), (False, 0, 12), (False, 0, 0)):
        monkeypatch.setattr(head_copies, "MOST_STACKED", stacked)
        monkeypatch.setattr(head_copies, "MOST_COPIED", copied)
        entries = HeadCopies(csr, heads=2, is_one=is_one)
        place = _numbers_of(entries, row)
        share = entries.shares(score[order].flatten()[place])
        assert_near(share, wanted[order].flatten()[place])


def _numbers_of(entries, row):
    """The number 2 e + h of each value, where entry e of head h is: in the order of their rows."""
    head = torch.arange(2).repeat(6)
    number = (row.repeat_interleave(2) * 2 + head).argsort(stable=True)
    place = entries.at(torch.arange(10).view(5, 2), entries.row).argsort(stable=True)
    return torch.empty_like(number).scatter(0, place, number)


@pytest.mark.parametrize("size", [SAFE - 1, 2 * SAFE, 58.0])
def test_derivatives_of_shares_of_large_scores_are_as_exact_as_those_of_small_ones(size):
    edges = Listed(ROW, torch.arange(6) % 3, (5, 3))
    score = size + torch.randn(6, 2)

    def second(score):
        score.requires_grad_()
        (first,) = torch.autograd.grad(edges.shares(score).sin().sum(), score, create_graph=True)
        return torch.autograd.grad(first.square().sum(), score)[0]

    assert_near(second(score), second(score.detach().double()).float(), 1e-5)


def test_scores_are_safe_up_to_a_bound_on_either_side():
    assert is_safe(torch.tensor([-SAFE, SAFE]))
    assert not is_safe(torch.tensor([0.0, SAFE + 1]))
    assert not is_safe(torch.tensor([0.0, -SAFE - 1]))
