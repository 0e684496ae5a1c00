"""Sinusoidal, rotary and learned positions: the equations, and the laws of their products."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.nn import PositionalEncoding

from pyg_outerconv.attention import LearnedPositions, Rotary, SinusoidalPositions, sinusoidal
from pyg_outerconv.testing import assert_near


def sinusoidal_by_loop(positions, channels, base):
    """The formula, one entry at a time."""
    out = torch.empty(len(positions), channels, dtype=torch.float64)
    for row, position in enumerate(positions):
        for i in range(channels // 2):
            angle = position / base ** (2 * i / channels)
            out[row, 2 * i], out[row, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return out


@pytest.mark.parametrize(("channels", "base"), [(2, 10000.0), (8, 10000.0), (10, 7.5)])
def test_sinusoidal_it_is_the_formula(channels, base):
    positions = [0.0, 1.0, 2.5, -3.0, 511.0]
    actual = sinusoidal(torch.tensor(positions, dtype=torch.float64), channels, base)
    assert_near(actual, sinusoidal_by_loop(positions, channels, base))


def test_the_other_layout_has_sines_first():
    position = torch.arange(6, dtype=torch.float64)
    one, other = (sinusoidal(position, 8, interleaved=choice) for choice in (True, False))
    assert_near(other, torch.cat([one[:, 0::2], one[:, 1::2]], dim=1))


def test_pyg_has_other_frequencies_and_the_layout_of_sines_first():
    position = torch.arange(5.0)
    theirs = PositionalEncoding(4)(position)
    # With two frequencies theirs are 1 and 1 / base, ours 1 and 1 / √base.
    assert_near(sinusoidal(position, 4, base=10000.0**2, interleaved=False), theirs)


def test_axes_share_the_channels():
    position = torch.randn(7, 3, dtype=torch.float64)
    axes = [sinusoidal(position[:, axis], 4) for axis in range(3)]
    assert_near(sinusoidal(position, 12), torch.cat(axes, dim=1))
    assert_near(sinusoidal(position[:, :1], 4), axes[0])
    halves = [sinusoidal(position[:, axis], 4, interleaved=False) for axis in range(3)]
    assert_near(sinusoidal(position, 12, interleaved=False), torch.cat(halves, dim=1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_type_follows_the_positions(dtype):
    position = torch.arange(0, 200, 25, dtype=dtype)  # which all of these types can say
    expected = sinusoidal_by_loop(position.tolist(), 6, 10000.0).to(dtype)
    tolerance = {torch.float64: 1e-10, torch.float32: 1e-5}.get(dtype, 4e-3)
    assert_near(sinusoidal(position, 6), expected, tolerance)


def test_integers_give_the_default_type():
    actual = sinusoidal(torch.arange(5), 4)
    assert actual.dtype == torch.float32
    assert torch.equal(actual, sinusoidal(torch.arange(5.0), 4))


def test_the_module_adds_to_every_item_of_a_batch():
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    code = sinusoidal_by_loop(range(5), 4, 10000.0)
    assert_near(SinusoidalPositions(4)(x), x + code)
    assert_near(SinusoidalPositions(4)(x[0, 0]), x[0, 0] + code)
    position = torch.tensor([4, 0, 0, 7, 2])
    assert_near(
        SinusoidalPositions(4)(x, position), x + sinusoidal_by_loop(position.tolist(), 4, 10000.0)
    )


def test_the_module_takes_positions_on_several_axes():
    x, position = torch.zeros(6, 8, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)
    assert_near(SinusoidalPositions(8, axes=2)(x, position), sinusoidal(position, 8))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_places_far_away_are_exact_in_narrow_types(dtype):
    x = torch.zeros(3000, 4, dtype=dtype)
    actual = SinusoidalPositions(4)(x)
    assert actual.dtype == dtype
    assert_near(actual, sinusoidal_by_loop(range(3000), 4, 10000.0).to(dtype), 2e-2)


def rotary_by_loop(x, position, base, axes, interleaved):
    """One pair of one node at a time; x (nodes, D)."""
    out, of_axis = x.clone(), x.size(1) // axes
    for node in range(len(x)):
        for axis in range(axes):
            for i in range(of_axis // 2):
                angle = float(position[node, axis]) * base ** (-2 * i / of_axis)
                pair = (2 * i, 2 * i + 1) if interleaved else (i, i + of_axis // 2)
                one, two = (axis * of_axis + channel for channel in pair)
                a, b = float(x[node, one]), float(x[node, two])
                out[node, one] = a * math.cos(angle) - b * math.sin(angle)
                out[node, two] = a * math.sin(angle) + b * math.cos(angle)
    return out


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize(("channels", "axes"), [(2, 1), (8, 1), (8, 2), (12, 3)])
def test_rotary_it_is_the_formula(channels, axes, interleaved):
    x = torch.randn(5, channels, dtype=torch.float64)
    position = torch.randn(5, axes, dtype=torch.float64) * 10
    actual = Rotary(channels, 100.0, axes, interleaved)(x, position)
    assert_near(actual, rotary_by_loop(x, position, 100.0, axes, interleaved))


def test_batches_and_heads_are_turned_alike():
    x, position = torch.randn(4, 3, 2, 5, 6), torch.arange(4)
    turn = Rotary(6)
    together = turn(x, position)
    assert together.shape == x.shape
    for which in ((0, 0, 0), (2, 1, 4)):
        assert_near(together[(slice(None), *which)], turn(x[(slice(None), *which)], position))


coordinate = st.floats(-200, 200)


@given(
    st.integers(0, 2**31),
    st.sampled_from([(2, 1), (6, 1), (8, 2), (12, 3)]),
    st.booleans(),
    st.tuples(coordinate, coordinate, coordinate),
    st.floats(1.5, 1e5),
)
def test_products_depend_on_the_relative_position_alone(seed, form, interleaved, shift, base):
    channels, axes = form
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 1, channels, dtype=torch.float64, generator=draw)
    n, m = 20 * torch.randn(2, 1, axes, dtype=torch.float64, generator=draw)
    turn, by = Rotary(channels, base, axes, interleaved), torch.tensor([shift[:axes]]).double()
    product = (turn(query, n) * turn(key, m)).sum()
    moved = (turn(query, n + by) * turn(key, m + by)).sum()
    difference = (query * turn(key, m - n)).sum()
    scale = float(query.norm() * key.norm())
    assert_near(moved, product, at_least=scale)
    assert_near(difference, product, at_least=scale)


def test_transformed_functions():
    x, position = torch.randn(6, 3, 4, dtype=torch.float64), torch.arange(3)
    turn = Rotary(4)
    each = torch.stack([turn(item, position) for item in x])
    assert_near(torch.func.vmap(turn, in_dims=(0, None))(x, position), each)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_type_follows_x_and_angles_are_exact(dtype):
    x, position = torch.randn(2, 8, dtype=dtype), torch.tensor([3001, 65535])
    expected = rotary_by_loop(x.double(), position.view(2, 1), 10000.0, 1, True).to(dtype)
    # Angles of 65535 are rounded to 2⁻⁸ in float32.
    tolerance = {torch.float64: None, torch.float32: 4e-3}.get(dtype, 2e-2)
    assert_near(Rotary(8)(x, position), expected, tolerance)


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


def test_a_reset_draws_anew():
    positions = LearnedPositions(50, 40)
    before = positions.weight.detach().clone()
    positions.reset_parameters()
    assert not torch.equal(before, positions.weight)
    assert positions.weight.std().item() == pytest.approx(0.02, rel=0.1)
