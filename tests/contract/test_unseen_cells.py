"""What a cell holds reaches the outputs that see it, and no other: not as NaN, nor as infinity."""

import random
from math import inf, nan

import pytest
import torch
from shifts import draw_shifts

from pyg_outerconv.contract import ORDERS, Problem, contract
from pyg_outerconv.families import Grid
from pyg_outerconv.theta import Theta


def drawn_offsets(seed):
    """Any offsets: boxes with holes and without, twice the same axis, far away."""
    pick = random.Random(seed)
    axes = pick.randint(1, 2)
    shape = tuple(pick.randint(2, 5) for _ in range(axes))
    count = pick.randint(1, 4)
    offsets = {tuple(pick.randint(-2, 2) for _ in range(axes)) for _ in range(count)}
    mode = pick.choice(("zeros", "zeros", "circular"))
    return Grid(offsets=tuple(offsets), padding_mode=mode).basis(shape)


def assert_seen_alone(basis, order=None, **how):
    seen = basis.support().any(0)  # (M, N)
    unit = Theta.identity(basis.num_bases, 2, torch.empty(0, dtype=torch.float64))
    full = torch.rand(basis.num_bases, 1, 2, 2, dtype=torch.float64) + 0.5
    x = torch.rand(basis.size[0], 2, dtype=torch.float64)
    for theta in (full, unit):
        problem = Problem(basis, x, theta, **how)
        for name in (None, "convolution", "pooling"):
            if name is None or not ORDERS[name].why_not(problem):
                for cell in range(basis.size[0]):
                    for bad in (nan, inf):
                        spoilt = x.clone()
                        spoilt[cell] = bad
                        out = contract(basis, spoilt, theta, name, **how)
                        assert torch.equal(~out.isfinite().all(1), seen[cell]), (name, cell, bad)


@pytest.mark.parametrize("seed", range(25))
def test_offsets_that_leave_holes(seed):
    assert_seen_alone(drawn_offsets(seed))


@pytest.mark.parametrize("seed", range(30))
def test_drawn_shifts_turned_or_not(seed):
    assert_seen_alone(draw_shifts(seed, 2))


def test_a_box_with_a_hole_is_not_lowered():
    holed = Grid(offsets=((0, 0), (0, 2), (2, 0), (2, 2), (1, 1))).basis((8, 8))
    filled = Grid((3, 3), padding=1).basis((8, 8))
    twice = Grid(offsets=((0, 0), (2, 0), (0, 2), (2, 2))).basis((8, 8))
    x = torch.randn(64, 2)
    for basis, lowered in ((holed, False), (filled, True), (twice, True)):
        why = ORDERS["convolution"].why_not(Problem(basis, x, torch.ones(basis.num_bases, 1, 2, 2)))
        assert why == [
            "needs a label at every position of a box, because zero times NaN is NaN"
        ] * (not lowered)
