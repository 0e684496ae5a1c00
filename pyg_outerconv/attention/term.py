"""Index terms: what the positions of its two ends add to the score of an edge."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal


@runtime_checkable
class IndexTerm(Protocol):
    """A number for each edge and head, of where its source lies as seen from its target.

    A ``torch.nn.Module`` whose result is added to scores before they are normalised, so that
    attention depends on indices as well as on content. It sees D coordinates of an edge and gives
    H numbers, so nothing of edges × channels is made.

    Attributes:
        heads: H.
    """

    heads: int

    def forward(self, relative: Tensor) -> Tensor:
        """The terms of the edges.

        Args:
            relative: (E, D) floating point, the position of each edge's source less that of its
                target.

        Returns:
            (E, H), of the type of ``relative``, or a wider one that parameters have.
        """
        ...

    def __call__(self, relative: Tensor) -> Tensor:
        """:meth:`forward`, as modules are called."""
        ...


def check_relative(relative: Tensor, axes: int | None = None) -> None:
    """Refuse what is no relative position of edges on ``axes`` axes (on any number, if None).

    Raises:
        TypeError: they are not floating point.
        ValueError: they have another shape.
    """
    if not isinstance(relative, Tensor) or not relative.is_floating_point():
        got = getattr(relative, "dtype", type(relative).__name__)
        raise RefusedType(refusal("relative positions are floating point", "torch.float32", got))
    if relative.dim() != 2 or axes not in (None, relative.size(1)):
        wanted = f"(E, {'D' if axes is None else axes})"
        raise RefusedValue(
            refusal("edges have a relative position on each axis", wanted, tuple(relative.shape))
        )
