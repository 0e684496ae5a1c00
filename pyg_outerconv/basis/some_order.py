"""Values of small edge lists, which stay in input order until the sorted order is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .pattern import Pattern


class InSomeOrder:
    """A mixin for a basis with a pattern and values, which may still be in input order.

    Attributes:
        pattern: the edges.
        value: (E, *) in the pattern's order, or None for ones; computed from ``given`` when needed.
        given: (E, *) in the input order of the edges, if stored.
    """

    if TYPE_CHECKING:
        pattern: Pattern

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: values in input order are sorted here.
        if name != "value" or "given" not in vars(self):
            raise AttributeError(name)
        given = vars(self)["given"]
        value = given.index_select(0, self.pattern.order)
        if torch.compiler.is_compiling():  # a traced tensor must not be cached
            return value
        lasts = value.requires_grad == given.requires_grad and not torch.is_inference_mode_enabled()
        if lasts and not torch._C._are_functorch_transforms_active():
            # Cached: later products use this tensor, so that gradients reach it.
            object.__setattr__(self, "value", value)
        return value

    @property
    def _listed(self) -> Tensor | None:
        """The values in input order; None if there are none, or sorted ones require gradients."""
        held = vars(self)
        value: Tensor | None = held.get("value")
        return None if value is not None and value.requires_grad else held.get("given")

    @property
    def _in_some_order(self) -> Tensor | None:
        """The values, sorted or in input order."""
        held = vars(self)
        found: Tensor | None = held["value"] if "value" in held else held["given"]
        return found
