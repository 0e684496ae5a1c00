"""Values of few edges, which are held as they were given until something asks for an order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .pattern import Pattern


class InSomeOrder:
    """A basis with a pattern, and a ``value`` for each edge of it: sorted, or not yet.

    Attributes:
        pattern: the edges.
        value: (E, *) in the pattern's order, or None for ones; made of ``given`` if asked for.
        given: (E, *) in the order in which the pattern's edges were given, where that is held.
    """

    if TYPE_CHECKING:
        pattern: Pattern

    def __getattr__(self, name: str) -> Any:
        # What is not there yet: the values of few edges, which were given in another order.
        if name != "value" or "given" not in vars(self):
            raise AttributeError(name)
        given = vars(self)["given"]
        value = given.index_select(0, self.pattern.order)
        if torch.compiler.is_compiling():  # whose tensors are those of a graph
            return value
        lasts = value.requires_grad == given.requires_grad and not torch.is_inference_mode_enabled()
        if lasts and not torch._C._are_functorch_transforms_active():
            # From now on it is what products are made of, so that gradients reach it.
            object.__setattr__(self, "value", value)
        return value

    @property
    def _listed(self) -> Tensor | None:
        """The values as given; None without any, or if sorted ones may want gradients."""
        held = vars(self)
        value: Tensor | None = held.get("value")
        return None if value is not None and value.requires_grad else held.get("given")

    @property
    def _in_some_order(self) -> Tensor | None:
        """The values, sorted or as given."""
        held = vars(self)
        found: Tensor | None = held["value"] if "value" in held else held["given"]
        return found
