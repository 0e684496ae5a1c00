"""What a family is: a recipe that makes a basis out of structure, and a PyG transform."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from ..basis.base import Basis
from ..errors import RefusedValue, refusal
from ..graph.cells import Cells
from ..graph.checks import check_one_set
from ..graph.edge_list import EdgeList
from ..graph.node_set import NodeSet
from ..graph.pyg_data import require_data
from ..graph.structure import Structure, require_kind
from .options import check_options
from .stored import check_storable, store, stored

FAMILIES: dict[str, type[Family]] = {}
DEEPEST = 16
"""How deep families may be made of others; labels of some double with each level."""

_READERS = {
    "edge_weight": "a family that reads it, such as GCN or Relation",
    "edge_type": "a family that reads it, such as Relation",
    "edge_attr": "Kernel, or a score that reads it; weights of edges go by edge_weight",
    "pos": "Kernel(on='pos'), Nearest, or a score with terms or rotary positions",
}


class Family(BaseTransform):
    """A recipe for a basis. Subclasses are frozen dataclasses whose fields are the options.

    A family reads one kind of structure, and makes its basis by one method, :meth:`basis_on`.
    Called as a transform, it stores the explicit edges that the basis is made of on a ``Data``
    object, as plain tensors that collate, batch and move as PyG's own do; :meth:`basis_of` reads
    them back, unless nodes or edges are others since: what drops or reorders them had better come
    before.

    Attributes:
        equation: the matrices A_k, in one line of text; a class without one is no recipe itself.
        reads: the kind of structure, edges by default; ``Structure`` reads every kind.
        keeps_nodes: whether targets are the nodes that the structure has, in their order.
        add_self_loops: whether the recipe adds self-loops, which needs sources and targets that are
            the same nodes (PyG asks this).
        learns: whether values follow parameters of the recipe's own, so that a basis must not be
            kept.
        reads_theta: whether values are made of what the layer's Θ makes of features.
        is_quick: whether a basis of few edges is sooner made than looked for among those kept.
        max_parameters: how many parameters a layer may have at most, for families whose K grows
            with the data.
        takes_nodes_alone: whether a ``Data`` object may have neither edges nor cells; others are
            taken to have lost them.
        reads_beside: which of ``edge_weight``, ``edge_type``, ``edge_attr`` and ``pos`` its basis
            is made of, beside what families among its options read; others are refused as
            arguments. What a graph, a structure or a sparse matrix holds beside its edges is read
            where it is needed, and else left alone.
        symmetries: what its layers do not depend on, by the names of the laws that say so in
            :mod:`pyg_outerconv.testing`.
        nesting: how many levels of families it is made of; 0 for what is made of none.
    """

    equation: ClassVar[str]
    reads: type[Structure] = EdgeList
    keeps_nodes: bool = True
    add_self_loops: bool = False
    max_parameters: int | None = None
    learns: bool = False
    reads_theta: bool = False
    is_quick: bool = False
    nesting: int = 0
    takes_nodes_alone: bool = False
    reads_beside: tuple[str, ...] = ("edge_weight",)
    symmetries: tuple[str, ...] = ("permutation-equivariant",)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "equation" in vars(cls):
            FAMILIES[cls.__name__.lower()] = cls

    def __post_init__(self) -> None:
        check_options(self)
        self._nest()

    def _nest(self) -> None:
        """Note how deep the family is. Raises ValueError beyond ``DEEPEST``."""
        nesting = 1 + max((part.nesting for part in self.parts), default=-1)
        if nesting > DEEPEST:
            raise RefusedValue(
                refusal(
                    "families are made of families, and these of others, to some depth",
                    f"at most {DEEPEST} levels",
                    nesting,
                )
            )
        object.__setattr__(self, "nesting", nesting)

    @property
    @abstractmethod
    def num_bases(self) -> int:
        """K, known before any data is seen."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """What each label k means."""

    @property
    def parts(self) -> tuple[Family, ...]:
        """The families among its options."""
        options = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        listed = [part for option in options for part in _as_list(option)]
        return tuple([part for part in listed if isinstance(part, Family)])

    @property
    def laws(self) -> tuple[str, ...]:
        """The laws that it declares: those of every basis, and its symmetries that its parts share.

        :func:`pyg_outerconv.testing.assert_declared_laws` checks them.
        """
        shared = [name for name in self.symmetries if all(name in p.laws for p in self.parts)]
        return ("adjoint", "transposable", "the same when explicit", *shared)

    @abstractmethod
    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The basis on a structure that was :meth:`read`.

        What is read back of a graph is the basis of its nodes without edges, into which the edges
        are put that were stored: it must be there too, of the same kind. Of explicit edges alone,
        an :class:`EdgeBasis`, none is made.

        Args:
            structure: of the kind that :attr:`reads` says.
            dtype: type of the values where no weights are given.
        """

    def factors(self) -> list[Family]:
        """The families that its matrices are products of those of, first to last."""
        return [self]

    def outputs(self, structure: Any) -> Structure:
        """The structure that the targets have, for a family that comes after this one.

        Args:
            structure: what this family makes its basis of.

        Raises:
            ValueError: targets are not the nodes that the structure has.
        """
        found = self.read(structure)
        what, instead = f"a family after {self}", "one layer after another"
        check_one_set(found.bipartite or not self.keeps_nodes, found.size, what, instead)
        return found

    def read(self, given: Any, **beside: Any) -> Structure:
        """What a user gives, as the structure that this family reads.

        Args:
            given: edges, the cells of a grid, or the like.
            **beside: what came beside it; see :meth:`Structure.read`.

        Raises:
            TypeError: it is a structure of another kind.
            TypeError, ValueError: it breaks a rule of its kind.
            ValueError: something came that no part of the family reads; ``batch`` is true of nodes
                whatever a family makes of them.
        """
        self.refuse_unread(beside)
        return require_kind(self, given).read(given, **beside)

    def refuse_unread(self, beside: dict[str, Any]) -> None:
        """Refuse what comes beside a structure, by name, and no part of the family reads.

        Raises:
            ValueError: something does.
        """
        for name, part in beside.items():
            if part is not None and name in _READERS and not self.makes_use_of(name):
                what, reader = f"{self} makes nothing of {name}", _READERS[name]
                raise RefusedValue(refusal(what, f"none, or {reader}", part))

    def makes_use_of(self, name: str) -> bool:
        """Whether the basis depends on what comes beside the edges under this name."""
        return name in self.reads_beside or any(part.makes_use_of(name) for part in self.parts)

    def basis(
        self,
        edge_index: Any,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        *,
        size: tuple[int | None, int | None] | None = None,
        batch: Tensor | tuple[Tensor, Tensor] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        edge_attr: Tensor | None = None,
        pos: Tensor | tuple[Tensor, Tensor] | None = None,
        bipartite: bool | None = None,
    ) -> Basis:
        """Make the basis of an edge list, or of another structure that the family reads.

        Args:
            edge_index: (2, E), an ``EdgeIndex``, a transposed sparse matrix (N × M, torch's or
                torch_sparse's), or a :class:`EdgeList`; for families of grids the shape of one, a
                mask, or :class:`~pyg_outerconv.graph.Cells`.
            edge_weight: (E,) or (E, 1) numbers, may carry gradients; integers become torch's
                default type.
            edge_type: (E,) integers.
            size: (M, N).
            batch: (N,) the graph of each node, for families that treat graphs one by one; a pair
                of (M,) and (N,) where sources and targets are different nodes.
            dtype: type of the values where no weights are given; torch's default if None.
            device: where the basis is, if the structure has no tensors, as a shape has none.
            edge_attr: (E, *) for families that make values of it.
            pos: (N, D) positions of nodes, or a pair (M, D) and (N, D), for such families too.
            bipartite: whether sources and targets are different nodes, as they are where a layer
                gets a pair; by default where M ≠ N.

        Raises:
            TypeError, ValueError: see :func:`structure`, and the family's own rules.
        """
        structure = self.read(
            edge_index,
            edge_weight=edge_weight,
            edge_type=edge_type,
            edge_attr=edge_attr,
            pos=pos,
            size=size,
            batch=batch,
            bipartite=bipartite,
            device=None if device is None else torch.device(device),
        )
        return self.basis_on(structure, dtype)

    def set_self_loops(self, add: bool) -> Family:
        """The same recipe with or without added self-loops.

        Raises:
            ValueError: they are asked for, and the recipe has no such option.
        """
        if "add_self_loops" in {field.name for field in fields(self)}:
            return replace(self, add_self_loops=add)
        if add:
            raise RefusedValue(
                refusal(
                    "self-loops are added by families that have the option",
                    "GCN or Walk",
                    repr(self),
                )
            )
        return self

    # As a transform ---------------------------------------------------------------------------

    def forward(self, data: Data) -> Data:
        """Store the edges that the basis on ``data`` is made of (see :meth:`basis_of`).

        Raises:
            ValueError: the family makes targets of its own, which a graph has no place for, or
                values that learn, which would be those of today.
        """
        require_data(data)
        check_storable(self)
        store(self, data, self.structure_in(data))
        return data

    def basis_of(self, data: Data) -> Basis:
        """The basis of a ``Data`` or ``Batch`` object: of what the transform stored, else afresh.

        What was stored serves as long as the graph holds the very edges, weights, types and nodes
        that it was made of, in whatever order edges are. After a split, a sampler, a subgraph or
        other edges, which it notices, the basis is made of what the graph holds now.

        Raises:
            TypeError: ``data`` is not a homogeneous graph.
            ValueError: see :meth:`basis`.
        """
        require_data(data)
        structure = self.structure_in(data)
        found = stored(self, data, structure)
        return self.basis_on(structure) if found is None else found

    def structure_in(self, data: Data) -> Structure:
        """What the family reads of a ``Data`` or ``Batch`` object.

        Raises:
            ValueError: it holds no such thing.
        """
        if self.takes_nodes_alone and not (EdgeList.is_in(data) or Cells.is_in(data)):
            return NodeSet.of_data(data)
        return self.reads.of_data(data)


def _as_list(option: Any) -> Sequence[Any]:
    return option if isinstance(option, tuple | list) else (option,)
