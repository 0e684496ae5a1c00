"""Shifts of a grid: their definition cell by cell, their Kronecker form, and their counts."""

import itertools
from functools import reduce

import pytest
import torch

from pyg_outerconv import Grid, OuterConv
from pyg_outerconv.basis.grid_shift import PADDING_MODES, Axis, GridShift
from pyg_outerconv.testing import assert_near

CPU = torch.device("cpu")


def seen_at(position, count, mode):
    """The cell that is seen at a position of the unbounded axis, found step by step, or None."""
    if count == 0:
        return None
    if mode == "reflect":
        while not 0 <= position < count:
            if count == 1:
                return 0
            position = -position if position < 0 else 2 * (count - 1) - position
        return position
    while not 0 <= position < count:
        if mode == "zeros":
            return None
        if mode == "circular":
            position += count if position < 0 else -count
        else:
            position += 1 if position < 0 else -1
    return position


def by_definition(axis):
    """(taps, M, N) a one where output n sees input s·n − d."""
    dense = torch.zeros(len(axis.shifts), axis.num_inputs, axis.num_outputs)
    for tap, d in enumerate(axis.shifts):
        for n in range(axis.num_outputs):
            m = seen_at(axis.stride * n - d, axis.num_inputs, axis.padding_mode)
            if m is not None:
                dense[tap, m, n] += 1
    return dense


AXES = [
    Axis(inputs, outputs, shifts, stride, mode)
    for mode in PADDING_MODES
    for inputs, outputs, shifts, stride in (
        (5, 5, (1, 0, -1), 1),
        (4, 3, (0, 7, -9, 2), 2),
        (1, 3, (1, 0, -4), 1),
        (2, 4, (3, -3), 3),
        (0, 2, (0, 1), 1),
        (3, 0, (0, 1), 1),
    )
]


@pytest.mark.parametrize("axis", AXES, ids=str)
def test_an_axis_is_what_its_definition_says(axis):
    shift = GridShift((axis,), tuple((t,) for t in range(len(axis.shifts))), on=CPU)
    assert_near(shift.to_dense(torch.float32), by_definition(axis))


@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("tap", [0, -1])
def test_outputs_of_an_input_are_those_that_see_it(axis, tap):
    tap = tap % len(axis.shifts)
    inputs = torch.tensor([0, 3, 3, 1, 0, 2])
    inputs = inputs[inputs < axis.num_inputs]
    which, outputs = axis.outputs_of(inputs, tap)
    cells_by_grid = sorted(zip(which.tolist(), outputs.tolist(), strict=True))
    dense = by_definition(axis)[tap]
    assert cells_by_grid == [
        (i, n)
        for i, m in enumerate(inputs.tolist())
        for n in range(axis.num_outputs)
        if dense[m, n]
    ]


def products(axes):
    """All taps of all axes, as labels."""
    return tuple(itertools.product(*(range(len(axis.shifts)) for axis in axes)))


FAMILIES_OF_AXES = [
    (Axis(4, 4, (1, 0, -1)), Axis(3, 2, (0, -1), 2, "circular")),
    (Axis(2, 3, (1, -2), 1, "reflect"), Axis(3, 3, (0,)), Axis(2, 2, (1, 0), 1, "replicate")),
    (Axis(2, 2, (1, 0)), Axis(2, 2, (0, 1), 1, "circular"), Axis(3, 1, (0,), 2), Axis(2, 2, (1,))),
    (Axis(3, 3, (1, 0)), Axis(0, 0, (1, 0))),
]


@pytest.mark.parametrize("axes", FAMILIES_OF_AXES, ids=len)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_shift_is_the_kronecker_product_of_shifts_along_axes(axes, is_transposed):
    shift = GridShift(axes, products(axes), on=CPU, is_transposed=is_transposed)
    dense = [by_definition(axis) for axis in axes]
    for k, tap in enumerate(shift.taps):
        parts = [matrices[t] for matrices, t in zip(dense, tap, strict=True)]
        expected = reduce(torch.kron, parts)
        expected = expected.t() if is_transposed else expected
        assert_near(shift.select([k]).to_dense(torch.float32)[0], expected.contiguous())


@pytest.mark.parametrize("axes", FAMILIES_OF_AXES, ids=len)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_counts_are_those_of_the_edges_before_there_are_any(axes, is_transposed):
    shift = GridShift(axes, products(axes)[::-1], on=CPU, is_transposed=is_transposed)
    counted = (shift.num_edges, shift.num_source_pairs, shift.num_target_pairs)
    assert not shift.has_edges
    pattern = shift.edges().pattern
    assert counted == (pattern.num_edges, pattern.num_source_pairs, pattern.num_target_pairs)
    assert shift.edges() is shift.edges(), "edges are made once"


@pytest.mark.parametrize("is_transposed", [False, True])
def test_edges_are_those_that_sorting_would_give(is_transposed):
    from pyg_outerconv.basis import Pattern

    axes = FAMILIES_OF_AXES[0]
    pattern = GridShift(axes, products(axes), on=CPU, is_transposed=is_transposed).edges().pattern
    built = Pattern.build(pattern.index, pattern.label, size=pattern.size, num_labels=6)
    for name in ("source", "target", "label", "target_ptr", "source_ptr", "by_source"):
        actual, expected = getattr(pattern, name), getattr(built, name)
        assert actual.dtype == expected.dtype
        assert torch.equal(actual, expected), name


def test_the_mean_of_a_shift_is_itself_and_of_a_turned_one_is_of_edges():
    grid = Grid((3,), padding=1, padding_mode="replicate")
    basis = grid.basis((4,))
    assert basis.mean() is basis
    dense, transposed = basis.to_dense(), basis.transpose()
    expected = dense.transpose(1, 2) / dense.transpose(1, 2).sum(1, keepdim=True).clamp(min=1)
    assert_near(transposed.mean().to_dense(), expected)


def test_edges_that_inference_made_serve_training():
    basis, conv = Grid((3,), padding=1).basis((4,)), OuterConv(2, 2, Grid((3,), padding=1))
    with torch.inference_mode():
        basis.edges()
    conv(torch.randn(4, 2), basis.edges()).sum().backward()
    assert conv.theta.weight.grad.isfinite().all()
