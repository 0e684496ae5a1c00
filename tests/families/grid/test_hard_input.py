"""Input that looks right and is not: each is refused by name, or means what it says."""

from __future__ import annotations

import numpy as np
import torch

from pyg_outerconv.families import Grid, Pool, parse_family
from pyg_outerconv.graph import Cells


def test_integers_of_numpy_are_plain_ones():
    grid = Grid((np.int64(3), 3), stride=np.int32(2), dim=np.int64(2))
    assert repr(grid) == repr(Grid((3, 3), stride=2, dim=2))
    assert repr(Pool(np.int64(2), dim=1)) == repr(Pool(2, dim=1))
    assert parse_family(repr(grid)) == grid


def test_cells_far_away_are_cells_like_others():
    far = Cells(torch.tensor([[2**60], [2**60 + 1]]))
    grid = Grid(3, padding=1, growth="full", dim=1)
    assert grid.outputs(far).index.flatten().tolist() == [2**60 + d for d in (-1, 0, 1, 2)]
    assert grid.basis(far).num_edges == 6
