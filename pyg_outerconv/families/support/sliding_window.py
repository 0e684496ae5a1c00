"""SlidingWindow: every target sees the sources near it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from ...basis.band import sequence
from ...basis.base import Basis
from ...basis.implicit_edges import sorted_pairs
from ...graph.cells import Cells
from ...graph.structure import Structure
from ..grid import Grid
from ..per_axis import check_least, for_each_axis, num_axes_of, settle
from .support import Support


@dataclass(frozen=True)
class SlidingWindow(Support):
    r"""Sources at most w steps from the target, along each axis.

    .. math:: A_0[m, n] = 1 \iff m = n + d\,j, \quad |j| \le w

    ``window`` is w, the steps on each side, so that a target sees 2w + 1 sources. The window of the
    `"Longformer" <https://arxiv.org/abs/2004.05150>`_ paper (section 3.1) counts both sides: its
    512 is a size of 256 here.

    In a sequence nodes follow each other in the order of their numbers, those of a graph of a batch
    from its first one on, and where M ≠ N both sequences begin together. On a grid of several axes,
    or where cells are listed, steps are between cells, and those that are not there are not seen.

    Args:
        window (int or tuple): w, for all axes or for each.
        dilation (int or tuple, optional): d, how far apart steps are. (default: ``1``)
        causal (bool, optional): whether a target sees only itself and sources before it; on
            several axes in the order in which the last axis runs fastest. (default: ``False``)

    Raises:
        TypeError: an option has the wrong type.
        ValueError: an option is out of range; when a basis is made, options have other axes than
            the structure, or the number of nodes is unknown.
    """

    equation = "A_0[m, n] = 1 where m = n + d j, |j| <= w"
    page = (
        "m = n + d·j, \\|j\\| ≤ w, along every axis",
        "Beltagy et al., *Longformer* (2004.05150), section 3.1",
    )

    window: int | tuple[int, ...]
    dilation: int | tuple[int, ...] = 1
    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, ("window", "dilation"))
        check_least(self, "window", 0)
        check_least(self, "dilation", 1)

    @property
    def num_axes(self) -> int | None:
        """D, where an option has a value for each axis."""
        return num_axes_of(self.window, self.dilation)

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """Cells, where options are for several axes, else any structure."""
        return Cells if (self.num_axes or 1) > 1 else Structure

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the label."""
        return ("a window before" if self.causal else "a window around",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`~.band.Band` in a sequence; edges in a batch of several, and on grids."""
        axes, (sizes, dilations) = for_each_axis(self, structure, self.window, self.dilation)
        if not isinstance(structure, Cells) or (axes == 1 and structure.is_full):
            return sequence(structure, sizes[0], 0 if self.causal else sizes[0], dilations[0])
        steps = product(
            *(range(-w * d, w * d + 1, d) for w, d in zip(sizes, dilations, strict=True))
        )
        middle = (0,) * axes
        # A shift by s shows a target what is s before it.
        shifts = Grid(offsets=tuple(s for s in steps if s >= middle or not self.causal))
        return sorted_pairs(shifts.basis_on(structure).edges().index, structure.size)
