"""Supports of sequences: Complete, Causal, Strided and SlidingWindow."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from ...basis.band import Band, sequence
from ...basis.base import Basis
from ...basis.edges import EdgeBasis
from ...basis.implicit_edges import sorted_pairs
from ...basis.same_block import SameBlock
from ...basis.subpattern import subset
from ...graph.cells import Cells
from ...graph.checks import check_one_set
from ...graph.positions import graphs_of
from ...graph.structure import Structure
from ..grid import Grid
from ..options import check_least, for_each_axis
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
        ends = pattern.source, pattern.target
        return EdgeBasis(subset(pattern, ends[0] != ends[1], *ends, size))


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
