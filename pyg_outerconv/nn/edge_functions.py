"""Functions of edge attributes for :class:`~pyg_outerconv.families.Kernel`: (E, D) to (E, K)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.inits import glorot

from ..errors import RefusedValue, unknown
from ..graph.checks import check_dense, check_positive, holds
from ..signatures import typed

_SMALLEST = 1e-15  # PyG adds it to variances
_PIECES = {
    # Row j: coefficients of 1, v, v², … of the piece of the uniform B-spline that starts j knots
    # before v's own interval ends.
    1: ((1, -1), (0, 1)),
    2: ((1 / 2, -1, 1 / 2), (1 / 2, 1, -1), (0, 0, 1 / 2)),
    3: (
        (1 / 6, -1 / 2, 1 / 2, -1 / 6),
        (2 / 3, 0, -1, 1 / 2),
        (1 / 6, 1 / 2, 1 / 2, -1 / 2),
        (0, 0, 0, 1 / 6),
    ),
}


class GaussianMixture(torch.nn.Module):
    r"""Gaussians with learned centres and widths.

    .. math:: f_k(u) = \exp\Bigl(-\tfrac12 \sum_d \frac{(u_d - \mu_{kd})^2}{\sigma_{kd}^2}\Bigr)

    ``OuterConv(P, Q, Kernel(GaussianMixture(D, K)), aggr='mean', root_weight=True)`` is GMMConv,
    with Θ_k its ``g``. From the `"Geometric Deep Learning on Graphs and Manifolds using Mixture
    Model CNNs" <https://arxiv.org/abs/1611.08402>`_ paper, section 3.

    Args:
        dim: D.
        num_functions: K.

    Attributes:
        mu, sigma: (K, D).

    Raises:
        TypeError: a number is no integer.
        ValueError: a number is not positive.
    """

    @typed
    def __init__(self, dim: int, num_functions: int) -> None:
        super().__init__()
        check_positive("a mixture of Gaussians", dim=dim, num_functions=num_functions)
        self.dim, self.num_functions = dim, num_functions
        self.mu = Parameter(torch.empty(num_functions, dim))
        self.sigma = Parameter(torch.empty(num_functions, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform centres and widths, as PyG draws them."""
        glorot(self.mu)
        glorot(self.sigma)

    def forward(self, edge_attr: Tensor) -> Tensor:
        """The functions of edge attributes (E, D): (E, K)."""
        _check_width(edge_attr, self.dim, self.mu)
        away = (edge_attr.unsqueeze(1) - self.mu).square() / (self.sigma.square() + _SMALLEST)
        return (-0.5 * away.sum(-1)).exp()

    def extra_repr(self) -> str:
        """D and K."""
        return f"{self.dim}, {self.num_functions}"


class BSpline(torch.nn.Module):
    r"""Products of uniform B-splines, one along each attribute.

    .. math:: f_k(u) = \prod_d N^m_{k_d}(u_d), \qquad k = k_1 + S_1 (k_2 + S_2 (k_3 + \dots))

    with S_d splines of degree m along attribute d in [0, 1], and k_1 running fastest. They sum to
    one, and (m + 1)^D of them are non-zero at any point; a basis of this function stores the zeros
    too.
    ``OuterConv(P, Q, Kernel(BSpline((5, 5))), aggr='mean', root_weight=True)`` is SplineConv, with
    Θ its ``weight``. From the `"SplineCNN: Fast Geometric Deep Learning with Continuous B-Spline
    Kernels" <https://arxiv.org/abs/1711.08920>`_ paper, section 3.

    Args:
        kernel_size: S_d for each attribute, more than m.
        degree: m, from 1 to 3.
        is_open_spline: whether 0 and 1 are ends, for each attribute or for all; if not, they are
            the same point, as for angles.

    Raises:
        TypeError: a size is no integer.
        ValueError: an option is out of range; when called, an attribute is outside [0, 1].
    """

    @typed
    def __init__(
        self,
        kernel_size: int | Sequence[int],
        degree: int = 1,
        is_open_spline: bool | Sequence[bool] = True,
    ) -> None:
        super().__init__()
        sizes = tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size,)
        for size in sizes:
            check_positive("a B-spline", kernel_size=size)
        if isinstance(is_open_spline, bool):
            is_open_spline = (is_open_spline,) * len(sizes)
        if degree not in _PIECES:
            raise RefusedValue(unknown("degree of a B-spline", str(degree), map(str, _PIECES)))
        if not sizes or min(sizes) <= degree:
            raise RefusedValue("a B-spline needs more pieces than its degree", f"> {degree}", sizes)
        if len(is_open_spline) != len(sizes):
            rule = "splines are open or closed along each attribute"
            raise RefusedValue(rule, f"{len(sizes)} switches", is_open_spline)
        self.kernel_size, self.degree = sizes, degree
        self.is_open_spline = tuple(is_open_spline)

    @property
    def num_functions(self) -> int:
        """K, the product of all S_d."""
        return prod(self.kernel_size)

    def forward(self, edge_attr: Tensor) -> Tensor:
        """The functions of edge attributes (E, D): (E, K)."""
        which, value = self.nonzero(edge_attr)
        return value.new_zeros(len(value), self.num_functions).scatter_add(1, which, value)

    def nonzero(self, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        """The functions that are not zero at edge attributes (E, D), S = (m + 1)^D at each edge.

        Returns:
            Their numbers (E, S), and their values (E, S).
        """
        _check_width(edge_attr, len(self.kernel_size))
        inside = (edge_attr.detach() >= 0) & (edge_attr.detach() <= 1)
        if not holds(inside.all()):
            got = f"between {float(edge_attr.min()):g} and {float(edge_attr.max()):g}"
            rule = "splines are of attributes in [0, 1]"
            raise RefusedValue(rule, "0 <= edge_attr <= 1", got)
        which = torch.zeros((len(edge_attr), 1), dtype=torch.long, device=edge_attr.device)
        value, step = edge_attr.new_ones((len(edge_attr), 1)), 1
        axes = zip(edge_attr.unbind(1), self.kernel_size, self.is_open_spline, strict=True)
        for position, size, is_open in axes:
            here, pieces = self._along(position, size, is_open)
            # The spline index of a later attribute runs slower.
            which = ((step * here).unsqueeze(2) + which.unsqueeze(1)).flatten(1)
            value, step = (pieces.unsqueeze(2) * value.unsqueeze(1)).flatten(1), step * size
        return which, value

    def _along(self, position: Tensor, size: int, is_open: bool) -> tuple[Tensor, Tensor]:
        """The splines of one attribute that are not zero, and their values, both (E, m + 1)."""
        place = position * (size - self.degree * is_open)
        first = place.detach().floor()
        if is_open:  # 1 belongs to the last interval, so that the slope there is one-sided
            first = first.clamp(max=size - self.degree - 1)
        powers = torch.stack([(place - first) ** k for k in range(self.degree + 1)], dim=1)
        pieces = torch.tensor(_PIECES[self.degree], dtype=place.dtype, device=place.device)
        which = torch.arange(self.degree + 1, device=place.device)
        return (first.long().unsqueeze(1) + which) % size, powers @ pieces.t()

    def extra_repr(self) -> str:
        """The options."""
        return f"{self.kernel_size}, degree={self.degree}, is_open_spline={self.is_open_spline}"


class EdgeNetwork(torch.nn.Module):
    r"""A network with a ReLU after every linear layer, and a constant function 1.

    .. math:: f(u) = (h_L, 1), \qquad h_l = \max(0, W_l h_{l-1} + b_l), \qquad h_0 = u

    Σ_k f_k(u) Θ_k is linear in h_L, and Θ_k of the constant is its bias. So ``OuterConv(P, Q,
    Kernel(EdgeNetwork(D, 8)), root_weight=True)`` is NNConv with a network of one hidden layer of
    8, without a tensor of edges × P × Q. From the `"Neural Message Passing for Quantum Chemistry"
    <https://arxiv.org/abs/1704.01212>`_ paper (its edge network), and `"Dynamic Edge-Conditioned
    Filters in Convolutional Neural Networks on Graphs" <https://arxiv.org/abs/1704.02901>`_,
    equation 1.

    Args:
        *channels: D, and the width of each layer.
        constant: whether the last function is the constant 1.

    Raises:
        TypeError: a width is no integer.
        ValueError: there is no layer, or a width is not positive.
    """

    @typed
    def __init__(self, *channels: int, constant: bool = True) -> None:
        super().__init__()
        if len(channels) < 2:
            raise RefusedValue("a network has layers", "D and a width for each", channels)
        for width in channels:
            check_positive("a network has layers and", width=width)
        self.constant = constant
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(before, after) for before, after in pairwise(channels)
        )
        self.dim, self.num_functions = channels[0], channels[-1] + constant

    def reset_parameters(self) -> None:
        """Reset all linear layers, as torch does."""
        for layer in self.layers:
            layer.reset_parameters()  # type: ignore[operator]

    def forward(self, edge_attr: Tensor) -> Tensor:
        """The functions of edge attributes (E, D): (E, K)."""
        _check_width(edge_attr, self.dim, next(self.parameters()))
        hidden = edge_attr
        for layer in self.layers:
            hidden = layer(hidden).relu()
        if not self.constant:
            return hidden
        return torch.cat([hidden, hidden.new_ones(len(hidden), 1)], dim=1)


def _check_width(edge_attr: Tensor, dim: int, beside: Tensor | None = None) -> None:
    rule = "edges have as many attributes as said"
    check_dense(rule, edge_attr, beside=beside)
    if edge_attr.dim() != 2 or edge_attr.size(1) != dim:
        raise RefusedValue(rule, f"(E, {dim})", tuple(edge_attr.shape))
