"""Shifts of an n-dimensional grid: the Kronecker product of shifts along its axes, as a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..cache import cached_property
from ..errors import RefusedValue, refusal
from .axis import Axis
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .pattern import Pattern
from .pattern_index import index_type


@dataclass(frozen=True, eq=False, repr=False)
class GridShift(ImplicitEdges):
    r"""One shift of a grid for each label, with values 1.

    .. math:: A_k = A^{(1)}_{t_1(k)} \otimes \dots \otimes A^{(D)}_{t_D(k)}

    Cells are numbered with the last axis running fastest (:math:`\omega` of the paper, section
    3.2, and the order in which torch stores an image's pixels).

    Attributes:
        axes: the shifts along each of D axes.
        taps: for each label, the tap on each axis. If transposed, outputs of the axes are sources.

    Raises:
        ValueError: there is no axis or no label, or a tap is out of range.
    """

    axes: tuple[Axis, ...]
    taps: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.axes:
            raise RefusedValue(refusal("a grid has axes", "at least one", "none"))
        if not self.taps:
            raise RefusedValue(refusal("shifts of a grid need a label", "at least one", "none"))
        sizes = [len(axis.shifts) for axis in self.axes]
        for tap in self.taps:
            if len(tap) != len(sizes) or not all(
                0 <= t < n for t, n in zip(tap, sizes, strict=True)
            ):
                raise RefusedValue(
                    refusal("a label has a tap on each axis", f"below {tuple(sizes)}", tap)
                )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the grid of sources."""
        return tuple(
            axis.num_outputs if self.is_transposed else axis.num_inputs for axis in self.axes
        )

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the grid of targets."""
        return tuple(
            axis.num_inputs if self.is_transposed else axis.num_outputs for axis in self.axes
        )

    @property
    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """The shift d of each label before transposition, one integer per axis."""
        return tuple(
            tuple(axis.shifts[t] for axis, t in zip(self.axes, tap, strict=True))
            for tap in self.taps
        )

    @property
    def num_bases(self) -> int:
        """Number of labels, K."""
        return len(self.taps)

    @property
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""
        return prod(self.input_shape), prod(self.output_shape)

    # Counts ---------------------------------------------------------------------------------

    @cached_property
    def _counts(self) -> tuple[int, int]:
        # The number of edges and of distinct (input, label), which differ if padding mirrors or
        # repeats inputs.
        tables = [axis.table() for axis in self.axes]
        edges = [(table >= 0).sum(0).tolist() for table in tables]
        seen = [[int(c[c >= 0].unique().numel()) for c in t.unbind(1)] for t in tables]
        return self._count(edges), self._count(seen)

    def _count(self, per_tap: list[list[int]]) -> int:
        """Σ over labels of the product over axes of ``per_tap[axis][tap]``."""
        return sum(
            prod(counts[t] for counts, t in zip(per_tap, tap, strict=True)) for tap in self.taps
        )

    @property
    def num_edges(self) -> int:
        """Number of edges E, one for each output and label that sees an input."""
        return self._counts[0]

    @property
    def num_source_pairs(self) -> int:
        """Number of distinct pairs (source, label), U_in."""
        return self._counts[0 if self.is_transposed else 1]

    @property
    def num_target_pairs(self) -> int:
        """Number of distinct pairs (target, label), U_out."""
        return self._counts[1 if self.is_transposed else 0]

    # Edges ----------------------------------------------------------------------------------

    def make_edges(self) -> EdgeBasis:
        """Make the edges, axis by axis, from the input that each output sees under each label."""
        size = self.size[::-1] if self.is_transposed else self.size
        dtype = index_type(size, self.num_bases, size[1] * self.num_bases)
        seen = self._seen(dtype)
        is_edge = seen >= 0
        numbers = (torch.arange(count, dtype=dtype, device=self.on) for count in seen.shape)
        target, label = torch.meshgrid(*numbers, indexing="ij")
        ends = (part[is_edge] for part in (seen, target, label))
        pattern = Pattern.of_sorted(*ends, size=size, num_labels=self.num_bases)
        return EdgeBasis(pattern.transposed if self.is_transposed else pattern)

    def _seen(self, dtype: torch.dtype) -> Tensor:
        """(N, K) the input that each output of the axes sees under each label, or −1."""
        taps = torch.tensor(self.taps, device=self.on)
        source = torch.zeros((1, self.num_bases), dtype=dtype, device=self.on)
        for number, axis in enumerate(self.axes):
            here = axis.table(self.on).to(dtype)[:, taps[:, number]]  # (N_d, K)
            is_none = (source < 0).unsqueeze(1) | (here < 0)
            source = (source * axis.num_inputs).unsqueeze(1) + here
            source = source.masked_fill_(is_none, -1).flatten(0, 1)
        return source

    @property
    def names(self) -> list[str]:
        """The name of each label: its shift."""
        transposed = ", transposed" if self.is_transposed else ""
        return [f"shift ({', '.join(map(str, shift))}){transposed}" for shift in self.shifts]

    def grids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The grids of sources and of targets."""
        return self.input_shape, self.output_shape

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """Sources (or targets) of edges at ``seen``.

        Computed axis by axis, for the outputs that are seen, or for all outputs.
        """
        from_outputs = transposed == self.is_transposed
        shape = torch.Size(axis.num_outputs for axis in self.axes)
        outputs = seen if from_outputs else seen.new_ones(shape.numel())
        cells = outputs.view(shape).nonzero().unbind(1)
        number = outputs.nonzero().view(-1)
        tables = [axis.table(seen.device) for axis in self.axes]
        out = seen.new_zeros(self.size[transposed])
        for label in labels:
            inputs, inside = torch.zeros_like(number), torch.ones_like(number, dtype=torch.bool)
            for axis, table, tap, cell in zip(
                self.axes, tables, self.taps[label], cells, strict=True
            ):
                found = table[cell, tap]
                inputs, inside = inputs * axis.num_inputs + found, inside & (found >= 0)
            if from_outputs:
                out[inputs[inside]] = True
            else:
                out[number[inside]] |= seen[inputs[inside]]
        return out

    def mean(self, dtype: torch.dtype | None = None) -> GridShift | EdgeBasis:
        """The basis itself if every output sees at most one input per label, else by edges."""
        return self.edges().mean(dtype) if self.is_transposed else self

    def __repr__(self) -> str:
        transposed = ", transposed" if self.is_transposed else ""
        return f"GridShift({self._head()}, {self.input_shape} to {self.output_shape}{transposed})"
