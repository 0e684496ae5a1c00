"""Registration of bases: as pytrees, by fields, as what methods return, and by kind."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar, get_type_hints

from torch import Tensor
from torch.utils._pytree import MappingKey, register_pytree_node

Maker = TypeVar("Maker", bound=Callable[..., Any])
Result = TypeVar("Result")
Node = TypeVar("Node")

_makers: dict[str, Callable[..., Any]] = {}


def makes(method: str) -> Callable[[Maker], Maker]:
    """Decorator that registers a function or class as the implementation of a method.

    So ``basis.stack()`` finds what ``Stacked`` says, and no file of the algebra imports one that
    imports it.
    """

    def register(maker: Maker) -> Maker:
        _makers[method] = maker
        return maker

    return register


def make(method: str, *arguments: Any) -> Any:
    """Call the implementation that is registered for a method."""
    return _makers[method](*arguments)


class ByKind(Generic[Result]):
    """A function of a basis that kinds of basis may define anew; decorates that of all others.

    As ``functools.singledispatch``, which no compiler traces.
    """

    def __init__(self, of_others: Callable[..., Result]) -> None:
        self.of_others, self.__doc__ = of_others, of_others.__doc__
        self._of_kind: dict[type[Any], Callable[..., Result]] = {}

    def register(self, function: Maker, kind: type[Any] | None = None) -> Maker:
        """Decorator of the function for a kind, that of its annotated first argument if None."""
        self._of_kind[kind or next(iter(get_type_hints(function).values()))] = function
        return function

    def __call__(self, basis: Any, *arguments: Any, **options: Any) -> Result:
        for kind in type(basis).__mro__:
            if kind in self._of_kind:
                return self._of_kind[kind](basis, *arguments, **options)
        return self.of_others(basis, *arguments, **options)


Leaves = tuple[list[Any], Any]

_NESTING = ("nesting", "pieces")  # set by :class:`.algebra.Compound`
_PARTS = "_parts_of_tree"  # the fields that are leaves, if the leaves are not tensors

_kinds: set[type[Any]] = set()  # the registered classes


def register(kind: type[Any]) -> None:
    """Register a frozen dataclass, whose tensors and registered fields become its children."""

    def unflatten(children: Any, context: Any) -> Any:
        names, rest = context
        node = object.__new__(kind)
        attributes = {**dict(zip(names, children, strict=True)), **dict(rest)}
        if "target_ptr" in attributes and isinstance(attributes["target_ptr"], Tensor):
            ends = attributes["source_ptr"], attributes["target_ptr"]
            attributes["size"] = tuple([ptr.numel() - 1 for ptr in ends])
        if not all(map(_holds_tensors, children)):
            attributes[_PARTS] = names
        for name, value in attributes.items():
            object.__setattr__(node, name, value)
        return node

    _kinds.add(kind)
    register_pytree_node(
        kind,
        _flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=_flatten_with_keys,
    )


def _flatten(node: Any) -> Leaves:
    parts, rest, names = {}, [], vars(node).get(_PARTS)
    for field in fields(node):
        if field.name == "size" and _has_ends(node):
            continue
        value = getattr(node, field.name)
        if _holds_tensors(value) if names is None else field.name in names:
            parts[field.name] = value
        else:
            rest.append((field.name, value))
    rest += [(name, vars(node)[name]) for name in _NESTING if name in vars(node)]
    return list(parts.values()), (tuple(parts), tuple(rest))


def _flatten_with_keys(node: Any) -> Leaves:
    children, context = _flatten(node)
    # Mapping keys, because torch.export takes the attribute "target" for a prefix of "target_ptr".
    keys: list[Any] = [MappingKey(name) for name in context[0]]
    return list(zip(keys, children, strict=True)), context


def _has_ends(node: Any) -> bool:
    return any(field.name == "target_ptr" for field in fields(node))


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(type(part) in _kinds for part in value)
    return isinstance(value, Tensor) or type(value) in _kinds


# Fields -------------------------------------------------------------------------------------------


def contents(node: Any) -> list[Any]:
    """The fields of a basis, and the items of those that are tuples of bases."""
    parts: list[Any] = []
    for name in node.__dataclass_fields__:  # faster than fields(), if with some more
        value = getattr(node, name)
        if type(value) is tuple and value and type(value[0]) in _kinds:
            parts += value
        else:
            parts.append(value)
    return parts


def with_contents(node: Node, change: Callable[[Any], Any]) -> Node:
    """The basis with ``change`` applied to each field, and to each item of a tuple of bases."""
    changes = {}
    for field in fields(node):  # type: ignore[arg-type]
        old = getattr(node, field.name)
        of_bases = isinstance(old, tuple) and any(type(part) in _kinds for part in old)
        new = tuple(change(part) for part in old) if of_bases else change(old)
        same = all(map(operator.is_, new, old)) if of_bases else new is old
        if field.init and not same:
            changes[field.name] = new
    return replace(node, **changes) if changes else node  # type: ignore[type-var]
