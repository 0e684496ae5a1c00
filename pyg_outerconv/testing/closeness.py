"""Compare tensors and derivatives up to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


def assert_near(
    actual: Tensor, reference: Tensor, tolerance: float | None = None, at_least: float = 0.0
) -> None:
    """Two tensors differ by at most ``tolerance`` times the largest entry of the reference.

    ``at_least`` replaces that entry if it is smaller: where sums cancel, rounding errors do not.

    Raises:
        AssertionError: they differ in shape or type, hold NaN, or are too far apart.
    """
    assert actual.shape == reference.shape, f"shapes {actual.shape} and {reference.shape} differ"
    assert actual.dtype == reference.dtype, f"types {actual.dtype} and {reference.dtype} differ"
    if actual.numel() == 0:
        return
    tolerance = TOLERANCE[actual.dtype] if tolerance is None else tolerance
    actual, reference = actual.detach().double(), reference.detach().double()
    gap = float((actual - reference).abs().max())
    allowed = tolerance * max(at_least, float(reference.abs().max()))
    assert gap <= allowed, f"largest difference {gap:g} exceeds {allowed:g}"  # False for NaN


def assert_same_gradients(
    actual: Tensor, reference: Tensor, inputs: Iterable[Tensor], tolerance: float | None = None
) -> None:
    """Two results have equal gradients in each of ``inputs``, along one random direction.

    Gradients are compared relative to 0.1 at least, so inputs should be of order one.
    """
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    direction = torch.randn_like(reference)
    found = _gradients(actual, wanted, direction)
    for gradient, expected in zip(found, _gradients(reference, wanted, direction), strict=True):
        assert_near(gradient, expected, tolerance, at_least=0.1)


def _gradients(out: Tensor, inputs: Sequence[Tensor], direction: Tensor) -> list[Tensor]:
    if not out.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    found = torch.autograd.grad(out, inputs, direction, allow_unused=True, retain_graph=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for gradient, tensor in zip(found, inputs, strict=True)
    ]


def derivatives(out: Tensor, inputs: Sequence[Tensor], depth: int) -> list[Tensor]:
    """The value, and its derivatives in each input along random directions, up to order ``depth``.

    The directions depend on shapes only, so that equal functions have equal derivatives.
    """
    found, last = [out], [out]
    for step in range(depth):
        generator = torch.Generator().manual_seed(step)
        total = torch.stack([along(tensor, generator) for tensor in last]).sum()
        gradients: tuple[Tensor | None, ...] = (None,) * len(inputs)
        if total.requires_grad:
            gradients = torch.autograd.grad(
                total, inputs, allow_unused=True, create_graph=True, materialize_grads=False
            )
        last = [
            torch.zeros_like(tensor) if gradient is None else gradient
            for gradient, tensor in zip(gradients, inputs, strict=True)
        ]
        found += last
    return found


def along(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """The inner product of a tensor with a random direction."""
    direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
    return (tensor * direction.to(tensor)).sum()
