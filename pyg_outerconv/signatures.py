"""Arguments checked against the types that a function says it takes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor
from torch.nn import Parameter

from .errors import RefusedType

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def typed(
    function: Callable[_Arguments, _Result], *, but: tuple[str, ...] = ()
) -> Callable[_Arguments, _Result]:
    """Refuse arguments of other types than the annotations of a function, before it runs.

    Not under a compiler, which traces the function alone.

    Args:
        function: the function; annotations that name what is imported for types alone are ignored.
        but: arguments that it checks itself.

    Raises:
        TypeError: an argument does not have its type.
    """
    names = tuple(inspect.signature(function).parameters)
    what = function.__qualname__.removesuffix(".__init__")
    plain: dict[str, tuple[type, ...]] = {}

    @wraps(function)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if not torch.compiler.is_compiling():
            known = plain or plain.update(_plain_types(function)) or plain
            # The number of arguments is Python's to check.
            for name, value in (*zip(names, args, strict=False), *kwargs.items()):
                if type(value) not in known.get(name, ()) and name not in but:
                    check_type(what, name, value, _hints(function).get(name, Any))
        return function(*args, **kwargs)

    return checked


def check_type(what: str, name: str, value: Any, hint: Any) -> None:
    """Refuse a value that does not have the type of an argument.

    Raises:
        TypeError: it does not.
    """
    if not fits(value, hint):
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
    try:
        inspect.signature(kind).bind(*arguments, **options)
    except TypeError as error:
        return str(error)
    return None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the type of an argument; a bool is not a number."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple | list) and all(
            any(fits(part, kind) for kind in get_args(hint) if kind is not ...) for part in value
        )
    if hint in (int, float):
        return isinstance(value, Integral if hint is int else Real) and not isinstance(value, bool)
    if hint is Any or isinstance(hint, TypeVar | str):
        return True
    return isinstance(value, origin or hint)


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
    if hint is type(None):
        return "none"
    if isinstance(hint, type) and hint.__name__ == "Family":
        return "a family"
    if getattr(hint, "_is_protocol", False):
        return "a function"
    return _WORDS.get(hint) or str(getattr(hint, "__name__", hint))


_WORDS = {int: "integer", float: "number", str: "text", bool: "switch", Tensor: "a tensor"}


@cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except NameError:
        return {}


def _plain_types(function: Callable[..., Any]) -> dict[str, tuple[type, ...]]:
    """The classes that fit the annotation of each argument at a glance."""
    hints = _hints(function)
    of_tensors = (Tensor, Parameter)
    return {
        name: tuple(
            kind
            for part in (get_args(hint) if get_origin(hint) in _UNIONS else (hint,))
            for kind in (of_tensors if part is Tensor else (part,))
            if isinstance(kind, type)
        )
        for name, hint in hints.items()
    }


_UNIONS = (Union, types.UnionType)
