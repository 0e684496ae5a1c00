"""Powers of a transition matrix: Walk, and weighted sums of them, Diffusion and HighPass."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..basis.algebra import Stacked, selection
from ..basis.base import Basis
from ..basis.edge_products import REDUCTIONS, compose_edges, identity_edges, merge_parallel
from ..basis.edges import EdgeBasis, edge_basis
from ..basis.eye import Eye
from ..basis.polynomial import MONOMIAL, Polynomial
from ..equations import row
from ..errors import RefusedValue, unknown
from ..graph.graph import Graph
from ..graph.norm import check_norm, transition
from ..memo import constant
from .family import Family
from .options import check_powers

DIRECTIONS = ("forward", "backward", "both")
KINDS = ("ppr", "heat")
REMAINDERS = ("keep", "drop", "normalise")

_OF_A_PAIR = "powers=(0, 1) or one of these, direction='forward'"


@dataclass(frozen=True)
class Walk(Family):
    r"""Walks of every length up to L: the weight of a walk is the product of its edges' weights.

    .. math:: A_\ell[m, n] = \operatorname{aggr}_{\text{walks } m \to n \text{ of length }
        \ell} \prod_{e \in \text{walk}} w_e, \qquad \ell = 0, \dots, L

    With ``aggr='sum'`` this is the power T^ℓ of the transition matrix T, kept as a rule:

    - ``norm='source'``: T = D_out⁻¹W, as in the paper; weights that leave a node sum to one.
    - ``norm='target'``: T = W D_in⁻¹; weights that reach a node sum to one.
    - ``norm='sym'``: T = D^(−1/2) W D^(−1/2), as in GCN, TAGCN and SGC.
    - ``norm='both'``: T = D_out^(−1/2) W D_in^(−1/2), as in Dir-GNN.
    - ``norm=None``: T = W, the sum of path weights.

    ``direction='backward'`` walks against the edges; ``'both'`` has forward labels, then backward
    ones. Between two sets of nodes there are walks of length 0, on which target n sees source n for
    n < min(M, N) as in :class:`Identity`, and of length 1, along edges; ``powers`` excludes longer
    ones. ``Walk(L, norm='target', direction='both')`` is DCRNN's diffusion convolution
    Σ_ℓ (D_out⁻¹W)^ℓ X Θ_{ℓ,1} + (D_in⁻¹Wᵀ)^ℓ X Θ_{ℓ,2}: there a node collects along its out-edges,
    so its first sum has the backward labels here, its second the forward labels.

    References: section 3.3 of *Convolution is outer product*; the `"Diffusion Convolutional
    Recurrent Neural Network" <https://arxiv.org/abs/1707.01926>`_ paper, equation 2.

    Args:
        length (int): L, at most 10,000. K = L + 1 in one direction, unless ``powers`` selects
            fewer.
        norm (str, optional): T is W divided by the out-degrees for ``'source'``, by the in-degrees
            for ``'target'``, by the roots of both for ``'both'``, by those of the in-degrees at
            both ends for ``'sym'``, and W for ``None``. (default: ``'source'``)
        direction (str, optional): ``'forward'``, ``'backward'`` or ``'both'``.
            (default: ``'forward'``)
        aggr (str, optional): over the walks from m to n: ``'sum'``, ``'mean'``, ``'max'`` or
            ``'min'``. All but the sum make walks explicit, which can be many edges. Of equal walks
            the first takes the whole gradient of a maximum or minimum. (default: ``'sum'``)
        powers (tuple, optional): the lengths ℓ that have labels, all if ``None``.
            (default: ``None``)
        add_self_loops (bool, optional): add them before the norm. (default: ``False``)
        as_pyg (bool, optional): Whether edges are read as PyG's ``gcn_norm`` reads them, as in
            :class:`GCN`. (default: ``False``)

    Raises:
        ValueError: an option is unknown or out of range; when a basis is made, sources and targets
            are a pair and walks are longer than one step, backward, or with self-loops; or negative
            weights leave a sum to divide by that is not positive, or are given to max or min.
    """

    equation = "A_l = (D_out^-1 W)^l, l = 0..L"

    length: int = 2
    norm: str | None = "source"
    direction: str = "forward"
    aggr: str = "sum"
    powers: tuple[int, ...] | None = None
    add_self_loops: bool = False
    as_pyg: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_powers(self, length=0)
        check_norm(self.norm)
        if self.direction not in DIRECTIONS:
            raise RefusedValue(unknown("direction", self.direction, DIRECTIONS))
        if self.aggr not in REDUCTIONS:
            raise RefusedValue(unknown("aggr", self.aggr, REDUCTIONS))
        if self.powers is not None:
            object.__setattr__(self, "powers", tuple(self.powers))
            bad = [power for power in self.powers or () if not 0 <= power <= self.length]
            if bad or not self.powers:
                raise RefusedValue(
                    "powers of a walk must be lengths that it has",
                    f"some of [0, {self.length}]",
                    self.powers,
                )

    @property
    def kept(self) -> tuple[int, ...]:
        """The lengths that have labels."""
        return self.powers if self.powers is not None else tuple(range(self.length + 1))

    @property
    def labels(self) -> tuple[str, ...]:
        ways = ("forward", "backward") if self.direction == "both" else (self.direction,)
        return tuple(f"{way} walks of length {power}" for way in ways for power in self.kept)

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """The chosen powers of the transition matrix, in each direction."""
        if max(self.kept) > 1 or self.direction != "forward":
            edges.require_one_set("a walk of more than one step, or not forward,", _OF_A_PAIR)
        ways = {
            "forward": [edges],
            "backward": [edges.reversed()],
            "both": [edges, edges.reversed()],
        }[self.direction]
        parts = tuple([self._walks(way, dtype) for way in ways])
        return parts[0] if len(parts) == 1 else Stacked(parts)

    def _walks(self, edges: Graph, dtype: torch.dtype | None) -> Basis:
        """The powers of one direction, or its explicit walks."""
        if self.add_self_loops:
            edges = edges.but(only_sums=edges.only_sums and self.aggr == "sum")
        if self.aggr in ("max", "min"):
            edges.require_nonnegative(f"the {self.aggr} over walks")
        loops = self.add_self_loops, False, self.as_pyg
        step = edge_basis(transition(edges, self.norm, dtype, *loops))
        if self.aggr == "sum":
            walks = _powers(step, max(self.kept) + 1)
        else:
            length = min(self.length, 1) if edges.bipartite else self.length
            walks = explicit_walks(step.with_values(step.values(dtype)), length, self.aggr)
        return walks if self.powers is None else selection(walks, self.powers)


def _powers(step: EdgeBasis, count: int) -> Basis:
    """The first ``count`` powers of a matrix, as a rule if there are more than two."""
    if count > 2:
        return Polynomial(step, MONOMIAL, count)
    own = Eye(step.size, step.device)
    return own if count == 1 else Stacked((own, step))


def explicit_walks(step: EdgeBasis, length: int, aggr: str) -> EdgeBasis:
    """Walks of length 0 … L as explicit edges, the weights of parallel walks aggregated.

    A mean is the sum of the walks' weights divided by their number. Max and min are taken edge by
    edge, which is exact because weights are not negative.
    """
    if aggr == "mean":
        ones = step.with_values(torch.ones_like(step.values()))
        total, number = explicit_walks(step, length, "sum"), explicit_walks(ones, length, "sum")
        return total.with_values(total.values() / number.values())
    walks = [identity_edges(step.size, step.dtype, step.device)]
    if length:
        walks.append(merge_parallel(step.index, step.values(), step.size, aggr))
    while len(walks) <= length:
        walks.append(compose_edges(walks[-1], walks[1], aggr))
    return Stacked(tuple(walks)).edges()


# Weighted sums of powers --------------------------------------------------------------------------


def _weighted(step: Graph, dtype: torch.dtype | None, weights: tuple[float, ...]) -> Basis:
    """Σ_k θ_k T^k, one matrix, for the edges of T and weights θ."""
    basis = edge_basis(step)
    if basis.dtype is None:
        basis = basis.with_values(basis.values(dtype))
    mixing = constant((weights,), basis.dtype, basis.device)
    return Polynomial(basis, MONOMIAL, len(weights)).mix(mixing)


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
        check_powers(self, length=0)
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
        return _weighted(transition(edges, self.norm, dtype, *loops), dtype, self.coefficients)


def _times_log(power: int, number: float) -> float:
    """log(number^power), with 0⁰ = 1."""
    if power == 0:
        return 0.0
    return power * math.log(number) if number > 0 else -math.inf


@row("Filters", "ε I − Â", "2101.00797, equation 1; 2210.07606", option="`HighPass`")
@dataclass(frozen=True)
class HighPass(Family):
    r"""A node minus its neighbours, weighted by a norm, as one matrix.

    .. math:: A_0 = \epsilon I - \hat A

    with Â the normalised adjacency matrix of :class:`GCN`. With the default options it is the
    high-pass filter I − Â_rw or I − Â_sym of the `"Revisiting Heterophily For Graph Neural
    Networks" <https://arxiv.org/abs/2210.07606>`_ paper (ACM-GNN), whose Â has
    self-loops. ``HighPass(add_self_loops=False, epsilon=0.3)`` is that of the `"Beyond
    Low-frequency Information in Graph Convolutional Networks" <https://arxiv.org/abs/2101.00797>`_
    paper (FAGCN, equation 1), ε I − D^-1/2 A D^-1/2. It stays a rule: I has no edges.

    Args:
        norm (str, optional): ``'sym'``, ``'source'``, ``'target'``, ``'both'`` or ``None``, as in
            :class:`GCN`;
            ``'target'`` subtracts the mean of the neighbours. (default: ``'sym'``)
        add_self_loops (bool, optional): Whether Â has self-loops, added before the norm.
            (default: ``True``)
        epsilon (float, optional): ε. (default: ``1.0``)

    Raises:
        ValueError: ``norm`` is unknown, or ε is not finite; when a basis is made, sources and
            targets are a pair, or negative weights make a degree that is not positive.
    """

    labels = ("self minus neighbours",)
    equation = "A_0 = epsilon I - D^-1/2 (W + I) D^-1/2"

    norm: str | None = "sym"
    add_self_loops: bool = True
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_norm(self.norm)
        if not math.isfinite(self.epsilon):
            raise RefusedValue("epsilon of HighPass is a number", "finite", self.epsilon)

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """ε I − Â, as a weighted sum of the powers 0 and 1 of Â."""
        edges.require_one_set("a high-pass filter", "Relation(1, 'mean') with root_weight=True")
        step = transition(edges, self.norm, dtype, self.add_self_loops)
        return _weighted(step, dtype, (self.epsilon, -1.0))
