"""What users do with a basis: its algebra, pictures, moving and casting."""

from __future__ import annotations

from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue
from ..graph.choice import Labels, Nodes, check_nodes
from .registry import make

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .base import Basis
    from .compound import Stacked
    from .edge_sets import Reordered
    from .label_maps import Mixed, Scaled, Selected
    from .products import Composed, Kronecker

MOST_LAYERS = 100_000


class Operations:
    """The operations on a basis that are equal for all kinds; :class:`.base.Basis` has them."""

    # Algebra --------------------------------------------------------------------------------

    def transpose(self) -> Basis:
        """A_kᵀ for every k, of size (N, M), computed when it is used."""
        return make("transpose", self)

    @property
    def T(self) -> Basis:  # noqa: N802
        """The transposed basis; see :meth:`transpose`."""
        return self.transpose()

    def scale(self, factor: float | Tensor) -> Scaled:
        """c·A_k, or c_k·A_k for a ``factor`` of shape (K,), which may require gradients."""
        return make("scale", self, factor)

    def select(self, labels: Labels) -> Selected:
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
        """A_i ⊗ B_j under label i·K₂ + j, the nodes of ``other`` running fastest.

        Raises:
            TypeError: the dtypes differ.
        """
        return make("kron", self, other)

    def restrict(self: Any, sources: Nodes = None, targets: Nodes = None) -> Basis:
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

    def receptive_field(self: Any, targets: int | Nodes, reach: int = 1) -> Tensor:
        """The sources, ascending, that reach some targets by edges of any label, even of value 0.

        Sets of nodes are followed back through products and powers, factor by factor.

        Args:
            targets: one index, distinct indices (a tuple is a list of indices, not the coordinates
                of a cell), a mask (N,), or None for all.
            reach: the number of layers over this basis; more than one needs M = N, rows and columns
                being the same nodes. The computation stops early once the set of sources repeats;
                if it takes more than 100,000 layers to repeat, a greater reach is refused.

        Raises:
            TypeError: ``targets`` is neither an index, indices nor a mask, or ``reach`` is not an
                integer.
            ValueError: an index is repeated, or ``reach`` is out of range or needs M = N.
            IndexError: a target is out of range.
        """
        if not isinstance(reach, Integral) or isinstance(reach, bool):
            raise RefusedType("reach is a number of layers", "an integer", repr(reach))
        is_one = isinstance(targets, int) and not isinstance(targets, bool)
        nodes: Any = [targets] if is_one else targets
        chosen = check_nodes("targets", nodes, self.size[1], self.device)
        if reach < 0 or (reach != 1 and self.size[0] != self.size[1]):
            raise RefusedValue(
                "several layers need a basis on one set of nodes",
                "reach = 1, or M = N and reach >= 0",
                f"reach={reach}, size {self.size}",
            )
        seen = torch.zeros(self.size[1], dtype=torch.bool, device=self.device)
        seen[slice(None) if chosen is None else chosen] = True
        return _layers_back(self, seen, reach).nonzero().view(-1)

    def reorder(self) -> Reordered:
        """Renumber the nodes so that neighbours are close; see :func:`.edge_sets.reorder`.

        Raises:
            ValueError: M ≠ N.
        """
        return make("reorder", self)

    # Pictures -------------------------------------------------------------------------------

    def plot(
        self: Any, kind: str = "matrices", path: str | Path | None = None, **options: Any
    ) -> Figure:
        """Draw the basis as a matplotlib figure; nothing is shown on a screen.

        - ``'matrices'``: a panel for each A_k, row m, column n (the paper's figure 3). Options
          ``labels`` (which ones), ``titles`` (a text for each of the K labels), ``max_panels``.
        - ``'shift'``: for grids, the output grid under each label in the colours of the inputs
          that it sees. Options as above, ``cell`` (the input that arrows follow), ``inputs`` and
          ``outputs`` (the shape of a grid, a mask, or ``Cells``) if the basis does not know its
          grids; cells without nodes are dark.
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
            kind: one of the above.
            path: a PNG or SVG file to write, by its extension.
            **options: options of the kind, listed above.

        Raises:
            ValueError: matplotlib is not installed, an option is unknown or out of range, the
                picture would have too many entries to be legible, or the file cannot be written.
            IndexError: a label or a cell is out of range.
        """
        from ..plot import check_matplotlib

        check_matplotlib()
        from ..plot.basis import draw

        return draw(self, kind, path, options)

    # Moving and casting ----------------------------------------------------------------------

    def to(self: Any, *args: Any, **kwargs: Any) -> Basis:
        """Move and/or cast, as ``Tensor.to``; indices keep their integer dtype.

        Raises:
            TypeError: the dtype is not floating point.
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

    def detach(self: Any) -> Basis:
        """The basis with detached values."""
        return self.map(lambda index: index, lambda value: value.detach())


def _layers_back(basis: Basis, seen: Tensor, reach: int) -> Tensor:
    """The set ``seen`` (N,) followed back by ``reach`` layers, in few steps once sets repeat.

    From the first repetition on the sets are periodic (period 1 if constant). Repetitions are found
    by comparison with one earlier set (Brent, *An improved Monte Carlo factorization algorithm*,
    1980).
    """
    step, mark, marked, repeats = 0, seen, 0, False
    while step < reach:
        if step == MOST_LAYERS and not repeats:
            raise RefusedValue(
                f"the sets of sources do not repeat within {MOST_LAYERS} layers",
                f"reach <= {MOST_LAYERS}",
                reach,
            )
        seen, step = basis.reached(seen, range(basis.num_bases)), step + 1
        if not repeats and torch.equal(seen, mark):
            repeats, reach = True, step + (reach - step) % (step - marked)
        elif step >= 2 * marked:
            mark, marked = seen, step
    return seen
