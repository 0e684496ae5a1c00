"""Attributes that are computed at their first use, one or several at a time."""

from __future__ import annotations

from typing import Any


class Part:
    """An attribute that a method of its owner computes, perhaps with others, and then stores.

    Args:
        make: the name of the method. It gets the name of the attribute, and returns it in a
            dictionary of attributes; ``_keep`` of the owner stores those that may outlive the call.
    """

    def __init__(self, make: str) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        parts = getattr(owner, self._make)(self._name)
        owner._keep(parts)
        return parts[self._name]


def part(make: str) -> Any:
    """A :class:`Part`, which stands where a tensor is declared."""
    return Part(make)
