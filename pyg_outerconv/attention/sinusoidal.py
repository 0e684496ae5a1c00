"""Sinusoidal and rotary positions: sines and cosines whose wavelengths grow geometrically."""

from __future__ import annotations

from math import inf
from numbers import Real

import torch
from torch import Tensor

from ..equations import row
from ..errors import RefusedType, RefusedValue
from ..graph.checks import check_dense, check_positive
from ..graph.positions import as_coordinates, exact_type
from ..signatures import typed
from .added_positions import AddedPositions


def _angles(position: Tensor, channels: int, base: float) -> Tensor:
    r"""The angle of each position on each axis at each frequency.

    .. math:: \alpha_{n,d,i} = p_{n,d} \cdot b^{-2i/C}, \qquad i = 0, \dots, C/2 - 1

    for positions (n, D) and C channels of each axis, ``channels`` = C·D: (n, D, C/2). Wavelengths
    grow geometrically from 2π to 2π·b.
    """
    of_axis = channels // position.size(1)
    step = torch.arange(0, of_axis, 2, dtype=position.dtype, device=position.device)
    return position.unsqueeze(-1) * float(base) ** (-step / of_axis)


def _check_frequencies(channels: int, base: float, axes: int) -> None:
    """Refuse channels that are no pairs on each axis, and a base that is not positive."""
    check_positive("positions", channels=channels, axes=axes)
    if channels % (2 * axes):
        rule = "each axis takes pairs of channels, a sine and a cosine of each frequency"
        raise RefusedValue(rule, f"channels a multiple of {2 * axes}", channels)
    if not isinstance(base, Real) or isinstance(base, bool):
        raise RefusedType("the base of frequencies is a number", "> 0", repr(base))
    if not 0 < base < inf:
        raise RefusedValue("the base of frequencies is positive", "finite, > 0", base)


def _options(positions: SinusoidalPositions | Rotary) -> str:
    layout = "" if positions.interleaved else ", interleaved=False"
    return f"{positions.channels}, base={positions.base:g}, axes={positions.axes}{layout}"


@typed
def sinusoidal(
    position: Tensor, channels: int, base: float = 10000.0, interleaved: bool = True
) -> Tensor:
    r"""The encoding of section 3.5 of `"Attention Is All You Need"
    <https://arxiv.org/abs/1706.03762>`_.

    .. math::
        PE[p, 2i] = \sin(p / b^{2i/P}), \qquad PE[p, 2i + 1] = \cos(p / b^{2i/P}),
        \qquad i = 0, \dots, P/2 - 1

    Positions and channels count from 0. PyG's ``PositionalEncoding`` differs: sines come first, and
    exponents are i / (P/2 − 1). PE[p + k] is PE[p] rotated by angles that depend on k alone, so
    ⟨PE[p], PE[q]⟩ depends on p − q. On D axes, each has P/D of the channels, the first axis the
    first of them.

    Args:
        position: (n,) or (n, D), integers or floating point; it may carry gradients.
        channels: P, a multiple of 2·D.
        base: b.
        interleaved: whether the sine and the cosine of a frequency are neighbours; otherwise
            an axis has its sines first, then its cosines.

    Returns:
        (n, P), in the dtype of ``position``, or in torch's default dtype for integers. Angles are
        computed in float32 at least.

    Raises:
        TypeError: positions are not numbers, or an option has the wrong type.
        ValueError: ``position`` has another shape, or a number is out of range.

    >>> sinusoidal(torch.tensor([0.0]), 4).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    >>> sinusoidal(torch.tensor([0.0]), 4, interleaved=False).tolist()
    [[0.0, 0.0, 1.0, 1.0]]
    """
    coordinates = as_coordinates(position)
    _check_frequencies(channels, base, coordinates.size(1))
    own = position.is_floating_point()
    dtype = position.dtype if own else torch.get_default_dtype()
    angle = _angles(coordinates.to(exact_type(dtype)), channels, base)
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
        channels, base, interleaved: see :func:`sinusoidal`.
        axes: D; with several, positions must be passed.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·D, or a number is not positive.

    >>> SinusoidalPositions(8)(torch.zeros(5, 20, 8)).shape  # a batch of five sequences
    torch.Size([5, 20, 8])
    """

    @typed
    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        _check_frequencies(channels, base, axes)
        super().__init__(channels, axes)
        self.base, self.interleaved = base, interleaved

    def encode(self, position: Tensor, dtype: torch.dtype) -> Tensor:
        """The encodings (n, P) of positions (n, D), computed in float32 at least, in ``dtype``."""
        exact = position.to(exact_type(position.dtype, dtype))
        return sinusoidal(exact, self.channels, self.base, self.interleaved).to(dtype)

    def extra_repr(self) -> str:
        """The options."""
        return _options(self)


@row(
    "Positions",
    "rotates queries and keys by their positions",
    "Su et al., *RoFormer* (2104.09864), equation 34",
    option="`KeyQuery(…, rotary=Rotary(…))`",
)
class Rotary(torch.nn.Module):
    r"""A rotation of each pair of channels by the node's position times the pair's frequency.

    .. math::
        \begin{pmatrix} y_{2i} \\ y_{2i+1} \end{pmatrix} =
        \begin{pmatrix} \cos p\theta_i & -\sin p\theta_i \\ \sin p\theta_i & \cos p\theta_i
        \end{pmatrix} \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix},
        \qquad \theta_i = b^{-2i/D}

    Equations 15 and 34 of `"RoFormer: Enhanced Transformer with Rotary Position Embedding"
    <https://arxiv.org/abs/2104.09864>`_, whose pairs count from 1. The inner product of a rotated
    query and a rotated key depends on their relative position alone: ⟨R_n q, R_m k⟩ =
    ⟨q, R_{m−n} k⟩. Only nodes are rotated, so no tensor of edges is needed. It has no parameters.

    Each of several axes rotates an equal share of the channels, the first axis the first share.

    Args:
        channels: D, the channels of one head; a multiple of 2·axes.
        base: b.
        axes: the number of coordinates of a position.
        interleaved: whether pairs are neighbouring channels, as in the paper; otherwise channel i
            of the C channels of an axis is paired with i + C/2, as in many pre-trained models.

    Raises:
        TypeError: an option has the wrong type.
        ValueError: ``channels`` is not a multiple of 2·axes, or a number is not positive.

    >>> turn = Rotary(channels=2)
    >>> turn(torch.tensor([[[1.0, 0.0]]]), torch.tensor([0.0])).tolist()
    [[[1.0, 0.0]]]
    """

    @typed
    def __init__(
        self, channels: int, base: float = 10000.0, axes: int = 1, interleaved: bool = True
    ) -> None:
        super().__init__()
        _check_frequencies(channels, base, axes)
        self.channels, self.base, self.axes = channels, base, axes
        self.interleaved = interleaved

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        r"""The rotated vectors.

        Args:
            x: (nodes, \*batch, heads, D) queries or keys, or (nodes, \*, D).
            position: (nodes, axes), or (nodes,) on one axis. Angles are computed in float32 at
                least, then rounded to the dtype of x.

        Raises:
            TypeError: positions are not numbers, or x is no dense floating point tensor.
            ValueError: shapes do not fit.
        """
        coordinates = as_coordinates(position, self.axes)
        check_dense("rotary positions rotate vectors", x)
        if x.dim() < 2 or x.size(-1) != self.channels or x.size(0) != len(coordinates):
            rule = "rotary positions rotate a vector of each node and head"
            expected = f"({len(coordinates)}, *, {self.channels})"
            raise RefusedValue(rule, expected, tuple(x.shape))
        exact = coordinates.to(exact_type(coordinates.dtype, x.dtype))
        angle = _angles(exact, self.channels, self.base)
        angle = angle.view(len(x), *(1,) * (x.dim() - 2), *angle.shape[1:])
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        count = self.channels // (2 * self.axes)
        pair = -1 if self.interleaved else -2
        form = (self.axes, count, 2) if self.interleaved else (self.axes, 2, count)
        first, second = x.unflatten(-1, form).unbind(pair)
        rotated = first * cos - second * sin, first * sin + second * cos
        return torch.stack(rotated, dim=pair).flatten(-3)

    def extra_repr(self) -> str:
        """The options."""
        return _options(self)
