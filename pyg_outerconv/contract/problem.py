"""One contraction problem: a leaf of the basis, the input, and the leaf's slice of Θ."""

from __future__ import annotations

from math import prod
from typing import TypeVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..graph.sparse_features import as_matrix
from ..graph.sparse_matrix import Features, SparseMatrix
from ..kernels.index_checks import has_numbers
from ..kernels.mode import Mode, mode
from ..theta import Theta, ThetaValue

LINEAR = ("sum", "mean")  # reductions that Θ may come before

_NONE = False, False, False
AnyBasis = TypeVar("AnyBasis", bound=Basis)


class Problem:
    """Y = Σ_k A_kᵀ X Θ_k for a basis that is a leaf.

    Attributes:
        basis: K matrices of size M × N: explicit edges, a polynomial, the identity, and so on.
        x: (M, *batch, P), or (M, P) if sparse; integers (M,), the row of Θ_k that each source
            takes; or None, which is X = I: source m takes row m.
        parameter: Θ (K, G, P/G, Q/G), dense, a mixture, or values and outputs of heads: Θ_k is
            block-diagonal with G blocks; G = 1 is a full matrix.
        aggr: over the inputs m of each label: 'sum', 'mean', 'max' or 'min'.
        label_aggr: over the labels k that reach a target: 'sum', 'max' or 'min'.
        bias: (Q,) to be added to every row of Y, by orders with ``adds_bias``, else by
            :func:`.contract`.
        values: (M, *batch, H, V) the values X V_h + b_h, if Θ is of heads and they are computed.
        mode: what surrounds the call.
        few: see :class:`.Plan`; None where each order asks by itself.
    """

    few: int | None = None

    def __init__(
        self,
        basis: Basis,
        x: Features,
        parameter: ThetaValue,
        aggr: str = "sum",
        label_aggr: str = "sum",
        bias: Tensor | None = None,
        values: Tensor | None = None,
        here: Mode | None = None,
    ) -> None:
        self.basis, self.mode = basis, here or mode()
        self.x = x if type(x) is Tensor else as_matrix(x)
        self.parameter = Theta(parameter) if isinstance(parameter, Tensor) else parameter
        self.aggr, self.label_aggr = aggr, label_aggr
        self.bias, self.values = bias, values

    def of(self, kind: type[AnyBasis]) -> AnyBasis:
        """The basis, with its type narrowed to ``kind``."""
        assert isinstance(self.basis, kind)
        return self.basis

    @property
    def features(self) -> Tensor:
        """X as a dense tensor (M, *batch, P), for orders that need one."""
        assert isinstance(self.x, Tensor)
        return self.x

    @property
    def theta(self) -> Tensor:
        """Θ as a tensor (K, G, P/G, Q/G); computed anew if Θ is a mixture or of heads."""
        return self.parameter.full()

    @property
    def mixture(self) -> Theta | None:
        """Θ if it is a mixture, else None."""
        return None if self.parameter.coefficient is None else self.parameter

    @property
    def counted(self) -> EdgeBasis | ImplicitEdges:
        """The basis as one whose edges can be counted without making them."""
        assert isinstance(self.basis, EdgeBasis | ImplicitEdges)
        return self.basis

    @property
    def edges(self) -> EdgeBasis:
        """The basis as explicit edges; a basis with implicit edges makes them now."""
        return self.counted.edges()

    @property
    def num_edges(self) -> int:
        """E."""
        return self.counted.num_edges

    @property
    def num_source_pairs(self) -> int:
        """U_in: distinct (source, label) pairs with edges."""
        return self.counted.num_source_pairs

    @property
    def num_target_pairs(self) -> int:
        """U_out: distinct (target, label) pairs with edges."""
        return self.counted.num_target_pairs

    @property
    def has_numbers(self) -> bool:
        """Whether numbers can be looked at: not under a compiler, nor those of fake tensors."""
        return has_numbers(self.x if isinstance(self.x, Tensor) else None)

    @property
    def is_one_each(self) -> bool:
        """Whether each (target, label) pair has at most one edge; False without numbers."""
        return self.has_numbers and self.num_edges == self.num_target_pairs

    @property
    def has_values(self) -> bool:
        """Whether edges have stored values; without, all are 1."""
        return self.basis.dtype is not None

    @property
    def of_heads(self) -> Theta | None:
        """Θ if it is values and outputs of heads, else None."""
        return None if self.parameter.heads is None else self.parameter

    @property
    def factor(self) -> float | None:
        """The number c if Θ_k = c I for every k, as in pooling, else None."""
        mixture = self.mixture
        return mixture.constant if mixture is not None and mixture.is_unit else None

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
        """Bytes of one number of Θ's dtype."""
        return self.dtype.itemsize

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of Θ, which X and the basis share."""
        return self.parameter.dtype

    @property
    def device(self) -> torch.device:
        """The device of Θ, which X and the basis share."""
        return self.parameter.device

    @property
    def gradients(self) -> tuple[bool, bool, bool]:
        """Whether gradients are required of X, of Θ, and of the values of the basis."""
        if not self.mode.wants_gradients:
            return _NONE
        x = self.x.value if isinstance(self.x, SparseMatrix) else self.x
        of_x = x is not None and x.requires_grad
        return of_x, self.parameter.requires_grad, self.basis.learns

    @property
    def has_features(self) -> bool:
        """Whether X is dense; sparse X, indices and None can only be multiplied with Θ."""
        return isinstance(self.x, Tensor) and self.x.is_floating_point()

    @property
    def narrows(self) -> bool:
        """Whether Θ comes first: Q < P, or there are no dense features to propagate."""
        return not self.has_features or self.out_channels < self.in_channels

    @property
    def batch(self) -> tuple[int, ...]:
        """The dimensions of x between nodes and channels."""
        return tuple(self.x.shape[1:-1]) if self.x is not None and self.has_features else ()

    @property
    def num_columns(self) -> int:
        """The number of items of the batch."""
        return prod(self.batch)

    def transform(self) -> Tensor:
        """X Θ_k for every label: (M, K, *batch, Q)."""
        x = self.x
        if isinstance(x, SparseMatrix):
            return x.transform(self.theta)
        if x is not None and x.is_floating_point():
            return self.parameter.transform(x)
        # Row m of X Θ_k is a row of Θ_k; check_shapes makes sure that G = 1.
        table = self.theta[:, 0].transpose(0, 1)
        return table if x is None else table.index_select(0, x)

    def transform_label(self, label: int) -> Tensor:
        """X Θ_k for one label: (M, *batch, Q)."""
        one = Problem(self.basis, self.x, self.parameter.labels(label, label + 1))
        return one.transform().squeeze(1)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_k H_k Θ_k for H (N, K, *batch, P): (N, *batch, Q)."""
        return self.parameter.combine(h.flatten(0, 1), h.size(0))

    def collect_label(self, h: Tensor, label: int) -> Tensor:
        """H_k Θ_k for one label and H_k (N, *batch, P): (N, *batch, Q)."""
        return self.parameter.labels(label, label + 1).combine(h, h.size(0))
