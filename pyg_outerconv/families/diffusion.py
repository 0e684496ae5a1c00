"""Diffusion: personalised PageRank and the heat kernel, as polynomials of a transition matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..basis.base import Basis
from ..basis.edges import edge_basis
from ..basis.polynomial import MONOMIAL, Polynomial
from ..errors import RefusedValue, unknown
from ..graph.graph import Graph
from ..graph.norm import check_norm, transition
from ..memo import constant
from .family import Family
from .options import check_least, check_powers

KINDS = ("ppr", "heat")
REMAINDERS = ("keep", "drop", "normalise")


@dataclass(frozen=True)
class Diffusion(Family):
    r"""The sum of walks of every length, with known weights, in one matrix.

    .. math:: A_0 = \sum_{k=0}^{L} \theta_k T^k, \qquad
        \theta_k = \alpha (1 - \alpha)^k \;\text{('ppr')} \quad\text{or}\quad
        \theta_k = e^{-t} \frac{t^k}{k!} \;\text{('heat')}

    with T the transition matrix of :class:`Walk`. It stays a rule: a recurrence of L sparse
    products, without any power of T, and one product with Θ. From the `"Diffusion Improves Graph
    Learning" <https://arxiv.org/abs/1911.05485>`_ paper, equation 1.

    The weights of all lengths add up to one. Of those beyond L, the ``remainder``

    - ``'keep'`` is added to the last power, θ_L = 1 − Σ_{k<L} θ_k: no mass is lost, and with
      ``kind='ppr'`` this is the recursion of the `"Predict then Propagate"
      <https://arxiv.org/abs/1810.05997>`_ paper (APPNP, equation 4) after L steps,
      Σ_{k<L} α(1−α)^k T^k + (1−α)^L T^L;
    - ``'drop'`` is left out: the first L + 1 terms of the series;
    - ``'normalise'`` is spread over all terms, which are divided by their sum.

    Args:
        kind (str or tuple, optional): ``'ppr'``, ``'heat'``, or the numbers θ_0, …, θ_L themselves,
            with which ``alpha``, ``t``, ``length`` and ``remainder`` are ignored.
            (default: ``'ppr'``)
        alpha (float, optional): α, the probability to return. (default: ``0.15``)
        t (float, optional): the time of diffusion. (default: ``5.0``)
        length (int, optional): L, at most 10,000. (default: ``10``)
        norm (str, optional): ``'sym'``, ``'source'``, ``'target'``, ``'both'`` or ``None``; see
            :class:`Walk`. (default: ``'sym'``)
        add_self_loops (bool, optional): add them before the norm. (default: ``True``)
        remainder (str, optional): the weights of lengths beyond L: ``'keep'`` adds them to that of
            the last power, ``'drop'`` leaves them out, ``'normalise'`` spreads them over all terms.
            (default: ``'keep'``)
        as_pyg (bool, optional): Whether edges are read as PyG's ``gcn_norm`` reads them, as in
            :class:`GCN`. (default: ``False``)

    Raises:
        ValueError: an option is unknown or out of range; when a basis is made, sources and targets
            are a pair, or negative weights leave a sum to divide by that is not positive.
    """

    equation = "A_0 = sum_k theta_k T^k, theta_k = alpha (1 - alpha)^k or exp(-t) t^k / k!"

    kind: str | tuple[float, ...] = "ppr"
    alpha: float = 0.15
    t: float = 5.0
    length: int = 10
    norm: str | None = "sym"
    add_self_loops: bool = True
    remainder: str = "keep"
    as_pyg: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.kind, str):
            object.__setattr__(self, "kind", tuple(self.kind))
            if not self.kind:
                raise RefusedValue("a diffusion needs a weight", "at least one", "none")
            if not all(map(math.isfinite, self.kind)):
                raise RefusedValue("weights of walks are numbers", "finite", self.kind)
        elif self.kind not in KINDS:
            raise RefusedValue(unknown("kind of diffusion", self.kind, KINDS))
        if not 0 < self.alpha <= 1:
            raise RefusedValue(
                "alpha must be a probability to return", "0 < alpha <= 1", self.alpha
            )
        if not (0 <= self.t < math.inf):
            raise RefusedValue("t is the time of a diffusion", "0 <= t < infinity", self.t)
        check_least(self, length=0)
        check_powers(self, "length")
        check_norm(self.norm)
        if self.remainder not in REMAINDERS:
            raise RefusedValue(unknown("remainder", self.remainder, REMAINDERS))

    @property
    def coefficients(self) -> tuple[float, ...]:
        """θ_0, …, θ_L."""
        if not isinstance(self.kind, str):
            return self.kind
        logs = [self._log_weight(k) for k in range(self.length + 1)]
        if self.remainder == "normalise":  # the terms themselves may underflow
            highest = max(logs)
            terms = [math.exp(log - highest) for log in logs]
            total = math.fsum(terms)
            return tuple(term / total for term in terms)
        terms = [math.exp(log) for log in logs]
        if self.remainder == "keep":
            terms[-1] = 1 - math.fsum(terms[:-1])
        return tuple(terms)

    def _log_weight(self, k: int) -> float:
        """The logarithm of θ_k in the infinite series."""
        if self.kind == "ppr":
            return math.log(self.alpha) + _times_log(k, 1 - self.alpha)
        return _times_log(k, self.t) - self.t - math.lgamma(k + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        kind = self.kind if isinstance(self.kind, str) else "weighted"
        return (f"{kind} walks of length 0 to {len(self.coefficients) - 1}",)

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """A weighted sum of the powers of T, as a rule."""
        edges.require_one_set("a diffusion", "Walk(1, powers=(1,))")
        loops = self.add_self_loops, False, self.as_pyg
        step = edge_basis(transition(edges, self.norm, dtype, *loops))
        weights = self.coefficients
        if step.dtype is None:
            step = step.with_values(step.values(dtype))
        mixing = constant((weights,), step.dtype, edges.device)
        return Polynomial(step, MONOMIAL, len(weights)).mix(mixing)


def _times_log(power: int, number: float) -> float:
    """log(number^power), with 0⁰ = 1."""
    if power == 0:
        return 0.0
    return power * math.log(number) if number > 0 else -math.inf
