"""Base class of supports: families with one label and a value of 1 on every edge."""

from __future__ import annotations

from ...graph.structure import Structure
from ..family import Family


class Support(Family):
    """A family whose basis has edges from the sources that a target sees: K = 1, all values 1.

    It reads any structure, and most supports read only the number of nodes and the graph of each
    (``batch``). Nodes of different graphs never see each other, and the place of a node in a
    sequence is its place in its graph. Edges and weights of the structure are ignored.

    The basis is a rule where possible, of which a transform stores nothing; else edges.
    """

    reads: type[Structure] = Structure
    reads_beside: tuple[str, ...] = ()
    symmetries: tuple[str, ...] = ()

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether nodes alone are enough."""
        return self.reads is Structure

    @property
    def num_bases(self) -> int:
        """K = 1."""
        return 1
