"""Shifts of grids for tests: random ones, far beyond what torch's layers can be told."""

import random
from itertools import product

import torch

from pyg_outerconv.basis.grid_shift import Axis, GridShift

CPU = torch.device("cpu")


def box(shape, kernel, stride=1, padding=0, dilation=1, mode="zeros", transposed=False):
    """The shifts of a kernel over a grid, one number for all axes."""
    reach = dilation * (kernel - 1)
    shifts = tuple(padding - dilation * j for j in range(kernel))
    axes = tuple(
        Axis(count, (count + 2 * padding - reach - 1) // stride + 1, shifts, stride, mode)
        for count in shape
    )
    return GridShift(
        axes, tuple(product(range(kernel), repeat=len(axes))), on=CPU, is_transposed=transposed
    )


def some_shifts(offsets, shape, mode="zeros", transposed=False):
    """One label for each of some offsets d, on a grid that keeps its size."""
    distinct = [tuple(dict.fromkeys(d[axis] for d in offsets)) for axis in range(len(shape))]
    axes = tuple(
        Axis(count, count, shifts, 1, mode) for count, shifts in zip(shape, distinct, strict=True)
    )
    taps = tuple(
        tuple(shifts.index(d) for shifts, d in zip(distinct, offset, strict=True))
        for offset in offsets
    )
    return GridShift(axes, taps, on=CPU, is_transposed=transposed)


def draw_shifts(seed, most_axes=3):
    """Any strides, sizes that fit no window, taps in any order, missing or twice."""
    pick = random.Random(seed)
    axes = []
    for _ in range(pick.randint(1, most_axes)):
        shifts = tuple(pick.sample(range(-4, 5), pick.randint(1, 3)))
        if pick.random() < 0.5:
            start, step = pick.randint(0, 2), pick.randint(1, 2)
            shifts = tuple(start - step * j for j in range(pick.randint(1, 3)))
        sizes = pick.randint(1, 5), pick.randint(1, 5)
        mode = pick.choice(("zeros", "zeros", "circular", "reflect", "replicate"))
        axes.append(Axis(*sizes, shifts, pick.randint(1, 3), mode))
    every = list(product(*(range(len(axis.shifts)) for axis in axes)))
    some = [pick.choice(every) for _ in range(pick.randint(1, 4))]
    taps = tuple(every if pick.random() < 0.5 else some)
    return GridShift(tuple(axes), taps, on=CPU, is_transposed=pick.random() < 0.5)
