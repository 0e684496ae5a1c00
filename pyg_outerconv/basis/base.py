"""The base class of all bases: K sparse matrices of size M × N."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import torch
from torch import Tensor

from ..errors import RefusedType
from ..graph.checks import Labels, Nodes, check_nodes
from ..theta import Theta
from .pattern import Pattern
from .registry import ByKind, contents, make, register, with_contents

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .algebra import Mixed, Stacked
    from .edge_sets import Reordered
    from .edges import EdgeBasis
    from .multi_head_edges import MultiHeadEdges
    from .products import Composed, Kronecker

TensorMap = Callable[[Tensor], Tensor]
Shape = tuple[int, ...]
Leaf = tuple["Basis", Theta]

_PLAIN = {bool, int, float, str, tuple, torch.dtype, torch.device, type(None)}
"""Types of fields that have no more to them than their value."""


@dataclass(frozen=True, eq=False, repr=False)
class Basis(ABC):
    """K sparse matrices A_k of size M × N; entry ``[k, m, n]`` weighs edge m → n under label k.

    An explicit basis (:class:`EdgeBasis`) stores edges and values. A lazy basis stores a rule, and
    computes edges only if :meth:`edges` is called. Bases are immutable, and algebraic operations
    return bases. Each basis is registered with torch's ``pytree``, so that it can be an input of an
    exported graph; see :mod:`pyg_outerconv.basis.registry`.

    A new kind is a frozen dataclass that defines :attr:`num_bases`, :attr:`size` and :meth:`edges`.
    Where it is, of which dtype, whether it learns, which other bases share its plan, and how it is
    printed follow from its fields, which also are what is moved and cast. All else is computed by
    its edges, or by :meth:`simpler`; a kind overrides what it computes faster: :meth:`propagate`,
    :meth:`transpose`, :meth:`absorb`, :meth:`restricted` and :meth:`to_dense`. A layer is
    contracted by edges where no order names the kind. For orders of its own it need not be a leaf:
    its :meth:`absorb` returns ``[(self, theta)]`` where they solve it, for every x that a
    contraction takes, else ``super().absorb(theta, aggr)``. What few ask is a function by edges or
    parts, with which a kind that knows better is registered: ``picked``, ``reached``,
    ``with_edges``, ``diagonal_block``, ``transposed``, ``averaged``, ``item``.

    Attributes:
        hides_edges: whether the edges are known only after an expensive computation (powers,
            products). The parts of a basis may hide edges even if it does not.
        is_leaf: whether :meth:`absorb` returns the basis itself, with Θ unchanged, for every
            reduction. Orders must then solve it for all of them, or it hides its edges; and one of
            them must have ``propagates``, as factors of products ask.
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

    # What a kind says ------------------------------------------------------------------------

    @property
    @abstractmethod
    def num_bases(self) -> int:
        """Number of labels, K."""

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """Numbers of sources and targets, (M, N)."""

    @abstractmethod
    def edges(self) -> EdgeBasis:
        """The explicit form: edges sorted by target, then label."""

    # What a kind may know better ---------------------------------------------------------------

    def simpler(self) -> Basis:
        """A basis of the same matrices, by which methods are computed that a kind has not."""
        return self.edges()

    def heads(self) -> MultiHeadEdges | None:
        """The basis as one of values of each edge and head, if it has such; else None."""
        return None

    def propagate(self, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X for X (M, *batch, P): (N, K, *batch, P)."""
        return self.simpler().propagate(x)

    def transpose(self) -> Basis:
        """A_kᵀ for every k, of size (N, M), computed when it is used."""
        return make("transpose", self)

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

    def restricted(self, sources: Tensor | None, targets: Tensor | None) -> Basis:
        """A_k[sources, targets] for distinct indices, not both None."""
        return make("restrict", self, sources, targets)

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) the matrices as one dense tensor, differentiable in the values.

        Parallel edges are summed. ``dtype`` is used if the values are ones without a dtype.
        """
        return self.simpler().to_dense(dtype)

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """Every value divided by the number of edges that share its target and label.

        ``dtype`` is used if the values are ones without a dtype.

        Raises:
            ValueError: the basis hides its edges; call ``basis.edges().mean()``.
        """
        return make("mean", self, dtype)

    # What follows from the fields -------------------------------------------------------------

    @property
    def device(self) -> torch.device:
        """The device of its tensors: that of the first field on one, else that of its edges."""
        for part in contents(self):
            if isinstance(part, torch.device):
                return part
            if isinstance(part, Tensor | Basis):
                return part.device
        return self.edges().device

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of its values; None if all values are ones, which fit any dtype."""
        for part in contents(self):
            if isinstance(part, Tensor):
                if part.is_floating_point():
                    return part.dtype
            elif isinstance(part, Basis):
                dtype = part.dtype  # asked once, of a tree of parts
                if dtype is not None:
                    return dtype
        return None

    @property
    def learns(self) -> bool:
        """Whether any of its values requires gradients."""
        for part in contents(self):
            if isinstance(part, Tensor):
                if part.requires_grad:
                    return True
            elif isinstance(part, Basis) and part.learns:
                return True
        return False

    @property
    def batch(self) -> Shape:
        """The batch dimensions of the values; empty if all items of a batch share the values."""
        batches = [part.batch for part in contents(self) if isinstance(part, Basis)]
        return next(filter(None, batches), ())

    def plan_key(self) -> tuple[Hashable, ...]:
        """What the plan of a contraction depends on: equal for bases of one kind and similar size.

        Of a tensor among the fields it is all but the numbers, and how many rows it has. A basis
        with fields of other types than tensors, bases and plain values is equal only to itself.
        Kinds whose calls are short say what they need of this.
        """
        sources, targets = self.size
        key: list[Hashable] = [self.num_bases]
        key += int(sources).bit_length(), int(targets).bit_length()
        for part in contents(self):
            kind = type(part)
            if kind in _PLAIN:
                key.append(part)
            elif issubclass(kind, Tensor):
                key += part.shape[1:], part.dtype, part.device, part.requires_grad
            else:
                key.append((kind, part.plan_key()) if isinstance(part, Basis) else ref(self))
        return tuple(key)

    def map(self, change: TensorMap) -> Basis:
        """The basis with ``change`` applied to its tensors; itself if it changes nothing."""

        def moved(part: Any) -> Any:
            if isinstance(part, Tensor):
                return change(part)
            if isinstance(part, Basis | Pattern):
                return part.map(change)
            if isinstance(part, torch.device):
                there = change(torch.empty(0, dtype=torch.long, device=part)).device
                return part if there == part else there
            if isinstance(part, torch.dtype):
                return change(torch.empty(0, dtype=part)).dtype
            return part

        return with_contents(self, moved)

    def __repr__(self) -> str:
        """Labels, size, and the fields that are no tensors and differ from their defaults."""
        own = [(field, getattr(self, field.name)) for field in fields(self) if field.repr]
        told = [
            f", {field.name}={value!r}"
            for field, value in own
            if not (value is None or isinstance(value, Tensor) or value == field.default)
        ]
        return f"{type(self).__name__}({self._head()}{''.join(told)})"

    def _head(self) -> str:
        return f"bases={self.num_bases}, size={self.size}"

    # Algebra --------------------------------------------------------------------------------

    @property
    def T(self) -> Basis:  # noqa: N802
        """The transposed basis; see :meth:`transpose`."""
        return self.transpose()

    def scale(self, factor: float | Tensor) -> Mixed:
        """c·A_k, or c_k·A_k for a ``factor`` of shape (K,), which may require gradients."""
        return make("scale", self, factor)

    def select(self, labels: Labels) -> Mixed:
        """The matrices of the given labels, in the given order; labels may be repeated.

        Args:
            labels: one label, or a slice, list, tuple, range or vector of them, where negative ones
                count from the end; or a mask, a list or vector of K booleans.

        Raises:
            TypeError: ``labels`` has none of these forms.
            ValueError: a mask has another length, or the labels are not a vector.
            IndexError: a label is out of range.
        """
        return make("select", self, labels)

    def stack(self, *others: Basis) -> Stacked:
        """The matrices of this basis followed by those of ``others``; all of the same size."""
        return make("stack", (self, *others))

    def mix(self, matrix: Tensor) -> Mixed:
        """B_j = Σ_k C[j, k] A_k for a ``matrix`` C (J, K), which may require gradients.

        Raises:
            TypeError: ``matrix`` is not a floating point tensor.
            ValueError: it does not have K columns.
        """
        return make("mix", self, matrix)

    def compose(self, other: Basis) -> Composed:
        """A_i B_j under label i·K₂ + j: this basis, then ``other``; see :class:`Composed`.

        Raises:
            TypeError: the dtypes differ.
            ValueError: N of this basis is not M of ``other``.
        """
        return make("compose", self, other)

    def kron(self, other: Basis) -> Kronecker:
        """Kronecker products A_i ⊠ B_j, under label i·K₂ + j, nodes of ``other`` running fastest.

        Raises:
            TypeError: the dtypes differ.
        """
        return make("kron", self, other)

    def restrict(self, sources: Nodes = None, targets: Nodes = None) -> Basis:
        """A_k[sources, targets]: the given rows and columns, in the given order.

        Args:
            sources: distinct indices or a mask (M,); all if None.
            targets: distinct indices or a mask (N,); all if None.

        Raises:
            TypeError: an argument is neither indices nor a mask.
            ValueError: an index is repeated, or a mask has another length.
            IndexError: an index is out of range.
        """
        rows = check_nodes("sources", sources, self.size[0], self.device)
        columns = check_nodes("targets", targets, self.size[1], self.device)
        return self if rows is None and columns is None else self.restricted(rows, columns)

    def receptive_field(self, targets: int | Nodes, reach: int = 1) -> Tensor:
        """The sources, ascending, that reach some targets by edges of any label, even of value 0.

        Args:
            targets: one index, distinct indices (a tuple is a list of indices, not the coordinates
                of a cell), a mask (N,), or None for all.
            reach: the number of layers over this basis, at most 100,000; more than one needs M = N,
                rows and columns being the same nodes. The computation stops once the set of sources
                stays as it is.

        Raises:
            TypeError: ``targets`` is neither an index, indices nor a mask, or ``reach`` is not an
                integer.
            ValueError: an index is repeated, or ``reach`` is out of range or needs M = N.
            IndexError: a target is out of range.
        """
        return make("receptive_field", self, targets, reach)

    def reorder(self) -> Reordered:
        """Renumber the nodes of a square basis by the reverse Cuthill–McKee algorithm.

        Neighbours get close numbers (George & Liu, *Computer Solution of Large Sparse Positive
        Definite Systems*, section 4.3), so that products read X from a processor cache. The edges
        of all labels are used together, as undirected edges.

        Raises:
            ValueError: M ≠ N.
        """
        return make("reorder", self)

    def support(self) -> Tensor:
        """(K, M, N) booleans: where there is an edge, even one of value 0."""
        return self.edges().support()

    # Pictures -------------------------------------------------------------------------------

    def plot(
        self, kind: str = "matrices", path: str | Path | None = None, **options: Any
    ) -> Figure:
        """Draw the basis as a matplotlib figure; nothing is shown on a screen.

        - ``'matrices'``: a panel for each A_k, row m, column n (the paper's figure 3). Options
          ``labels`` (which ones), ``titles`` (a text for each of the K labels), ``max_panels``.
        - ``'shift'``: for grids, the output grid under each label in the colours of the inputs
          that it sees. Options as above, ``cell`` (the input that arrows follow), ``inputs`` and
          ``outputs`` (shapes of grids) if the basis does not know its grids.
        - ``'flattenings'``: Φ̂ and Φ̌ (the paper's figure 2). Options ``theta`` (K, P, Q), else
          ``channels`` (P, Q) and ``seed`` of a random one.
        - ``'receptive-field'``: the inputs that reach an output ``cell`` (coordinates, or a node's
          number). Options ``reach`` (layers over the basis), ``inputs``, ``outputs``; of graphs
          ``layout``, ``seed``.
        - ``'graph'``: a panel for each A_k, all in one layout: lines and arrows with the colour
          and the width of their value. Options ``labels``, ``titles``, ``max_panels``, ``layout``
          (``'spring'`` or ``'circle'``), ``seed``, ``classes`` (N,) for colours of nodes, and
          ``around``, nodes around which a part is drawn, as it is of more than 100 nodes.

        Args:
            kind: one of these kinds.
            path: a PNG or SVG file to write, by its extension.
            **options: options of the kind.

        Raises:
            ValueError: matplotlib is not installed, an option is unknown or out of range, the
                picture would have too many entries to be legible, or the file cannot be written.
            IndexError: a label or a cell is out of range.
        """
        return make("plot", self, kind, path, options)

    # Moving and casting ----------------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Basis:
        """Move and/or cast, as ``Tensor.to``; indices keep their integer dtype.

        Raises:
            TypeError: the dtype is not floating point.
        """
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise RefusedType(f"a basis holds floating point values: got {dtype}")

        def move(tensor: Tensor) -> Tensor:
            kind = dtype if dtype and tensor.is_floating_point() else tensor.dtype
            return tensor.to(device or tensor.device, kind, non_blocking)

        return self.map(move)

    def cpu(self) -> Basis:
        """The basis on the CPU."""
        return self.to("cpu")

    def cuda(self, device: int | None = None) -> Basis:
        """The basis on a CUDA device."""
        return self.to(torch.device("cuda", device) if device is not None else "cuda")

    def half(self) -> Basis:
        """Values in float16."""
        return self.to(torch.float16)

    def float(self) -> Basis:
        """Values in float32."""
        return self.to(torch.float32)

    def double(self) -> Basis:
        """Values in float64."""
        return self.to(torch.float64)

    def detach(self) -> Basis:
        """The basis with detached values."""
        return self.map(lambda one: one.detach() if one.is_floating_point() else one)


@ByKind
def picked(basis: Basis, labels: Sequence[int]) -> Basis | None:
    """Some labels as a basis in which no others occur; None if Θ of the others is zero then."""
    return None
