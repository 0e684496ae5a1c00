"""Laws of bases: of every contraction order, and of the algebra."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.algebra import Mixed
from ..contract import ORDERS, contract
from ..contract.problem import Problem, problems
from ..graph import Features, SparseMatrix
from ..graph.checks import Nodes
from ..graph.sparse_features import as_matrix
from ..signatures import typed
from ..theta import ThetaValue, as_theta
from .reference import (
    TOLERANCE,
    assert_near,
    assert_same_gradients,
    assert_seen_alone,
    dense_contraction,
    derivatives,
    difference,
)


@typed
def legal_orders(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    aggr: str = "sum",
    label_aggr: str = "sum",
) -> dict[str, list[str]]:
    """Every order with the reasons why it solves no leaf; without reasons if it solves one."""
    parts = problems(Problem(basis, x, theta, aggr, label_aggr))
    reasons_by_order = {}
    for name, order in ORDERS.items():
        reasons = [order.why_not(problem) for problem in parts]
        reasons_by_order[name] = (
            [] if [] in reasons else [reason for many in reasons for reason in many]
        )
    return reasons_by_order


@typed
def assert_contraction(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    weights: Iterable[Tensor] = (),
    depth: int = 1,
    aggr: str = "sum",
    label_aggr: str = "sum",
) -> None:
    """Every legal order equals the dense contraction, in value and in every gradient.

    A bias is added once, by the order or after it.

    Args:
        basis: K matrices of size M × N.
        x: features as :func:`~pyg_outerconv.contract.contract` takes them.
        theta: Θ as a tensor, a mixture, or values and outputs; gradients are those of its parts.
        weights: tensors that the values of the basis depend on, whose gradients are compared too.
        depth: 1 compares first derivatives, 2 first and second derivatives.
        aggr: over the inputs of each label.
        label_aggr: over the labels of each target. For max and min no entries may be equal.

    Raises:
        AssertionError: an order differs; the message names it.
    """
    x = as_matrix(x)
    rows = x.value if isinstance(x, SparseMatrix) else x
    tensors = [tensor for tensor in (rows, *_tensors_of(theta), *weights) if tensor is not None]
    inputs = [tensor for tensor in tensors if tensor.requires_grad]
    how = {"aggr": aggr, "label_aggr": label_aggr}
    expected = derivatives(dense_contraction(basis, x, theta, **how), inputs, depth)
    reasons = legal_orders(basis, x, theta, **how)
    truth = expected[0].detach()
    bias = truth.new_ones(truth.size(-1))
    for name in (None, *(name for name in ORDERS if not reasons[name])):
        actual = derivatives(
            contract(basis, x, theta, name, aggr=aggr, label_aggr=label_aggr), inputs, depth
        )
        for number, (derivative, reference) in enumerate(zip(actual, expected, strict=True)):
            try:
                assert_near(
                    derivative, reference, (5 if number else 1) * TOLERANCE[derivative.dtype], 0.1
                )
            except AssertionError as error:
                what = f"derivative {number}" if number else "value"
                raise AssertionError(f"{what} of {name or 'the choice'}: {error}") from None
        with torch.no_grad():
            biased = contract(basis, x, theta, name, aggr=aggr, label_aggr=label_aggr, bias=bias)
        try:
            assert_near(biased - bias, truth, TOLERANCE[truth.dtype], 0.1)
        except AssertionError as error:
            what = f"value with a bias of {name or 'the choice'}"
            raise AssertionError(f"{what}: {error}") from None


@typed
def assert_edges_alone_carry(
    basis: Basis, x: Tensor, theta: ThetaValue, number: float = nan, aggr: str = "sum"
) -> None:
    """NaN or infinity of a source reaches the targets it has an edge to, its gradient back alike.

    What has no edge never arrives, by any legal order; what has one arrives, also with the weight
    0. Of maxima and minima infinity need not arrive, nor a gradient.

    Args:
        basis: K matrices of size M × N.
        x: (M, P) positive features.
        theta: Θ of positive numbers, or c I, so that nothing cancels.
        number: NaN or infinity.
        aggr: over the inputs of each label.

    Raises:
        AssertionError: it arrives where it must not, or does not; the message names the order.
    """
    seen, reasons = basis.support().any(0), legal_orders(basis, x, theta, aggr)
    for name in (None, *(name for name in ORDERS if not reasons[name])):

        def run(x: Tensor, name: str | None = name) -> Tensor:
            return contract(basis, x, theta, name, aggr=aggr)

        compares = aggr in ("max", "min")
        try:
            assert_seen_alone(run, x, seen, number, not compares or number != number, not compares)
        except AssertionError as error:
            raise AssertionError(f"{number} by {name or 'the choice'}: {error}") from None


@typed
def assert_adjoint(basis: Basis) -> None:
    """⟨A_kᵀ x, y⟩ = ⟨x, A_k y⟩ for all k: the transposed basis is the adjoint."""
    num_sources, num_targets = basis.size
    x, y = _random(basis, num_sources, 3), _random(basis, num_targets, 3)
    weight = _random(basis, basis.num_bases).view(-1, 1, 1, 1)
    theta = weight * torch.eye(3, dtype=x.dtype, device=x.device)
    forward = (contract(basis, x, theta) * y).sum()
    backward = (x * contract(basis.transpose(), y, theta)).sum()
    scale = contract(basis, x.abs(), theta.abs()).abs().sum() + 1
    assert abs(forward - backward) <= TOLERANCE[x.dtype] * scale * 10


@typed
def assert_transpose(basis: Basis) -> None:
    """The dense form of the transpose is the transposed dense form; transposing twice is no-op."""
    dtype, terms, turned = _dtype(basis), _size_of_terms(basis), basis.transpose()
    dense = basis.to_dense(dtype)
    for actual in (turned, turned.edges()):
        assert_near(actual.to_dense(dtype), dense.transpose(1, 2), at_least=terms)
    assert_near(turned.transpose().to_dense(dtype), dense, at_least=terms)


@typed
def assert_lazy_equals_explicit(basis: Basis) -> None:
    """A basis and its edges have equal dense forms and equal contractions."""
    dtype, explicit, terms = _dtype(basis), basis.edges(), _size_of_terms(basis)
    assert (explicit.num_bases, explicit.size) == (basis.num_bases, basis.size)
    assert_near(basis.to_dense(dtype), explicit.to_dense(dtype), at_least=terms)
    key = explicit.pattern.target.long() * explicit.num_bases + explicit.label
    assert bool((key.diff() >= 0).all()), "edges are not sorted by target, then label"
    x, theta = _random(basis, basis.size[0], 3), _random(basis, basis.num_bases, 1, 3, 2)
    assert_near(contract(basis, x, theta), contract(explicit, x, theta), at_least=terms)


@typed
def assert_stack(first: Basis, second: Basis) -> None:
    """A stack contracts to the sum of its parts; its dense form is their concatenation."""
    both, dtype = first.stack(second), _dtype(first.stack(second))
    parts = (first.to_dense(dtype), second.to_dense(dtype))
    assert_near(both.to_dense(dtype), torch.cat(parts))
    x, theta = _random(both, both.size[0], 3), _random(both, both.num_bases, 1, 3, 2)
    parts_sum = contract(first, x, theta[: first.num_bases]) + contract(
        second, x, theta[first.num_bases :]
    )
    assert_near(contract(both, x, theta), parts_sum)


def _tensors_of(theta: ThetaValue) -> list[Tensor | None]:
    """The tensors of Θ."""
    factors = as_theta(theta)
    return [factors.coefficient, factors.inner, factors.outer, factors.bias]


def _dtype(basis: Basis) -> torch.dtype:
    return basis.dtype or torch.float64


def _size_of_terms(basis: Basis) -> float:
    """The largest entry of the matrices that a basis mixes, which may cancel; 0 for other kinds."""
    if not isinstance(basis, Mixed):
        return 0.0
    base = basis.base.to_dense(_dtype(basis))
    return difference(base, base)[1]


def _random(basis: Basis, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=_dtype(basis), device=basis.device)


@typed
def assert_compose(first: Basis, second: Basis, weights: Iterable[Tensor] = ()) -> None:
    """A composition, lazy, explicit and contracted, has the matrices A_i B_j under label (i, j).

    Args:
        first: A, of size (M, L).
        second: B, of size (L, N).
        weights: tensors that the values depend on, whose gradients are compared too.

    Raises:
        AssertionError: a form or a gradient differs.
    """
    a, b = _dense(first, second)
    product = torch.einsum("iml,jln->ijmn", a, b).flatten(0, 1)
    assert_is_dense(first.compose(second), product, weights)


@typed
def assert_associative(first: Basis, second: Basis, third: Basis) -> None:
    """(A∘B)∘C = A∘(B∘C), with equal labels."""
    left, right = first.compose(second).compose(third), first.compose(second.compose(third))
    assert_is_dense(left, right.to_dense(_dtype(right)))


@typed
def assert_transpose_of_product(first: Basis, second: Basis) -> None:
    """(A∘B)ᵀ = Bᵀ∘Aᵀ, where label (i, j) of the left is (j, i) of the right."""
    transposed = second.transpose().compose(first.transpose())
    count, other = first.num_bases, second.num_bases
    swapped = transposed.to_dense(_dtype(transposed)).unflatten(0, (other, count)).transpose(0, 1)
    assert_is_dense(first.compose(second).transpose(), swapped.flatten(0, 1))


@typed
def assert_kron(first: Basis, second: Basis, weights: Iterable[Tensor] = ()) -> None:
    """A Kronecker product, lazy, explicit and contracted, has A_i ⊠ B_j under label (i, j).

    Its transpose has A_iᵀ ⊠ B_jᵀ. Arguments as in :func:`assert_compose`.
    """
    a, b = _dense(first, second)
    rows = [torch.kron(one, other) for one in a for other in b]
    product = first.kron(second)
    dense = torch.stack(rows) if rows else a.new_zeros(0, *product.size)
    assert_is_dense(product, dense, weights)
    assert_is_dense(product.transpose(), dense.transpose(1, 2), weights)


@typed
def assert_mixed_product(first: Basis, second: Basis, third: Basis, fourth: Basis) -> None:
    """(A⊠B)∘(C⊠D) = (A∘C)⊠(B∘D), where label ((i, j), (k, l)) is ((i, k), (j, l)).

    The sizes of A and C, and those of B and D, must fit a product.
    """
    left = first.kron(second).compose(third.kron(fourth))
    right = first.compose(third).kron(second.compose(fourth))
    dense = right.to_dense(_dtype(right))
    labels = [part.num_bases for part in (first, third, second, fourth)]
    assert_is_dense(left, dense.unflatten(0, labels).transpose(1, 2).flatten(0, 3))


@typed
def assert_mix(basis: Basis, matrix: Tensor, weights: Iterable[Tensor] = ()) -> None:
    """A mixed basis, lazy, explicit and contracted, has B_j = Σ_k C[j, k] A_k, for C (J, K)."""
    dense = torch.einsum("jk,kmn->jmn", matrix, basis.to_dense(matrix.dtype))
    assert_is_dense(basis.mix(matrix), dense, [matrix, *weights])


@typed
def assert_restrict(
    basis: Basis, sources: Nodes, targets: Nodes, weights: Iterable[Tensor] = ()
) -> None:
    """A restriction, lazy, explicit and contracted, has the chosen rows and columns."""
    dense = basis.to_dense(_dtype(basis))
    dense = dense if sources is None else dense[:, sources]
    dense = dense if targets is None else dense[:, :, targets]
    assert_is_dense(basis.restrict(sources, targets), dense, weights)


@typed
def assert_receptive_field(basis: Basis) -> None:
    """The receptive field of a target is the sources with edges to it; of all, their union."""
    seen = basis.support().any(0)
    for target in range(basis.size[1]):
        expected = seen[:, target].nonzero().view(-1)
        assert basis.receptive_field(target).equal(expected), f"of target {target}"
    assert basis.receptive_field(None).equal(seen.any(1).nonzero().view(-1))


@typed
def assert_is_dense(basis: Basis, dense: Tensor, weights: Iterable[Tensor] = ()) -> None:
    """A basis, its edges and its contraction equal those of dense matrices (K, M, N).

    Raises:
        AssertionError: one of them, or a gradient in one of ``weights``, differs.
    """
    assert (basis.num_bases, *basis.size) == tuple(dense.shape), f"{basis!r} is not {dense.shape}"
    x = torch.randn(basis.size[0], 3, dtype=dense.dtype, device=basis.device)
    theta = torch.randn(basis.num_bases, 1, 3, 2, dtype=dense.dtype, device=basis.device)
    expected = torch.einsum("kmn,mp,kpq->nq", dense, x, theta[:, 0])
    forms = (
        (basis.to_dense(dense.dtype), dense),
        (basis.edges().to_dense(dense.dtype), dense),
        (contract(basis, x, theta), expected),
    )
    wanted = [weight for weight in weights if weight.requires_grad]
    for actual, reference in forms:
        assert_near(actual, reference, at_least=0.1)
        if wanted:
            assert_same_gradients(actual, reference, wanted, 5 * TOLERANCE[dense.dtype])


def _dense(first: Basis, second: Basis) -> tuple[Tensor, Tensor]:
    dtype = first.dtype or second.dtype or torch.float64
    return first.to_dense(dtype), second.to_dense(dtype)
