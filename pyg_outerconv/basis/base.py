"""The base class of all bases: K sparse matrices of size M × N."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import ref

import torch
from torch import Tensor
from typing_extensions import Self

from ..errors import RefusedValue
from ..theta import Theta
from .operations import Operations
from .registry import make, register

if TYPE_CHECKING:
    from .edges import EdgeBasis
    from .eye import Eye
    from .label_maps import Scaled, Selected
    from .multi_head_edges import MultiHeadEdges
    from .polynomial import Polynomial

TensorMap = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]
Leaf = tuple["Basis", Theta]


class Sender(Protocol):
    """Message passing over a basis; each method returns what targets receive, (N, *batch, Q)."""

    def along(self, edges: EdgeBasis) -> Tensor:
        """One message for each edge."""
        ...

    def step_by_step(self, polynomial: Polynomial) -> Tensor:
        """One message for each edge of the operator and each power from 1 on."""
        ...

    def to_itself(self, eye: Eye) -> Tensor:
        """Each node receives its own transformed features, without messages."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Basis(Operations, ABC):
    """K sparse matrices A_k of size M × N; entry ``[k, m, n]`` weighs edge m → n under label k.

    An explicit basis (:class:`EdgeBasis`) stores edges and values. A lazy basis stores a rule, and
    computes edges only if :meth:`edges` is called. Bases are immutable, and algebraic operations
    return bases. Each basis is registered with torch's ``pytree``, so that it can be an input of an
    exported graph; see :mod:`pyg_outerconv.basis.registry`.

    A new kind is a frozen dataclass that defines :attr:`num_bases`, :attr:`size`, :attr:`device`,
    :attr:`dtype` and :meth:`edges`. The other methods are computed by its edges; a kind overrides
    those that it can compute faster.

    Attributes:
        hides_edges: whether the edges are known only after an expensive computation (powers,
            products). The parts of a basis may hide edges even if it does not.
        is_leaf: whether :meth:`absorb` returns the basis itself, with Θ unchanged.
        has_heads: whether its matrices are heads, which are contracted by orders for heads.
        nesting: the number of levels of bases within it; 0 for a basis without parts.
        pieces: the number of bases without parts within it, repetitions counted.
    """

    hides_edges: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = False
    has_heads: ClassVar[bool] = False
    nesting: ClassVar[int] = 0
    pieces: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    # Properties -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_bases(self) -> int:
        """Number of labels, K."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device of its tensors."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype | None:
        """The dtype of its values; None if all values are ones, which fit any dtype."""

    @property
    def learns(self) -> bool:
        """Whether any of its values requires gradients."""
        return False

    def shape_class(self) -> Hashable:
        """Cache key for the choice of an order: equal for bases of one kind and similar size.

        By default a basis is equal only to itself.
        """
        return ref(self)

    def plan_key(self) -> tuple[Hashable, ...]:
        """What the plan of a contraction depends on."""
        return self.shape_class(), self.dtype, self.device, self.learns

    @property
    def is_identity(self) -> bool:
        """Whether all matrices are multiples of identities, with at most one entry per row."""
        return False

    @property
    def has_edges(self) -> bool:
        """Whether the edges exist already, so that :meth:`edges` costs nothing."""
        return False

    @property
    def batch(self) -> Shape:
        """The batch dimensions of the values; empty if all items of a batch share the values."""
        return ()

    def item(self, *index: int) -> Basis:
        """The basis of one item of the batch."""
        return self

    @property
    def names(self) -> list[str]:
        """The names of its labels in pictures."""
        return [f"k = {k}" for k in range(self.num_bases)]

    def hidden(self) -> Basis | None:
        """The basis itself or a part of it that hides its edges; None if no part does."""
        return self if self.hides_edges else None

    def grids(self) -> tuple[Shape, Shape] | None:
        """(input shape, output shape) if its nodes are the cells of full grids; else None."""
        return None

    # Other forms ----------------------------------------------------------------------------

    @abstractmethod
    def edges(self) -> EdgeBasis:
        """The explicit form: edges sorted by target, then label."""

    def whole(self) -> Basis:
        """The edges, or a rule that can count its edges."""
        return self.edges()

    def simpler(self) -> Basis:
        """A basis of the same matrices, by which methods are computed that a kind has not."""
        return self.edges()

    def shares(self) -> MultiHeadEdges | None:
        """The basis as ``MultiHeadEdges``, if it has a value for each edge and head; else None."""
        return None

    def factors(self) -> list[Basis]:
        """The factors of a (nested) product, first to last; ``[self]`` if it is no product."""
        return [self]

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) the matrices as one dense tensor, differentiable in the values.

        Parallel edges are summed. ``dtype`` is used if the values are ones without a dtype.
        """
        return self.edges().to_dense(dtype)

    def support(self) -> Tensor:
        """(K, M, N) booleans: where there is an edge, even one of value 0."""
        return self.edges().support()

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """Every value divided by the number of edges that share its target and label.

        ``dtype`` is used if the values are ones without a dtype.

        Raises:
            ValueError: the basis hides its edges; call ``basis.edges().mean()``.
        """
        if self.hides_edges:
            raise RefusedValue(
                f"a mean within labels counts edges, which a {type(self).__name__} does not store",
                "an explicit basis: basis.edges()",
                repr(self),
            )
        return self.edges().mean(dtype)

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """The basis with ``change`` applied to every explicit edge set within it.

        With ``same_nodes``, parts on other nodes, such as the factors of a Kronecker product, are
        first converted into edges on the nodes of this basis.
        """
        return change(self.edges())

    def transposed(self) -> Basis:
        """The transpose computed now; :meth:`transpose` may return a lazy one."""
        return self.edges().transposed_edges()

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets] for distinct indices, not both None."""
        return make("restrict", self, sources, targets)

    def diagonal_block(self, nodes: Tensor) -> Basis:
        """A_k[nodes, nodes] for distinct nodes that no edge joins to others, as whole components.

        That there is no such edge is not checked. Powers and products then are those of the blocks,
        so a rule remains a rule.
        """
        return self.restricted(nodes, nodes)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """(M,) booleans: sources of edges with a label in ``labels`` into targets ``seen`` (N,).

        With ``transposed``, from seen sources (M,) to the targets (N,) of their edges.
        """
        return self.simpler().reached(seen, labels, transposed)

    def taken(self) -> range | Tensor | None:
        """(N,) the source of each target, if each has exactly one and it is cheap to find."""
        return None

    # Products -------------------------------------------------------------------------------

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X for X (M, *batch, P): (N, K, *batch, P)."""
        return self.simpler().propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """The sparse products that :meth:`propagate` computes for an X of this shape.

        Args:
            shape: the shape of X.
            learns: whether X requires gradients.

        Returns:
            For each product the basis, the shape of the other factor, and whether that factor
            requires gradients.
        """
        return [(self, shape, learns)] if self.is_leaf else self.simpler().products(shape, learns)

    def send(self, sender: Sender) -> Tensor:
        """What targets receive by message passing, (N, *batch, Q); see :class:`Sender`."""
        return sender.along(self.edges())

    def absorb(self, theta: Theta, aggr: str = "sum") -> list[Leaf]:
        """Split Σ_k A_k ⊗ Θ_k into leaves, which orders can solve, moving label mixtures into Θ.

        Args:
            theta: Θ, with one matrix for each of the K labels.
            aggr: the reduction over the inputs of each label. For 'max' and 'min', scales go into
                values instead of Θ, because a negative scale exchanges the two. Heads become edges
                for all but 'sum'.

        Returns:
            Pairs (leaf, Θ of the leaf). The sum over leaves of Σ_k A_k ⊗ Θ_k is that of this basis.
        """
        if self.is_leaf and (aggr == "sum" or not self.has_heads):
            return [(self, theta)]
        return self.simpler().absorb(theta, aggr)

    def picked(self, labels: Sequence[int]) -> Basis | None:
        """The matrices of some labels as a basis in which no others occur; None if it has none."""
        return None

    def absorb_selected(self, selected: Selected, theta: Theta, aggr: str) -> list[Leaf]:
        """:meth:`absorb` for a selection of labels, if it has no :meth:`picked` ones.

        Θ_k is added at the k-th selected label: of heads, whose edges are the same, and of one.
        """
        label = torch.tensor(selected.labels, device=theta.device)
        return self.absorb(theta.gathered(label, self.num_bases), aggr)

    def absorb_scaled(self, scaled: Scaled, theta: Theta, aggr: str) -> list[Leaf]:
        """:meth:`absorb` for scaled matrices under 'max' or 'min': the values are scaled, not Θ."""
        return [(scaled.edges(), theta)]

    # Fields ---------------------------------------------------------------------------------

    def with_fields(self, change: Callable[[Any], Any]) -> Self:
        """The basis with ``change`` applied to each field, and to each item of a tuple of bases."""
        changes = {}
        for field in fields(self):
            old = getattr(self, field.name)
            of_bases = isinstance(old, tuple) and any(isinstance(part, Basis) for part in old)
            new = tuple(change(part) for part in old) if of_bases else change(old)
            same = all(map(operator.is_, new, old)) if of_bases else new is old
            if field.init and not same:
                changes[field.name] = new
        return replace(self, **changes) if changes else self

    def map(self, index_map: TensorMap, value_map: TensorMap) -> Basis:
        """The basis with ``index_map`` applied to index tensors, ``value_map`` to values.

        It is the basis itself if they change nothing.
        """

        def moved(part: Any) -> Any:
            if isinstance(part, Basis):
                return part.map(index_map, value_map)
            if isinstance(part, Tensor):
                return value_map(part) if part.is_floating_point() else index_map(part)
            if isinstance(part, torch.device):
                there = index_map(torch.empty(0, device=part)).device
                return part if there == part else there
            if isinstance(part, torch.dtype):
                return value_map(torch.empty(0, dtype=part)).dtype
            return part

        return self.with_fields(moved)

    def _head(self) -> str:
        return f"bases={self.num_bases}, size={self.size}"
