"""Predictions corrected and smoothed along the edges, when training has ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data

from ...basis import Basis
from ...families import GCN
from ..settings import Settings, Smoothing, smoothing_of

SMALLEST = 1e-12  # a share of a class, so that its logarithm is a number
MOST_SCALED = 1000


@dataclass(frozen=True)
class CorrectAndSmooth:
    """Post-processing of logits, without parameters, from the `"Combining Label Propagation And
    Simple Models Out-performs Graph Neural Networks" <https://arxiv.org/abs/2010.13993>`_ paper.

    With Â the normalised adjacency matrix without self-loops, the errors E of the training nodes
    are spread in steps E ← α₁ Âᵀ E + (1 − α₁) E₀, and γ E is added to the shares Z of the classes
    (equations 4 and 5). Then training nodes take their classes, and all shares are spread in the
    same way with α₂ (equation 6). γ is a number, by which the errors of training nodes stay as they
    are, or found for each node, as in the paper's "Autoscale".

    Args:
        numbers: the steps, α₁, α₂ and γ.
        basis: Â, (1, N, N).
    """

    numbers: Smoothing
    basis: Basis

    @staticmethod
    def of(data: Data, settings: Settings) -> CorrectAndSmooth | None:
        """That of the settings, on a graph; None where they have none."""
        numbers = smoothing_of(settings.correct_and_smooth)
        if numbers is None:
            return None
        basis = GCN(add_self_loops=False).basis_of(data).to(settings.device)
        return CorrectAndSmooth(numbers, basis)

    @torch.no_grad()
    def __call__(self, logits: Tensor, nodes: Tensor, classes: Tensor) -> Tensor:
        """Logits (N, C), the logarithms of shares, of logits (N, C).

        Args:
            nodes: (T,) the training nodes, the only ones whose ``classes`` (T,) are read.
        """
        shares = self._smoothed(self._corrected(logits.softmax(-1), nodes, classes), nodes, classes)
        return shares.clamp(min=SMALLEST).log()

    def _corrected(self, shares: Tensor, nodes: Tensor, classes: Tensor) -> Tensor:
        steps, alpha = self.numbers.correction_steps, self.numbers.correction_alpha
        scale, error = self.numbers.scale, torch.zeros_like(shares)
        own = F.one_hot(classes, shares.size(1)).to(shares) - shares[nodes]
        error[nodes] = own
        spread = error
        for _ in range(steps):
            spread = self._step(spread, error, alpha)
            if scale is None:
                spread.clamp_(-1, 1)
            else:
                spread[nodes] = own
        if scale is not None:
            return shares + scale * spread
        scales = own.abs().sum() / nodes.numel() / spread.abs().sum(dim=1, keepdim=True)
        scales[~(scales <= MOST_SCALED)] = 1.0  # of a node that no error reaches
        return shares + scales * spread

    def _smoothed(self, shares: Tensor, nodes: Tensor, classes: Tensor) -> Tensor:
        shares = shares.clone()
        shares[nodes] = F.one_hot(classes, shares.size(1)).to(shares)
        spread = shares
        for _ in range(self.numbers.smoothing_steps):
            spread = self._step(spread, shares, self.numbers.smoothing_alpha).clamp_(0, 1)
        return spread

    def _step(self, spread: Tensor, first: Tensor, alpha: float) -> Tensor:
        """α Âᵀ E + (1 − α) E₀."""
        return self.basis.propagate(spread)[:, 0].mul(alpha).add_(first, alpha=1 - alpha)
