"""The law of backends: they equal the backend ``reference``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..kernels import BACKENDS, Sparsity, use_backend
from .closeness import along, assert_near
from .primitive_calls import primitive_calls


def assert_backend_equals_reference(
    backend: str,
    sparsity: Sparsity,
    dtype: torch.dtype,
    channels: int,
    tolerance: float,
    heads: int | None = None,
) -> None:
    """The primitives of a backend equal those of ``reference``, with two derivatives.

    Args:
        backend: the name of the backend.
        sparsity: the pattern to run on.
        dtype: the dtype of the operands.
        channels: the number of channels of the operands.
        tolerance: of :func:`assert_near`.
        heads: the number of heads of the operands; None for operands without heads.

    Raises:
        AssertionError: a value or derivative differs; the message names primitive and operand.
    """
    for name, (function, shapes) in primitive_calls(sparsity, channels, heads).items():
        if name.split()[0] not in BACKENDS[backend].primitives:
            continue
        inputs = [
            torch.randn(shape, dtype=dtype, device=sparsity.col.device, requires_grad=True)
            for shape in shapes.values()
        ]
        found, expected = (
            _with_derivatives(function, inputs, which) for which in (backend, "reference")
        )
        for label, actual, wanted in zip(
            ("value", *(f"{order} in {x}" for order in ("first", "second") for x in shapes)),
            found,
            expected,
            strict=True,
        ):
            try:
                assert_near(actual, wanted, tolerance, at_least=1.0)
            except AssertionError as error:
                raise AssertionError(f"{name} of {backend}, {label}: {error}") from None


def _with_derivatives(
    function: Callable[..., Tensor], inputs: list[Tensor], backend: str
) -> list[Tensor]:
    """The value, its gradient in each input, and the gradients of a random sum of these."""
    generator = torch.Generator().manual_seed(0)  # equal directions for all backends

    with use_backend(backend):
        out = function(*inputs)
        first = torch.autograd.grad(along(out, generator), inputs, create_graph=True)
        total = sum((along(gradient, generator) for gradient in first), start=out.new_zeros(()))
        # Linear functions have no second derivative: connect all inputs with gradient zero.
        total = total + sum((x * 0).sum() for x in inputs)
        return [out, *first, *torch.autograd.grad(total, inputs)]
