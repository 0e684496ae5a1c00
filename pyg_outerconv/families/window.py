"""One axis of a kernel that slides over a grid: its shifts, padding and stride."""

from __future__ import annotations

from dataclasses import dataclass

from ..basis.grid_shift import Axis
from ..errors import RefusedValue, refusal


@dataclass(frozen=True)
class Window:
    """The kernel along one axis, for any number of cells.

    Attributes:
        shifts: d of every tap; see :class:`Axis`.
        stride: s.
        front, behind: number of cells added before the first and after the last.
        reach: distance from the first tap to the last.
        padding_mode: content of the added cells; see :class:`Axis`.
        ceil_mode: whether a window may go beyond the last cell and its padding.
        output_padding: cells added behind the outputs of a transposed window.
        has_kernel: whether a window must fit into an axis; offsets need not.
    """

    shifts: tuple[int, ...]
    stride: int = 1
    front: int = 0
    behind: int = 0
    reach: int = 0
    padding_mode: str = "zeros"
    ceil_mode: bool = False
    output_padding: int = 0
    has_kernel: bool = True

    def num_outputs(self, num_inputs: int) -> int:
        """N of an axis with M inputs: ⌊(M + padding − reach − 1)/s⌋ + 1, as torch counts.

        An axis without cells has no outputs if its padding is smaller than a window.

        Raises:
            ValueError: the kernel is larger than the padded axis.
        """
        room = num_inputs + self.front + self.behind - self.reach - 1
        count = (room + (self.stride - 1 if self.ceil_mode else 0)) // self.stride + 1
        if count < 1 and num_inputs and self.has_kernel:
            raise RefusedValue(
                refusal(
                    "a kernel must fit into the padded grid",
                    f"at most {num_inputs + self.front + self.behind} cells",
                    self.reach + 1,
                )
            )
        if self.ceil_mode and (count - 1) * self.stride >= num_inputs + self.front:
            count -= 1  # the last window begins in the axis or in the padding before it
        return max(0, count)

    def num_inputs(self, num_outputs: int) -> int:
        """M of the axis that a transposed window makes of N cells, with ``output_padding``.

        Raises:
            ValueError: M would be less than 1.
        """
        if num_outputs == 0:
            return 0
        least = (num_outputs - 1) * self.stride + 1 + self.reach - self.front - self.behind
        count = least + self.output_padding
        if count < 1:
            raise RefusedValue(refusal("a transposed kernel must leave a grid", ">= 1 cell", count))
        return count

    def axis(self, num_cells: int, is_transposed: bool = False) -> Axis:
        """The shifts of an axis with ``num_cells`` inputs, or outputs if transposed."""
        inputs = self.num_inputs(num_cells) if is_transposed else num_cells
        outputs = num_cells if is_transposed else self.num_outputs(num_cells)
        return Axis(inputs, outputs, self.shifts, self.stride, self.padding_mode)

    def framed(self, lowest: int, highest: int, is_transposed: bool = False) -> tuple[Axis, int]:
        """The axis of a box around cells of an unbounded axis and all cells that they reach.

        Args:
            lowest, highest: the first and the last of the cells.
            is_transposed: whether these cells are outputs of the axis.

        Returns:
            The axis, and the output b that is output 0 in the box; input s·b is input 0 there.
        """
        s, d_low, d_high = self.stride, min(self.shifts), max(self.shifts)
        if is_transposed:
            base = min(lowest, (s * lowest - d_high) // s)
            outputs = highest - base + 1
            inputs = s * (highest - base) - d_low + 1
        else:
            base = min(lowest, lowest + d_low) // s
            inputs = highest - s * base + 1
            outputs = (inputs - 1 + d_high) // s + 1
        return Axis(inputs, outputs, self.shifts, s), base
