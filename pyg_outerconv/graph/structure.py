"""Structures, which families read."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Data

from ..errors import RefusedType, RefusedValue

if TYPE_CHECKING:
    from typing_extensions import Self


KINDS: list[type[Structure]] = []


class Structure:
    """A checked argument in the place of ``edge_index``; each kind of structure is a subclass.

    :attr:`Family.reads` names the kind that a family reads. A family that reads ``Structure``
    itself needs only a number of nodes, and accepts every kind.

    A new kind defines the attributes below, :meth:`recognises`, :meth:`read`, and, if a ``Data``
    object can contain it, :meth:`is_in` and :meth:`of_data`.

    Attributes:
        noun: the name of the kind in messages, in the plural.
        expects: the accepted arguments, for messages.
        rank: if several kinds recognise an argument, the lowest rank is used, then the first name;
            if none does, the first kind overall is used.
        targets_are_sources: whether a single x determines the number of targets.
        size: (M, N) for families with a target for each source; M holds for all families.
        device: the device of its tensors.
        bipartite: whether sources and targets are different nodes, even if M = N.
        is_bare: whether this is the result of :meth:`bare`.
    """

    noun: ClassVar[str] = "structure"
    expects: ClassVar[str] = "edges, or the cells of a grid"
    rank: ClassVar[int] = 1
    targets_are_sources: ClassVar[bool] = False
    bipartite: bool = False
    is_bare: bool = False

    if TYPE_CHECKING:

        @property
        def size(self) -> tuple[int, int]: ...

        @property
        def device(self) -> torch.device: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KINDS.append(cls)
        KINDS.sort(key=lambda kind: (kind.rank, kind.__name__))  # independent of import order

    @classmethod
    def recognises(cls, edge_index: Any) -> bool:
        """Whether an argument has the form of this kind; its details are not checked."""
        return cls is Structure and any(kind.recognises(edge_index) for kind in KINDS)

    @classmethod
    def read(
        cls, edge_index: Any, *, device: torch.device | None = None, **beside: Any
    ) -> Structure:
        """Read and check an argument.

        Args:
            edge_index: something that :meth:`recognises` accepts; anything else is refused.
            device: the device of the structure, if ``edge_index`` has no tensors.
            **beside: the other arguments of the call: edge_weight, edge_type, edge_attr, pos, size,
                batch, and bipartite (whether x is a pair).
        """
        return kind_of(edge_index).read(edge_index, device=device, **beside)

    @classmethod
    def is_in(cls, data: Data) -> bool:
        """Whether a ``Data`` object contains a structure of this kind."""
        return cls is Structure and any(kind.is_in(data) for kind in KINDS)

    @classmethod
    def of_data(cls, data: Data) -> Structure:
        """The structure in a ``Data`` or ``Batch`` object."""
        kinds = [kind for kind in KINDS if kind.is_in(data)]
        return (kinds or KINDS)[0].of_data(data)

    @classmethod
    def identity(cls, edge_index: Any) -> tuple[tuple[Any, ...], Hashable]:
        """The cache key of an argument: objects compared by identity, and a value compared by ==.

        A layer reuses its cached basis if the objects are the same, unmodified tensors and the
        values are equal.
        """
        return (edge_index,), None

    def bare(self) -> Self:
        """The same nodes, for a basis whose edges will be replaced.

        A family may skip the checks and the computation of edges.
        """
        new = copy(self)
        object.__setattr__(new, "is_bare", True)
        return new

    def at(self, pos: tuple[Tensor, Tensor]) -> Structure:
        """A copy with positions (M, D) of sources and (N, D) of targets; cells keep their own."""
        return self

    def made_of(self) -> tuple[tuple[Tensor | None, ...], Hashable] | None:
        """Cache key of a basis: the tensors and the value that determine its edges; or None."""
        return None

    def reversed(self) -> Structure:
        """The structure with sources and targets exchanged, for ``flow='target_to_source'``."""
        raise RefusedValue("flow='target_to_source' reverses edges", "edges", self.noun)


def kind_of(edge_index: Any) -> type[Structure]:
    """The kind of structure that recognises an argument; ``Graph`` if none does."""
    return next((kind for kind in KINDS if kind.recognises(edge_index)), KINDS[0])


def require_kind(family: Any, edge_index: Any) -> type[Structure]:
    """The kind of structure as which ``family`` reads ``edge_index``."""
    reads: type[Structure] = family.reads
    kind = reads if reads in KINDS and reads.recognises(edge_index) else kind_of(edge_index)
    if not issubclass(kind, reads) and kind.recognises(edge_index):
        raise RefusedType(
            f"{type(family).__name__} reads {reads.noun}",
            reads.expects,
            f"{kind.noun}: {_brief(edge_index)}",
        )
    return kind if issubclass(kind, reads) else reads


def common_kind(families: Iterable[Any]) -> type[Structure]:
    """The kind of structure that all of ``families`` read."""
    kinds = {family.reads: family for family in families}
    narrow = [kind for kind in kinds if kind is not Structure]
    if len(narrow) > 1:
        raise RefusedType(
            "families on one structure read the same kind of structure",
            narrow[0].noun,
            f"{narrow[1].noun} too, by {kinds[narrow[1]]}",
        )
    return narrow[0] if narrow else Structure


def _brief(edge_index: Any) -> str:
    if isinstance(edge_index, Tensor):
        return f"a tensor of {edge_index.dtype} and shape {tuple(edge_index.shape)}"
    return repr(edge_index)


def refuse_beside(noun: str, beside: dict[str, Any]) -> None:
    """Refuse arguments that belong to another kind of structure."""
    names = [name for name, value in beside.items() if value is not None]
    if names:
        raise RefusedValue(f"{noun} allow no further arguments", "none", ", ".join(names))


Record = TypeVar("Record")


def changed(instance: Record, **changes: Any) -> Record:
    """A copy of a dataclass with some fields changed; faster than ``dataclasses.replace``.

    The fields are set one by one, because torch's compiler may not follow ``vars(new).update()``.
    """
    new = object.__new__(type(instance))
    own = vars(new)
    for name in type(instance).__dataclass_fields__:  # type: ignore[attr-defined]
        own[name] = changes[name] if name in changes else getattr(instance, name)
    return new
