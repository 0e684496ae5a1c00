"""What a basis is: K sparse matrices of size M × N, and the algebra that every basis has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from ..graph.choice import Labels, Nodes, check_nodes
from .kind import Kind
from .makers import make
from .receptive_field import receptive_field

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .composed import Composed
    from .kronecker import Kronecker
    from .mixed import Mixed
    from .reorder import Reordered
    from .scaled import Scaled
    from .selected import Selected
    from .stacked import Stacked
    from .transposed import Transposed

DEEPEST = 50
"""How deep bases may be made of others. Each level is a call within the one before, and Python
has room for about 1000."""

MOST_PIECES = 2**14
"""Of how many bases one may be made. One that is its own other half doubles at every step."""


class Basis(Kind):
    """K sparse matrices A_k of size M × N; entry ``[k, m, n]`` weighs edge m → n under label k.

    An explicit basis (:class:`EdgeBasis`) holds edges and values. A lazy one holds a rule, and
    becomes edges only when asked by :meth:`edges`. All are immutable, and what the algebra
    returns is again a basis. A basis is a tree of its tensors for torch's ``pytree``, so that it
    can be the input of a graph that is exported; see :mod:`pyg_outerconv.basis.pytree`.

    What a new kind of basis states, and what it may do in its own way, is in :class:`.kind.Kind`.
    """

    # Dense form -----------------------------------------------------------------------------

    def to_dense(self, dtype: torch.dtype | None = None) -> Tensor:
        """(K, M, N) the matrices as one dense tensor, differentiable in the values.

        Parallel edges add up. ``dtype`` is the type where the values are ones without a type.
        """
        return self.edges().to_dense(dtype)

    def support(self) -> Tensor:
        """(K, M, N) booleans: where there is an edge. A zero value and no edge at all differ."""
        return self.edges().support()

    def mean(self, dtype: torch.dtype | None = None) -> Basis:
        """Every value divided by the number of edges that share its target and label.

        ``dtype`` is the type where the values are ones without a type.

        Raises:
            ValueError: the basis is lazy in a way that hides its edges; ask for ``edges()`` first.
        """
        return self.edges().mean(dtype)

    # Algebra --------------------------------------------------------------------------------

    def transpose(self) -> Transposed | Basis:
        """A_kᵀ for every k: all edges turned round, size (N, M). Costs nothing until used."""
        return make("transpose", self)

    @property
    def T(self) -> Basis:  # noqa: N802
        """:meth:`transpose`."""
        return self.transpose()

    def scale(self, factor: float | Tensor) -> Scaled:
        """c·A_k, or c_k·A_k for a ``factor`` of shape (K,), which may carry gradients."""
        return make("scale", self, factor)

    def select(self, labels: Labels) -> Selected:
        """The matrices of the given labels, in the given order; a label may come twice.

        Args:
            labels: one label, or a slice, list, tuple, range or vector of them, where negative ones
                count from the end; or a mask, a list or vector of K booleans.

        Raises:
            TypeError, ValueError, IndexError: they are no labels of the basis.
        """
        return make("select", self, labels)

    def stack(self, *others: Basis) -> Stacked:
        """The matrices of the basis, then those of ``others``; all of one size."""
        return make("stack", (self, *others))

    def mix(self, matrix: Tensor) -> Mixed:
        """B_j = Σ_k C[j, k] A_k for a ``matrix`` C (J, K), which may carry gradients.

        Raises:
            TypeError, ValueError: the matrix does not fit.
        """
        return make("mix", self, matrix)

    def compose(self, other: Basis) -> Composed:
        """A_i B_j under label i·K₂ + j: this basis, then ``other``; see :class:`Composed`.

        Raises:
            TypeError, ValueError: sizes or types do not fit.
        """
        return make("compose", self, other)

    def kron(self, other: Basis) -> Kronecker:
        """A_i ⊗ B_j under label i·K₂ + j, the nodes of ``other`` running fastest.

        Raises:
            TypeError: the types do not fit.
        """
        return make("kron", self, other)

    def restrict(self, sources: Nodes = None, targets: Nodes = None) -> Basis:
        """A_k[sources, targets]: some rows and columns, in the given order; no edge moves.

        Args:
            sources: distinct indices or a mask (M,); all if None.
            targets: distinct indices or a mask (N,); all if None.

        Raises:
            TypeError, ValueError, IndexError: they are not nodes of the basis.
        """
        rows = check_nodes("sources", sources, self.size[0], self.device)
        columns = check_nodes("targets", targets, self.size[1], self.device)
        return self if rows is None and columns is None else self.restricted(rows, columns)

    def receptive_field(self, targets: int | Nodes, reach: int = 1) -> Tensor:
        """The sources, ascending, from which edges of any label run to some targets.

        Args:
            targets: one, distinct indices (a tuple too, which is no coordinate of a cell), a mask
                (N,), or None for all.
            reach: how many layers over this basis lie between; more than one need M = N,
                and take rows and columns for the same nodes. No more are walked through than it
                takes until the sources seen settle or repeat; where that takes more than 100,000
                layers, a greater reach is refused.

        Raises:
            TypeError, ValueError, IndexError: they are not targets of the basis.
        """
        return receptive_field(self, targets, reach)

    def reorder(self) -> Reordered:
        """The basis on renumbered nodes, neighbours near each other; see :func:`.reorder.reorder`.

        Raises:
            ValueError: M ≠ N.
        """
        from .reorder import reorder

        return reorder(self)

    # Pictures -------------------------------------------------------------------------------

    def plot(
        self, kind: str = "matrices", path: str | Path | None = None, **options: Any
    ) -> Figure:
        """A picture of the basis, as a matplotlib figure; nothing is shown on a screen.

        - ``'matrices'``: a panel for each A_k, row m, column n (the paper's figure 3). Options
          ``labels`` (which ones), ``titles`` (a text for each of the K labels), ``max_panels``.
        - ``'shift'``: for grids, the output grid under each label in the colours of the inputs
          that it sees. Options as above, ``cell`` (the input that arrows follow), ``inputs`` and
          ``outputs`` (the shape of a grid, a mask, or ``Cells``) where the basis does not know
          its grids; cells without nodes are dark.
        - ``'flattenings'``: Φ̂ and Φ̌ (the paper's figure 2). Options ``theta`` (K, P, Q), else
          ``channels`` (P, Q) and ``seed`` of a random one.
        - ``'receptive-field'``: the inputs that reach an output ``cell`` (coordinates, or a node's
          number). Options ``reach`` (layers over the basis), ``inputs``, ``outputs``; of graphs
          ``layout``, ``seed``.
        - ``'graph'``: an arrow for each edge in the colour of its label. Options ``labels``,
          ``titles``, ``layout`` (``'spring'`` or ``'circle'``), ``seed``.

        Args:
            kind: one of the above.
            path: a PNG or SVG file to write, by its extension.
            **options: of the kind.

        Raises:
            ValueError: matplotlib is not installed, an option is unknown or out of range, the
                picture would have too many entries to be seen, or the file cannot be written.
            IndexError: a label or a cell that there is not.
        """
        from ..plot import check_matplotlib

        check_matplotlib()
        from ..plot.basis import draw

        return draw(self, kind, path, options)

    # Moving and casting ----------------------------------------------------------------------

    def to(self, *args: Any, **kwargs: Any) -> Basis:
        """Move and/or cast, as ``Tensor.to``; indices keep their integer type.

        Raises:
            TypeError: the type is not a floating point type.
        """
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        if dtype is not None and not dtype.is_floating_point:
            raise RefusedType(f"a basis holds floating point values: got {dtype}")

        def move(tensor: Tensor) -> Tensor:
            return tensor if device is None else tensor.to(device, non_blocking=non_blocking)

        def cast(tensor: Tensor) -> Tensor:
            return tensor.to(device or tensor.device, dtype or tensor.dtype, non_blocking)

        return self.map(move, cast)

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
        """The basis without the history of its values."""
        return self.map(lambda index: index, lambda value: value.detach())

    def _head(self) -> str:
        return f"bases={self.num_bases}, size={self.size}"


def nest(basis: Basis, *parts: Basis, levels: int = 1) -> None:
    """Note in a new basis how deep and how large it is, made of ``parts`` by so many levels.

    Raises:
        ValueError: it is deeper than ``DEEPEST``, or made of more than ``MOST_PIECES``.
    """
    nesting = levels + max(part.nesting for part in parts)
    if nesting > DEEPEST:
        raise RefusedValue(
            refusal(
                "bases are made of others, and these of others, to some depth; "
                "basis.edges() is made of none",
                f"at most {DEEPEST} levels",
                nesting,
            )
        )
    pieces = sum(part.pieces for part in parts)
    if pieces > MOST_PIECES:
        raise RefusedValue(
            refusal(
                "a basis is made of some others, a part that is used twice counting twice",
                f"at most {MOST_PIECES}; basis.edges() is one",
                pieces,
            )
        )
    object.__setattr__(basis, "nesting", nesting)
    object.__setattr__(basis, "pieces", pieces)
