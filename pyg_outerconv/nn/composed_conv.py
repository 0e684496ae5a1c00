"""ComposedConv: one convolution over a product of bases, with the biases of inner layers."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis import Basis
from ..errors import RefusedValue, refusal
from ..families import Family
from ..theta.theta import add_product
from .inputs import split_input
from .outer_conv import OuterConv

_column_sums: WeakKeyDictionary[Basis, dict[Any, Tensor]] = WeakKeyDictionary()
"""Cached sums B_jᵀ 1 for the last factors of each basis."""


class ComposedConv(OuterConv):
    r"""A convolution over a product of bases, as :func:`~pyg_outerconv.nn.compose` makes it.

    .. math::
        \mathbf{Y} = \sum_{k} \mathbf{C}_{k}^{\top} \mathbf{X} \mathbf{\Theta}_{k}
        + \sum_s \sum_j (\mathbf{B}^{(s)\top}_{j} \mathbf{1}) \mathbf{c}^{(s)}_{j}
        + \mathbf{1} \mathbf{b}^{\top}

    where :math:`\mathbf{B}^{(s)}` is the product of the last :math:`s` factors of
    :math:`\mathbf{C}`, and :math:`\mathbf{c}^{(s)}` (K, Q) the bias that was added before these
    factors, times the matrices of the layers after it. The sums
    :math:`\mathbf{B}^{(s)\top}_{j} \mathbf{1}` are cached with the basis, unless it requires
    gradients.

    Sources and targets are one set of nodes, so the layer takes a single x.

    Args:
        in_channels, out_channels, family, **kwargs: as of :class:`OuterConv`.

    Raises:
        TypeError, ValueError: see :class:`OuterConv`; and ``x`` is a pair, or a given basis is no
            product.
    """

    def __init__(
        self, in_channels: int, out_channels: int, family: Family | str, **kwargs: Any
    ) -> None:
        super().__init__(in_channels, out_channels, family, **kwargs)
        self.constants = torch.nn.ParameterDict()

    def add_constant(self, num_factors: int, constant: Parameter) -> None:
        """Add an inner bias c (K, Q), propagated by the last s factors.

        Args:
            num_factors: s.
            constant: c, with a row for each label of the product of these factors.
        """
        self.constants[str(num_factors)] = constant

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module; inner biases become zero."""
        super().reset_parameters()
        for constant in getattr(self, "constants", {}).values():
            torch.nn.init.zeros_(constant)

    def forward(self, x: Any, edge_index: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        r"""Runs the layer; see :class:`OuterConv`."""
        if not split_input(x, self.flow).is_single:
            raise RefusedValue(
                refusal("a composition reads nodes that are sources and targets", "one x", "a pair")
            )
        basis = self.basis(x, edge_index, *args, **kwargs)
        out = super().forward(x, basis)
        own = not self._runs_by_messages() and not self._calls_fused_step()
        for number, constant in constants_of(self).items():
            sums = self._passed_on(basis, number, constant.dtype)
            out = add_product(out, sums, constant, own)
        return out

    def _passed_on(self, basis: Basis, number: int, dtype: torch.dtype) -> Tensor:
        """The sums B_jᵀ 1 for the last factors of a basis, (N, K)."""
        if basis.learns or torch.compiler.is_compiling():
            return self._sums(basis, number, dtype)
        kept = _column_sums.setdefault(basis, {})
        if (number, dtype) not in kept:
            with torch.inference_mode(False), torch.no_grad():  # usable in training later
                kept[number, dtype] = self._sums(basis, number, dtype)
        return kept[number, dtype]

    def _sums(self, basis: Basis, number: int, dtype: torch.dtype) -> Tensor:
        known, parts = len(self.family.factors()), basis.factors()
        if len(parts) != known:
            raise RefusedValue(
                refusal("inner biases pass through the last factors of a product", known, basis)
            )
        sums = torch.ones(parts[-number].size[0], 1, dtype=dtype, device=basis.device)
        for part in parts[-number:]:
            # The labels of a later factor are the inner index.
            sums = part.propagate(sums).transpose(1, 2).flatten(1)
        return sums


def constants_of(conv: OuterConv) -> dict[int, Tensor]:
    """The inner biases of a layer, by the number of factors that propagate them."""
    if not isinstance(conv, ComposedConv):
        return {}
    return {int(number): constant for number, constant in conv.constants.items()}
