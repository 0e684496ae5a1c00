"""What methods of a basis make that other files define: those files say so here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Maker = TypeVar("Maker", bound=Callable[..., Any])

_makers: dict[str, Callable[..., Any]] = {}


def makes(method: str) -> Callable[[Maker], Maker]:
    """Register what is below as what that method of every basis, or of a pattern, calls."""

    def note(maker: Maker) -> Maker:
        _makers[method] = maker
        return maker

    return note


def make(method: str, *given: Any) -> Any:
    """What was registered for a method makes of these arguments."""
    return _makers[method](*given)
