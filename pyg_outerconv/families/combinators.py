"""Base classes of families made of one or several other families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import RefusedType, RefusedValue, refusal
from ..graph.structure import Structure, common_kind
from .family import Family

if TYPE_CHECKING:
    from typing_extensions import Self


class OfFamily(Family):
    """A family made of one other, its option ``family``, whose attributes it has by default."""

    reads_beside = ()

    if TYPE_CHECKING:

        @property
        def family(self) -> Family: ...  # noqa: D102

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the family adds self-loops."""
        return self.family.add_self_loops

    def set_self_loops(self, add: bool) -> Self:
        """The same recipe with or without added self-loops in the family."""
        return replace(self, family=self.family.set_self_loops(add))  # type: ignore[type-var]

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that the family reads."""
        return self.family.reads

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether the family keeps the nodes."""
        return self.family.keeps_nodes

    @property
    def max_parameters(self) -> int | None:  # type: ignore[override]
        """As the family."""
        return self.family.max_parameters

    def outputs(self, structure: Any) -> Structure:
        """The structure of the targets, that of the family."""
        return self.family.outputs(structure)

    @property
    def num_bases(self) -> int:
        """As the family."""
        return self.family.num_bases

    @property
    def labels(self) -> tuple[str, ...]:
        """As the family."""
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
                    refusal(f"a {name} is made of families", "Family", type(family).__name__)
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
        """The same recipe without added self-loops; adding them is refused."""
        name = type(self).__name__.lower()
        if add:
            raise RefusedValue(
                refusal(
                    f"self-loops are an option of each family of a {name}",
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
        """Whether this is true of all families."""
        return all(family.keeps_nodes for family in self.families)

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether this is true of all families."""
        return all(family.takes_nodes_alone for family in self.families)

    def outputs(self, structure: Any) -> Structure:
        """The structure of the targets, which is that of the first family."""
        return self.families[0].outputs(structure)
