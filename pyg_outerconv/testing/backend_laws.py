"""The law of backends: they equal the backend ``reference``, for every primitive."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from ..graph.checks import check_positive
from ..kernels import BACKENDS, CSR, get_backend, use_backend
from ..kernels.additive import additive
from ..kernels.attend import attend
from ..kernels.attend_entries import sums_of_ends
from ..kernels.backend import REDUCTIONS
from ..kernels.grouped import grouped_matmul
from ..kernels.sddmm import sddmm
from ..kernels.softmax import segment_softmax
from ..kernels.spmm import spmm
from ..signatures import typed
from .reference import along, assert_near, direction

Shapes = dict[str, tuple[int, ...]]

PrimitiveCall = tuple[Callable[..., Tensor], Shapes]


@typed
def primitive_calls(csr: CSR, channels: int, heads: int | None = None) -> dict[str, PrimitiveCall]:
    """Calls of every primitive on a pattern, by name: a function and the shapes of its tensors.

    The first word of a name is the primitive. With ``heads``, operands have that many heads, and
    calls in which all heads share an operand are added.
    """
    (rows, cols), entries = csr.shape, csr.num_entries
    some = () if heads is None else (heads,)
    value, left, right = (entries, *some), (rows, *some, channels), (cols, *some, channels)

    def multiply(transpose: bool = False, aggr: str = "sum") -> Callable[..., Tensor]:
        return lambda v, x: spmm(csr.T if transpose else csr, v, x, aggr=aggr)

    calls: dict[str, PrimitiveCall] = {}
    for aggr in REDUCTIONS:
        calls[f"spmm {aggr}"] = (multiply(False, aggr), {"value": value, "x": right})
        calls[f"spmm {aggr} transposed"] = (multiply(True, aggr), {"value": value, "x": left})
    calls["spmm ones"] = (lambda x: spmm(csr, None, x), {"x": right})
    calls["spmm max of ones"] = (lambda x: spmm(csr, None, x, aggr="max"), {"x": right})
    calls["sddmm dot"] = (lambda a, b: sddmm(csr, a, b), {"a": left, "b": right})
    calls["sddmm add"] = (
        lambda a, b: sddmm(csr, a, b, op="add"),
        {"a": (rows, *some), "b": (cols, *some)},
    )
    calls["segment_softmax"] = (lambda s: segment_softmax(csr, s), {"score": value})
    ends = [(rows, heads or 1, channels), (cols, heads or 1, channels), (cols, heads or 1, 2)]
    shapes: Shapes = dict(zip(("query", "key", "value"), ends, strict=True))
    calls["attend"] = (lambda q, k, v: attend(csr, q, k, v), shapes)
    calls["attend biased"] = (
        lambda q, k, v, b: attend(csr, q, k, v, b),
        {**shapes, "bias": value},
    )
    neurons: Shapes = {"a": ends[0], "b": ends[1], "weight": ends[0][1:]}
    calls["additive"] = (lambda a, b, w: additive(csr, a, b, w), neurons)
    calls["additive tanh"] = (
        lambda a, b, w: additive(csr, a, b, w, activation="tanh"),
        neurons,
    )
    terms: Shapes = {"at_target": ends[0][:2], "at_source": ends[1][:2], "value": ends[1]}
    calls["attend ends"] = (lambda t, s, v: sums_of_ends(csr, t, s, v, 0.2), terms)
    calls |= _grouped_calls(csr, channels)
    if heads is not None:
        one: Shapes = {"value": (entries,), "x": right}
        calls["spmm sum of one matrix"], calls["spmm max of one matrix"] = (
            (multiply(), one),
            (multiply(aggr="max"), one),
        )
        shared: Shapes = {"value": value, "x": (cols, channels)}
        calls["spmm sum of one x"], calls["spmm min of one x"] = (
            (multiply(), shared),
            (multiply(aggr="min"), shared),
        )
        calls["sddmm of one a"] = (calls["sddmm dot"][0], {"a": (rows, 1, channels), "b": right})
        calls["attend one bias"] = (
            calls["attend biased"][0],
            {**shapes, "bias": (entries,)},
        )
    return calls


def has_call(backend: str, name: str) -> bool:
    """Whether a backend declares the primitive and the reduction of a call of that name."""
    primitive, *form = name.split()
    declared = BACKENDS[backend]
    reduces = form[0] if form and form[0] in REDUCTIONS else "sum"
    return primitive in declared.primitives and reduces in declared.reductions


def _grouped_calls(csr: CSR, channels: int) -> dict[str, PrimitiveCall]:
    """Calls of ``grouped_matmul`` with the entries of each row as a group."""
    ptr, entries = csr.ptr, csr.num_entries
    shapes: Shapes = {"x": (entries, channels), "theta": (csr.shape[0], channels, 2)}
    # Indices of rows to gather and to scatter: distinct within a group, not between groups.
    rows = torch.repeat_interleave(ptr[:-1], ptr.diff().long())
    place = torch.arange(entries, dtype=ptr.dtype, device=ptr.device) - rows
    away = entries - 1 - place

    def gathered(x: Tensor, theta: Tensor) -> Tensor:
        return grouped_matmul(x, ptr, theta, gather=place, scatter=away, num_rows=entries)

    return {
        "grouped_matmul": (lambda x, t: grouped_matmul(x, ptr, t), shapes),
        "grouped_matmul gathered": (gathered, shapes),
    }


@typed
def assert_backend_equals_reference(
    backend: str,
    csr: CSR,
    dtype: torch.dtype,
    channels: int,
    tolerance: float,
    heads: int | None = None,
) -> None:
    """The primitives of a backend equal those of ``reference``, with two derivatives.

    Args:
        backend: the name of the backend.
        csr: the pattern to run on.
        dtype: the dtype of the operands.
        channels: the number of channels of the operands.
        tolerance: of :func:`assert_near`.
        heads: the number of heads of the operands; None for operands without heads.

    Raises:
        AssertionError: a value or derivative differs; the message names primitive and operand.
    """
    get_backend(backend)
    check_positive("a call", channels=channels, heads=1 if heads is None else heads)
    for name, (function, shapes) in primitive_calls(csr, channels, heads).items():
        if not has_call(backend, name):
            continue
        inputs = [
            torch.randn(shape, dtype=dtype, device=csr.index.device) for shape in shapes.values()
        ]
        actual, wanted = (
            derivatives_by(which, function, dict(zip(shapes, inputs, strict=True)))
            for which in (backend, "reference")
        )
        for label, reference in wanted.items():
            try:
                assert_near(actual[label], reference, tolerance, at_least=1.0)
            except AssertionError as error:
                raise AssertionError(f"{name} of {backend}, {label}: {error}") from None


def derivatives_by(
    backend: str | None, function: Callable[..., Tensor], inputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    """What a function computes by a backend: 'value', and by input 'first in x' and 'second in x'.

    These are the gradients of a sum of the value in fixed directions, and those of such a sum of
    the gradients; equal functions have equal ones. A backend of None is the library's choice.
    """
    generator = torch.Generator().manual_seed(0)  # equal directions for all backends
    leaves = [tensor.detach().requires_grad_() for tensor in inputs.values()]
    with use_backend(backend) if backend else nullcontext():
        out = function(*leaves)
        first = torch.autograd.grad(
            along(out, generator), leaves, create_graph=True, materialize_grads=True
        )
        total = sum((along(gradient, generator) for gradient in first), start=out.new_zeros(()))
        # Linear functions have no second derivative: connect all inputs with gradient zero.
        total = total + sum((x * 0).sum() for x in leaves)
        second = torch.autograd.grad(total, leaves)
    of_inputs = {"first": first, "second": second}
    return {"value": out} | {
        f"{order} in {name}": gradient
        for order, gradients in of_inputs.items()
        for name, gradient in zip(inputs, gradients, strict=True)
    }


def tangent_by(
    backend: str | None, function: Callable[..., Tensor], inputs: dict[str, Tensor]
) -> Tensor:
    """The derivative of a function along fixed tangents of all its inputs, in forward mode.

    The arguments are those of :func:`derivatives_by`.
    """
    generator = torch.Generator().manual_seed(1)
    points = tuple(tensor.detach() for tensor in inputs.values())
    tangents = tuple(direction(point, generator) for point in points)
    with use_backend(backend) if backend else nullcontext():
        out: Tensor = torch.func.jvp(function, points, tangents)[1]
    return out
