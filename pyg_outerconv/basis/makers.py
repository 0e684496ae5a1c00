"""A registry of what methods of :class:`Basis` call, so that no two files import each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Maker = TypeVar("Maker", bound=Callable[..., Any])

_makers: dict[str, Callable[..., Any]] = {}


def makes(method: str) -> Callable[[Maker], Maker]:
    """Decorator that registers a function or class as the implementation of a method."""

    def register(maker: Maker) -> Maker:
        _makers[method] = maker
        return maker

    return register


def make(method: str, *given: Any) -> Any:
    """Call the implementation that is registered for a method."""
    return _makers[method](*given)
