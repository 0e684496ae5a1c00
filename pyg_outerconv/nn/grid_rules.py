"""Convert images to nodes of a grid and back, and cache the shifts of a layer by grid size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..basis.grid_shift import GridShift
from ..errors import RefusedType, RefusedValue, refusal
from ..families.windows import Windows
from ..graph.cells import Cells

MOST = 8  # grid sizes that a layer remembers


class GridRules:
    """The shifts of the last few grid sizes, with the orders chosen for them.

    They are no state: copies and checkpoints of a layer start with an empty cache.
    """

    def __init__(self) -> None:
        self.kept: dict[Any, GridShift] = {}

    def get(
        self,
        family: Windows,
        shape: tuple[int, ...],
        device: torch.device,
        transposed: bool = False,
        change: Callable[[GridShift], GridShift] | None = None,
    ) -> GridShift:
        """The shifts of a family on a grid, cached; at most ``MOST`` grids are cached.

        Args:
            family: the family of the layer.
            shape: the shape of the grid.
            device: the device of the grid.
            turned: whether to return the transpose.
            change: a function that the layer applies to the shifts, always the same.

        Raises:
            ValueError: the grid is too small for the kernel.
        """
        key = (family, shape, device, transposed)
        found = self.kept.get(key)
        if found is None:
            rule = family.rule(Cells.of_shape(shape, device))
            rule = rule if change is None else change(rule)
            found = rule.transpose() if transposed else rule
            for oldest in list(self.kept)[: max(0, len(self.kept) + 1 - MOST)]:
                self.kept.pop(oldest, None)  # another thread may have removed it
            self.kept[key] = found
        return found

    def __deepcopy__(self, memo: Any) -> GridRules:
        return GridRules()

    def __reduce__(self) -> Any:
        return GridRules, ()


def shape_of(images: Any, num_axes: int, channels: int = -1) -> tuple[int, ...]:
    """The shape of images (..., C, *shape) with C = ``channels``, or any C for -1.

    Raises:
        TypeError: the images are not a floating point tensor.
        ValueError: they have too few dimensions or another C.
    """
    if not isinstance(images, Tensor) or not images.is_floating_point():
        raise RefusedType(
            refusal(
                "images are features",
                "a tensor of floating point type",
                getattr(images, "dtype", type(images).__name__),
            )
        )
    if images.dim() <= num_axes:
        raise RefusedValue(
            refusal(
                "images have channels and axes",
                f"(C, *shape) of {num_axes} axes, and a batch before it",
                tuple(images.shape),
            )
        )
    if channels >= 0 and images.size(-1 - num_axes) != channels:
        axes = ", ".join(f"M_{axis + 1}" for axis in range(num_axes))
        raise RefusedValue(
            refusal(
                "images have the channels of the layer before their axes",
                f"(*, {channels}, {axes})",
                tuple(images.shape),
            )
        )
    return tuple(images.shape[images.dim() - num_axes :])


def as_cells(images: Tensor, num_axes: int) -> Tensor:
    """Images (*, C, *shape) as nodes (*, M, C); a view if the images are contiguous."""
    return images.flatten(-num_axes).transpose(-1, -2)


def as_images(nodes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Nodes (*, N, C) as images (*, C, *shape), a view."""
    return nodes.transpose(-1, -2).unflatten(-1, shape)
