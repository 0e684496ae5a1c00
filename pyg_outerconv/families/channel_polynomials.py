"""Polynomials with a recurrence for each channel: a learned one, and the best one of a signal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..attention.queries import Content
from ..basis.algebra import transposed
from ..basis.base import Basis
from ..basis.channel_polynomial import ChannelPolynomial
from ..basis.edges import EdgeBasis
from ..basis.polynomial import Polynomial, Step, step_of
from ..contract.heads import project
from ..equations import row
from ..errors import RefusedValue
from ..graph.checks import check_positive
from ..graph.graph import Graph
from ..kernels.index_checks import has_numbers
from ..theta import ThetaOfChannels
from .family import Channels, Family
from .polynomials import GraphPolynomials, Monomial
from .support.support import kept_basis

_TABLE = "Polynomials"
_LEAST = 1e-2  # of √β, as in the code of FavardGNN


@dataclass(frozen=True)
class ChannelPolynomials(GraphPolynomials):
    """Polynomials with numbers of each output channel, K labels for each of Q channels.

    A layer has one matrix W and a filter for each channel of X W, whose first term alone is 1 at
    the start. In a :class:`Stack` these labels stand beside others.
    """

    reads_beside = ("edge_weight", "x")
    takes_content = True
    learns = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # Here, because a compiler cannot trace what makes a family.
        step = Monomial(2, norm=self.norm, add_self_loops=self.add_self_loops)
        object.__setattr__(self, "_step", step)

    @property
    def _count(self) -> int:
        """Q; 1 where no layer has said it."""
        return 1

    @property
    def num_bases(self) -> int:
        return self.num_terms * self._count

    @property
    def labels(self) -> tuple[str, ...]:
        terms, count = super().labels, self._count
        if count == 1:
            return terms
        return tuple(f"{term}, channel {q}" for term in terms for q in range(count))

    @property
    def initial_coefficients(self) -> tuple[float, ...]:
        return 1.0, *(0.0,) * (self.num_terms - 1)

    def combinations(self) -> list[tuple[str, int]]:
        """K terms of which each output channel has its own."""
        return [("channels", self.num_terms)]

    def matrix(self, edges: Graph, dtype: torch.dtype | None) -> EdgeBasis:
        """Â, kept for as long as the edges are."""
        edges.require_one_set("a polynomial of a matrix", "Walk(1) or Relation(1)")
        basis = kept_basis(self._step, edges, dtype)  # type: ignore[attr-defined]
        assert isinstance(basis, Polynomial)
        return basis.operator

    @property
    def _sign(self) -> float:
        """What Â is multiplied with to be S."""
        return -1.0 if self.of == "laplacian" else 1.0


class FavardCoefficients(torch.nn.Module):
    """The numbers of a learned recurrence: η and √β of each term and channel.

    Args:
        num_terms: K.
        channels: C.

    Attributes:
        center: η (K − 1, C), zeros at the start.
        root: √β (K, C), ones at the start; what is smaller than 0.01 is taken for that.

    Raises:
        ValueError: a number is not positive.
    """

    def __init__(self, num_terms: int, channels: int) -> None:
        super().__init__()
        check_positive("FavardCoefficients", num_terms=num_terms, channels=channels)
        self.center = torch.nn.Parameter(torch.empty(num_terms - 1, channels))
        self.root = torch.nn.Parameter(torch.empty(num_terms, channels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """η = 0 and √β = 1."""
        torch.nn.init.zeros_(self.center)
        torch.nn.init.ones_(self.root)

    def forward(self, sign: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """α, β and γ (K, C) of a :class:`ChannelPolynomial`, in S times ``sign``."""
        root = self.root.clamp(min=_LEAST)
        inverse = 1.0 / root
        zero = torch.zeros_like(root[:1])
        alpha = torch.cat([inverse[:1], sign * inverse[1:]])
        beta = torch.cat([zero, -self.center * inverse[1:]])
        gamma = torch.cat([zero, root[:-1] * inverse[1:]])
        return alpha, beta, gamma


@row(
    _TABLE,
    "√β_k p_k = (Â − η_{k−1}) p_{k−1} − √β_{k−1} p_{k−2}, η and β of each channel learned",
    "Guo & Wei, *FavardGNN* (2302.12432), section 3",
)
@dataclass(frozen=True)
class Favard(ChannelPolynomials):
    r"""A learned recurrence for each channel, which makes any orthonormal polynomials.

    .. math:: \sqrt{\beta_k} \, p_k(s) = (s - \eta_{k-1}) \, p_{k-1}(s)
        - \sqrt{\beta_{k-1}} \, p_{k-2}(s), \qquad p_0 = 1 / \sqrt{\beta_0}

    From the `"Graph Neural Networks with Learnable and Optimal Polynomial Bases"
    <https://arxiv.org/abs/2302.12432>`_ paper (FavardGNN, section 3): by Favard's theorem these are
    all sequences of polynomials that are orthonormal for some weight. A layer has one matrix W, and
    η, √β and a filter for each channel of X W, Y_q = Σ_k c_kq p_kq(S)ᵀ (X W)_q, by K − 1 sparse
    products. As in the paper's code η begins as 0, √β as 1, and c as (1, 0, …, 0).

    Outside a stack, as in ``Compose(Favard(3), GCN())``, or with ``shared=True``, all channels have
    one recurrence, of K labels, and Θ is of any form.

    Args:
        num_terms (int): K.
        shared (bool, optional): Whether all channels have one recurrence. (default: ``False``)
        coefficients (FavardCoefficients, optional): η and √β; a layer makes its own.
        of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.

    Raises:
        ValueError: see :class:`GraphPolynomials`.
    """

    equation = "A_k = p_k(S), sqrt(b_k) p_k = (s - e_{k-1}) p_{k-1} - sqrt(b_{k-1}) p_{k-2}"
    symbol = "learned polynomial {}"

    shared: bool = False
    coefficients: torch.nn.Module | None = None

    @property
    def _count(self) -> int:
        coefficients: Any = self.coefficients
        return 1 if coefficients is None else int(coefficients.root.size(1))

    def combinations(self) -> list[tuple[str, int]]:
        """K terms of which each output channel has its own, or labels of any Θ."""
        return [("sum", self.num_bases)] if self.shared else super().combinations()

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Family:
        """The family with numbers that a layer of these channels learns."""
        shared = self.shared or not shares
        count = 1 if shared else out_channels
        check_positive(f"{type(self).__name__} of a layer", out_channels=count)
        if self.coefficients is not None and (self._count == count or not shares):
            return self
        return replace(self, shared=shared, coefficients=FavardCoefficients(self.num_terms, count))

    def basis_on(
        self, edges: Graph, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """p_0(S), …, p_{K−1}(S) of each channel; of the first numbers without a layer."""
        operator, own = self.matrix(edges, dtype), self.coefficients
        if own is None:
            own = FavardCoefficients(self.num_terms, 1).requires_grad_(False).to(edges.device)
        numbers = [part.to(operator.dtype) for part in own(self._sign)]
        return ChannelPolynomial(operator, *numbers)


@row(
    _TABLE,
    "the polynomials for which p_k(Â)ᵀ (X W)_q are orthogonal, as long as (X W)_q, by Lanczos",
    "2302.12432, section 4",
)
@dataclass(frozen=True)
class OptBasis(ChannelPolynomials):
    r"""The orthonormal polynomials of each channel of a signal on an undirected graph.

    .. math:: \langle p_{jq}(S) z_q, \, p_{kq}(S) z_q \rangle = \delta_{jk} \, \|z_q\|^2,
        \qquad Z = X W

    From the `"Graph Neural Networks with Learnable and Optimal Polynomial Bases"
    <https://arxiv.org/abs/2302.12432>`_ paper (OptBasisGNN, section 4): the polynomials for which
    learning the numbers of a filter is best conditioned. They have a recurrence of three terms,
    whose numbers Lanczos's iteration finds on the way, with K − 1 sparse products and no
    eigenvectors; a layer adds its terms up, Y_q = Σ_k c_kq p_kq(S)ᵀ z_q. As in the paper's code c
    begins as (1, 0, …, 0). Gradients pass through the numbers.

    The terms are as long as z_q, p_0 = 1, where the paper makes them of length 1: it has a linear
    layer behind them, without which the outputs for N nodes would be as small as 1 / √N.

    A term for which no new direction is left, as of a channel of zeros or on a graph of fewer
    nodes than terms, is zero, and so are all that follow.

    Args:
        num_terms (int): K.
        of, norm, add_self_loops (optional): see :class:`GraphPolynomials`.
        channels (int, optional): Q; a layer says it.

    Raises:
        ValueError: see :class:`GraphPolynomials`; when a basis is made, Â is not symmetric, there
            are several graphs, or no layer whose channels it is of, as inside of ``Compose``.
    """

    equation = "A_k = p_k(S) of each channel, for which p_k(S)^T (X T)_q are orthogonal, p_0 = 1"
    symbol = "orthonormal polynomial {}"

    reads_theta = True

    channels: int | None = field(default=None, kw_only=True)

    @property
    def _count(self) -> int:
        return 1 if self.channels is None else self.channels

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Family:
        """The family for a layer of these channels."""
        if not shares:
            raise self._refused("a family that mixes or multiplies its labels")
        check_positive(f"{type(self).__name__} of a layer", out_channels=out_channels)
        return replace(self, channels=out_channels)

    def _refused(self, got: object) -> RefusedValue:
        rule = f"{type(self).__name__} has the polynomials of the channels of X W in a layer"
        return RefusedValue(rule, "OuterConv(P, Q, OptBasis()), alone or in a Stack", got)

    def basis_on(
        self, edges: Graph, dtype: torch.dtype | None = None, content: Content | None = None
    ) -> Basis:
        """p_0(S), …, p_{K−1}(S) of each channel of X W.

        Raises:
            ValueError: see the class.
        """
        theta = None if content is None else content.theta
        if content is None or not isinstance(theta, ThetaOfChannels):
            raise self._refused("no layer" if content is None else "Θ of another form")
        if edges.batch is not None:
            rule = f"{type(self).__name__} makes the polynomials of a signal on one graph"
            raise RefusedValue(rule, "a call without batch", "a batch vector")
        operator = self.matrix(edges, dtype)
        if not _is_symmetric(operator):
            rule = f"{type(self).__name__} needs a symmetric matrix, or three terms are too few"
            expected = "undirected edges with equal weights both ways, and norm='sym'"
            raise RefusedValue(rule, expected, f"norm={self.norm!r} and edges that differ by way")
        z = project(content.source, theta.weight.unsqueeze(0)).squeeze(-2)
        wide = torch.promote_types(z.dtype, torch.float32)  # norms and products of long vectors
        values = operator.values()
        step = step_of(operator.with_values(values.to(wide)), wide)
        *coefficients, terms = orthogonal_terms(z.to(wide), step, self.num_terms, self._sign)
        basis = ChannelPolynomial(
            operator, *(torch.stack(one).to(values.dtype) for one in coefficients)
        )
        terms = [term.to(z.dtype) for term in terms]
        return basis.knows_terms(content.source, theta.weight, terms)


Rows = list[Tensor]


def orthogonal_terms(z: Tensor, step: Step, num_terms: int, sign: float = 1.0) -> list[Rows]:
    """α, β, γ (*batch, Q) and h = p(S)ᵀ Z (N, *batch, Q) of each term, by Lanczos's iteration.

    Every h is as long as Z. ``step`` multiplies with Aᵀ, of which S is ``sign`` times A.
    """
    zero, length = z.new_zeros(z.shape[1:]), _norm(z)
    terms, alpha, beta, gamma = [z * _inverse(length, zero)], [zero + 1.0], [zero], [zero]
    while len(terms) < num_terms:
        here = terms[-1]
        ahead = step(here, 1.0) * sign
        most = _norm(ahead)
        center = (ahead * here).sum(0)
        ahead = ahead - center * here
        before = zero
        if len(terms) > 1:
            before = (ahead * terms[-2]).sum(0)
            ahead = ahead - before * terms[-2]
        inverse = _inverse(_norm(ahead), most)
        terms.append(ahead * inverse)
        alpha.append(inverse * sign)
        beta.append(-center * inverse)
        gamma.append(before * inverse)
    return [alpha, beta, gamma, [z, *(term * length for term in terms[1:])]]


def _norm(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=0)


def _inverse(norm: Tensor, most: Tensor) -> Tensor:
    """1 / ``norm``; 0 where nothing but rounding is left of what was ``most``."""
    none = norm.detach() <= 64 * torch.finfo(norm.dtype).eps * most.detach()
    return (1.0 / norm.masked_fill(none, 1.0)).masked_fill(none, 0.0)


_symmetric: WeakKeyDictionary[EdgeBasis, bool] = WeakKeyDictionary()


def _is_symmetric(operator: EdgeBasis) -> bool:
    """Whether A = Aᵀ up to rounding, which is looked at once; True where there are no numbers."""
    value = operator.values().detach()
    if torch.compiler.is_compiling() or not has_numbers(value):
        return True
    is_symmetric = _symmetric.get(operator)
    if is_symmetric is None:
        both = [operator.edges(), transposed(operator).edges()]
        keys = [one.pattern.target.long() * one.size[0] + one.pattern.source for one in both]
        pairs, place = torch.cat(keys).unique(return_inverse=True)
        values = torch.cat([both[0].values(), -both[1].values()]).detach().double()
        rest = values.new_zeros(pairs.numel()).index_add(0, place, values)
        most = values.abs().max() if values.numel() else values.new_zeros(())
        bound = 32 * torch.finfo(value.dtype).eps * most
        is_symmetric = _symmetric[operator] = bool((rest.abs() <= bound).all())
    return is_symmetric
