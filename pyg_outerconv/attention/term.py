"""Index terms: numbers added to the score of an edge for the positions of its ends."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal


@runtime_checkable
class IndexTerm(Protocol):
    """A number for each edge and head, from the position of its source relative to its target.

    A ``torch.nn.Module`` whose result is added to scores before they are normalised, so that
    attention depends on indices as well as on content. It maps D coordinates of an edge to
    H numbers, so there is no tensor of edges × channels.

    Attributes:
        heads: H.
    """

    heads: int

    def forward(self, relative: Tensor) -> Tensor:
        """The terms of the edges.

        Args:
            relative: (E, D) floating point, the position of each edge's source minus that of its
                target.

        Returns:
            (E, H), in the dtype of ``relative``, or in a wider dtype of parameters.
        """
        ...

    def __call__(self, relative: Tensor) -> Tensor:
        """:meth:`forward`, as modules are called."""
        ...


def check_relative(relative: Tensor, axes: int | None = None) -> None:
    """Refuse relative positions that are not (E, axes); (E, D) with any D if ``axes`` is None.

    Raises:
        TypeError: ``relative`` is not floating point.
        ValueError: ``relative`` has another shape.
    """
    if not isinstance(relative, Tensor) or not relative.is_floating_point():
        got = getattr(relative, "dtype", type(relative).__name__)
        raise RefusedType(refusal("relative positions are floating point", "torch.float32", got))
    if relative.dim() != 2 or axes not in (None, relative.size(1)):
        wanted = f"(E, {'D' if axes is None else axes})"
        raise RefusedValue(
            refusal("edges have a relative position on each axis", wanted, tuple(relative.shape))
        )
