"""Family: a recipe that makes a basis of a structure; also a PyG transform."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from ..basis.base import Basis
from ..errors import RefusedValue
from ..graph.cells import Cells
from ..graph.checks import check_one_set
from ..graph.edge_index import require_data
from ..graph.graph import Graph
from ..graph.node_set import NodeSet
from ..graph.structure import Structure, require_kind
from ..memo import cached_property
from ..registry import Named
from .options import check_options, refuse_unknown
from .registry import FAMILIES
from .stored import check_storable, store, stored

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..attention.queries import Content

Channels = int | tuple[int, int]
DEEPEST = 16
"""The largest depth of nested families; labels of some double with each level."""

_READERS = {
    "edge_weight": "a family that reads it, such as GCN or Relation; "
    "types and features of edges go by edge_type= and edge_attr=",
    "edge_type": "a family that reads it, such as Relation",
    "edge_attr": "Kernel, or a score that reads it; weights of edges go by edge_weight",
    "pos": "Kernel(on='pos'), Nearest, or a score with terms or rotary positions",
}


class _Signature:
    """The signature of a family's constructor, which ``inspect`` would read from ``__new__``."""

    def __get__(self, family: Any, owner: type[Any]) -> inspect.Signature:
        if family is not None:
            raise AttributeError("__signature__")
        signature = inspect.signature(owner.__init__)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


class Family(Named, BaseTransform, registry=FAMILIES):
    """A recipe for a basis. Subclasses are frozen dataclasses whose fields are the options.

    A family reads one kind of structure, and makes its basis by one method, :meth:`basis_on`. A
    class with an ``equation`` is registered under its name in lower case. An option of another type
    than its field's, or of an unknown name, is refused with a TypeError.

    Called as a transform, it stores the explicit edges of the basis on a ``Data`` object, as plain
    tensors that collate, batch and move as PyG's own do. :meth:`basis_of` reads them back, unless
    nodes or edges have changed since; transforms that drop or reorder these should come before.

    Attributes:
        equation: the matrices A_k, in one line of text; a base class has none.
        reads: the kind of structure, edges by default; ``Structure`` reads every kind.
        keeps_nodes: whether the targets are the nodes of the structure, in their order.
        add_self_loops: whether the recipe adds self-loops, for which sources and targets must be
            the same nodes (an attribute that PyG reads).
        learns: whether values depend on parameters of the family or on features, so that a basis
            must not be cached.
        reads_theta: whether values depend on the values X Θ of the layer.
        makes_edges: whether every basis is an :class:`EdgeBasis`, of values that do not learn.
        is_quick: whether making a basis of few edges is faster than looking it up in a cache.
        max_parameters: the largest number of parameters of a layer, for families whose K grows
            with the data.
        takes_nodes_alone: whether a ``Data`` object may have neither edges nor cells; None may then
            stand in place of ``edge_index``.
        reads_beside: which of ``x``, ``edge_weight``, ``edge_type``, ``edge_attr`` and ``pos`` the
            basis depends on; families among the options add theirs. Other arguments are refused,
            but a graph, a structure or a sparse matrix may hold more than is read.
        takes_content: whether :meth:`basis_on` takes a third argument, ``content``: what a layer
            gives of features and Θ. Families of features do, and those made of other families.
        symmetries: names of the laws in :mod:`pyg_outerconv.testing` on what its layers do not
            depend on.
        nesting: the depth of nested families; 0 for a family of no others.
    """

    equation: ClassVar[str]
    reads: type[Structure] = Graph
    keeps_nodes: bool = True
    add_self_loops: bool = False
    max_parameters: int | None = None
    learns: bool = False
    reads_theta: bool = False
    makes_edges: ClassVar[bool] = False
    is_quick: bool = False
    nesting: int = 0
    takes_nodes_alone: bool = False
    reads_beside: tuple[str, ...] = ("edge_weight",)
    takes_content: ClassVar[bool] = False
    symmetries: tuple[str, ...] = ("permutation-equivariant",)

    __signature__ = _Signature()

    def __new__(cls, *args: Any, **options: Any) -> Self:
        if options:
            refuse_unknown(cls, options)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_options(self)
        self._nest()

    def _nest(self) -> None:
        """Set ``nesting``. Raises ValueError beyond ``DEEPEST``."""
        nesting = 1 + max((part.nesting for part in self.parts), default=-1)
        if nesting > DEEPEST:
            raise RefusedValue(
                "families are nested to a limited depth", f"at most {DEEPEST} levels", nesting
            )
        object.__setattr__(self, "nesting", nesting)

    @property
    def formula(self) -> str:
        """The equation with the options of this family, in one line of text."""
        return self.equation

    @property
    def num_bases(self) -> int:
        """K, the number of labels; it does not depend on data."""
        return len(self.labels)

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A name for each label k."""

    @property
    def parts(self) -> tuple[Family, ...]:
        """The families among its options."""
        options = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
        each = [one if isinstance(one, tuple | list) else (one,) for one in options]
        listed = [part for option in each for part in option]
        return tuple([part for part in listed if isinstance(part, Family)])

    @property
    def laws(self) -> tuple[str, ...]:
        """The laws that it declares: those of every basis, and the symmetries that all parts share.

        :func:`pyg_outerconv.testing.assert_declared_laws` checks them.
        """
        shared = [name for name in self.symmetries if all(name in p.laws for p in self.parts)]
        return ("adjoint", "transposable", "the same when explicit", *shared)

    @abstractmethod
    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """The basis of a structure.

        To read a basis back from a graph, the family makes the basis of the same nodes without
        edges and puts the stored edges into it. So it must make one without edges, of the same
        kind, unless its basis is an :class:`EdgeBasis`.

        Args:
            structure: the result of :meth:`read`, of the kind :attr:`reads`.
            dtype: dtype of the values if there are no weights.
        """

    def basis_with(
        self, structure: Any, dtype: torch.dtype | None, content: Content | None
    ) -> Basis:
        """:meth:`basis_on` with what a layer gives of features and Θ, if the family takes it."""
        if content is None or not self.takes_content:
            return self.basis_on(structure, dtype)
        return self.basis_on(structure, dtype, content)  # type: ignore[call-arg]

    def weighted(self, edges: Graph, dtype: torch.dtype | None = None) -> Graph:
        """The edges of the basis with its values as weights, of a family that :meth:`lists_edges`.

        Args:
            edges: the edges of a tiny graph on a CPU, whose numbers can be read.
            dtype: as for :meth:`basis_on`.
        """
        raise NotImplementedError(f"{type(self).__name__} lists no edges")

    @classmethod
    def lists_edges(cls) -> bool:
        """Whether the class that defines :meth:`basis_on` also defines :meth:`weighted`."""
        return "weighted" in vars(next(one for one in cls.__mro__ if "basis_on" in vars(one)))

    def combinations(self) -> list[tuple[str, int]]:
        """How the labels come together in a layer, as runs of labels with their numbers.

        ``'sum'``: each has a matrix Θ_k of the layer's form. ``'concat'`` and ``'mean'``: they are
        heads of attention that the layer puts side by side, or takes the mean of.
        """
        return [("sum", self.num_bases)]

    @property
    def initial_coefficients(self) -> tuple[float, ...] | None:
        """The number that each label begins with where Θ is one matrix times numbers.

        None where they are drawn, or ones.
        """
        return None

    def sized(self, in_channels: Channels, out_channels: int, shares: bool = False) -> Family:
        """The family for a layer of these channels; another one if a part waits for its channels.

        Args:
            in_channels: P, or those of sources and targets; -1 where the first input tells.
            out_channels: Q.
            shares: whether the Θ_k of the family's labels are those of :meth:`combinations`, so
                that scores may read the values that they make.
        """
        return self.with_parts(lambda part: part.sized(in_channels, out_channels))

    def averaged(self, heads: int = 0) -> Family:
        """The family for a last layer, whose outputs are classes: concatenated heads are averaged.

        Args:
            heads: how many there are; 0 for as many as there were.
        """
        return self.with_parts(lambda part: part.averaged(heads))

    def with_parts(self, change: Callable[[Family], Family]) -> Family:
        """The same recipe with each family among its options replaced by ``change`` of it."""
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.init}  # type: ignore[arg-type]
        parts = {name: part for name, part in options.items() if isinstance(part, Family)}
        replacements = {name: change(part) for name, part in parts.items()}
        if all(replacements[name] is part for name, part in parts.items()):
            return self
        return replace(self, **replacements)  # type: ignore[type-var]

    def factors(self) -> list[Family]:
        """The families whose matrices are multiplied to make those of this one, first to last."""
        return [self]

    def outputs(self, structure: Any) -> Structure:
        """The structure of the targets, for a family that comes after this one.

        Args:
            structure: the structure of the sources.

        Raises:
            ValueError: targets are not the nodes of the structure.
        """
        targets = self.read(structure)
        what, instead = f"a family after {self}", "one layer after another"
        check_one_set(targets.bipartite or not self.keeps_nodes, targets.size, what, instead)
        return targets

    def read(self, edge_index: Any, **beside: Any) -> Structure:
        """The structure that this family reads, from the arguments of a user, checked.

        Args:
            edge_index: edges, the cells of a grid, an assignment, or None.
            **beside: further arguments of :meth:`Structure.read`, such as ``edge_weight``.

        Raises:
            TypeError: ``edge_index`` is a structure of another kind.
            TypeError, ValueError: an argument breaks a rule of that kind.
            ValueError: no part of the family reads an argument; ``batch`` is never refused.
        """
        self.refuse_unread(beside)
        return require_kind(self, edge_index).read(edge_index, **beside)

    def refuse_unread(self, beside: dict[str, Any]) -> None:
        """Refuse arguments, by name, that no part of the family reads.

        Raises:
            ValueError: there is such an argument.
        """
        for name, part in beside.items():
            if part is not None and name in _READERS and not self.makes_use_of(name):
                what, reader = f"{type(self).__name__} does not read {name}", _READERS[name]
                raise RefusedValue(what, f"none, or {reader}", part)

    def makes_use_of(self, name: str) -> bool:
        """Whether the basis depends on the argument of this name."""
        return name in self._read

    @cached_property
    def _read(self) -> frozenset[str]:
        """The arguments that it reads, and those of its parts."""
        return frozenset(self.reads_beside).union(*(part._read for part in self.parts))

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
        """The basis of an edge list, or of another structure that the family reads.

        Args:
            edge_index: (2, E), an ``EdgeIndex``, a transposed sparse matrix (N × M, torch's or
                torch_sparse's), or a :class:`Graph`; for families of grids the shape of one, a
                mask, or :class:`~pyg_outerconv.graph.Cells`.
            edge_weight: (E,) or (E, 1) numbers, may carry gradients; integers become torch's
                default dtype.
            edge_type: (E,) integers.
            size: (M, N).
            batch: (N,) the graph of each node, for families that treat graphs one by one; a pair
                of (M,) and (N,) where sources and targets are different nodes.
            dtype: dtype of the values if there are no weights; torch's default if None.
            device: device of the basis if the structure has no tensors, such as a shape.
            edge_attr: (E, *) for families whose values depend on it.
            pos: (N, D) positions of nodes, or a pair (M, D) and (N, D), for the same.
            bipartite: whether sources and targets are different nodes, as for a layer called with
                a pair; by default if M ≠ N.

        Raises:
            TypeError, ValueError: see :meth:`Graph.read`, and the family's own rules.
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
            ValueError: ``add`` is true and the recipe has no such option.
        """
        options = {field.name: field.default for field in fields(self)}
        if "add_self_loops" in options:  # the default None leaves self-loops as they are
            without = None if options["add_self_loops"] is None else False
            return replace(self, add_self_loops=add or without)
        if add:
            raise RefusedValue(
                "the family must have the option add_self_loops", "GCN or Walk", repr(self)
            )
        return self

    # As a transform ---------------------------------------------------------------------------

    def forward(self, data: Data) -> Data:
        """Store the edges of the basis on ``data``, for :meth:`basis_of` to read back.

        Raises:
            ValueError: targets are not the nodes of the graph, or values depend on parameters or
                features.
        """
        require_data(data)
        check_storable(self)
        store(self, data, self.structure_in(data))
        return data

    def basis_of(self, data: Data) -> Basis:
        """The basis of a ``Data`` or ``Batch`` object, from stored edges if they are still valid.

        Stored edges are valid as long as the graph has the edges, weights, types and nodes that
        they were made of; edges may be reordered. After a split, a sampler, a subgraph or a change
        of edges, which it notices, the basis is made of the graph anew.

        Raises:
            TypeError: ``data`` is not a homogeneous graph.
            ValueError: see :meth:`basis`.
        """
        require_data(data)
        structure = self.structure_in(data)
        basis = stored(self, data, structure)
        return self.basis_on(structure) if basis is None else basis

    def structure_in(self, data: Data) -> Structure:
        """The structure that the family reads in a ``Data`` or ``Batch`` object.

        Raises:
            ValueError: the object has no such structure.
        """
        if self.takes_nodes_alone and not (Graph.is_in(data) or Cells.is_in(data)):
            return NodeSet.of_data(data)
        return self.reads.of_data(data)
