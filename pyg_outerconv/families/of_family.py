"""What a family is that is made of one other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..graph.structure import Structure
from .family import Family

if TYPE_CHECKING:
    from typing_extensions import Self


class OfFamily(Family):
    """A family that resembles its option ``family`` in all that it does not say itself."""

    reads_beside = ()

    if TYPE_CHECKING:

        @property
        def family(self) -> Family: ...  # noqa: D102

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the family adds self-loops."""
        return self.family.add_self_loops

    def set_self_loops(self, add: bool) -> Self:
        """See :meth:`Family.set_self_loops`."""
        return replace(self, family=self.family.set_self_loops(add))  # type: ignore[type-var]

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that the family reads."""
        return self.family.reads

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether the family does."""
        return self.family.keeps_nodes

    @property
    def max_parameters(self) -> int | None:  # type: ignore[override]
        """The family's."""
        return self.family.max_parameters

    def outputs(self, structure: Any) -> Structure:
        """See :meth:`Family.outputs`."""
        return self.family.outputs(structure)

    @property
    def num_bases(self) -> int:
        """The family's."""
        return self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """The family's."""
        return self.family.labels
