"""Shifts of an n-dimensional grid: the Kronecker product of shifts along its axes, as a rule."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from ...errors import RefusedValue, refusal
from ..base import TensorMap
from ..edges import EdgeBasis
from ..on_demand import OnDemand
from ..pattern import Pattern
from .axis import Axis


@dataclass(frozen=True, eq=False, repr=False)
class GridShift(OnDemand):
    r"""One shift of a grid for each label; all values are ones.

    .. math:: A_k = A^{(1)}_{t_1(k)} \otimes \dots \otimes A^{(D)}_{t_D(k)}

    Cells are numbered with the last axis running fastest (:math:`\omega` of the paper, section
    3.2, and the order in which torch stores an image's pixels).

    Attributes:
        axes: the shifts along each of D axes.
        taps: for each label, the tap on each axis.
        on: where edges will be.
        is_turned: whether every matrix is transposed, so that outputs of the axes are its sources.

    Raises:
        ValueError: no axis, no label, or a tap that an axis does not have.
    """

    axes: tuple[Axis, ...]
    taps: tuple[tuple[int, ...], ...]
    on: torch.device
    is_turned: bool = False

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
        """Cells on each axis that values come from."""
        return tuple(axis.num_outputs if self.is_turned else axis.num_inputs for axis in self.axes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Cells on each axis that values go to."""
        return tuple(axis.num_inputs if self.is_turned else axis.num_outputs for axis in self.axes)

    @property
    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """The shift d of each label (before turning), one number an axis."""
        return tuple(
            tuple(axis.shifts[t] for axis, t in zip(self.axes, tap, strict=True))
            for tap in self.taps
        )

    @property
    def num_bases(self) -> int:
        """K."""
        return len(self.taps)

    @property
    def size(self) -> tuple[int, int]:
        """(M, N)."""
        return prod(self.input_shape), prod(self.output_shape)

    @property
    def device(self) -> torch.device:
        """Where its edges will be."""
        return self.on

    @property
    def dtype(self) -> torch.dtype | None:
        """None: ones fit any type."""
        return None

    # Counts ---------------------------------------------------------------------------------

    @cached_property
    def _tables(self) -> list[Tensor]:
        return [axis.table() for axis in self.axes]

    def _count(self, per_tap: list[list[int]]) -> int:
        """Σ over labels of the product over axes of a number for each tap."""
        return sum(
            prod(counts[t] for counts, t in zip(per_tap, tap, strict=True)) for tap in self.taps
        )

    @cached_property
    def num_edges(self) -> int:
        """E: an edge for each output and label that sees an input."""
        return self._count([(table >= 0).sum(0).tolist() for table in self._tables])

    @cached_property
    def _num_seen(self) -> int:
        # Distinct (input, label): with mirrored or repeated ends an input is seen more than once.
        seen = [[int(c[c >= 0].unique().numel()) for c in t.unbind(1)] for t in self._tables]
        return self._count(seen)

    @property
    def num_source_pairs(self) -> int:
        """U_in."""
        return self.num_edges if self.is_turned else self._num_seen

    @property
    def num_target_pairs(self) -> int:
        """U_out."""
        return self._num_seen if self.is_turned else self.num_edges

    # Edges ----------------------------------------------------------------------------------

    def make_edges(self) -> EdgeBasis:
        """The edges: for each output and label the input that it sees, axis by axis."""
        index, label = self._list()
        size = self.size[::-1] if self.is_turned else self.size
        pattern = Pattern.build(index, label, size=size, num_labels=self.num_bases)
        return EdgeBasis(pattern.transposed if self.is_turned else pattern)

    def _list(self) -> tuple[Tensor, Tensor]:
        """(2, E) edges from inputs of the axes to their outputs, and (E,) labels, in order."""
        device = self.on
        taps = torch.tensor(self.taps, device=device)
        source = torch.zeros((1, self.num_bases), dtype=torch.long, device=device)
        for number, axis in enumerate(self.axes):
            seen = axis.table(device)[:, taps[:, number]]  # (N_d, K)
            here = torch.where(
                (source.unsqueeze(1) < 0) | (seen < 0),
                -1,
                source.unsqueeze(1) * axis.num_inputs + seen,
            )
            source = here.flatten(0, 1)
        target, label = (source >= 0).nonzero(as_tuple=True)
        return torch.stack([source[target, label], target]), label

    def mean(self, dtype: torch.dtype | None = None) -> GridShift | EdgeBasis:
        """Itself, where every output sees one input under a label at most."""
        return self.edges().mean(dtype) if self.is_turned else self

    def transpose(self) -> GridShift:
        """The transposed shifts, again a rule."""
        return replace(self, is_turned=not self.is_turned, plans={}, kept={})

    def map(self, index_map: TensorMap, value_map: TensorMap) -> GridShift:
        """See :meth:`Basis.map`."""
        on = index_map(torch.empty(0, device=self.on)).device
        return self if on == self.on else replace(self, on=on, plans={}, kept={})

    def __repr__(self) -> str:
        turned = ", turned" if self.is_turned else ""
        return f"GridShift({self._head()}, {self.input_shape} to {self.output_shape}{turned})"
