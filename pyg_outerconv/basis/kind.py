"""What each kind of basis states of itself, and does in its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import ref

import torch
from torch import Tensor

from .makers import make
from .pytree import register

if TYPE_CHECKING:
    from ..theta import Theta
    from .base import Basis
    from .edges import EdgeBasis
    from .eye import Eye
    from .multi_head_edges import MultiHeadEdges
    from .polynomial import Polynomial
    from .scaled import Scaled
    from .selected import Selected

    Leaf = tuple[Basis, Theta]


class Sender(Protocol):
    """Sends features by messages, and says what targets receive: (N, *batch, Q)."""

    def along(self, edges: EdgeBasis) -> Tensor:
        """A message for each edge."""
        ...

    def step_by_step(self, polynomial: Polynomial) -> Tensor:
        """A message for each edge of the operator and each power but the zeroth."""
        ...

    def to_itself(self, eye: Eye) -> Tensor:
        """What nodes keep."""
        ...


TensorMap = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]


class Kind(ABC):
    """What a kind of basis has to know: K sparse matrices A_k of size M × N, and what they can do.

    A new kind states :attr:`num_bases`, :attr:`size`, :attr:`device`, :attr:`dtype`,
    :meth:`edges` and :meth:`map`. All the rest follows from its edges, as it stands here; where a
    kind knows a shorter way, it has a method of its own.

    Attributes:
        hides_edges: whether which edges there are is known only once they are made, at a cost that
            nobody asked for (powers, products). What it is made of may hide edges all the same.
        is_leaf: whether it is its own only leaf, and absorbs nothing into Θ, where inputs are
            added up.
        has_heads: whether its matrices are heads, whose orders take values and outputs of heads,
            with a bias of values.
        nesting: how many levels of bases it is made of; 0 for what is made of none.
        pieces: how many bases that are made of none it is made of, each use counted.
    """

    hides_edges: ClassVar[bool] = False
    is_leaf: ClassVar[bool] = False
    has_heads: ClassVar[bool] = False
    nesting: int = 0
    pieces: int = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    # What it is -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_bases(self) -> int:
        """K."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """(M, N)."""

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where its tensors are."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype | None:
        """The type of its values; None if all of them are ones, which fit any type."""

    @property
    def learns(self) -> bool:
        """Whether any of its values requires a gradient."""
        return False

    def shape_class(self) -> Hashable:
        """What a choice of order depends on: equal for graphs of one kind and of about one size.

        A rule stands for itself.
        """
        return ref(self)

    @property
    def is_identity(self) -> bool:
        """Whether it is made of identities alone: one entry a row, which no scale reorders."""
        return False

    @property
    def has_edges(self) -> bool:
        """Whether :meth:`edges` has nothing to make."""
        return False

    @property
    def batch(self) -> Shape:
        """The sizes of the batch that values are of; none where all of a batch share them."""
        return ()

    def item(self, *index: int) -> Basis:
        """The basis of one item of the batch."""
        return self  # type: ignore[return-value]

    @property
    def names(self) -> list[str]:
        """What its labels are called in pictures."""
        return [f"k = {k}" for k in range(self.num_bases)]

    def hidden(self) -> Basis | None:
        """The part of it that hides its edges, if there is one."""
        return self if self.hides_edges else None  # type: ignore[return-value]

    def grids(self) -> tuple[Shape, Shape] | None:
        """(input shape, output shape) if it goes between full grids, whose cells are its nodes."""
        return None

    # Its edges ------------------------------------------------------------------------------

    @abstractmethod
    def edges(self) -> EdgeBasis:
        """The explicit form: edges sorted by target, then label."""

    @abstractmethod
    def map(self, index_map: TensorMap, value_map: TensorMap) -> Basis:
        """The basis with ``index_map`` applied to index tensors, ``value_map`` to values."""

    def whole(self) -> Basis:
        """One set of edges, or the rule that counts them."""
        return self.edges()

    def with_edges(
        self, change: Callable[[EdgeBasis], EdgeBasis], same_nodes: bool = False
    ) -> Basis:
        """The basis with ``change`` applied to every set of explicit edges that it is made of.

        ``same_nodes``: parts that have other nodes than the basis, as the factors of a Kronecker
        product do, are made into edges of its own nodes first.
        """
        return change(self.edges())

    def transposed(self) -> Basis:
        """The transpose at last, where :meth:`Basis.transpose` may put it off: one level in."""
        return self.edges().transposed_edges()

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets] for distinct indices, not both None, as far inside as it goes."""
        return make("restrict", self, sources, targets)

    def reached(self, seen: Tensor, labels: Sequence[int], transposed: bool = False) -> Tensor:
        """(M,) where edges under some of ``labels`` start that end in ``seen`` (N,).

        ``transposed``: along the edges, from sources (M,) to targets (N,).
        """
        return self.edges().reached(seen, labels, transposed)

    def taken(self) -> range | Tensor | None:
        """(N,) the source that each target sees, where it sees one and that is soon known."""
        return None

    def shares(self) -> MultiHeadEdges | None:
        """Itself as heads with a value for each edge, if it has such values."""
        return None

    def factors(self) -> list[Basis]:
        """What it is a product of, first to last, however nested; itself alone if of nothing."""
        return [self]  # type: ignore[list-item]

    # Products -------------------------------------------------------------------------------

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X for X (M, *batch, P): (N, K, *batch, P)."""
        return self.edges().propagate(x)

    def products(self, shape: Shape, learns: bool) -> list[tuple[Basis, Shape, bool]]:
        """What :meth:`propagate` multiplies with X of this shape, which ``learns`` or not.

        For each product a basis that is not taken apart, and the shape of what it is multiplied
        with, which learns or not.
        """
        return self.edges().products(shape, learns)

    def send(self, sender: Sender) -> Tensor:
        """What targets receive by messages, (N, *batch, Q); see :class:`.messages.Sender`."""
        return sender.along(self.edges())

    def absorb(self, theta: Theta, reduce: str = "sum") -> list[Leaf]:
        """Pairs (leaf, Θ of the leaf) with Σ over leaves Σ_k A_k ⊗ Θ_k equal to the whole.

        Linear combinations of labels move into Θ. A leaf is what orders solve.

        Args:
            theta: Θ, with a matrix for each of K labels.
            reduce: over the inputs of each label. Where they are compared, a negative scale turns
                maxima into minima, and values have to be scaled, not Θ.
        """
        return [(self.edges(), theta)]

    def absorb_selected(self, selected: Selected, theta: Theta, reduce: str) -> list[Leaf]:
        """:meth:`absorb` for a selection of its labels: Θ_k goes to the label that was chosen."""
        label = torch.tensor(selected.labels, device=theta.device)
        return self.absorb(theta.gathered(label, self.num_bases), reduce)

    def absorb_scaled(self, scaled: Scaled, theta: Theta, reduce: str) -> list[Leaf]:
        """:meth:`absorb` for its matrices scaled where inputs are compared: values are scaled."""
        return [(scaled.edges(), theta)]
