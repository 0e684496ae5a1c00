"""The ways in which a basis is sent as messages, of which a kind takes its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

if TYPE_CHECKING:
    from .edges import EdgeBasis
    from .eye import Eye
    from .polynomial import Polynomial


class Sender(Protocol):
    """Sends features by messages, and says what targets receive: (N, *batch, Q)."""

    def along(self, edges: EdgeBasis) -> Tensor:
        """A message for each edge."""
        ...

    def step_by_step(self, polynomial: Polynomial) -> Tensor:
        """A message for each edge of the operator and each power but the zeroth."""
        ...

    def to_itself(self, eye: Eye) -> Tensor:
        """What nodes keep."""
        ...
