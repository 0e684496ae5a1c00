"""Images as nodes of a grid and back, and the shifts of their grids."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..basis.grid_shift import GridShift
from ..errors import RefusedType, RefusedValue
from ..families.window_family import Windows
from ..graph.cells import Cells

GRIDS = 8  # grids of which a layer caches the shifts


def shifts_of(family: Windows, shape: tuple[int, ...], device: torch.device) -> GridShift:
    """The shifts of a family on a grid of a shape."""
    return family.rule(Cells.of_shape(shape, device))


def shape_of(images: Any, num_axes: int, channels: int = -1) -> tuple[int, ...]:
    """The shape of images (*, C, *shape) with C = ``channels``, or any C for -1.

    Raises:
        TypeError: the images are not a floating point tensor.
        ValueError: they have too few dimensions or another C.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        got = getattr(images, "dtype", type(images).__name__)
        raise RefusedType("images are features", "a tensor of floating point type", got)
    if images.dim() <= num_axes:
        rule = "images have channels and axes"
        expected = f"(C, *shape) of {num_axes} axes, and a batch before it"
        raise RefusedValue(rule, expected, tuple(images.shape))
    if channels >= 0 and images.size(-1 - num_axes) != channels:
        axes = ", ".join(f"M_{axis + 1}" for axis in range(num_axes))
        rule = "images have the channels of the layer before their axes"
        raise RefusedValue(rule, f"(*, {channels}, {axes})", tuple(images.shape))
    return tuple(images.shape[images.dim() - num_axes :])


def as_cells(images: Tensor, num_axes: int) -> Tensor:
    """Images (*, C, *shape) as nodes (*, M, C); a view if the images are contiguous."""
    return images.flatten(-num_axes).transpose(-1, -2)


def as_images(nodes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Nodes (*, N, C) as images (*, C, *shape), a view."""
    return nodes.transpose(-1, -2).unflatten(-1, shape)
