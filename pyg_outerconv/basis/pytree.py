"""Bases as trees of tensors, so that torch.export, torch.func and the like can look into them.

The leaves of a basis are its tensors, those of the patterns and bases that it is made of included.
All that is no tensor goes with the structure of the tree, but for the size of a pattern, which its
pointers say: so a graph that is traced with one pattern fits others. Choices and what was computed
once stay behind. A tree of something else than tensors, such as the dimensions that ``vmap`` maps
over, is flattened again as it was made.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from torch import Tensor
from torch.utils._pytree import MappingKey, register_pytree_node

Leaves = tuple[list[Any], Any]

_NOTED = ("nesting", "pieces")  # by :func:`.base.nest`
_PARTS = "_parts_of_tree"  # the fields that are leaves, where leaves do not show it

_kinds: set[type[Any]] = set()  # what was registered


def register(kind: type[Any]) -> None:
    """Make a frozen dataclass, whose fields hold tensors and such classes, a tree of these."""

    def unflatten(children: Any, context: Any) -> Any:
        names, rest = context
        made = object.__new__(kind)
        known = {**dict(zip(names, children, strict=True)), **dict(rest)}
        if "target_ptr" in known and isinstance(known["target_ptr"], Tensor):
            ends = known["source_ptr"], known["target_ptr"]
            known["size"] = tuple([ptr.numel() - 1 for ptr in ends])
        for field in fields(kind):
            if field.name not in known and field.default_factory is not MISSING:
                known[field.name] = field.default_factory()  # nothing chosen, nothing kept
        if not all(map(_holds_tensors, children)):
            known[_PARTS] = names
        for name, value in known.items():
            object.__setattr__(made, name, value)
        return made

    _kinds.add(kind)
    register_pytree_node(
        kind,
        _flatten,
        unflatten,
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=_flatten_with_keys,
    )


def _flatten(node: Any) -> Leaves:
    parts, rest, told = {}, [], vars(node).get(_PARTS)
    for field in fields(node):
        if field.name == "size" and _has_ends(node):
            continue
        value = getattr(node, field.name)
        if _holds_tensors(value) if told is None else field.name in told:
            parts[field.name] = value
        elif field.default_factory is MISSING:
            rest.append((field.name, value))
    rest += [(name, vars(node)[name]) for name in _NOTED if name in vars(node)]
    return list(parts.values()), (tuple(parts), tuple(rest))


def _flatten_with_keys(node: Any) -> Leaves:
    children, context = _flatten(node)
    # Not as attributes: torch.export takes "target" for the beginning of "target_ptr".
    keys: list[Any] = [MappingKey(name) for name in context[0]]
    return list(zip(keys, children, strict=True)), context


def _has_ends(node: Any) -> bool:
    return any(field.name == "target_ptr" for field in fields(node))


def _holds_tensors(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(type(part) in _kinds for part in value)
    return isinstance(value, Tensor) or type(value) in _kinds
