"""Θ_h = V_h O_h as two factors: values of each head, then an output projection."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .forms import DenseTheta
from .theta import Theta, add_rows, autocast_pair


@dataclass(frozen=True)
class ValueOutput(Theta):
    """Θ_h = V_h O_h of rank V at most, so that a head is propagated with V channels, not Q.

    The output of head h is ``(Σ_m A_h[m, n] (X V_h + b_h)) O_h``. Without ``output`` the heads are
    concatenated: O_h is zero except for the identity in block h of its columns.

    Attributes:
        value: V (H, P, V).
        output: O (H, V, Q), or None to concatenate the heads: Q = H·V.
        adds: whether O_h is the identity for every head, so that heads are added up: Q = V.
        bias: b (H, V), or None. It is no part of Θ, but acts as one more channel of X that is 1.
        factor: a number by which the outputs of all heads are multiplied, not their values: 1 for a
            sum of heads, 1/H for a mean.
    """

    value: Tensor
    output: Tensor | None = None
    bias: Tensor | None = None
    adds: bool = False
    factor: float = 1.0

    @property
    def shape(self) -> torch.Size:
        heads, rows, width = self.value.shape
        columns = width if self.adds else heads * width
        columns = columns if self.output is None else self.output.size(2)
        return torch.Size((heads, 1, rows, columns))

    def form(self) -> Hashable:
        return self.shape, self.value.size(2), self.output is None, self.adds, self.bias is None

    @property
    def dtype(self) -> torch.dtype:
        return self.value.dtype

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def requires_grad(self) -> bool:
        parts = (self.value, self.output, self.bias)
        return any(part is not None and part.requires_grad for part in parts)

    def outputs(self) -> Tensor:
        """O (H, V, Q), as a tensor also where heads are concatenated or added up."""
        if self.output is not None:
            return self.output
        heads, _, width = self.value.shape
        columns = width if self.adds else heads * width
        place = torch.eye(columns, dtype=self.value.dtype, device=self.value.device)
        if self.adds:
            return place.expand(heads, width, width)
        return place.view(heads, width, heads * width)

    def full(self) -> Tensor:
        """Θ (H, 1, P, Q), without the bias."""
        product = self.value if self.adds else self.value @ self.outputs()
        return self._times_factor(product).unsqueeze(1)

    def full_bias(self) -> Tensor | None:
        """b_h O_h (H, 1, 1, Q): Θ_h of a channel of X that is 1; None without a bias."""
        if self.bias is None:
            return None
        return self._times_factor(self.bias.unsqueeze(1) @ self.outputs()).unsqueeze(1)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_h H_h O_h, or the concatenated heads, for (N, *batch, H, V): (N, *batch, Q)."""
        if self.adds:
            return self._times_factor(h.sum(-2))
        if self.output is None:
            return self._times_factor(h.flatten(-2))
        h, output = autocast_pair(h, self.output)
        return self._times_factor(h.flatten(-2) @ output.flatten(0, 1))

    def _times_factor(self, x: Tensor) -> Tensor:
        return x if self.factor == 1.0 else x * self.factor

    def scaled(self, factor: Tensor | float) -> ValueOutput:
        """c_h Θ_h and c_h b_h O_h, for ``factor`` (H,) or one number."""
        if not isinstance(factor, Tensor):
            return replace(self, factor=self.factor * factor)
        factor = factor.to(self.value.dtype)
        if self.output is not None:
            return replace(self, output=self.output * factor.view(-1, 1, 1))
        bias = None if self.bias is None else self.bias * factor.view(-1, 1)
        return replace(self, value=self.value * factor.view(-1, 1, 1), bias=bias)

    def labels(self, start: int, end: int) -> ValueOutput:
        """Θ_h for heads from ``start`` to ``end``, with all Q columns."""
        whole = end - start == self.value.size(0)
        output = self.output if whole or self.adds else self.outputs()[start:end]
        bias = None if self.bias is None else self.bias[start:end]
        return replace(self, value=self.value[start:end], output=output, bias=bias)

    def mixed(self, matrix: Tensor) -> Theta:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K), as full matrices."""
        if self.bias is None:
            return DenseTheta(self.full()).mixed(matrix)
        matrix = matrix.to(self.value.dtype)
        return self._recombined(lambda rows: torch.tensordot(matrix.t(), rows, dims=1))

    def gathered(self, label: Tensor, num_labels: int) -> Theta:
        """For each k of ``num_labels``, the sum of Θ_h with ``label[h] == k``, as full matrices."""
        if self.bias is None:
            return DenseTheta(self.full()).gathered(label, num_labels)
        return self._recombined(lambda rows: add_rows(rows, label, num_labels))

    def _recombined(self, combine: Callable[[Tensor], Tensor]) -> ValueOutput:
        """Combine the Θ_h, and likewise the b_h O_h, linearly, as full matrices."""
        full_bias = self.full_bias()
        bias = None if full_bias is None else combine(full_bias[:, 0, 0])
        return ValueOutput(combine(self.full()[:, 0]), bias=bias, adds=True)

    def expanded(self, size: tuple[int, ...]) -> Theta:
        return DenseTheta(self.full().expand(size))
