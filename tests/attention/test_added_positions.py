"""Learned positions are rows of a table, or sums of rows of one for each axis."""

import pytest
import torch

from pyg_outerconv.attention import LearnedPositions
from pyg_outerconv.testing import assert_near


def test_a_sequence_takes_rows_in_order():
    positions = LearnedPositions(7, 4).double()
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    assert_near(positions(x), x + positions.weight[:5])
    place = torch.tensor([6, 0, 0, 3, 3])
    assert_near(positions(x, place), x + positions.weight[place])
    assert_near(positions(x, place.double()), x + positions.weight[place])


def test_a_grid_has_a_row_for_each_cell():
    positions = LearnedPositions((2, 3), 4).double()
    place = torch.tensor([[1, 2], [0, 0], [0, 2], [1, 0]])
    x = torch.zeros(4, 4, dtype=torch.float64)
    table = positions.weight.view(2, 3, 4)
    expected = torch.stack([table[a, b] for a, b in place.tolist()])
    assert_near(positions(x, place), expected)


@pytest.mark.parametrize("separable", [True, False])
def test_nodes_without_positions_are_all_cells(separable):
    positions = LearnedPositions((2, 3, 2), 4, separable)
    x = torch.randn(12, 4)
    place = torch.tensor([[a, b, c] for a in range(2) for b in range(3) for c in range(2)])
    assert torch.equal(positions(x), positions(x, place))


def test_separable_tables_are_added_up():
    positions = LearnedPositions((2, 3), 4, separable=True).double()
    assert positions.weight.shape == (5, 4)
    rows, columns = positions.weight[:2], positions.weight[2:]
    expected = (rows[:, None] + columns[None]).flatten(0, 1)
    assert_near(positions(torch.zeros(6, 4, dtype=torch.float64)), expected)


def test_gradients_reach_the_rows_that_were_read():
    positions = LearnedPositions(5, 2).double()
    positions(torch.zeros(3, 2, dtype=torch.float64), torch.tensor([1, 1, 4])).sum().backward()
    assert positions.weight.grad.tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [1, 1]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_type_follows_x(dtype):
    assert LearnedPositions(5, 2)(torch.zeros(3, 2, dtype=dtype)).dtype == dtype


def test_a_reset_draws_anew():
    positions = LearnedPositions(50, 40)
    before = positions.weight.detach().clone()
    positions.reset_parameters()
    assert not torch.equal(before, positions.weight)
    assert positions.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_no_node_is_no_error():
    assert LearnedPositions(5, 2)(torch.empty(3, 0, 2)).shape == (3, 0, 2)
