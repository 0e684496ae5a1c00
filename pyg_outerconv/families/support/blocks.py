"""Blocks: every target sees the sources in its own block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...basis.band import places
from ...basis.same_block import SameBlock
from ...errors import RefusedValue
from ...graph.cells import Cells
from ...graph.positions import graphs_of
from ...graph.structure import Structure
from ..options import check_least, for_each_axis, spread
from .support import SupportOfAxes


@dataclass(frozen=True)
class Blocks(SupportOfAxes):
    r"""Sources in the block of the target, where blocks do not overlap.

    .. math:: A_0[m, n] = 1 \iff
        \left\lfloor \frac{m - t}{s} \right\rfloor = \left\lfloor \frac{n - t}{s} \right\rfloor

    along each axis. On images these are the windows of the `"Swin Transformer"
    <https://arxiv.org/abs/2103.14030>`_ paper (section 3.2), ``Blocks(7)`` and
    ``Blocks(7, shift=3)`` in turn. A shift moves all borders: the first block has t cells, and
    the last the remaining ones. Blocks do not wrap round the ends, just as the masks of that paper
    separate the parts of a rolled image.

    In a sequence the number of a node is its place; in a batch places are counted from the first
    node of each graph. If M ≠ N, target 0 stands at the place of source 0. Cells without bounds
    have borders at t and multiples of s from it.

    Args:
        window (int or tuple): s, for all axes or for each.
        shift (int or tuple, optional): t, less than s. (default: ``0``)

    Raises:
        ValueError: an option is out of range; when a basis is made, options have other axes than
            the structure, or the number of nodes is unknown.
    """

    labels = ("the same block",)
    per_axis = ("window", "shift")
    equation = "A_0[m, n] = 1 where floor((m - t) / s) = floor((n - t) / s)"
    page = (
        "both are in one block of cells",
        "Liu et al., *Swin Transformer* (2103.14030), section 3.2",
    )

    window: int | tuple[int, ...]
    shift: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, window=1, shift=0)
        axes = self.num_axes or 1
        sizes, shifts = spread(self.window, axes), spread(self.shift, axes)
        if any(t >= s for s, t in zip(sizes, shifts, strict=False)):
            raise RefusedValue(
                "a shift moves borders within a block", f"< {self.window}", self.shift
            )

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> SameBlock:
        """:class:`~.same_block.SameBlock`, the blocks of each graph or grid on their own."""
        _, (sizes, shifts) = for_each_axis(self, structure, self.window, self.shift)
        if isinstance(structure, Cells):
            block = _of_cells(structure, sizes, shifts)
            return SameBlock(block, block)
        graphs, ends = graphs_of(structure), structure.size
        along = [torch.arange(count, device=structure.device) for count in ends]
        if graphs is not None:
            along = [places(graph) for graph in graphs]
        blocks = [(place - shifts[0] + sizes[0]) // sizes[0] for place in along]
        if graphs is not None:
            count = max(ends) // sizes[0] + 2
            blocks = [b + count * graph for b, graph in zip(blocks, graphs, strict=True)]
        return SameBlock(blocks[0], blocks[1])


def _of_cells(cells: Cells, sizes: tuple[int, ...], shifts: tuple[int, ...]) -> Tensor:
    """The block (n,) of each cell; different grids have different blocks."""
    listed = cells.listed()
    index = listed.index
    assert index is not None
    block = torch.div(
        index - index.new_tensor(shifts), index.new_tensor(sizes), rounding_mode="floor"
    )
    if not block.numel():
        return block.new_zeros(len(block))
    block = block - block.amin(0)
    return listed.keys(block, tuple((block.amax(0) + 1).tolist()))
