"""Rotary positions turn pairs of channels, so that products depend on differences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_outerconv.attention import Rotary
from pyg_outerconv.testing import assert_near


def by_loop(x, position, base, axes, interleaved):
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
def test_it_is_the_formula(channels, axes, interleaved):
    x = torch.randn(5, channels, dtype=torch.float64)
    position = torch.randn(5, axes, dtype=torch.float64) * 10
    actual = Rotary(channels, 100.0, axes, interleaved)(x, position)
    assert_near(actual, by_loop(x, position, 100.0, axes, interleaved))


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


@given(st.integers(0, 2**31), coordinate, coordinate)
def test_turns_add_up_and_keep_lengths(seed, first, second):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 8, dtype=torch.float64, generator=draw)
    turn, one = Rotary(8), torch.ones(1, dtype=torch.float64)
    assert_near(turn(turn(x, first * one), second * one), turn(x, (first + second) * one))
    assert_near(turn(x, first * one).norm(), x.norm())


def test_other_shifts_give_other_products():
    query = key = torch.ones(3, 4, dtype=torch.float64)
    turn = Rotary(4)
    product = (query * turn(key, torch.arange(3))).sum(1)
    assert product.unique().numel() == 3


def test_gradients_of_vectors_and_of_positions():
    x = torch.randn(3, 2, 8, dtype=torch.float64, requires_grad=True)
    position = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    turn = Rotary(8, axes=2)
    assert torch.autograd.gradcheck(turn, (x, position))
    assert torch.autograd.gradgradcheck(turn, (x, position))


def test_transformed_functions():
    x, position = torch.randn(6, 3, 4, dtype=torch.float64), torch.arange(3)
    turn = Rotary(4)
    each = torch.stack([turn(item, position) for item in x])
    assert_near(torch.func.vmap(turn, in_dims=(0, None))(x, position), each)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_type_follows_x_and_angles_are_exact(dtype):
    x, position = torch.randn(2, 8, dtype=dtype), torch.tensor([3001, 65535])
    expected = by_loop(x.double(), position.view(2, 1), 10000.0, 1, True).to(dtype)
    # Angles of 65535 are rounded to 2⁻⁸ in float32.
    tolerance = {torch.float64: None, torch.float32: 4e-3}.get(dtype, 2e-2)
    assert_near(Rotary(8)(x, position), expected, tolerance)


def test_no_node_is_no_error():
    assert Rotary(4)(torch.empty(0, 2, 4), torch.empty(0)).shape == (0, 2, 4)


def test_it_has_no_state():
    assert not Rotary(4).state_dict()


@pytest.mark.parametrize(
    ("call", "kind", "rule"),
    [
        (lambda: Rotary(5), ValueError, "channels a multiple of 2, got 5"),
        (lambda: Rotary(6, axes=2), ValueError, "a multiple of 4, got 6"),
        (lambda: Rotary(4, axes=0), ValueError, "axes: expected >= 1, got 0"),
        (lambda: Rotary(4, -1.0), ValueError, "finite, > 0, got -1.0"),
        (lambda: Rotary(4)(torch.ones(3, 6), torch.arange(3)), ValueError, r"\(3, \*, 4\), got"),
        (lambda: Rotary(4)(torch.ones(2, 4), torch.arange(3)), ValueError, r"\(3, \*, 4\), got"),
        (lambda: Rotary(4)(torch.ones(4), torch.arange(4)), ValueError, r"got \(4,\)"),
        (lambda: Rotary(4)(torch.ones(2, 4), torch.ones(2, 2)), ValueError, r"\(n,\), got"),
        (lambda: Rotary(4)(torch.ones(2, 4), [0, 1]), TypeError, "positions are numbers"),
    ],
)
def test_bad_input_is_refused(call, kind, rule):
    with pytest.raises(kind, match=rule):
        call()
