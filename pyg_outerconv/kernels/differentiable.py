"""Both directions of differentiation for one ``autograd.Function``, with and without a compiler."""

from __future__ import annotations

import inspect
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
    call, is remembered.
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
    return function


def _primal(x: Tensor | None) -> Tensor | None:
    """Without its tangent of the innermost level."""
    return None if x is None else forward_ad.unpack_dual(x).primal


def apply(function: Any, *arguments: Any) -> Any:
    """Run an ``autograd.Function`` that is :func:`differentiable`.

    Raises:
        NotImplementedError: a compiler is to trace forward-mode differentiation.
    """
    if not torch.compiler.is_compiling():
        return function.whole.apply(*arguments)
    if forward_ad._current_level >= 0:
        raise NotImplementedError("torch.compile cannot trace jvp of a primitive; leave it outside")
    return function.apply(*arguments)


def is_differentiated() -> bool:
    """Whether a backward pass may be differentiated itself: backwards once more, or forwards."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0
