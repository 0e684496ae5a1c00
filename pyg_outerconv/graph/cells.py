"""Cells of grids: all cells of a shape, or listed cells."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue
from ..memo import cached_property
from ..signatures import is_integer
from .checks import check_batch
from .edge_index import require_data
from .structure import Structure, refuse_beside

KEY_LIMIT = 2**62  # bound on cell numbers, so that they fit into int64


def check_shape(shape: Any) -> tuple[int, ...]:
    """The shape of a grid as a tuple of ints; ValueError if it is no list of numbers >= 0."""
    if (
        not isinstance(shape, tuple | list)
        or not shape
        or not all(is_integer(count) and int(count) >= 0 for count in shape)
    ):
        raise RefusedValue(
            "a grid's shape lists the number of cells on each axis", ">= 0 each", shape
        )
    return tuple(int(count) for count in shape)


def check_cell_index(index: Any, shape: tuple[int, ...] | None) -> Tensor:
    """The coordinates (n, D) of cells as int64, checked."""
    if not isinstance(index, Tensor):
        got = type(index).__name__
        raise RefusedType("coordinates of cells are integers", "a tensor of integers", got)
    if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
        raise RefusedType("coordinates of cells are integers", "torch.int64", index.dtype)
    if index.dim() != 2 or index.size(1) == 0:
        raise RefusedValue("cells have one coordinate per axis", "shape (n, D)", tuple(index.shape))
    if shape is not None and index.size(1) != len(shape):
        raise RefusedValue(
            "cells have one coordinate per axis of the shape", len(shape), index.size(1)
        )
    index = index.long()
    if shape is None and index.numel():
        for end in (int(index.min()), int(index.max())):
            if abs(end) >= KEY_LIMIT // 2:
                raise RefusedValue(
                    "coordinates of cells are bounded", f"within ±{KEY_LIMIT // 2}", end
                )
    if shape is not None and index.numel():
        bounds = torch.tensor(shape, device=index.device)
        wrong = ((index < 0) | (index >= bounds)).any(1).nonzero()
        if len(wrong):
            at = tuple(index[int(wrong[0])].tolist())
            raise RefusedValue("every cell lies within the shape", f"below {shape}", at)
    return index


@dataclass(frozen=True, eq=False)
class Cells(Structure):
    """Cells of a D-dimensional grid, each a node; node i is the cell at ``index[i]``.

    Cells are sparse images, voxels, sequences with gaps, or any points with integer coordinates.

    Attributes:
        index: (n, D) integer coordinates, distinct within each grid of a batch; None for all cells
            of ``shape``, the last axis running fastest.
        shape: the number of cells on each axis, or None for a grid without bounds, whose
            coordinates may be negative.
        batch: (n,) integers, the grid of each cell, or None for a single grid.
        on: the device of the cells, if ``index`` is None.

    Raises:
        TypeError: ``index`` or ``batch`` is not a tensor of integers.
        ValueError: shapes do not fit, a cell is out of bounds, or a cell is repeated.
    """

    noun: ClassVar[str] = "cells"
    expects: ClassVar[str] = "the shape of a grid, a mask of torch.bool, or Cells"

    index: Tensor | None
    shape: tuple[int, ...] | None = None
    batch: Tensor | None = None
    on: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        if self.shape is not None:
            object.__setattr__(self, "shape", check_shape(self.shape))
        if self.index is None:
            if self.shape is None:
                raise RefusedValue("cells need an index or a shape", "a shape", "neither")
            if self.batch is not None:
                raise RefusedValue("batch needs listed cells", "an index", "a shape alone")
            return
        object.__setattr__(self, "index", check_cell_index(self.index, self.shape))
        object.__setattr__(self, "on", self.index.device)
        check_batch(self.batch, self.index.size(0))
        if self.batch is not None and self.batch.device != self.device:
            raise RefusedValue(
                "batch must be on the device of the cells", self.device, self.batch.device
            )
        self._check_distinct()

    @staticmethod
    def of_shape(shape: tuple[int, ...], device: torch.device | None = None) -> Cells:
        """All cells of a shape, the last axis running fastest."""
        return Cells(None, shape, on=torch.empty(0, device=device).device)

    @staticmethod
    def of_mask(mask: Tensor, batched: bool = False) -> Cells:
        """The cells where a mask is true, the last axis running fastest.

        Args:
            mask: booleans, of the grid's shape.
            batched: whether the first axis numbers several grids instead of being an axis of one.

        Raises:
            TypeError: the mask is not a tensor of booleans.
            ValueError: the mask has no grid axis.
        """
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            got = getattr(mask, "dtype", type(mask).__name__)
            raise RefusedType("a mask of cells holds booleans", "torch.bool", got)
        least = 2 if batched else 1
        if mask.dim() < least:
            raise RefusedValue("a mask has the axes of the grid", f">= {least}", mask.dim())
        index = mask.nonzero()
        if batched:
            return Cells(index[:, 1:], tuple(mask.shape[1:]), index[:, 0])
        return Cells(index, tuple(mask.shape))

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable]:
        """``index`` and ``batch``, with the shape and the device."""
        return (self.index, self.batch), (self.shape, self.on)

    # As a structure -----------------------------------------------------------------------------

    @classmethod
    def recognises(cls, edge_index: Any) -> bool:
        """Whether the argument is a shape, a boolean mask or ``Cells``."""
        if isinstance(edge_index, tuple | list):
            return all(map(is_integer, edge_index))
        if isinstance(edge_index, Tensor):
            return edge_index.dtype == torch.bool or _is_shape(edge_index)
        return isinstance(edge_index, Cells)

    @classmethod
    def read(
        cls,
        edge_index: Any,
        *,
        device: torch.device | None = None,
        size: tuple[int | None, int | None] | None = None,
        batch: Tensor | None = None,
        bipartite: bool | None = None,
        **beside: Any,
    ) -> Cells:
        """Read a shape, a boolean mask or ``Cells``.

        ``batch`` (n,) is the grid of each cell. Cells are never bipartite, whatever is given.

        Raises:
            TypeError: the argument is none of these.
            ValueError: edge attributes or positions were given too, or ``size`` or ``batch`` does
                not fit the cells.
        """
        refuse_beside("cells", beside)
        if isinstance(edge_index, Cells):
            cells = edge_index
        elif isinstance(edge_index, Tensor) and not _is_shape(edge_index):
            cells = Cells.of_mask(edge_index)
        elif cls.recognises(edge_index):
            shape = edge_index.tolist() if isinstance(edge_index, Tensor) else edge_index
            cells = Cells.of_shape(tuple(shape), device)
        else:
            got = edge_index if isinstance(edge_index, tuple | list) else type(edge_index).__name__
            raise RefusedType("a grid family reads cells", cls.expects, got)
        if size is not None and size[0] not in (None, cells.num_cells):
            raise RefusedValue("x and size must have one source per cell", cells.num_cells, size[0])
        return cells if batch is None else cells._with_batch(batch)

    def _with_batch(self, batch: Any) -> Cells:
        """The same cells, with the grid of each cell in ``batch`` (n,)."""
        check_batch(batch, self.num_cells)
        if self.batch is not None:
            if self.batch is not batch and not torch.equal(self.batch, batch.to(self.batch)):
                raise RefusedValue("these cells already have a batch", "the same", "batch")
            return self
        if self.is_full and bool((batch == batch[:1]).all()):
            return self
        return replace(self.listed(), batch=batch)

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether ``data.pos`` has an integer dtype."""
        position = data.get("pos")
        return isinstance(position, Tensor) and not position.is_floating_point()

    @classmethod
    def of_data(cls, data: Data) -> Cells:
        """The cells at ``data.pos`` (n, D), on one unbounded grid for each graph."""
        require_data(data)
        if data.get("pos") is None:
            raise RefusedValue(
                "cells are read from the positions of nodes",
                "data.pos of shape (n, D), integers",
                f"a Data object with {sorted(data.keys())}",
            )
        return Cells(data.pos, batch=data.get("batch"))

    @classmethod
    def identity(cls, edge_index: Any) -> tuple[tuple[Any, ...], Hashable]:
        """The tensors of listed cells, and the shape by value."""
        if isinstance(edge_index, Cells):
            where = str(edge_index.on) if edge_index.index is None else None
            return (edge_index.index, edge_index.batch), (edge_index.shape, where)
        return (
            ((edge_index,), None)
            if isinstance(edge_index, Tensor)
            else ((None,), tuple(edge_index))
        )

    # Properties ---------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether these are all cells of a shape, without a list of coordinates."""
        return self.index is None

    @property
    def num_axes(self) -> int:
        """Number of axes, D."""
        return len(self.shape or ()) if self.index is None else self.index.size(1)

    @property
    def num_cells(self) -> int:
        """Number of cells, n."""
        return prod(self.shape or ()) if self.index is None else self.index.size(0)

    @property
    def size(self) -> tuple[int, int]:
        """(n, n)."""
        return self.num_cells, self.num_cells

    @property
    def device(self) -> torch.device:
        """The device of the cells."""
        return self.on

    def listed(self) -> Cells:
        """The same cells with ``index`` (n, D) filled in."""
        if self.index is not None:
            return self
        axes = [torch.arange(count, device=self.on) for count in self.shape or ()]
        return replace(self, index=torch.cartesian_prod(*axes).view(-1, self.num_axes))

    def to(self, device: torch.device | str) -> Cells:
        """The same cells on another device."""
        if self.index is None:
            return replace(self, on=torch.empty(0, device=device).device)
        batch = None if self.batch is None else self.batch.to(device)
        return replace(self, index=self.index.to(device), batch=batch)

    @cached_property
    def num_grids(self) -> int:
        """Number of grids: the largest batch index plus one; 1 without a batch."""
        if self.batch is None:
            return 1
        return int(self.batch.max()) + 1 if self.batch.numel() else 0

    def grids(self) -> Tensor:
        """(n,) the grid of each listed cell."""
        assert self.index is not None
        return self.index.new_zeros(len(self.index)) if self.batch is None else self.batch.long()

    def keys(self, coordinates: Tensor, sizes: tuple[int, ...]) -> Tensor:
        """(n,) distinct cell numbers, increasing with the grid, then with ``coordinates`` (n, D).

        Raises:
            ValueError: the numbers would not fit into int64.
        """
        self.check_numbers(sizes)
        key = self.grids()
        for axis, count in enumerate(sizes):
            key = key * count + coordinates[:, axis]
        return key

    def check_numbers(self, sizes: tuple[int, ...]) -> None:
        """Refuse one box of ``sizes`` per grid if the cells are too many for int64 numbers."""
        if self.num_grids * prod(sizes) >= KEY_LIMIT:
            raise RefusedValue(
                "bounding boxes need cell numbers in int64", f"< {KEY_LIMIT} cells", sizes
            )

    def _check_distinct(self) -> None:
        assert self.index is not None
        if len(self.index) < 2:
            return
        low, high = self.index.amin(0), self.index.amax(0)
        key = self.keys(self.index - low, tuple((high - low + 1).tolist())).sort().values
        repeated = int((key.diff() == 0).sum())
        if repeated:
            raise RefusedValue("cells must be distinct", "each once", f"{repeated} repeated")

    def __repr__(self) -> str:
        what = "all" if self.index is None else self.num_cells
        where = f"{self.num_axes} axes" if self.shape is None else f"shape={self.shape}"
        return f"Cells({what}, {where}{'' if self.batch is None else f', {self.num_grids} grids'})"


def _is_shape(tensor: Tensor) -> bool:
    """Whether a tensor is the shape of a grid: integers along one axis."""
    is_integer = not (
        tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool
    )
    return is_integer and tensor.layout == torch.strided and tensor.dim() == 1
