"""Primitives: functions of tensors with derivatives of every order, and operators of torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar, TypeVar, get_type_hints

import torch
from torch import Tensor
from torch._C._functorch import (
    get_unwrapped,
    is_functorch_wrapped_tensor,
    is_gradtrackingtensor,
    is_legacy_batchedtensor,
)
from torch.autograd import Function, forward_ad
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from .backend import BACKENDS, Request
from .capture import unsafe_to_capture
from .dispatch import RECORDERS, log_call
from .index_checks import PLAIN

_Result = TypeVar("_Result")
_INDICES = ("ptr", "index", "label", "gather", "scatter", "ptr_t", "index_t", "perm_t")
_NOTHING = nullcontext()


class Primitive:
    """A function of tensors with derivatives, called by :meth:`apply`.

    The arguments of ``forward`` are first the operands, which are tensors or None and may require
    gradients, then all others. A subclass defines, as static methods,

    - ``forward(*arguments)``: the result, or a tuple of it and of tensors without derivatives,
    - ``gradients(ctx, grad, ...)``: the gradients of the operands,
    - ``tangent(ctx, primals, tangents)``: the derivative of the result along tangents of the
      operands, by differentiable operations, so that higher derivatives follow; or it derives from
      :class:`LinearInEach`.

    ``ctx.saved_tensors`` holds what :meth:`keep` saves, ``ctx.rest`` the other arguments. Matrices
    are passed as a :class:`~.csr.CSR`.

    torch.compile refuses an ``autograd.Function`` with ``jvp``, and torch calls one without
    ``setup_context`` some ten times faster. So there are three: ``traced`` for a compiler,
    ``whole`` for ``torch.func`` and forward mode, ``lean`` for all other calls.

    Attributes:
        operands: the number of operands.
        batch_axis: the dimension of operands into which vmap folds a batch, the heads by default;
            None to call the function once for each item of the batch.
        result_axis: that dimension of the results.
        saves: whether :meth:`keep` saves anything for ``gradients``.
        of_primitives: whether all passes are operations that vmap knows, such as other primitives:
            torch then derives the rule of vmap from them.
    """

    operands: ClassVar[int]
    batch_axis: ClassVar[int | None] = 1
    result_axis: ClassVar[int] = 1
    saves: ClassVar[bool] = True
    of_primitives: ClassVar[bool] = False
    forward: ClassVar[Callable[..., Any]]
    gradients: ClassVar[Callable[..., Any]]
    tangent: ClassVar[Callable[..., Any]]
    traced: ClassVar[Any]
    whole: ClassVar[Any]
    lean: ClassVar[Any]

    def __init_subclass__(cls) -> None:
        rule, count = cls, cls.operands
        # torch inspects the signature at every call.
        signature = inspect.signature(cls.forward)
        cls.forward.__signature__ = signature  # type: ignore[attr-defined]

        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.rest = inputs[count:]
            if rule.saves:
                rule.keep(ctx, inputs[:count], output)

        def backward(ctx: Any, *grads: Any) -> Any:
            return *rule.gradients(ctx, *grads), *(None,) * len(ctx.rest)

        def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
            return rule.vmap(info, in_dims, *arguments)

        def setup_whole(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            setup_context(ctx, inputs, output)
            ctx.save_for_forward(*inputs[:count])  # until the tangent is computed, which is at once

        def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
            # torch turns forward mode off here, for this level and for all that it is nested in.
            with forward_ad._set_fwd_grad_enabled(True):
                return rule.tangent(ctx, [_primal(x) for x in ctx.saved_tensors], tangents[:count])

        def forward(ctx: Any, *inputs: Any) -> Any:
            output = rule.forward(*inputs)
            setup_context(ctx, inputs, output)
            return output

        traced: dict[str, Any] = {"forward": cls.forward, "setup_context": setup_context}
        if cls.of_primitives:
            traced["generate_vmap_rule"] = True
        else:
            traced["vmap"] = vmap
        cls.traced = _function(cls.__name__, backward=backward, **traced)
        whole = {**traced, "setup_context": setup_whole, "jvp": jvp}
        cls.whole = _function(cls.__name__, backward=backward, **whole)
        cls.lean = _function(cls.__name__, backward=backward, forward=forward)

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """The result for these arguments."""
        if not torch.compiler.is_compiling():
            if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
                # Indices that were made within an inner level are no tensors of an outer one.
                rest = [_unwrapped(x) for x in arguments[cls.operands :]]
                return cls.whole.apply(*arguments[: cls.operands], *rest)
            if torch.is_grad_enabled() and not torch._C._is_tracing():
                for operand in arguments[: cls.operands]:
                    if operand is not None and operand.requires_grad:
                        return cls.lean.apply(*arguments)
            return cls.forward(*arguments)
        if forward_ad._current_level >= 0:
            raise NotImplementedError(
                "torch.compile cannot trace jvp of a primitive: call torch.func.jvp outside the "
                "compiled function"
            )
        return cls.traced.apply(*_distinct_views(arguments))

    @staticmethod
    def keep(ctx: Any, operands: Sequence[Tensor | None], output: Any) -> None:
        """Save tensors for ``gradients``: the operands, and all results if there are several."""
        outputs = output if isinstance(output, tuple) else ()
        if outputs:
            ctx.mark_non_differentiable(*outputs[1:])
        ctx.save_for_backward(*operands, *outputs)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        """The results for a batch, and the dimension of the batch in them."""
        if cls.batch_axis is None:
            return item_by_item(cls.apply, info, in_dims, arguments)
        operands = folded(info, in_dims, arguments[: cls.operands], cls.batch_axis)
        output = cls.apply(*operands, *arguments[cls.operands :])
        outs = output if isinstance(output, tuple) else (output,)
        axis, shape = cls.result_axis, (-1, info.batch_size)
        outs = tuple([out.unflatten(axis, shape) for out in outs])
        return (outs, (axis + 1,) * len(outs)) if isinstance(output, tuple) else (outs[0], axis + 1)


class LinearInEach:
    """What a primitive that is linear in each operand derives from first, for its tangent."""

    @classmethod
    def tangent(cls: Any, ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Any:
        """The sum over the operands, each with its tangent in its place."""
        terms = [
            cls.apply(*primals[:at], tangents[at], *primals[at + 1 :], *ctx.rest)
            for at, primal in enumerate(primals)
            if primal is not None
        ]
        return sum(terms[1:], terms[0])


def item_by_item(
    call: Callable[..., Any], info: Any, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]
) -> tuple[Any, Any]:
    """A rule of vmap: one call for each item of the batch."""
    outs = []
    for item in range(info.batch_size):
        one = [
            argument.select(dim, item) if isinstance(dim, int) else argument
            for argument, dim in zip(arguments, in_dims, strict=True)
        ]
        outs.append(call(*one))
    if isinstance(outs[0], tuple):
        return tuple([torch.stack(out) for out in zip(*outs, strict=True)]), (0,) * len(outs[0])
    return torch.stack(outs), 0


def folded(
    info: Any, in_dims: tuple[Any, ...], operands: Sequence[Tensor | None], axis: int
) -> list[Tensor | None]:
    """Fold a batch into the dimension ``axis``; operands without it, or with one head, expand."""
    batched = [
        None if x is None else x.unsqueeze(axis + 1) if dim is None else x.movedim(dim, axis + 1)
        for x, dim in zip(operands, in_dims, strict=False)
    ]
    heads = max(x.size(axis) for x in batched if x is not None)
    return [
        None
        if x is None
        else x.expand(*x.shape[:axis], heads, info.batch_size, *x.shape[axis + 2 :]).flatten(
            axis, axis + 1
        )
        for x in batched
    ]


def operator(
    method: Callable[..., _Result],
    request: Callable[..., Request] | None = None,
    direct: bool = True,
    reads: bool = False,
    like: Callable[..., _Result] | None = None,
) -> Callable[..., _Result]:
    """A primitive of :class:`~.backend.Backend`, called with its arguments and a backend's name.

    The fields of named tuples are arguments by themselves. It has no derivatives. It is an operator
    of torch, so that a compiler sees one node; where nothing looks on, the backend is called
    directly, for the way to a Python operator takes as long as a small product. ``method`` itself
    tells torch the shapes of the results, if not ``like``.

    Args:
        method: the method of the base class.
        request: the :class:`Request` of a call, from the same arguments, for records of calls.
        direct: whether the backend may be called directly.
        reads: whether torch's own kernels, which serve a GPU without Triton, read numbers.
        like: from the same arguments, empty tensors of the shapes of the results.
    """
    name = method.__name__
    signature = inspect.signature(method, eval_str=True)
    taken, kind = list(signature.parameters.values())[1:], inspect.Parameter.POSITIONAL_OR_KEYWORD
    packers = [_packer(one.annotation) for one in taken]
    fields = [each for one in taken for each in _fields(one.name, one.annotation)]
    parameters = [inspect.Parameter(field, kind, annotation=hint) for field, hint in fields]
    operands = [
        place
        for place, parameter in enumerate(parameters)
        if parameter.annotation in (Tensor, Tensor | None) and parameter.name not in _INDICES
    ]

    def packed(inputs: Iterable[Any]) -> list[Any]:
        rest = iter(inputs)
        return [packer(rest) for packer in packers]

    def run(*arguments: Any) -> Any:
        *inputs, backend = arguments
        implementation = BACKENDS[backend]
        if RECORDERS and request is not None:
            log_call(implementation, request(*inputs))
        inputs = [
            (_unwrapped(x) if is_gradtrackingtensor(x) else x).contiguous()
            if isinstance(x, Tensor)
            else x
            for x in inputs
        ]
        device = inputs[0].device.type
        inputs = packed(inputs) if len(packers) < len(inputs) else inputs
        if not torch.is_autocast_enabled(device):
            return getattr(implementation, name)(*inputs)
        with torch.autocast(device, enabled=False):  # the caller has settled the dtypes
            return getattr(implementation, name)(*inputs)

    backend = inspect.Parameter("backend", kind, annotation=str)
    run.__signature__ = signature.replace(parameters=[*parameters, backend])  # type: ignore[attr-defined]
    options = unsafe_to_capture() if reads and find_spec("triton") is None else {}
    registered = torch.library.custom_op(f"pyg_outerconv::{name}", run, mutates_args=(), **options)
    fake_impl = partial(method, None) if like is None else like
    registered.register_fake(lambda *arguments: fake_impl(*packed(arguments[:-1])))

    def call(*arguments: Any) -> Any:
        plain = direct and is_plain(*[arguments[place] for place in operands])
        return run(*arguments) if plain else registered(*arguments)

    return call


def _fields(name: str, hint: Any) -> list[tuple[str, Any]]:
    """The arguments that stand for one: itself, or the fields of a named tuple."""
    if not hasattr(hint, "_fields"):
        return [(name, hint)]
    return [one for field, kind in get_type_hints(hint).items() for one in _fields(field, kind)]


def _packer(hint: Any) -> Callable[[Iterator[Any]], Any]:
    """From what follows to the next argument of a type, whose fields are given one by one."""
    if not hasattr(hint, "_fields"):
        return next
    packers = [_packer(kind) for kind in get_type_hints(hint).values()]
    return lambda rest: hint(*[packer(rest) for packer in packers])


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether a kernel may be called directly, not as an operator of torch.

    This is so without a compiler, a tracer, a dispatch mode, and wrapped tensors of ``torch.func``.
    """
    return (
        not torch.compiler.is_compiling()
        and _len_torch_dispatch_stack() == 0
        and not torch.jit.is_tracing()
        and all(
            tensor is None
            or (
                type(tensor) in PLAIN
                and not tensor.is_meta
                and not is_functorch_wrapped_tensor(tensor)
                and not is_legacy_batchedtensor(tensor)  # of is_grads_batched
            )
            for tensor in tensors
        )
    )


def is_lean() -> bool:
    """Whether neither a compiler nor ``torch.func`` nor forward mode is active."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def is_differentiated() -> bool:
    """Whether a backward pass may be differentiated itself, in backward or forward mode."""
    return torch.is_grad_enabled() or forward_ad._current_level >= 0


def without_autocast(device: str) -> AbstractContextManager[object]:
    """Turn autocast off in the block."""
    on = device != "meta" and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if on else _NOTHING


def within_operator() -> AbstractContextManager[object]:
    """Differentiate in the block, within an operator of torch, which turns autograd off."""
    off, keys = torch._C._dispatch_tls_local_exclude_set(), torch._C.DispatchKey
    for key in (keys.AutogradFunctionality, keys.ADInplaceOrView):
        off = off.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), off)


def _function(name: str, **members: Any) -> Any:
    kind: Any = type(Function)
    own = {key: staticmethod(part) if callable(part) else part for key, part in members.items()}
    return kind(name, (Function,), own)


def _unwrapped(x: Any) -> Any:
    """A tensor without the wrappers of differentiation, which torch leaves on indices.

    torch unwraps the arguments of a function that it differentiates, but not those in a view.
    """
    while isinstance(x, Tensor) and is_gradtrackingtensor(x):
        x = get_unwrapped(x)
    return x


def _primal(x: Tensor | None) -> Tensor | None:
    """The tensor without its tangent of the innermost level."""
    return None if x is None else forward_ad.unpack_dual(x).primal


def _distinct_views(arguments: Sequence[Any]) -> list[Any]:
    """The arguments, with each repetition of a tensor replaced by a view of it.

    torch.compile cannot trace an ``autograd.Function`` that gets the same tensor twice.
    """
    out: list[Any] = []
    for argument in arguments:
        again = isinstance(argument, Tensor) and any(argument is other for other in out)
        out.append(argument.view_as(argument) if again else argument)
    return out
