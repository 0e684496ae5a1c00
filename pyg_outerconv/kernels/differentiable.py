"""Backward and forward mode for an ``autograd.Function``, with and without a compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

_Kind = TypeVar("_Kind", bound=type[Function])


def differentiable(function: _Kind) -> _Kind:
    """Decorate an ``autograd.Function`` with forward mode, for calls by :func:`apply`.

    The function has a static method ``tangent(ctx, primals, tangents)``, which returns the
    derivative of the output along the tangents, None for an output without derivatives. The inputs
    of ``forward`` that are tensors come first; ``primals`` and ``tangents`` are in their order.
    ``tangent`` is made of differentiable operations, so that higher derivatives follow.

    torch.compile refuses a function with ``jvp``. So only a subclass, ``function.whole``, has it,
    and ``function`` itself does not. A third one, ``function.lean``, serves calls without a
    compiler, ``torch.func`` and forward mode; torch calls it some ten times faster. The signature
    of ``forward``, which torch inspects at every call, is cached.
    """
    signature = inspect.signature(function.forward)
    function.forward.__signature__ = signature  # type: ignore[attr-defined]
    kinds = [str(parameter.annotation) for parameter in signature.parameters.values()]
    count = sum(kind.startswith("Tensor") for kind in kinds)
    rule: Any = function

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        rule.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[:count])  # until the tangent is computed, which is at once

    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        # torch turns forward mode off here, for this level and for all that it is nested in.
        with forward_ad._set_fwd_grad_enabled(True):
            return rule.tangent(ctx, [_primal(x) for x in ctx.saved_tensors], tangents[:count])

    members = {"setup_context": staticmethod(setup_context), "jvp": staticmethod(jvp)}
    rule.whole = type(rule)(rule.__name__, (rule,), members)
    rule.lean = _lean(rule)
    return function


def _lean(rule: Any) -> type[Function]:
    """The function with its context set up in ``forward``, whose inputs may be :class:`Later`."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = rule.forward(*(None if type(x) is Later else x for x in inputs))
        rule.setup_context(_Context(ctx), inputs, output)
        return output

    def backward(ctx: Any, *grads: Any) -> Any:
        return rule.backward(_Context(ctx), *grads)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kind: Any = type(Function)
    return kind(rule.__name__, (Function,), members)  # type: ignore[no-any-return]


class Later:
    """A tensor that only ``backward`` reads, computed when ``backward`` reads it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make

    def tensor(self) -> Tensor:
        """Compute the tensor."""
        return self._make()


class _Context:
    """A context of autograd whose saved tensors may be :class:`Later`."""

    def __init__(self, ctx: Any) -> None:
        object.__setattr__(self, "_ctx", ctx)

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors for ``backward``; a :class:`Later` is stored as it is."""
        self._ctx.later = {place: x for place, x in enumerate(tensors) if type(x) is Later}
        self._ctx.save_for_backward(*(None if type(x) is Later else x for x in tensors))

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The saved tensors; those saved as :class:`Later` are computed."""
        later: dict[int, Later] = self._ctx.later
        saved = self._ctx.saved_tensors
        return tuple([later[i].tensor() if i in later else x for i, x in enumerate(saved)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)


def _primal(x: Tensor | None) -> Tensor | None:
    """The tensor without its tangent of the innermost level."""
    return None if x is None else forward_ad.unpack_dual(x).primal


def apply(function: Any, *arguments: Any) -> Any:
    """Run an ``autograd.Function`` that is :func:`differentiable`.

    Raises:
        NotImplementedError: torch.compile traces forward-mode differentiation.
    """
    if is_lean():
        if wants_gradients() and any(
            isinstance(given, Tensor) and given.requires_grad for given in arguments
        ):
            return function.lean.apply(*arguments)
        return function.forward(*arguments)
    if not torch.compiler.is_compiling():
        return function.whole.apply(*arguments)
    if forward_ad._current_level >= 0:
        raise NotImplementedError(
            "torch.compile cannot trace jvp of a primitive: call torch.func.jvp outside the "
            "compiled function"
        )
    return function.apply(*arguments)


def is_lean() -> bool:
    """Whether neither a compiler nor ``torch.func`` nor forward mode is active."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def wants_gradients() -> bool:
    """Whether gradients may be required of what runs.

    Not under ``torch.jit.trace``, which can save operators but no autograd functions in Python.
    """
    return torch.is_grad_enabled() and not torch.jit.is_tracing()


def is_differentiated() -> bool:
    """Whether a backward pass may be differentiated itself, in backward or forward mode."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0
