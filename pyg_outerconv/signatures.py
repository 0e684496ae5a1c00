"""Arguments checked against the types that a function says it takes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import InitVar
from functools import cache, wraps
from itertools import takewhile
from numbers import Integral, Real
from types import SimpleNamespace
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor
from torch.nn import Parameter

from .errors import RefusedType, RefusedValue

_Function = TypeVar("_Function", bound=Callable[..., Any])

LARGEST = 2**63
"""Integers are below it, and not below its negative, as those of torch are."""


def typed(function: _Function, *, but: tuple[str, ...] = ()) -> _Function:
    """Refuse arguments of other types than the annotations of a function, before it runs.

    Not those in ``but``, nor under compilers and tracers, which follow the function alone and where
    sizes are tensors.
    """
    if isinstance(function, type):
        function.__init__ = typed(function.__init__, but=but)  # type: ignore[misc]
        return function
    names = _names(function)
    what = function.__qualname__.removesuffix(".__init__")
    plain: dict[str, tuple[type, ...]] = {}

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if not (torch.compiler.is_compiling() or torch._C._get_tracing_state()):
            plain_types = plain or plain.update(_plain_types(function)) or plain
            # The number of arguments is Python's to check.
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                kind = type(value)
                is_plain = kind in plain_types.get(name, ()) and (
                    kind is not int or -LARGEST <= value < LARGEST
                )
                if not is_plain and name not in but:
                    check_type(what, name, value, _hints(function).get(name, Any))
        return function(*args, **kwargs)

    return checked  # type: ignore[return-value]


def _names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the positional arguments, in their order."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return tuple(one.name for one in takewhile(lambda one: one.kind not in several, parameters))


def check_type(what: str, name: str, value: Any, hint: Any) -> None:
    """Refuse a value that does not have the type of an argument."""
    if fits(value, hint):
        return
    if is_integer(value) and fits(0, hint):
        raise RefusedValue(f"{what}'s {name} has at most 64 bits", "[-2^63, 2^63)", value)
    got = value if isinstance(value, Tensor) else repr(value)
    raise RefusedType(f"{what}'s {name} has a type", describe(hint), got)


def types_of(kind: type[Any]) -> dict[str, Any]:
    """The type of each argument of a class; the name of one that takes any number has a ``*``."""
    hints = {**_hints(kind), **_hints(kind.__init__)}  # type: ignore[arg-type, misc]
    return {
        f"*{name}" if one.kind is one.VAR_POSITIONAL else name: hints.get(name, Any)
        for name, one in inspect.signature(kind).parameters.items()
    }


def why_not(kind: type[Any], arguments: Iterable[Any], options: dict[str, Any]) -> str | None:
    """Why the arguments of a class cannot be these; None if they can."""
    signature = inspect.signature(kind)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        return f"{error}, where it takes ({', '.join(signature.parameters)})"
    return None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an argument; a bool is not a number."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in _UNIONS:
        return any(fits(value, part) for part in parts)
    if origin is tuple and parts[-1] is not ...:
        return isinstance(value, tuple | list) and (
            len(value) == len(parts) and all(map(fits, value, parts))
        )
    if origin in (tuple, list, Sequence):
        kinds = Sequence if origin is Sequence else tuple | list
        is_list = isinstance(value, kinds) and not isinstance(value, str)
        return is_list and all(fits(part, parts[0]) for part in value)
    if origin is Iterable:
        is_list = isinstance(value, Iterable) and not isinstance(value, str)
        own = value if isinstance(value, tuple | list) else ()
        return is_list and all(fits(part, parts[0]) for part in own)
    if hint is int:
        return isinstance(value, torch.SymInt) or (
            is_integer(value) and -LARGEST <= value < LARGEST
        )
    if hint is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(hint, TypeVar):
        hint = hint.__bound__ or Any
    if hint is Any or isinstance(hint, str | InitVar):
        return True
    if getattr(hint, "_is_protocol", False) and not getattr(hint, "_is_runtime_protocol", False):
        return callable(value)
    return isinstance(value, origin or hint)


def is_integer(value: Any) -> bool:
    """Whether a value is an integer; bool does not count as one."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def describe(hint: Any) -> str:
    """A type hint in words."""
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(describe(part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        part = get_args(hint)[0]
        said = describe(part)
        if get_origin(part) is tuple:
            return f"lists of {said}"
        return "families with commas" if said == "a family" else f"{said}s with commas"
    if get_origin(hint) in (list, Sequence, Iterable):
        return f"{describe(get_args(hint)[0])}s in a list"
    if hint is type(None):
        return "none"
    if isinstance(hint, type) and hint.__name__ == "Family":
        return "a family"
    if getattr(hint, "_is_protocol", False) or get_origin(hint) is Callable:
        return "a function"
    return _WORDS.get(hint) or str(getattr(hint, "__name__", hint))


_WORDS = {int: "integer", float: "number", str: "text", bool: "switch", Tensor: "a tensor"}


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError:  # names that are imported for types alone
        pass
    hints: dict[str, Any] = {}
    for name, text in function.__annotations__.items():
        with suppress(NameError):
            one = SimpleNamespace(__annotations__={name: text})
            hints |= get_type_hints(one, inspect.unwrap(function).__globals__)
    return hints


def _plain_types(function: Callable[..., Any]) -> dict[str, tuple[type, ...]]:
    """The classes that fit the annotation of each argument at a glance."""
    hints = _hints(function)
    of_tensors = (Tensor, Parameter)
    return {
        name: tuple(
            kind
            for part in (get_args(hint) if get_origin(hint) in _UNIONS else (hint,))
            for kind in (
                of_tensors if part is Tensor else (float, int) if part is float else (part,)
            )
            if isinstance(kind, type)
        )
        for name, hint in hints.items()
    }


_UNIONS = (Union, types.UnionType)
