"""What families read: edges, the cells of a grid, and whatever else a basis can be made of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue, refusal
from .content import Content

if TYPE_CHECKING:
    from typing_extensions import Self

KINDS: list[type[Structure]] = []


class Structure:
    """A kind of structure: what a user gives in the place of ``edge_index``, checked.

    A family says by :attr:`Family.reads` which kind it reads. One that reads ``Structure``
    itself asks for no more than a number of nodes, and takes every kind.

    A new kind states what is below, :meth:`recognises`, :meth:`read`, and :meth:`is_in` and
    :meth:`of_data` if a ``Data`` object can hold it.

    Attributes:
        noun: what it is called, in the plural.
        expects: what a user gives for it.
        rank: of kinds that recognise the same, that of the lowest rank is meant, then the first by
            name; the very first is meant where none recognises it.
        targets_are_sources: whether a single x says how many targets there are.
        size: (M, N) for families with a target for each source; M is right for all.
        device: where it is.
        content: what its nodes hold, for families whose values are made of it; None elsewhere.
        bipartite: whether sources and targets are different nodes, however many there are.
        is_bare: whether it is not the structure itself but :meth:`bare`.
    """

    noun: ClassVar[str] = "structure"
    expects: ClassVar[str] = "edges, or the cells of a grid"
    rank: ClassVar[int] = 1
    targets_are_sources: ClassVar[bool] = False
    content: Content | None = None
    bipartite: bool = False
    is_bare: bool = False

    if TYPE_CHECKING:

        @property
        def size(self) -> tuple[int, int]: ...  # noqa: D102

        @property
        def device(self) -> torch.device: ...  # noqa: D102

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KINDS.append(cls)
        KINDS.sort(key=lambda kind: (kind.rank, kind.__name__))  # however files are imported

    @classmethod
    def recognises(cls, given: Any) -> bool:
        """Whether something is meant as this kind of structure, right or wrong in its details."""
        return cls is Structure and any(kind.recognises(given) for kind in KINDS)

    @classmethod
    def read(cls, given: Any, *, device: torch.device | None = None, **beside: Any) -> Structure:
        """What was given, checked.

        Args:
            given: something that :meth:`recognises` accepts; anything else is refused.
            device: where the structure is, if what was given has no tensors.
            **beside: what came beside it: edge_weight, edge_type, edge_attr, pos, size, batch,
                and bipartite, whether features came as a pair.
        """
        return kind_of(given).read(given, device=device, **beside)

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether a ``Data`` object holds one."""
        return cls is Structure and any(kind.is_in(data) for kind in KINDS)

    @classmethod
    def of_data(cls, data: Data) -> Structure:
        """The structure that a ``Data`` or ``Batch`` object holds."""
        found = [kind for kind in KINDS if kind.is_in(data)]
        return (found or KINDS)[0].of_data(data)

    @classmethod
    def identity(cls, given: Any) -> tuple[tuple[Any, ...], Hashable]:
        """The objects that something given is known by, and a value that it is known by.

        A layer that keeps its basis serves it again where the objects are the same, unmodified
        tensors, and the values are equal.
        """
        return (given,), None

    def with_content(self, content: Content) -> Self:
        """The same structure, of nodes that hold something."""
        new = copy(self)
        object.__setattr__(new, "content", content)
        return new

    def bare(self) -> Self:
        """The same nodes for a basis whose edges do not matter, for others replace them.

        A family that makes edges at a cost, or refuses some, may make none.
        """
        new = copy(self)
        object.__setattr__(new, "is_bare", True)
        return new

    def at(self, pos: tuple[Tensor, Tensor]) -> Structure:
        """With positions (M, D) of sources and (N, D) of targets, where these are not its own."""
        return self

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable] | None:
        """The tensors and the value that say who sees whom; None where none are known to."""
        return None

    def reversed(self) -> Structure:
        """With targets for sources, for ``flow='target_to_source'``."""
        raise RefusedValue(refusal("flow='target_to_source' turns edges round", "edges", self.noun))


def kind_of(given: Any) -> type[Structure]:
    """The kind of structure that something is meant as; edges, if it is like nothing known."""
    return next((kind for kind in KINDS if kind.recognises(given)), KINDS[0])


def require_kind(family: Any, given: Any) -> type[Structure]:
    """The kind that ``family`` reads ``given`` as.

    Raises:
        TypeError: it is another kind, which the family does not read.
    """
    reads: type[Structure] = family.reads
    kind = reads if reads in KINDS and reads.recognises(given) else kind_of(given)
    if not issubclass(kind, reads) and kind.recognises(given):
        raise RefusedType(
            refusal(
                f"{type(family).__name__} reads {reads.noun}",
                reads.expects,
                f"{kind.noun}: {_brief(given)}",
            )
        )
    return kind if issubclass(kind, reads) else reads


def common_kind(families: Iterable[Any]) -> type[Structure]:
    """The kind of structure that all of some families read.

    Raises:
        TypeError: two of them read different kinds.
    """
    kinds = {family.reads: family for family in families}
    narrow = [kind for kind in kinds if kind is not Structure]
    if len(narrow) > 1:
        raise RefusedType(
            refusal(
                "families on one structure read one kind of it",
                narrow[0].noun,
                f"{narrow[1].noun} too, by {kinds[narrow[1]]}",
            )
        )
    return narrow[0] if narrow else Structure


def _brief(given: Any) -> str:
    if isinstance(given, Tensor):
        return f"a tensor of {given.dtype} and shape {tuple(given.shape)}"
    return repr(given)


def refuse_beside(noun: str, beside: dict[str, Any]) -> None:
    """Refuse what belongs to another kind of structure.

    Raises:
        ValueError: something came beside it.
    """
    given = [name for name, value in beside.items() if value is not None]
    if given:
        raise RefusedValue(
            refusal(f"{noun} are a whole structure", "nothing beside them", ", ".join(given))
        )
