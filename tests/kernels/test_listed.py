"""Softmax over edges, listed in any order or of all heads at once, for scores of any size."""

import pytest
import torch

from pyg_outerconv.basis import Pattern
from pyg_outerconv.kernels import head_copies
from pyg_outerconv.kernels.edge_sums import SAFE, Listed, is_safe
from pyg_outerconv.kernels.head_copies import HeadCopies
from pyg_outerconv.testing import assert_near

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
    # One matrix for both heads, in the order of its rows; head below head; one for each head.
    for is_one, most in ((True, head_copies.MOST_STACKED), (False, 12), (False, 0)):
        monkeypatch.setattr(head_copies, "MOST_STACKED", most)
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
