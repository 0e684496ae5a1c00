"""What families of supports share: one label, and a rule that says who sees whom."""

from __future__ import annotations

from ...graph.structure import Structure
from ..family import Family


class Support(Family):
    """A family that says for each target which sources it sees, and no more: K = 1, all ones.

    It reads any structure, and of most no more than the number of nodes and the graph of each
    (``batch``). Nodes of different graphs never see each other, and a place in a sequence is the
    place in the graph. Where there are edges, they and their weights are not looked at.

    Its basis is a rule where there is one, of which a transform stores nothing, else edges.
    """

    reads: type[Structure] = Structure
    reads_beside: tuple[str, ...] = ()
    symmetries: tuple[str, ...] = ()

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether no structure is asked for."""
        return self.reads is Structure

    @property
    def num_bases(self) -> int:
        """1."""
        return 1
