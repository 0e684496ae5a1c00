"""Families of grids: Grid, whose matrices are shifts, and Pool, whose targets are clusters."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

from ..basis.grid_shift import PADDING_MODES
from ..errors import RefusedValue, unknown
from ..memo import cached_property
from .options import check_least, check_places, settle, spread
from .windows import Window, Windows

_PADDINGS = ("same", "valid", "causal")
_GROWTHS = ("submanifold", "full")


@dataclass(frozen=True)
class Grid(Windows):
    r"""One shift of a grid of cells for each label.

    .. math:: A_d[m, n] = 1 \iff m = s \cdot n - d, \quad d \in \Delta

    on each axis; with stride 1 the shift d brings input m to output m + d. Cells are numbered with
    the last axis running fastest, as torch stores the pixels of an image. Source: section 3.2 of
    `"Convolution is outer product" <https://arxiv.org/abs/1905.01289>`_. The paper convolves,
    torch cross-correlates: weight j of torch's kernels belongs to the shift d = padding −
    dilation·j. Labels are in the order of torch's weights, and options and sizes are those of
    ``torch.nn.Conv1d``, ``Conv2d``, ``Conv3d`` and ``ConvTranspose``, for any number of axes.

    It reads the shape of a grid, a mask of its cells, or :class:`Cells`. With
    ``padding_mode='circular'`` and ``'reflect'`` torch limits the padding to the size of the grid;
    here the axis is repeated, or mirrored, as often as necessary.

    Args:
        window (int or tuple, optional): The number of shifts along each axis, at most
            100,000 in all. It is either this or ``offsets``.
        stride (int or tuple, optional): s. (default: ``1``)
        padding (int or tuple or str, optional): Number of cells added at both ends of each axis;
            ``'valid'`` adds none, ``'same'`` as many as keep the size (an odd one behind),
            ``'causal'`` the same number, all in front. (default: ``0``)
        dilation (int or tuple, optional): How far apart shifts are. (default: ``1``)
        padding_mode (str or tuple, optional): Content of added cells: nothing (``'zeros'``), or
            the grid continued as by ``'circular'``, ``'reflect'`` or ``'replicate'``.
            (default: ``'zeros'``)
        transposed (bool, optional): Every matrix is transposed; the output then has the size
            whose convolution has that of the input. (default: ``False``)
        output_padding (int or tuple, optional): Cells added behind a transposed output, as
            several input sizes of a convolution have the same output size. (default: ``0``)
        offsets (tuple, optional): Any distinct shifts d, each with a number for each axis, or
            plain integers for a grid of one axis. The output has a cell for each s-th one of the
            input.
        growth (str, optional): Where listed cells have outputs: ``'submanifold'`` where inputs
            are, whatever the padding, which then says where the kernel has its centre: with
            ``padding=0`` output n sees the cells n, …, n + window − 1, so a kernel of 3 needs
            ``padding=1`` to be centred, and any odd kernel is centred by ``padding='same'``;
            ``'full'`` wherever the kernel sees one, by grid and then by coordinates.
            (default: ``'submanifold'``)
        dim (int, optional): D, where no option has a value for each axis.

    Raises:
        ValueError: options are out of range or disagree in the number of axes; when a basis is
            made, the cells have other axes, a kernel is larger than the padded grid, or listed
            cells lack the bounds that a padding mode needs.
    """

    per_axis = ("window", "stride", "padding", "dilation", "output_padding", "padding_mode")
    equation = "A_d[m, n] = 1 where m = s n - d, for each shift d"

    window: int | tuple[int, ...] | None = None
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | str = 0
    dilation: int | tuple[int, ...] = 1
    padding_mode: str | tuple[str, ...] = "zeros"
    transposed: bool = False
    output_padding: int | tuple[int, ...] = 0
    offsets: tuple[tuple[int, ...], ...] | None = None
    growth: str = "submanifold"
    dim: int | None = None

    def __post_init__(self) -> None:
        settle(self, (*self.per_axis, "offsets", "dim"))
        shifts: Any = self.offsets
        if isinstance(shifts, tuple) and all(type(shift) is int for shift in shifts):
            object.__setattr__(self, "offsets", tuple((shift,) for shift in shifts))  # one axis
        super().__post_init__()
        if (self.window is None) == (self.offsets is None):
            raise RefusedValue(
                "Grid has a kernel or offsets",
                "one of window and offsets",
                "none" if self.offsets is None else "both",
            )
        if self.growth not in _GROWTHS:
            raise RefusedValue(unknown("growth", self.growth, _GROWTHS))
        for mode in spread(self.padding_mode, 1):
            if mode not in PADDING_MODES:
                raise RefusedValue(unknown("padding_mode", mode, PADDING_MODES))
        if isinstance(self.padding, str) and self.padding not in _PADDINGS:
            raise RefusedValue(unknown("padding", self.padding, _PADDINGS))
        check_least(self, stride=1, dilation=1, output_padding=0, window=1, padding=0)
        self._check_offsets()
        check_places(self, self.num_axes)
        self._check_steps()

    def _check_offsets(self) -> None:
        if self.offsets is None:
            return
        if not self.offsets:
            raise RefusedValue("Grid needs a shift", "an offset", "none")
        axes = sorted({len(offset) for offset in self.offsets})
        if len(axes) > 1:
            raise RefusedValue("offsets have one number for each axis", axes[0], axes[1])
        if len(set(self.offsets)) < len(self.offsets):
            raise RefusedValue("offsets must differ", "distinct shifts", self.offsets)
        for name, value, free in (("dilation", self.dilation, 1), ("padding", self.padding, 0)):
            if value != free:
                raise RefusedValue(f"offsets are shifts already, without {name}", free, value)

    def _check_steps(self) -> None:
        steps = spread(self.stride, self.num_axes)
        if self.padding == "same" and set(steps) != {1}:
            raise RefusedValue("padding='same' keeps the size of a grid", "stride 1", self.stride)
        added = spread(self.output_padding, self.num_axes)
        if any(added) and not self.transposed:
            raise RefusedValue(
                "output_padding needs a transposed grid", "transposed=True", self.output_padding
            )
        bounds = map(max, steps, spread(self.dilation, self.num_axes))
        if any(extra and extra >= bound for extra, bound in zip(added, bounds, strict=True)):
            raise RefusedValue(
                "output_padding chooses between sizes that have one convolution",
                "less than stride or dilation",
                self.output_padding,
            )

    @property
    def is_transposed(self) -> bool:  # type: ignore[override]
        """Whether it is transposed."""
        return self.transposed

    @property
    def is_growing(self) -> bool:  # type: ignore[override]
        """Whether listed cells make new ones."""
        return self.growth == "full"

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        options = [spread(getattr(self, name), self.num_axes) for name in self.per_axis]
        return tuple(self._window(d, *one) for d, one in enumerate(zip(*options, strict=True)))

    def _window(
        self,
        number: int,
        kernel: int | None,
        stride: int,
        padding: int | str,
        dilation: int,
        extra: int,
        mode: str,
    ) -> Window:
        if kernel is None:
            shifts = tuple(dict.fromkeys(offset[number] for offset in self.offsets or ()))
            return Window(shifts, stride, 0, 0, 0, mode, False, extra, has_kernel=False)
        reach = dilation * (kernel - 1)
        front, behind = {
            "valid": (0, 0),
            "same": (reach // 2, reach - reach // 2),
            "causal": (reach, 0),
        }.get(str(padding), (padding, padding))
        shifts = tuple(int(front) - dilation * j for j in range(kernel))
        return Window(shifts, stride, int(front), int(behind), reach, mode, False, extra)

    @cached_property
    def taps(self) -> tuple[tuple[int, ...], ...]:
        sizes = [window.shifts for window in self.windows]
        if self.offsets is None:
            return tuple(product(*(range(len(shifts)) for shifts in sizes)))
        return tuple(
            tuple(shifts.index(d) for shifts, d in zip(sizes, offset, strict=True))
            for offset in self.offsets
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The shift of each label."""
        return tuple(f"shift ({', '.join(map(str, shift))})" for shift in self.shifts)


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
                    "padding is at most half of a cluster",
                    f"<= {(window.reach + 1) // 2}",
                    window.front,
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
        return tuple(product(*(range(len(window.shifts)) for window in self.windows)))

    @property
    def labels(self) -> tuple[str, ...]:
        """The place of each label in a cluster, counted from its last cell."""
        return tuple(f"place ({', '.join(map(str, tap))}) from the end" for tap in self.taps)
