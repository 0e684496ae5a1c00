"""Pool: clusters of neighbouring cells, one label for each place in a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ..cache import cached_property
from ..errors import RefusedValue, refusal
from .options import check_least, check_places, settle, spread
from .windows import Window, Windows


@dataclass(frozen=True)
class Pool(Windows):
    r"""Clusters of cells of a grid, M ≠ N: output n is a cluster, label k a place in it.

    .. math:: A_k[m, n] = 1 \iff m = s \cdot n - k

    on each axis, as equation 5 of `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_ has it, whose indices start at 1: places are counted
    from the end of a cluster, so that label 0 is its last cell, and label numbers grow as
    coordinates fall. Sizes and options are those of torch's pooling layers, for any number of
    axes. Unpooling is ``basis.transpose()``.

    It reads the shape of a grid, a mask of its cells, or :class:`Cells`; of listed cells, every
    cluster with a listed cell is an output, by grid and then by coordinates.

    Args:
        window (int or tuple): The number of cells of a cluster along each axis, at most
            100,000 in all.
        stride (int or tuple, optional): s, from one cluster to the next. (default:
            ``window``)
        padding (int or tuple, optional): Empty cells at both ends of each axis, at most half of
            a cluster. (default: ``0``)
        dilation (int or tuple, optional): How far apart cells of a cluster are. (default: ``1``)
        ceil_mode (bool, optional): Whether there is a last cluster that begins in the grid and
            goes beyond its padding. (default: ``False``)
        dim (int, optional): D, where no option has a value for each axis.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: options are out of range or disagree in the number of axes; when a basis is
            made, the cells have other axes, or a cluster is larger than the padded grid.
    """

    per_axis = ("window", "stride", "padding", "dilation")
    equation = "A_k[m, n] = 1 where m = s n - k, k from the cluster's end"

    window: int | tuple[int, ...]
    stride: int | tuple[int, ...] | None = None
    padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    ceil_mode: bool = False
    dim: int | None = None

    def __post_init__(self) -> None:
        settle(self, (*self.per_axis, "dim"))
        super().__post_init__()
        check_least(self, window=1, stride=1, padding=0, dilation=1)
        check_places(self, self.num_axes)
        for window in self.windows:
            if 2 * window.front > window.reach + 1:
                raise RefusedValue(
                    refusal(
                        "padding is at most half of a cluster",
                        f"<= {(window.reach + 1) // 2}",
                        window.front,
                    )
                )

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The cluster along each axis, its last cell first."""
        kernels = spread(self.window, self.num_axes)
        strides = kernels if self.stride is None else spread(self.stride, self.num_axes)
        paddings, dilations = (
            spread(self.padding, self.num_axes),
            spread(self.dilation, self.num_axes),
        )
        return tuple(
            Window(
                tuple(padding - dilation * j for j in range(kernel))[::-1],
                stride,
                padding,
                padding,
                dilation * (kernel - 1),
                ceil_mode=self.ceil_mode,
            )
            for kernel, stride, padding, dilation in zip(
                kernels, strides, paddings, dilations, strict=True
            )
        )

    @cached_property
    def taps(self) -> tuple[tuple[int, ...], ...]:
        """For each label, the tap on each axis."""
        return tuple(product(*(range(len(window.shifts)) for window in self.windows)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The place of each label in a cluster, counted from its last cell."""
        return tuple(f"place ({', '.join(map(str, tap))}) from the end" for tap in self.taps)
