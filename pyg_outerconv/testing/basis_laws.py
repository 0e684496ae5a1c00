"""Laws of a basis, and of its contraction with every order."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..basis import Basis
from ..contract import ORDERS, contract
from ..contract.semiring import problems
from ..graph import Features, SparseFeatures
from ..theta import Mixture, ThetaValue, ValueOutput, full
from .closeness import TOLERANCE, assert_near, derivatives
from .dense import dense_contraction


def legal_orders(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    reduce: str = "sum",
    label_reduce: str = "sum",
) -> dict[str, list[str]]:
    """Every order with the reasons why it solves no leaf; without reasons if it solves one."""
    parts = problems(basis, x, theta, reduce, label_reduce)
    found = {}
    for name, order in ORDERS.items():
        reasons = [order.why_not(problem) for problem in parts]
        found[name] = [] if [] in reasons else [reason for many in reasons for reason in many]
    return found


def assert_contraction(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    weights: Iterable[Tensor] = (),
    depth: int = 1,
    reduce: str = "sum",
    label_reduce: str = "sum",
) -> None:
    """Every legal order equals the dense contraction, in value and in every gradient.

    Args:
        basis: K matrices of size M × N.
        x: features as :func:`~pyg_outerconv.contract.contract` takes them.
        theta: Θ as a tensor, a mixture, or values and outputs; gradients are those of its parts.
        weights: tensors that the values of the basis depend on, whose gradients are compared too.
        depth: 1 compares first derivatives, 2 first and second derivatives.
        reduce: over the inputs of each label.
        label_reduce: over the labels of each target. For max and min no entries may be equal.

    Raises:
        AssertionError: an order differs; the message names it.
    """
    rows = x.value if isinstance(x, SparseFeatures) else x
    given = [tensor for tensor in (rows, *_tensors_of(theta), *weights) if tensor is not None]
    inputs = [tensor for tensor in given if tensor.requires_grad]
    how = {"reduce": reduce, "label_reduce": label_reduce}
    expected = derivatives(dense_contraction(basis, x, theta, **how), inputs, depth)
    reasons = legal_orders(basis, x, theta, **how)
    for name in (None, *(name for name in ORDERS if not reasons[name])):
        actual = derivatives(
            contract(basis, x, theta, name, reduce=reduce, label_reduce=label_reduce), inputs, depth
        )
        for number, (found, reference) in enumerate(zip(actual, expected, strict=True)):
            try:
                assert_near(found, reference, (5 if number else 1) * TOLERANCE[found.dtype], 0.1)
            except AssertionError as error:
                what = f"derivative {number}" if number else "value"
                raise AssertionError(f"{what} of {name or 'the choice'}: {error}") from None


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


def assert_transpose(basis: Basis) -> None:
    """The dense form of the transpose is the transposed dense form; transposing twice is no-op."""
    dense = basis.to_dense(_dtype(basis))
    assert_near(basis.transpose().to_dense(_dtype(basis)), dense.transpose(1, 2))
    assert_near(basis.transpose().edges().to_dense(_dtype(basis)), dense.transpose(1, 2))
    assert_near(basis.transpose().transpose().to_dense(_dtype(basis)), dense)


def assert_lazy_equals_explicit(basis: Basis) -> None:
    """A basis and its edges have equal dense forms and equal contractions."""
    dtype, explicit = _dtype(basis), basis.edges()
    assert (explicit.num_bases, explicit.size) == (basis.num_bases, basis.size)
    assert_near(basis.to_dense(dtype), explicit.to_dense(dtype))
    key = explicit.pattern.target.long() * explicit.num_bases + explicit.label
    assert bool((key.diff() >= 0).all()), "edges are not sorted by target, then label"
    x, theta = _random(basis, basis.size[0], 3), _random(basis, basis.num_bases, 1, 3, 2)
    assert_near(contract(basis, x, theta), contract(explicit, x, theta))


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
    if isinstance(theta, Mixture):
        return [theta.coefficient, theta.matrices]
    if isinstance(theta, ValueOutput):
        return [theta.value, theta.output, theta.bias]
    return [full(theta)]


def _dtype(basis: Basis) -> torch.dtype:
    return basis.dtype or torch.float64


def _random(basis: Basis, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=_dtype(basis), device=basis.device)
