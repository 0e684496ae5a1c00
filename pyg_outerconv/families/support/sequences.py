"""Supports by the places of nodes: sequences and their windows, blocks, and links to far nodes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from ...basis.band import Band, sequence
from ...basis.base import Basis
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.same_block import SameBlock
from ...basis.subpattern import subset
from ...errors import RefusedValue
from ...graph.cells import Cells
from ...graph.checks import check_one_set
from ...graph.positions import graph_numbers, graphs_of, places
from ...graph.structure import Structure
from ...kernels.lasting import lasting
from ..grid import Grid
from ..options import check_least, for_each_axis, settle, spread
from .support import Support, SupportOfAxes


@dataclass(frozen=True)
class Complete(Support):
    r"""All pairs of a source and a target, or all that are of one graph.

    .. math:: A_0[m, n] = 1

    The support of full attention, and with M ≠ N of cross-attention (``size=(M, N)``, or a pair
    of features). With ``batch``, nodes see the nodes of their own graph. From the
    `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_ paper, section 3.2.

    Args:
        add_self_loops (bool, optional): if ``False``, no node sees itself, and sources and targets
            must be the same nodes; else every node does. (default: ``None``)

    Raises:
        ValueError: when a basis is made, the number of nodes is unknown, or sources and
            targets are a pair, without self-loops.
    """

    labels = ("all pairs",)
    equation = "A_0[m, n] = 1"
    page = ("always", "Vaswani et al., *Attention Is All You Need* (1706.03762), section 3.2")
    symmetries = ("permutation-equivariant",)

    add_self_loops: bool | None = None  # type: ignore[assignment]

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`Band` without limits, or :class:`SameBlock`; edges, without self-loops."""
        graphs, size = graphs_of(structure), structure.size
        all_pairs = Band(*size, on=structure.device)
        pairs = all_pairs if graphs is None else SameBlock.of_graphs(*graphs)
        if self.add_self_loops is not False:
            return pairs
        check_one_set(structure.bipartite, size, "leaving out self-loops", "Complete()")
        pattern = pairs.edges().pattern
        kept = (pattern.source != pattern.target).nonzero().view(-1)
        source, target = (end.index_select(0, kept) for end in (pattern.source, pattern.target))
        return EdgeBasis(subset(pattern, kept, source, target, size))


@dataclass(frozen=True)
class Causal(Support):
    r"""Sources up to the place of the target, in a sequence.

    .. math:: A_0[m, n] = 1 \iff m \le n \qquad (m < n \text{ if strict})

    The masked attention of a decoder. The number of a node is its place in the sequence; in a batch
    places are counted from the first node of each graph. If M ≠ N, target 0 stands at the place of
    source 0. From the `"Attention Is All You Need" <https://arxiv.org/abs/1706.03762>`_
    paper, section 3.2.3.

    Args:
        strict (bool, optional): whether a target does not see its own place. Target 0 then sees
            nothing. (default: ``False``)

    Raises:
        ValueError: when a basis is made, the number of nodes is unknown.
    """

    equation = "A_0[m, n] = 1 where m <= n"
    page = ("m ≤ n, or m < n", "1706.03762, section 3.2.3")

    strict: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        return ("all before",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A :class:`Band` without limit to the left, or edges within each graph."""
        return sequence(structure, None, -1 if self.strict else 0)


@dataclass(frozen=True)
class Strided(Support):
    r"""Sources a whole number of strides from the target, in a sequence.

    .. math:: A_0[m, n] = 1 \iff n - m \equiv 0 \pmod s \qquad (m \le n \text{ if causal})

    One of the two heads of the `"Sparse Transformer" <https://arxiv.org/abs/1904.10509>`_ paper
    (section 4.3), whose other one is ``SlidingWindow(s, causal=True)``; of an image in the order of
    its pixels, with a stride of its width, it is the column. The number of a node is its place; in
    a batch places are counted from the first node of each graph. If M ≠ N, target 0 stands at the
    place of source 0.

    Args:
        stride (int): s.
        causal (bool, optional): whether a target sees only itself and sources before it.
            (default: ``False``)

    Raises:
        ValueError: the stride is not positive; when a basis is made, nobody said how many nodes
            there are.
    """

    equation = "A_0[m, n] = 1 where n - m is a multiple of s"
    page = (
        "n − m is a multiple of s",
        "Child et al., *Sparse Transformer* (1904.10509), section 4.3",
    )

    stride: int
    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, stride=1)

    @property
    def labels(self) -> tuple[str, ...]:
        return (f"every {self.stride}th before" if self.causal else f"every {self.stride}th",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A band with that dilation, or edges within each graph."""
        return sequence(structure, None, 0 if self.causal else None, self.stride)


@dataclass(frozen=True)
class SlidingWindow(SupportOfAxes):
    r"""Sources at most w steps from the target, along each axis.

    .. math:: A_0[m, n] = 1 \iff m = n + d\,j, \quad |j| \le w

    ``window`` is w, the steps on each side, so that a target sees 2w + 1 sources. The window of the
    `"Longformer" <https://arxiv.org/abs/2004.05150>`_ paper (section 3.1) counts both sides: its
    512 is a size of 256 here.

    In a sequence the number of a node is its place; in a batch places are counted from the first
    node of each graph. If M ≠ N, target 0 stands at the place of source 0. On a grid of several
    axes, or if cells are listed, steps are between cells, and missing cells are not seen.

    Args:
        window (int or tuple): w, for all axes or for each.
        dilation (int or tuple, optional): d, how far apart steps are. (default: ``1``)
        causal (bool, optional): whether a target sees only itself and sources before it; on
            several axes in the order in which the last axis runs fastest. (default: ``False``)

    Raises:
        ValueError: an option is out of range; when a basis is made, options have other axes than
            the structure, or the number of nodes is unknown.
    """

    per_axis = ("window", "dilation")
    equation = "A_0[m, n] = 1 where m = n + d j, |j| <= w"
    page = (
        "m = n + d·j, \\|j\\| ≤ w, along every axis",
        "Beltagy et al., *Longformer* (2004.05150), section 3.1",
    )

    window: int | tuple[int, ...]
    dilation: int | tuple[int, ...] = 1
    causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, window=0, dilation=1)

    @property
    def labels(self) -> tuple[str, ...]:
        return ("a window before" if self.causal else "a window around",)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> Basis:
        """A band in a sequence; edges in a batch of several, and on grids."""
        axes, (sizes, dilations) = for_each_axis(self, structure, self.window, self.dilation)
        if not isinstance(structure, Cells) or (axes == 1 and structure.is_full):
            return sequence(structure, sizes[0], 0 if self.causal else sizes[0], dilations[0])
        steps = product(
            *(range(-w * d, w * d + 1, d) for w, d in zip(sizes, dilations, strict=True))
        )
        middle = (0,) * axes
        # A shift by s shows a target what is s before it.
        shifts = Grid(offsets=tuple(s for s in steps if s >= middle or not self.causal))
        return sorted_pairs(shifts.basis_on(structure).edges().index, structure.size)


# Blocks -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocks(SupportOfAxes):
    r"""Sources in the block of the target, where blocks do not overlap.

    .. math:: A_0[m, n] = 1 \iff
        \left\lfloor \frac{m - t}{s} \right\rfloor = \left\lfloor \frac{n - t}{s} \right\rfloor

    along each axis. On images these are the windows of the `"Swin Transformer"
    <https://arxiv.org/abs/2103.14030>`_ paper (section 3.2), ``Blocks(7)`` and
    ``Blocks(7, shift=3)`` in turn. A shift moves all borders: the first block has t cells, and
    the last the remaining ones. Blocks do not wrap round the ends, just as the masks of that paper
    separate the parts of a rolled image.

    In a sequence the number of a node is its place; in a batch places are counted from the first
    node of each graph. If M ≠ N, target 0 stands at the place of source 0. Cells without bounds
    have borders at t and multiples of s from it.

    Args:
        window (int or tuple): s, for all axes or for each.
        shift (int or tuple, optional): t, less than s. (default: ``0``)

    Raises:
        ValueError: an option is out of range; when a basis is made, options have other axes than
            the structure, or the number of nodes is unknown.
    """

    labels = ("the same block",)
    per_axis = ("window", "shift")
    equation = "A_0[m, n] = 1 where floor((m - t) / s) = floor((n - t) / s)"
    page = (
        "both are in one block of cells",
        "Liu et al., *Swin Transformer* (2103.14030), section 3.2",
    )

    window: int | tuple[int, ...]
    shift: int | tuple[int, ...] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, window=1, shift=0)
        axes = self.num_axes or 1
        sizes, shifts = spread(self.window, axes), spread(self.shift, axes)
        if any(t >= s for s, t in zip(sizes, shifts, strict=False)):
            raise RefusedValue(
                "a shift moves borders within a block", f"< {self.window}", self.shift
            )

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> SameBlock:
        """:class:`~.same_block.SameBlock`, the blocks of each graph or grid on their own."""
        _, (sizes, shifts) = for_each_axis(self, structure, self.window, self.shift)
        if isinstance(structure, Cells):
            block = _of_cells(structure, sizes, shifts)
            return SameBlock(block, block)
        graphs, ends = graphs_of(structure), structure.size
        along = [torch.arange(count, device=structure.device) for count in ends]
        if graphs is not None:
            along = [places(graph) for graph in graphs]
        blocks = [(place - shifts[0] + sizes[0]) // sizes[0] for place in along]
        if graphs is not None:
            count = max(ends) // sizes[0] + 2
            blocks = [b + count * graph for b, graph in zip(blocks, graphs, strict=True)]
        return SameBlock(blocks[0], blocks[1])


def _of_cells(cells: Cells, sizes: tuple[int, ...], shifts: tuple[int, ...]) -> Tensor:
    """The block (n,) of each cell; different grids have different blocks."""
    listed = cells.listed()
    index = listed.index
    assert index is not None
    block = torch.div(
        index - index.new_tensor(shifts), index.new_tensor(sizes), rounding_mode="floor"
    )
    if not block.numel():
        return block.new_zeros(len(block))
    block = block - block.amin(0)
    return listed.keys(block, tuple((block.amax(0) + 1).tolist()))


# Far nodes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GlobalTokens(Support):
    r"""All pairs of which one end is a global node.

    .. math:: A_0[m, n] = 1 \iff m \in G \text{ or } n \in G

    The global attention of the `"Longformer" <https://arxiv.org/abs/2004.05150>`_ (section 3.1)
    and `"BigBird" <https://arxiv.org/abs/2007.14062>`_ (section 2) papers, which add it to windows:
    ``Union(SlidingWindow(w), GlobalTokens(g))``. In a batch the places of global nodes are
    counted from the first node of each graph; a graph may be too short for some of them. If M ≠ N,
    sources and targets are both counted from their first node.

    Args:
        tokens (int or tuple): G: the number of first nodes, or the places of nodes.

    Raises:
        ValueError: a number is negative; when a basis is made, the number of nodes is unknown.
    """

    labels = ("to and from global nodes",)
    equation = "A_0[m, n] = 1 where m or n is in G"
    page = (
        "m or n is one of a few",
        "2004.05150, section 3.1; Zaheer et al., *BigBird* (2007.14062), section 2",
    )

    tokens: int | tuple[int, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, ("tokens",))
        check_least(self, tokens=0)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> EdgeBasis:
        sources, targets = graph_numbers(structure)
        to_all = SameBlock(self._globals(sources), targets).edges().index
        from_all = SameBlock(sources, self._globals(targets)).edges().index
        return sorted_pairs(torch.cat([to_all, from_all], dim=1), structure.size)

    def _globals(self, graph: Tensor) -> Tensor:
        """The graph (n,) of each global node; −1 for other nodes."""
        place = places(graph)
        if isinstance(self.tokens, int):
            return graph.masked_fill(place >= self.tokens, -1)
        chosen = torch.tensor(self.tokens, dtype=torch.long, device=graph.device)
        return graph.masked_fill(~torch.isin(place, chosen), -1)


@dataclass(frozen=True)
class RandomLinks(Support):
    r"""r distinct sources for each target, drawn uniformly.

    .. math:: A_0[m, n] = 1 \iff m \in R_n, \quad |R_n| = \min(r, M)

    The random attention of the `"BigBird" <https://arxiv.org/abs/2007.14062>`_ paper (section 2),
    which adds it to windows and global nodes. The same seed and number of nodes give the same
    links, on every device. A graph has the same links in a batch as by itself.

    Args:
        count (int): r.
        seed (int, optional): seed of the random generator. (default: ``0``)

    Raises:
        ValueError: a number is negative; when a basis is made, the number of nodes is unknown.
    """

    labels = ("random",)
    equation = "A_0[m, n] = 1 where m is one of r random sources of n"
    page = ("m is one of r drawn sources", "2007.14062, section 2")

    count: int
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, count=0, seed=0)

    def basis_on(self, structure: Structure, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The links as explicit edges."""
        sources, targets = graph_numbers(structure)
        graph, order = sources.long().sort(stable=True)
        begin = torch.searchsorted(graph, targets.long())
        there = torch.searchsorted(graph, targets.long(), right=True) - begin
        link = self._draw(there.cpu(), places(targets).cpu()).to(structure.device)
        target, which = (link >= 0).nonzero(as_tuple=True)
        source = order[begin[target] + link[target, which]]
        return sorted_pairs(torch.stack([source, target]), structure.size)

    def _draw(self, there: Tensor, place: Tensor) -> Tensor:
        """Distinct numbers (N, r) below ``there`` (N,) for each target, −1 where there are fewer.

        Draws belong to a target's ``place`` (N,) in its graph. Floyd's algorithm: draw i is from
        all numbers but the last r − 1 − i; if it was drawn before, the last of these is taken.
        """
        rows = int(place.max()) + 1 if place.numel() else 0
        with lasting():
            generator = torch.Generator().manual_seed(self.seed)
            shares = torch.rand(
                rows, self.count, generator=generator, dtype=torch.float64, device="cpu"
            )
        shares = shares[place]
        drawn = torch.full(shares.shape, -1)
        first = (there - self.count).clamp(min=0)
        for i in range(self.count):
            last = first + i
            one = (shares[:, i] * (last + 1)).long().clamp(max=last)
            again = (drawn[:, :i] == one.unsqueeze(1)).any(1)
            drawn[:, i] = torch.where(again, last, one).masked_fill_(last >= there, -1)
        return drawn
