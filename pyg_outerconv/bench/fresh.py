"""A new graph for each call, as loaders and samplers make it: copies that no cache knows."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

Graph = tuple[Tensor, ...]


class Fresh:
    """Returns copies of some graphs in turn, so that nothing cached by identity or by value helps.

    Copies are made by :meth:`ready`, which is not timed, and live until it is called again.

    Args:
        graphs: each some tensors, such as features, edges and types; a copy of one that requires
            a gradient requires one.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = graphs
        self._copies: list[Graph] = []
        self._turn = self._next = 0

    def ready(self, count: int) -> None:
        """Have copies for some calls."""
        numbers = [(self._turn + step) % len(self.graphs) for step in range(count)]
        self._copies = [tuple(map(_copy, self.graphs[number])) for number in numbers]
        self._turn, self._next = self._turn + count, 0

    def take(self) -> Graph:
        """A copy that was not returned before; made now if none is prepared."""
        if self._next == len(self._copies):
            self.ready(1)
        taken = self._copies[self._next]
        self._next += 1
        return taken


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
