"""Shifts of an n-dimensional grid, the Kronecker product of shifts along its axes, as a rule.

Their windows are those by which torch's convolutions and poolings compute them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

import torch
from torch import Tensor

from ..kernels.lasting import lasting
from ..memo import cached_property
from .base import picked
from .edge_sets import averaged
from .edges import EdgeBasis
from .implicit_edges import ImplicitEdges
from .pattern import Pattern, index_type
from .subpattern import spread_runs

PADDING_MODES = ("zeros", "circular", "reflect", "replicate")


@dataclass(frozen=True)
class Axis:
    """1-D shifts of an axis with M inputs and N outputs: output n sees input s·n − d through tap d.

    As in the paper, a shift moves features by d: with stride 1, input m goes to output m + d.
    torch cross-correlates: weight j of its kernels is the shift d = padding − dilation·j.

    Attributes:
        num_inputs: M.
        num_outputs: N.
        shifts: the distinct integers d, one per tap.
        stride: s.
        padding_mode: what outputs see beyond the ends: nothing ('zeros'), the axis repeated
            ('circular'), mirrored at its end cells ('reflect'), or its end cell ('replicate').
    """

    num_inputs: int
    num_outputs: int
    shifts: tuple[int, ...]
    stride: int = 1
    padding_mode: str = "zeros"

    def sources(self, outputs: Tensor, tap: int) -> Tensor:
        """The input that each of ``outputs`` (integers) sees through a tap; −1 for none."""
        return self.bring_back(self.stride * outputs - self.shifts[tap])

    def inputs_of(self, outputs: Tensor, tap: int) -> tuple[Tensor, Tensor]:
        """Positions in ``outputs`` (n,) that see an input through a tap, and these inputs."""
        inputs = self.sources(outputs, tap)
        (seeing,) = (inputs >= 0).nonzero(as_tuple=True)
        return seeing, inputs[seeing]

    def outputs_of(self, inputs: Tensor, tap: int) -> tuple[Tensor, Tensor]:
        """Positions in ``inputs`` (n,) and the outputs that see these through a tap, as pairs."""
        if self.padding_mode == "zeros":
            ahead = inputs + self.shifts[tap]
            outputs = torch.div(ahead, self.stride, rounding_mode="floor")
            is_seen = (outputs * self.stride == ahead) & (outputs >= 0)
            (seen,) = (is_seen & (outputs < self.num_outputs)).nonzero(as_tuple=True)
            return seen, outputs[seen]
        of_output = self.sources(torch.arange(self.num_outputs, device=inputs.device), tap)
        order = of_output.argsort(stable=True)
        first = torch.searchsorted(of_output[order], inputs)
        count = torch.searchsorted(of_output[order], inputs, right=True) - first
        seen, within = spread_runs(count)
        return seen, order[first[seen] + within]

    def bring_back(self, inputs: Tensor) -> Tensor:
        """Inputs in [0, M) at positions of the unbounded axis, by the padding mode; −1 for none."""
        count = self.num_inputs
        if count == 0:
            return torch.full_like(inputs, -1)
        if self.padding_mode == "circular":
            return inputs % count
        if self.padding_mode == "replicate":
            return inputs.clamp(0, count - 1)
        if self.padding_mode == "reflect":
            period = max(2 * count - 2, 1)
            folded = inputs % period
            return torch.where(folded < count, folded, period - folded)
        return torch.where((inputs >= 0) & (inputs < count), inputs, -1)

    def table(self, device: torch.device | None = None) -> Tensor:
        """(N, taps) the input that each output sees through each tap; −1 for none."""
        outputs = torch.arange(self.num_outputs, device=device)
        columns = [self.sources(outputs, tap) for tap in range(len(self.shifts))]
        return torch.stack(columns, dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class GridShift(ImplicitEdges):
    r"""One shift of a grid for each label, with values 1.

    .. math:: A_k = A^{(1)}_{t_1(k)} \boxtimes \dots \boxtimes A^{(D)}_{t_D(k)}

    Cells are numbered with the last axis running fastest (:math:`\omega` of the paper, section
    3.2, and the order in which torch stores an image's pixels).

    Attributes:
        axes: the shifts along each of D axes.
        taps: for each label, the tap on each axis. If transposed, outputs of the axes are sources.
    """

    axes: tuple[Axis, ...]
    taps: tuple[tuple[int, ...], ...]

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
    def geometry(self) -> ConvGeometry:
        """The windows by which torch's convolutions compute the shifts."""
        # A compiler cannot keep a frozen dataclass that it has traced.
        return ConvGeometry.of(self) if torch.compiler.is_compiling() else self._geometry

    @cached_property
    def _geometry(self) -> ConvGeometry:
        return ConvGeometry.of(self)

    @property
    def shifts(self) -> tuple[tuple[int, ...], ...]:
        """The shift d of each label before transposition, one integer per axis."""
        return tuple(
            tuple(axis.shifts[t] for axis, t in zip(self.axes, tap, strict=True))
            for tap in self.taps
        )

    @property
    def num_bases(self) -> int:
        return len(self.taps)

    @property
    def size(self) -> tuple[int, int]:
        return prod(self.input_shape), prod(self.output_shape)

    @cached_property
    def counts(self) -> tuple[int, int, int]:
        # An output sees one input under a label; inputs are seen by several where padding mirrors
        # or repeats them.
        with lasting():  # numbers of wrapped tensors are not read within torch.func
            tables = [axis.table() for axis in self.axes]
            of_outputs = self._count([(table >= 0).sum(0).tolist() for table in tables])
            of_inputs = self._count(
                [[int(c[c >= 0].unique().numel()) for c in table.unbind(1)] for table in tables]
            )
        ends = (of_outputs, of_inputs) if self.is_transposed else (of_inputs, of_outputs)
        return of_outputs, *ends

    def _count(self, per_tap: list[list[int]]) -> int:
        """Σ over labels of the product over axes of ``per_tap[axis][tap]``."""
        return sum(
            prod(counts[t] for counts, t in zip(per_tap, tap, strict=True)) for tap in self.taps
        )

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

    def __repr__(self) -> str:
        transposed = ", transposed" if self.is_transposed else ""
        return f"GridShift({self._head()}, {self.input_shape} to {self.output_shape}{transposed})"


@picked.register
def _(basis: GridShift, labels: Sequence[int]) -> GridShift:
    return replace(basis, taps=tuple(basis.taps[label] for label in labels))


@averaged.register
def _(basis: GridShift, dtype: torch.dtype | None = None) -> GridShift | EdgeBasis:
    """The basis itself if every output sees at most one input per label, else by edges."""
    return basis.edges().mean(dtype) if basis.is_transposed else basis


# Windows of torch's convolutions ------------------------------------------------------------------


@dataclass(frozen=True)
class AxisGeometry:
    """The window of an axis: output n sees inputs s·n − d, for the shifts d of the taps in use.

    Attributes:
        axis: the shifts along the axis.
        first: the smallest −d, where the window begins.
        spacing: the greatest common divisor of the differences of shifts (torch's dilation).
        extent: the number of places from the first to the last −d (torch's kernel size).
    """

    axis: Axis
    first: int
    spacing: int
    extent: int

    @staticmethod
    def of(axis: Axis, taps: set[int]) -> AxisGeometry:
        """The window of the given taps of an axis."""
        seen = [-axis.shifts[tap] for tap in taps]
        first = min(seen)
        spacing = gcd(*(place - first for place in seen)) or 1
        return AxisGeometry(axis, first, spacing, (max(seen) - first) // spacing + 1)

    @property
    def before(self) -> int:
        """Padding before the first input that the first output sees; negative: inputs it skips."""
        return -self.first

    @property
    def behind(self) -> int:
        """Padding behind the last input that the last output sees; negative: inputs it skips."""
        axis = self.axis
        last = self.first + self.spacing * (self.extent - 1)
        return axis.stride * (axis.num_outputs - 1) + last - (axis.num_inputs - 1)

    @property
    def is_padded_alike(self) -> bool:
        """Whether zero padding by ``before`` cells at both ends gives the same outputs."""
        spare = self.before - self.behind
        zeros = self.axis.padding_mode == "zeros" or max(self.before, self.behind) <= 0
        return zeros and self.before >= 0 and 0 <= spare < self.axis.stride

    def place(self, tap: int) -> int:
        """The place of a tap in the window, from 0."""
        return (-self.axis.shifts[tap] - self.first) // self.spacing


@dataclass(frozen=True)
class ConvGeometry:
    """The windows of all axes of a grid shift, and the place of each label in their product.

    Attributes:
        axes: one window for each axis.
        places: for each label its place in the box of all windows, the last axis running fastest.
    """

    axes: tuple[AxisGeometry, ...]
    places: tuple[int, ...]

    @staticmethod
    def of(shift: GridShift) -> ConvGeometry:
        """The windows of a grid shift."""
        axes = tuple(
            AxisGeometry.of(axis, {tap[number] for tap in shift.taps})
            for number, axis in enumerate(shift.axes)
        )
        places = []
        for tap in shift.taps:
            place = 0
            for window, t in zip(axes, tap, strict=True):
                place = place * window.extent + window.place(t)
            places.append(place)
        return ConvGeometry(axes, tuple(places))

    @property
    def kernel(self) -> tuple[int, ...]:
        """The shape of the box (torch's kernel size)."""
        return tuple(window.extent for window in self.axes)

    @property
    def is_in_order(self) -> bool:
        """Whether label k is at place k and every place has a label, as in torch's kernels."""
        return self.places == tuple(range(prod(self.kernel)))

    @property
    def is_full(self) -> bool:
        """Whether every place has at least one label."""
        return len(set(self.places)) == prod(self.kernel)
