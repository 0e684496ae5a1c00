"""Copies of frozen dataclasses with other fields, without the checks of a constructor."""

from __future__ import annotations

from typing import Any, TypeVar

Record = TypeVar("Record")


def changed(instance: Record, **changes: Any) -> Record:
    """A copy with some fields changed; faster than ``dataclasses.replace``.

    The fields are set one by one, because torch's compiler may not follow ``vars(new).update()``.
    """
    new = object.__new__(type(instance))
    own = vars(new)
    for name in type(instance).__dataclass_fields__:  # type: ignore[attr-defined]
        own[name] = changes[name] if name in changes else getattr(instance, name)
    return new
