"""Laws of the algebra: products, Kronecker products, mixing, restriction, receptive fields."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..basis import Basis
from ..contract import contract
from ..graph.choice import Nodes
from .closeness import TOLERANCE, assert_near, assert_same_gradients


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


def assert_associative(first: Basis, second: Basis, third: Basis) -> None:
    """(A∘B)∘C = A∘(B∘C), with equal labels."""
    left, right = first.compose(second).compose(third), first.compose(second.compose(third))
    assert_is_dense(left, right.to_dense(_dtype(right)))


def assert_transpose_of_product(first: Basis, second: Basis) -> None:
    """(A∘B)ᵀ = Bᵀ∘Aᵀ, where label (i, j) of the left is (j, i) of the right."""
    transposed = second.transpose().compose(first.transpose())
    count, other = first.num_bases, second.num_bases
    swapped = transposed.to_dense(_dtype(transposed)).unflatten(0, (other, count)).transpose(0, 1)
    assert_is_dense(first.compose(second).transpose(), swapped.flatten(0, 1))


def assert_kron(first: Basis, second: Basis, weights: Iterable[Tensor] = ()) -> None:
    """A Kronecker product, lazy, explicit and contracted, has A_i ⊗ B_j under label (i, j).

    Its transpose has A_iᵀ ⊗ B_jᵀ. Arguments as in :func:`assert_compose`.
    """
    a, b = _dense(first, second)
    rows = [torch.kron(one, other) for one in a for other in b]
    product = first.kron(second)
    dense = torch.stack(rows) if rows else a.new_zeros(0, *product.size)
    assert_is_dense(product, dense, weights)
    assert_is_dense(product.transpose(), dense.transpose(1, 2), weights)


def assert_mixed_product(first: Basis, second: Basis, third: Basis, fourth: Basis) -> None:
    """(A⊗B)∘(C⊗D) = (A∘C)⊗(B∘D), where label ((i, j), (k, l)) is ((i, k), (j, l)).

    The sizes of A and C, and those of B and D, must fit a product.
    """
    left = first.kron(second).compose(third.kron(fourth))
    right = first.compose(third).kron(second.compose(fourth))
    dense = right.to_dense(_dtype(right))
    labels = [part.num_bases for part in (first, third, second, fourth)]
    assert_is_dense(left, dense.unflatten(0, labels).transpose(1, 2).flatten(0, 3))


def assert_mix(basis: Basis, matrix: Tensor, weights: Iterable[Tensor] = ()) -> None:
    """A mixed basis, lazy, explicit and contracted, has B_j = Σ_k C[j, k] A_k, for C (J, K)."""
    dense = torch.einsum("jk,kmn->jmn", matrix, basis.to_dense(matrix.dtype))
    assert_is_dense(basis.mix(matrix), dense, [matrix, *weights])


def assert_restrict(
    basis: Basis, sources: Nodes, targets: Nodes, weights: Iterable[Tensor] = ()
) -> None:
    """A restriction, lazy, explicit and contracted, has the chosen rows and columns."""
    dense = basis.to_dense(_dtype(basis))
    dense = dense if sources is None else dense[:, sources]
    dense = dense if targets is None else dense[:, :, targets]
    assert_is_dense(basis.restrict(sources, targets), dense, weights)


def assert_receptive_field(basis: Basis) -> None:
    """The receptive field of a target is the sources with edges to it; of all, their union."""
    seen = basis.support().any(0)
    for target in range(basis.size[1]):
        expected = seen[:, target].nonzero().view(-1)
        assert basis.receptive_field(target).equal(expected), f"of target {target}"
    assert basis.receptive_field(None).equal(seen.any(1).nonzero().view(-1))


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


def _dtype(basis: Basis) -> torch.dtype:
    return basis.dtype or torch.float64
