"""One contraction to be done: a leaf basis, the input, and its slice of the parameter."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.on_demand import OnDemand
from ..kernels.differentiable import wants_gradients
from ..theta import DenseTheta, Mixture, Theta, ValueOutput
from .features import Features, SparseFeatures

LINEAR = ("sum", "mean")  # reductions that Θ may come before

AnyBasis = TypeVar("AnyBasis", bound=Basis)

_NARROW, _MANY = 16, 1000  # columns of Θ, rows of X


@dataclass(frozen=True)
class Problem:
    """Y = Σ_k A_kᵀ X Θ_k for one basis that no rewriting takes apart.

    Attributes:
        basis: K matrices of size M × N: explicit edges, a polynomial, or the identity.
        x: (M, *batch, P), or (M, P) if sparse; integers (M,), the row of Θ_k that each source
            takes; or None, where source m takes row m, which is X = I.
        parameter: Θ (K, G, P/G, Q/G), a tensor, a mixture, or values and outputs of heads: Θ_k is
            block-diagonal with G blocks; G = 1 is a full matrix.
        reduce: over the inputs m of each label: 'sum', 'mean', 'max' or 'min'.
        label_reduce: over the labels k that reach a target: 'sum', 'max' or 'min'.
        bias: (Q,) to be added to every row of Y by orders that do so on their way.
        values: (M, *batch, H, V) what Θ makes of X, if it is of heads and that is known.
    """

    basis: Basis
    x: Features
    parameter: Theta
    reduce: str = "sum"
    label_reduce: str = "sum"
    bias: Tensor | None = None
    values: Tensor | None = None

    def __post_init__(self) -> None:
        if isinstance(self.parameter, Tensor):
            object.__setattr__(self, "parameter", DenseTheta(self.parameter))

    def of(self, kind: type[AnyBasis]) -> AnyBasis:
        """The basis, which is of the kind that an order solves."""
        assert isinstance(self.basis, kind)
        return self.basis

    @property
    def features(self) -> Tensor:
        """X, for orders that need it dense."""
        assert isinstance(self.x, Tensor)
        return self.x

    @property
    def theta(self) -> Tensor:
        """Θ as a tensor (K, G, P/G, Q/G), made anew of a mixture."""
        return self.parameter.full()

    @property
    def mixture(self) -> Mixture | None:
        """Θ as a mixture, if that is what it is."""
        return self.parameter if isinstance(self.parameter, Mixture) else None

    @property
    def counted(self) -> EdgeBasis | OnDemand:
        """The basis, for orders that need to know how many edges there are, without making them."""
        assert isinstance(self.basis, EdgeBasis | OnDemand)
        return self.basis

    @property
    def edges(self) -> EdgeBasis:
        """The basis, for orders that need it explicit; a rule of known size makes its edges now."""
        return self.counted.edges()

    @property
    def num_edges(self) -> int:
        """E, without making edges."""
        return self.counted.num_edges

    @property
    def num_source_pairs(self) -> int:
        """U_in, without making edges."""
        return self.counted.num_source_pairs

    @property
    def num_target_pairs(self) -> int:
        """U_out, without making edges."""
        return self.counted.num_target_pairs

    @property
    def has_values(self) -> bool:
        """Whether edges have values other than ones."""
        return self.basis.dtype is not None

    @property
    def of_heads(self) -> ValueOutput | None:
        """Θ as values and outputs of heads, if that is what it is."""
        return self.parameter if isinstance(self.parameter, ValueOutput) else None

    @property
    def is_identity(self) -> bool:
        """Whether Θ_k = I for every k, as in pooling."""
        mixture = self.mixture
        return mixture is not None and mixture.is_unit and mixture.constant == 1.0

    @property
    def unit(self) -> Mixture | None:
        """Θ as a mixture of the identity alone, Θ_k = c_k I, if that is what it is."""
        mixture = self.mixture
        return mixture if mixture is not None and mixture.is_unit else None

    @property
    def num_labels(self) -> int:
        """K."""
        return self.parameter.shape[0]

    @property
    def num_blocks(self) -> int:
        """G."""
        return self.parameter.shape[1]

    @property
    def in_channels(self) -> int:
        """P."""
        return self.parameter.shape[1] * self.parameter.shape[2]

    @property
    def out_channels(self) -> int:
        """Q."""
        return self.parameter.shape[1] * self.parameter.shape[3]

    @property
    def itemsize(self) -> int:
        """Bytes of a number."""
        return self.dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        """The type of Θ, which X and the basis have too."""
        return self.parameter.dtype

    @property
    def device(self) -> torch.device:
        """Where Θ is."""
        return self.parameter.device

    @property
    def gradients(self) -> tuple[bool, bool, bool]:
        """Whether a backward pass will want gradients of X, of Θ, and of the basis."""
        if not wants_gradients():
            return False, False, False
        x = self.x.value if isinstance(self.x, SparseFeatures) else self.x
        of_x = x is not None and x.requires_grad
        return of_x, self.parameter.requires_grad, self.basis.learns

    @property
    def has_features(self) -> bool:
        """Whether X is dense; otherwise only products with Θ exist."""
        return isinstance(self.x, Tensor) and self.x.is_floating_point()

    @property
    def narrows(self) -> bool:
        """Whether Θ comes first: it makes rows narrower, or there is nothing to propagate."""
        return not self.has_features or self.out_channels < self.in_channels

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes between the nodes and the channels of x."""
        return tuple(self.x.shape[1:-1]) if self.x is not None and self.has_features else ()

    @property
    def num_columns(self) -> int:
        """How many copies of the channels a batch makes."""
        return prod(self.batch)

    def transform(self) -> Tensor:
        """X Θ_k for every label: (M, K, *batch, Q)."""
        x = self.x
        if self.unit is not None and isinstance(x, Tensor) and self.has_features:
            return torch.einsum("m...p,k->mk...p", x, self.unit.coefficient[:, 0].to(x.dtype))
        theta = self.theta
        if isinstance(x, SparseFeatures):
            return x.transform(theta)
        num_labels, groups, rows, columns = theta.shape
        if x is None or not x.is_floating_point():
            # Row m of X Θ_k is a row of Θ_k; a full Θ, so that G = 1.
            table = theta[:, 0].transpose(0, 1)
            return table if x is None else table.index_select(0, x)
        if groups == 1:
            wide = theta[:, 0].permute(1, 0, 2).reshape(rows, num_labels * columns)
            product = (x @ by_column(wide, x)).unflatten(-1, (num_labels, columns))
        else:
            blocks = x.unflatten(-1, (groups, rows))
            product = torch.einsum("m...gp,kgpq->m...kgq", blocks, theta).flatten(-2)
        return product.movedim(-2, 1)

    def transform_label(self, label: int) -> Tensor:
        """X Θ_k for one label: (M, *batch, Q)."""
        one = Problem(self.basis, self.x, self.parameter.labels(label, label + 1))
        return one.transform().squeeze(1)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_k H_k Θ_k for H (N, K, *batch, P): (N, *batch, Q)."""
        if self.unit is not None:
            return torch.einsum("nk...p,k->n...p", h, self.unit.coefficient[:, 0].to(h.dtype))
        theta = self.theta
        num_labels, groups, rows, columns = theta.shape
        h = h.movedim(1, -2)
        if groups == 1:
            tall = theta.reshape(num_labels * rows, columns)
            h = h.flatten(-2)
            return h @ by_column(tall, h)
        blocks = h.unflatten(-1, (groups, rows))
        return torch.einsum("n...kgp,kgpq->n...gq", blocks, theta).flatten(-2)

    def collect_label(self, h: Tensor, label: int) -> Tensor:
        """H_k Θ_k for one label and H_k (N, *batch, P): (N, *batch, Q)."""
        one = Problem(self.basis, self.x, self.parameter.labels(label, label + 1))
        return one.collect(h.unsqueeze(1))


def by_column(matrix: Tensor, x: Tensor) -> Tensor:
    """The same matrix (P, Q), in memory by column where it is narrow, X has many rows, on a CPU.

    MKL's products of many rows with few columns are slow otherwise, and those of Θ's gradient
    still more, for which autograd looks at this layout: 500 to 7 channels take half the time.
    """
    if torch.compiler.is_compiling():  # no size of the data decides what a graph is
        return matrix
    few = x.numel() < _MANY * matrix.size(0)
    if few or matrix.size(1) > _NARROW or matrix.device.type != "cpu":
        return matrix
    return matrix.t().contiguous().t()
