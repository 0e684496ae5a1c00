"""The layer that a composition of layers is: one convolution, and what inner biases add."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Parameter

from ..basis import Basis
from ..errors import RefusedValue, refusal
from ..families import Family
from ..theta.bias import add_product
from .outer_conv import OuterConv
from .prepare import split_input

_kept: WeakKeyDictionary[Basis, dict[Any, Tensor]] = WeakKeyDictionary()
"""What tails of bases pass on of a one at each node."""


class ComposedConv(OuterConv):
    r"""A convolution over a product of bases, as :func:`~pyg_outerconv.nn.compose` makes it.

    .. math::
        \mathbf{Y} = \sum_{k} \mathbf{C}_{k}^{\top} \mathbf{X} \mathbf{\Theta}_{k}
        + \sum_s \sum_j (\mathbf{B}^{(s)\top}_{j} \mathbf{1}) \mathbf{c}^{(s)}_{j}
        + \mathbf{1} \mathbf{b}^{\top}

    where :math:`\mathbf{B}^{(s)}` is the product of the last :math:`s` factors of
    :math:`\mathbf{C}`, and :math:`\mathbf{c}^{(s)}` what the bias became that was added before
    them: under each label a row of Θ for a source that is constantly one. What the factors make of
    that source is kept with the basis, unless it learns.

    The layer takes one x, for both ends are one set of nodes.

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
        """Add c (K, Q) for a one that the last factors pass on.

        Args:
            num_factors: s, of how many factors.
            constant: a row for each label of their product.
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
        """(N, K) the sums B_jᵀ 1 over the last factors of a basis."""
        if basis.learns or torch.compiler.is_compiling():
            return self._sums(basis, number, dtype)
        kept = _kept.setdefault(basis, {})
        if (number, dtype) not in kept:
            with torch.inference_mode(False), torch.no_grad():  # to serve training too
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
            sums = part.propagate(sums).transpose(1, 2).flatten(1)  # labels so far run slower
        return sums


def constants_of(conv: OuterConv) -> dict[int, Tensor]:
    """The inner biases of a layer, by the number of factors that pass them on."""
    if not isinstance(conv, ComposedConv):
        return {}
    return {int(number): constant for number, constant in conv.constants.items()}
