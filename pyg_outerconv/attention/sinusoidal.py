"""Sinusoidal positions: sines and cosines whose wavelengths grow geometrically."""

from __future__ import annotations

import torch
from torch import Tensor

from ..equations import row
from ..graph.positions import as_coordinates, exact_type
from .added import AddedPositions
from .angles import angles, check_frequencies


def sinusoidal(
    position: Tensor, channels: int, base: float = 10000.0, interleaved: bool = True
) -> Tensor:
    r"""The encoding of section 3.5 of `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_.

    .. math::
        PE[p, 2i] = \sin(p / b^{2i/P}), \qquad PE[p, 2i + 1] = \cos(p / b^{2i/P}),
        \qquad i = 0, \dots, P/2 - 1

    Positions and channels count from 0 and angles are positive, as in the paper. Texts differ in
    four ways: channels that count from 1 have the sines at odd indices, and some then also let i
    start at 1, which shifts all frequencies by one step; exp(−i·angle) instead of exp(i·angle)
    negates the sines; all sines may come before all cosines, as with ``interleaved=False``; and
    exponents i / (P/2 − 1), which end at 1, give other frequencies (as in PyG's
    ``PositionalEncoding``, with sines first).

    PE[p + k] is PE[p] rotated by angles that depend on k alone, so ⟨PE[p], PE[q]⟩ depends on p − q.

    On D axes, each has P/D of the channels, the first axis the first of them.

    Args:
        position: (n,) or (n, D), integers or floating point; it may carry gradients.
        channels: P, a multiple of 2·D. An odd number is refused: a sine without its cosine would
            break the property above.
        base: b.
        interleaved: whether the sine and the cosine of a frequency are neighbours; otherwise
            an axis has its sines first, then its cosines.

    Returns:
        (n, P), in the dtype of ``position``, or in torch's default dtype for integers. Angles are
        computed in float32 at least.

    Raises:
        TypeError: positions are not numbers, or an option has the wrong type.
        ValueError: ``position`` has another shape, the channels cannot be divided, or
            ``base`` is not positive.

    >>> sinusoidal(torch.arange(3), 2).shape
    torch.Size([3, 2])
    >>> sinusoidal(torch.tensor([0.0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    >>> sinusoidal(torch.tensor([0.0]), 4, interleaved=False).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    coordinates = as_coordinates(position)
    check_frequencies(channels, base, coordinates.size(1))
    own = position.is_floating_point()
    dtype = position.dtype if own else torch.get_default_dtype()
    angle = angles(coordinates.to(exact_type(dtype)), channels, base)
    ends = angle.sin(), angle.cos()
    both = torch.stack(ends, dim=-1) if interleaved else torch.stack(ends, dim=-2)
    return both.reshape(len(coordinates), channels).to(dtype)


@row(
    "Positions",
    "sin, cos(n / base^(2i/P)) to X",
    "1706.03762, section 3.5",
    option="`sinusoidal`, `SinusoidalPositions`",
)
class SinusoidalPositions(AddedPositions):
    r"""X plus sinusoidal encodings of positions; see :func:`sinusoidal`. No parameters.

    Args:
        channels: P.
        base: b, the largest wavelength being about 2π·b.
        axes: D; with several, positions must be passed.
        interleaved: whether the sine and the cosine of a frequency are neighbours.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·D, or a number is not positive.

    >>> SinusoidalPositions(8)(torch.zeros(5, 20, 8)).shape  # a batch of five sequences
    torch.Size([5, 20, 8])
    """

    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        check_frequencies(channels, base, axes)
        super().__init__(channels, axes)
        self.base, self.interleaved = base, interleaved

    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The encodings (n, P) of positions (n, D), computed in float32 at least, in ``dtype``."""
        exact = position.to(exact_type(position.dtype, dtype))
        return sinusoidal(exact, self.channels, self.base, self.interleaved).to(dtype)

    def extra_repr(self) -> str:
        """The options."""
        layout = "" if self.interleaved else ", interleaved=False"
        return f"{self.channels}, base={self.base:g}, axes={self.axes}{layout}"
