"""Caches: by identity the same unmodified tensors give the same result, without a second look.

Keys are tensor objects, never data pointers, which are reused; an entry dies with its tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class ValueCache:
    """The last few results by a hashable key: for rules, which no tensor stands for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[Hashable, tuple[Any, ...]] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The kept result, or that of ``make()``, which is then kept; the oldest one goes."""
        known = self._entries.pop(key, ())
        result = known[0] if known else make()
        self._entries[key] = (result,)
        while len(self._entries) > self._limit:
            self._entries.pop(next(iter(self._entries)), None)
        return result

    def __len__(self) -> int:
        return len(self._entries)


class IdentityCache:
    """Results by the identity of an anchor tensor, of further tensors, and by a hashable key.

    A hit needs the very same tensor objects, none of them changed in place since (as autograd
    counts changes, which writing to ``.data`` or through numpy evades), and an equal key. A result
    must not refer to the tensors it is kept under, or none of them is ever freed.
    """

    def __init__(self) -> None:
        self._entries: Any = WeakIdKeyDictionary()

    def get(
        self,
        anchor: Tensor,
        others: tuple[Tensor | None, ...],
        key: Hashable,
        make: Callable[[], Any],
    ) -> Any:
        """The kept result, or that of ``make()``, which is then kept."""
        if any(t is not None and t.is_inference() for t in (anchor, *others)):
            return make()  # Tensors of inference mode do not count their changes.
        versions = tuple(None if t is None else t._version for t in (anchor, *others))
        entries: dict[Hashable, tuple[Any, Any, Any]] = self._entries.setdefault(anchor, {})
        if key in entries:
            references, known_versions, result = entries[key]
            same = all(
                other is None if reference is None else reference() is other
                for reference, other in zip(references, others, strict=True)
            )
            if same and known_versions == versions:
                return result
        with torch.inference_mode(False):  # Training may come after inference.
            result = make()
        references = tuple(None if t is None else weakref.ref(t) for t in others)
        entries[key] = (references, versions, result)
        return result

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())
