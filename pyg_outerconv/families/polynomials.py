"""Polynomials of a graph: the classical orthogonal ones of its adjacency matrix or Laplacian."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
import torch

from ..basis.base import Basis
from ..basis.edges import EdgeBasis, edge_basis
from ..basis.polynomial import CHEBYSHEV, MONOMIAL, Factors, Polynomial, Recurrence
from ..equations import row
from ..errors import RefusedValue, unknown
from ..graph.graph import Graph
from ..graph.norm import check_norm, transition
from ..memo import cached_property, constant
from .family import Family
from .options import check_powers

MATRICES = ("adjacency", "laplacian")
MOST_NODES = 128  # of an interpolation, which mixes as many polynomials of as many terms

_TABLE = "Polynomials"


@dataclass(frozen=True)
class GraphPolynomials(Family):
    r"""Polynomials of one matrix S of a graph, kept as a rule: K − 1 sparse products.

    .. math:: A_k = p_k(S), \qquad k = 0, \dots, K - 1

    S is the adjacency matrix Â after its norm, or of the Laplacian L = I − Â. With a norm the
    eigenvalues of Â are in [−1, 1] and those of L in [0, 2], so that polynomials on [−1, 1] take
    L − I in the place of L. Directed edges make an Â that is not symmetric, of which p_k is the
    same polynomial.

    Args:
        num_terms (int): K, one more than the highest degree; at most 10,000.
        of (str, optional): ``'adjacency'`` or ``'laplacian'``. (default: ``'adjacency'``)
        norm (str, optional): Â is W divided by the roots of the degrees at both ends for ``'sym'``
            and ``'both'``, by the degrees of sources or of targets for ``'source'`` and
            ``'target'`` (random walks), and W for ``None``, as in :class:`GCN`.
            (default: ``'sym'``)
        add_self_loops (bool, optional): Whether Â has self-loops, added before the norm.
            (default: ``False``)

    Raises:
        ValueError: an option is unknown or out of range; when a basis is made, sources and targets
            are a pair, or negative weights leave a sum to divide by that is not positive.
    """

    symbol = "p_{}"  # with k in the place of {}

    num_terms: int = 3
    of: str = field(default="adjacency", kw_only=True)
    norm: str | None = field(default="sym", kw_only=True)
    add_self_loops: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_powers(self, num_terms=1)
        check_norm(self.norm)
        if self.of not in MATRICES:
            raise RefusedValue(unknown("matrix of a graph", self.of, MATRICES))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.symbol.format(k)} of the {self.of}" for k in range(self.num_terms))

    def operator(self, edges: Graph, dtype: torch.dtype | None) -> EdgeBasis:
        """Â."""
        edges.require_one_set("a polynomial of a matrix", "Walk(1) or Relation(1)")
        operator = edge_basis(transition(edges, self.norm, dtype, self.add_self_loops))
        return (
            operator if operator.dtype is not None else operator.with_values(operator.values(dtype))
        )


@dataclass(frozen=True)
class OneRecurrence(GraphPolynomials):
    """Polynomials of one recurrence of three terms, whose numbers are known."""

    @abstractmethod
    def step(self, k: int) -> Factors:
        """α, β and γ of p_k(s) = (α s + β) p_{k−1}(s) − γ p_{k−2}(s), for k ≥ 1 and p_{−1} = 0."""

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of p_k(S) in Â."""
        name = type(self).__name__.lower()
        whole = Recurrence.of(name, self.step, self.num_terms)
        return whole.at(-1.0, 0.0, self.num_terms) if self.of == "laplacian" else whole

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """p_0(S), …, p_{K−1}(S), as a rule."""
        return Polynomial.of(self.operator(edges, dtype), self.recurrence, self.num_terms)


@row(_TABLE, "Â^k, or (I − Â)^k", "Chien et al., *GPR-GNN* (2006.07988), section 3")
@dataclass(frozen=True)
class Monomial(OneRecurrence):
    r"""Powers of the adjacency matrix or of the Laplacian.

    .. math:: A_k = \hat A^k \quad\text{or}\quad A_k = (I - \hat A)^k

    With ``theta='basis-decomposed(num_bases=1)'`` and self-loops this is the generalised PageRank
    of the `"Adaptive Universal Generalized PageRank Graph Neural Network"
    <https://arxiv.org/abs/2006.07988>`_ paper (GPR-GNN, section 3): one number γ_k for each power
    of Â, which begin as those of personalised PageRank, γ_k = α(1 − α)^k with α = 0.1 and
    γ_{K−1} = (1 − α)^{K−1}. :class:`Walk` has powers too, of walks in both directions.

    Args:
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_k = S^k, k = 0..K-1"
    symbol = "power {}"

    @property
    def initial_coefficients(self) -> tuple[float, ...] | None:
        if self.of == "laplacian":
            return None
        weights = [0.1 * 0.9**k for k in range(self.num_terms)]
        return (*weights[:-1], 0.9 ** (self.num_terms - 1))

    def step(self, k: int) -> Factors:
        return 1.0, 0.0, 0.0

    @cached_property
    def recurrence(self) -> Recurrence:
        return MONOMIAL.at(-1.0, 1.0, self.num_terms) if self.of == "laplacian" else MONOMIAL


@row(
    _TABLE,
    "T_k(Â)",
    "Defferrard et al., *ChebNet* (1606.09375), section 2.1, on Â; `Chebyshev` has λ_max",
)
@dataclass(frozen=True)
class ChebyshevFirst(OneRecurrence):
    r"""Chebyshev polynomials of the first kind, T_k(cos t) = cos(k t).

    .. math:: T_k(s) = 2 s \, T_{k-1}(s) - T_{k-2}(s), \qquad T_0 = 1, \; T_1 = s

    They are orthogonal with the weight (1 − s²)^(−1/2). :class:`Chebyshev` has them of a Laplacian
    that is rescaled by its largest eigenvalue, as in ChebNet.

    Args:
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_k = T_k(S), k = 0..K-1"
    symbol = "T_{}"

    def step(self, k: int) -> Factors:
        return CHEBYSHEV.factors(k)


@row(_TABLE, "U_k(Â)", "Szegő, *Orthogonal Polynomials*, section 1.12")
@dataclass(frozen=True)
class ChebyshevSecond(OneRecurrence):
    r"""Chebyshev polynomials of the second kind, U_k(cos t) = sin((k + 1) t) / sin(t).

    .. math:: U_k(s) = 2 s \, U_{k-1}(s) - U_{k-2}(s), \qquad U_0 = 1, \; U_1 = 2 s

    They are orthogonal with the weight (1 − s²)^(1/2) (Szegő, *Orthogonal Polynomials*, section
    1.12).

    Args:
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_k = U_k(S), k = 0..K-1"
    symbol = "U_{}"

    def step(self, k: int) -> Factors:
        return 2.0, 0.0, float(k > 1)


@row(_TABLE, "P_k(Â)", "Szegő, *Orthogonal Polynomials*, section 4.5, a = b = 0")
@dataclass(frozen=True)
class Legendre(OneRecurrence):
    r"""Legendre polynomials, which are orthogonal on [−1, 1] with the weight 1.

    .. math:: k P_k(s) = (2 k - 1) \, s \, P_{k-1}(s) - (k - 1) \, P_{k-2}(s)

    (Szegő, *Orthogonal Polynomials*, section 4.5, for a = b = 0); one of the bases that the `"How
    Powerful are Spectral Graph Neural Networks" <https://arxiv.org/abs/2205.11172>`_ paper
    compares.

    Args:
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_k = P_k(S), k = 0..K-1"
    symbol = "P_{}"

    def step(self, k: int) -> Factors:
        return (2 * k - 1) / k, 0.0, (k - 1) / k


@row(_TABLE, "C_k^(λ)(Â)", "Szegő, *Orthogonal Polynomials*, equation 4.7.17")
@dataclass(frozen=True)
class Gegenbauer(OneRecurrence):
    r"""Gegenbauer polynomials, which are orthogonal with the weight (1 − s²)^(λ − 1/2).

    .. math:: k C_k(s) = 2 (k + \lambda - 1) \, s \, C_{k-1}(s) - (k + 2 \lambda - 2) \, C_{k-2}(s)

    (Szegő, *Orthogonal Polynomials*, equation 4.7.17). λ = 1/2 is :class:`Legendre`, λ = 1
    :class:`ChebyshevSecond`.

    Args:
        lam (float, optional): λ, greater than −1/2 and not 0. (default: ``1.0``)
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: λ is out of range; or see :class:`GraphPolynomials`.
    """

    equation = "A_k = C_k^(lam)(S), k = 0..K-1"
    symbol = "C_{}"

    lam: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not -0.5 < self.lam < math.inf or self.lam == 0:
            rule = "lam is the exponent of a weight, plus 1/2"
            raise RefusedValue(rule, "lam > -1/2, finite and not 0", self.lam)

    def step(self, k: int) -> Factors:
        lam = self.lam
        return 2 * (k + lam - 1) / k, 0.0, (k + 2 * lam - 2) / k if k > 1 else 0.0


@row(
    _TABLE,
    "P_k^(a,b)(Â)",
    "Wang & Zhang, *JacobiConv* (2205.11172); Szegő, equation 4.5.1",
)
@dataclass(frozen=True)
class Jacobi(OneRecurrence):
    r"""Jacobi polynomials, which are orthogonal with the weight (1 − s)^a (1 + s)^b.

    .. math:: P_0 = 1, \quad P_1(s) = \tfrac{a - b}{2} + \tfrac{a + b + 2}{2} s, \quad
        P_k(s) = (\alpha_k s + \beta_k) P_{k-1}(s) - \gamma_k P_{k-2}(s)

    .. math:: \alpha_k = \tfrac{(2k + a + b)(2k + a + b - 1)}{2k(k + a + b)}, \;
        \beta_k = \tfrac{(2k + a + b - 1)(a^2 - b^2)}{2k(k + a + b)(2k + a + b - 2)}, \;
        \gamma_k = \tfrac{(k + a - 1)(k + b - 1)(2k + a + b)}{k(k + a + b)(2k + a + b - 2)}

    From the `"How Powerful are Spectral Graph Neural Networks" <https://arxiv.org/abs/2205.11172>`_
    paper (JacobiConv), which chooses a and b by validation; Szegő, *Orthogonal Polynomials*,
    equation 4.5.1. a = b = 0 is :class:`Legendre`. With ``theta='channelwise'`` a layer is a linear
    map and a filter Σ_k c_kq P_k for each of its channels, as there. Its c_kq begin as the paper's
    code has them: P_k is multiplied by (γ' tanh η)^k, with γ' = η = 1. Learning η too would reach
    no other filters.

    Args:
        a (float, optional): the exponent of 1 − s, greater than −1. (default: ``1.0``)
        b (float, optional): the exponent of 1 + s, greater than −1. (default: ``1.0``)
        num_terms, of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: a or b is out of range; or see :class:`GraphPolynomials`.
    """

    equation = "A_k = P_k^(a,b)(S), k = 0..K-1"
    symbol = "P_{}^(a,b)"

    a: float = 1.0
    b: float = 1.0

    @property
    def initial_coefficients(self) -> tuple[float, ...]:
        return tuple(math.tanh(1.0) ** k for k in range(self.num_terms))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("a", "b"):
            value = getattr(self, name)
            if not -1 < value < math.inf:
                rule = f"{name} of Jacobi is the exponent of a weight"
                raise RefusedValue(rule, f"{name} > -1, finite", value)

    def step(self, k: int) -> Factors:
        a, b = self.a, self.b
        if k == 1:
            return (a + b + 2) / 2, (a - b) / 2, 0.0
        n = 2 * k + a + b
        divisor = 2 * k * (k + a + b) * (n - 2)
        return (
            n * (n - 1) * (n - 2) / divisor,
            (n - 1) * (a * a - b * b) / divisor,
            2 * (k + a - 1) * (k + b - 1) * n / divisor,
        )


@dataclass(frozen=True)
class InterpolatedPolynomials(OneRecurrence):
    r"""Polynomials of one degree that are known by their values at the Chebyshev nodes.

    .. math:: A_j = \sum_k C_{jk} T_k(S), \quad
        C_{jk} = \tfrac{2 - \delta_{k0}}{K} \sum_i p_j(t_i) T_k(t_i), \quad
        t_i = -\cos\left(\tfrac{i + 1/2}{K} \pi\right)

    A polynomial of degree K − 1 is the sum of the T_k that has its values at K nodes, so that all
    of them are one recurrence, whose labels are mixed: K − 1 sparse products.

    Args:
        num_terms (int): K, one more than the degree; at most 128.
        of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    of: str = field(default="laplacian", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_terms > MOST_NODES:
            rule = f"num_terms of {type(self).__name__} is bounded"
            raise RefusedValue(rule, f"<= {MOST_NODES}", self.num_terms)

    @abstractmethod
    def values(self, nodes: list[float]) -> list[list[float]]:
        """p_j(t_i) of each label j, at the nodes t_0, t_1, …"""

    def step(self, k: int) -> Factors:
        return CHEBYSHEV.factors(k)

    @property
    def initial_coefficients(self) -> tuple[float, ...]:
        return (1.0,) * self.num_terms

    @cached_property
    def mixing(self) -> tuple[tuple[float, ...], ...]:
        """C (K, K)."""
        count = self.num_terms
        angles = np.pi * (np.arange(count, 0, -1) - 0.5) / count
        terms = np.cos(np.arange(count)[:, None] * angles)  # T_k(t_i)
        halved = np.where(np.arange(count) == 0, 1, 2) / count
        mixing = halved * (np.array(self.values(np.cos(angles).tolist())) @ terms.T)
        return tuple(map(tuple, mixing.tolist()))

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> Basis:
        """The mixed polynomials, as a rule."""
        basis = super().basis_on(edges, dtype)
        return basis.mix(constant(self.mixing, basis.dtype, basis.device))


@row(
    _TABLE,
    "(n choose j) ((2I − L)/2)^(n−j) (L/2)^j, n = K − 1",
    "He et al., *BernNet* (2106.10994), section 3",
)
@dataclass(frozen=True)
class Bernstein(InterpolatedPolynomials):
    r"""Bernstein polynomials of the Laplacian, whose coefficients are values of the filter.

    .. math:: A_j = \frac{1}{2^n} \binom{n}{j} (2I - L)^{n - j} L^j, \qquad
        j = 0, \dots, n = K - 1

    From the `"BernNet: Learning Arbitrary Graph Spectral Filters via Bernstein Approximation"
    <https://arxiv.org/abs/2106.10994>`_ paper (section 3): a filter Σ_j θ_j A_j with θ_j = h(2j/n)
    approaches h on [0, 2], and is not negative if no θ_j is. With
    ``theta='basis-decomposed(num_bases=1)'`` a layer has these θ_j, which begin as ones, the filter
    I; the paper keeps them from below zero by a ReLU, which is not here. BernNet takes
    n²/2 sparse products for them, the recurrence here n.

    Args:
        num_terms (int): K = n + 1; at most 128.
        of (str, optional): ``'laplacian'``, or ``'adjacency'`` for the same in −Â in the place of
            L − I. (default: ``'laplacian'``)
        norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_j = (n choose j) (2I - L)^(n-j) L^j / 2^n, j = 0..n = K-1"
    symbol = "Bernstein polynomial {}"

    def values(self, nodes: list[float]) -> list[list[float]]:
        n = self.num_terms - 1
        return [
            [math.comb(n, j) * ((1 - t) / 2) ** (n - j) * ((1 + t) / 2) ** j for t in nodes]
            for j in range(n + 1)
        ]


@row(
    _TABLE,
    "the polynomial that is 1 at one Chebyshev node and 0 at the others",
    "He et al., *ChebNetII* (2202.03580), section 4",
)
@dataclass(frozen=True)
class ChebyshevNodes(InterpolatedPolynomials):
    r"""Chebyshev interpolation: labels are the values of a filter at the Chebyshev nodes.

    .. math:: A_j = \tfrac{2}{K} \sum_k{}' \, T_k(t_j) \, T_k(L - I), \qquad
        t_j = -\cos\left(\tfrac{j + 1/2}{K} \pi\right)

    where the term of k = 0 is halved. Σ_j γ_j A_j is the polynomial that has the value γ_j at the
    node t_j. From the `"Convolutional Neural Networks on Graphs with Chebyshev Approximation,
    Revisited" <https://arxiv.org/abs/2202.03580>`_ paper (ChebNetII, section 4). With
    ``theta='basis-decomposed(num_bases=1)'`` a layer has these γ_j, which begin as ones, the filter
    I; the paper keeps them from below zero by a ReLU, which is not here.

    Args:
        num_terms (int): K, the number of nodes; at most 128.
        of (str, optional): ``'laplacian'`` or ``'adjacency'``. (default: ``'laplacian'``)
        norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_j = 2/K sum'_k T_k(t_j) T_k(S), t_j the Chebyshev nodes, j = 0..K-1"
    symbol = "value at node {}"

    def values(self, nodes: list[float]) -> list[list[float]]:
        return [[float(i == j) for i in range(len(nodes))] for j in range(len(nodes))]
