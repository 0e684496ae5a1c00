"""Input that looks right and is not: each is refused by name, or means what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyg_outerconv.families import Grid, Pool, parse_family
from pyg_outerconv.graph import Cells


def test_integers_of_numpy_are_plain_ones():
    grid = Grid((np.int64(3), 3), stride=np.int32(2), dim=np.int64(2))
    assert repr(grid) == repr(Grid((3, 3), stride=2, dim=2))
    assert repr(Pool(np.int64(2), dim=1)) == repr(Pool(2, dim=1))
    assert parse_family(repr(grid)) == grid


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Grid(1, dim=1).basis((True,)), TypeError, r"got \(True,\)"),
        (lambda: Cells.of_shape((True, 2)), ValueError, "number of cells on each axis"),
        (lambda: Grid(1, dim=1).basis((4.0,)), TypeError, r"got \(4.0,\)"),
        (lambda: Cells(np.zeros((3, 2), int)), TypeError, "a tensor of integers, got ndarray"),
        (
            lambda: Cells(torch.zeros(3, 2, dtype=torch.cfloat)),
            TypeError,
            "coordinates of cells are integers",
        ),
        (lambda: Grid(offsets=(1, (2,))), TypeError, "lists of integers with commas or none, got"),
    ],
)
def test_what_is_not_what_it_seems_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("ends", [(2**63 - 1,), (-(2**63), 2**63 - 1), (-(2**62), 0)])
def test_coordinates_that_would_overflow_are_refused(ends):
    with pytest.raises(ValueError, match="coordinates of cells are bounded"):
        Cells(torch.tensor(ends).view(-1, 1))


def test_cells_far_away_are_cells_like_others():
    far = Cells(torch.tensor([[2**60], [2**60 + 1]]))
    grid = Grid(3, padding=1, growth="full", dim=1)
    assert grid.outputs(far).index.flatten().tolist() == [2**60 + d for d in (-1, 0, 1, 2)]
    assert grid.basis(far).num_edges == 6
