"""What families are that are made of others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import RefusedType, RefusedValue, refusal
from ..graph.structure import Structure, common_kind
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


@dataclass(frozen=True, init=False)
class OfFamilies(Family):
    """A family made of ``families``, at least one, which read structures of one kind.

    Raises:
        TypeError: an argument is not a family, or two read structures of different kinds.
        ValueError: no family is given.
    """

    reads_beside = ()

    families: tuple[Family, ...]

    def __init__(self, *families: Family) -> None:
        name = type(self).__name__.lower()
        if not families:
            raise RefusedValue(refusal(f"a {name} needs a family", "at least one", "none"))
        for family in families:
            if not isinstance(family, Family):
                raise RefusedType(
                    refusal(f"a {name} is of families", "Family", type(family).__name__)
                )
        object.__setattr__(self, "families", families)
        self._nest()
        common_kind(families)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.families))})"

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether any of the families adds self-loops."""
        return any(family.add_self_loops for family in self.families)

    def set_self_loops(self, add: bool) -> Self:
        """See :meth:`Family.set_self_loops`; here they can only be dropped."""
        name = type(self).__name__.lower()
        if add:
            raise RefusedValue(
                refusal(
                    f"which family of a {name} adds self-loops is its own option",
                    "GCN(add_self_loops=True) among them",
                    repr(self),
                )
            )
        return type(self)(*(family.set_self_loops(False) for family in self.families))

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that all of the families read."""
        return common_kind(self.families)

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether all of the families do."""
        return all(family.keeps_nodes for family in self.families)

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether all of the families do."""
        return all(family.takes_nodes_alone for family in self.families)

    def outputs(self, structure: Any) -> Structure:
        """See :meth:`Family.outputs`: those of the first, for all have one size."""
        return self.families[0].outputs(structure)
