"""Both directions of differentiation for one ``autograd.Function``, with and without a compiler."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

_Kind = TypeVar("_Kind", bound=type[Function])


def differentiable(function: _Kind) -> _Kind:
    """Give an ``autograd.Function`` a rule for tangents, which :func:`apply` makes use of.

    The rule is the static method ``tangent(ctx, primals, tangents)``: the derivative of the output
    along the tangents, of all inputs that are tensors, in order (these come first). It is made of
    what is differentiable itself, so that tangents of tangents, and gradients of them, follow. An
    output without derivatives has None.

    torch.compile refuses a function that has ``jvp``; so the function itself has none, and a
    subclass, ``function.whole``, has. The signature of ``forward``, which torch reads at every
    call, is remembered. Where neither a compiler nor ``torch.func`` nor forward mode looks on,
    ``function.lean`` runs, which torch calls some ten times faster.
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
    """The same function with its context made in ``forward``, which may get a :class:`Later`."""

    def forward(ctx: Any, *inputs: Any) -> Any:
        output = rule.forward(*(None if type(given) is Later else given for given in inputs))
        rule.setup_context(_Context(ctx), inputs, output)
        return output

    def backward(ctx: Any, *grads: Any) -> Any:
        return rule.backward(_Context(ctx), *grads)

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kind: Any = type(Function)
    return kind(rule.__name__, (Function,), members)  # type: ignore[no-any-return]


class Later:
    """A tensor that ``forward`` does not read, and ``backward`` may: made when that asks for it."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make = make

    def tensor(self) -> Tensor:
        """The tensor."""
        return self._make()


class _Context:
    """A context of autograd that keeps what is made later beside the tensors that it saves."""

    def __init__(self, ctx: Any) -> None:
        object.__setattr__(self, "_ctx", ctx)

    def save_for_backward(self, *given: Any) -> None:
        """See :meth:`torch.autograd.function.FunctionCtx.save_for_backward`."""
        self._ctx.later = {place: x for place, x in enumerate(given) if type(x) is Later}
        self._ctx.save_for_backward(*(None if type(x) is Later else x for x in given))

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What was saved, all of it made."""
        later: dict[int, Later] = self._ctx.later
        saved = self._ctx.saved_tensors
        return tuple([later[i].tensor() if i in later else x for i, x in enumerate(saved)])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)


def _primal(x: Tensor | None) -> Tensor | None:
    """Without its tangent of the innermost level."""
    return None if x is None else forward_ad.unpack_dual(x).primal


def apply(function: Any, *arguments: Any) -> Any:
    """Run an ``autograd.Function`` that is :func:`differentiable`.

    Raises:
        NotImplementedError: a compiler is to trace forward-mode differentiation.
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
        raise NotImplementedError("torch.compile cannot trace jvp of a primitive; leave it outside")
    return function.apply(*arguments)


def is_lean() -> bool:
    """Whether plain autograd is all that may look on: no compiler, ``torch.func``, forward mode."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def wants_gradients() -> bool:
    """Whether gradients may be wanted of what runs.

    What ``torch.jit.trace`` keeps are operators, which it can save; rules for gradients are Python.
    """
    return torch.is_grad_enabled() and not torch.jit.is_tracing()


def is_differentiated() -> bool:
    """Whether a backward pass may be differentiated itself: backwards once more, or forwards."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0
