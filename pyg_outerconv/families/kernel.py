"""Kernel: edge values that are a function of edge attributes, or of relative positions."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis
from ..basis.pattern import Pattern
from ..errors import RefusedType, RefusedValue, unknown
from ..graph.checks import check_positions
from ..graph.graph import Graph
from ..memo import Memo
from .family import Family

_patterns = Memo()


@runtime_checkable
class EdgeFunction(Protocol):
    """A function from edge attributes (E, D) to K values of each edge (E, K), such as a Module."""

    def __call__(self, edge_attr: Tensor) -> Tensor:
        """The values of the edges under each label."""
        ...


@dataclass(frozen=True)
class Kernel(Family):
    r"""K matrices over the same edges, with values that are functions of edge attributes.

    .. math:: A_k[m, n] = \sum_{e: m \to n} w_e\, f_k(u_e), \qquad k = 0, \dots, K - 1

    with u the attributes of an edge, or the position of its source relative to its target. The
    message of an edge is X_m times the matrix Σ_k f_k(u) Θ_k: a Gaussian mixture (GMMConv), a
    spline (SplineCNN), or a network with a linear last layer Θ (NNConv, ECC). Ready functions are
    in :mod:`pyg_outerconv.nn.edge_functions`.

    It is differentiable in attributes, positions and the parameters of ``fn``, which are parameters
    of the layer if ``fn`` is a module (layers with one module share it). So values are computed at
    every call. The sorted edges are cached, if ``cached``, as long as the same unmodified
    ``edge_index`` comes back (see :mod:`pyg_outerconv.memo`).

    Args:
        fn (callable): from (E, D) to (E, K).
        num_functions (int, optional): K; by default what ``fn.num_functions`` says.
        on (str, optional): u: ``'edge_attr'``, (E, D) or (E,); or ``'pos'``, the position of the
            source minus that of the target, as in PyG's ``Cartesian``.
            (default: ``'edge_attr'``)
        normalised (bool or float, optional): whether relative positions are mapped to [0, 1], with
            0.5 for zero: u / 2c + 1/2, with c the largest coordinate of all edges of the call,
            without gradient; a number is c itself. (default: ``False``)
        cached (bool, optional): keep the sorted edges as long as the same unmodified ``edge_index``
            comes back. (default: ``True``)

    Raises:
        TypeError: an option has the wrong type; when a basis is made, attributes or values are not
            floating point.
        ValueError: an option is out of range; when a basis is made, attributes or positions are
            missing, or have the wrong shape.
    """

    equation = "A_k[m, n] = f_k(attributes of the edge m -> n)"
    learns = True

    fn: EdgeFunction
    num_functions: int | None = None
    on: str = "edge_attr"
    normalised: bool | float = False
    cached: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_functions is None:
            object.__setattr__(self, "num_functions", getattr(self.fn, "num_functions", None))
        if not isinstance(self.num_functions, Integral) or self.num_functions < 1:
            raise RefusedValue(
                "a kernel needs the number of its functions, which is K",
                "num_functions >= 1",
                self.num_functions,
            )
        if self.on not in ("edge_attr", "pos"):
            raise RefusedValue(unknown("input of a kernel", self.on, ("edge_attr", "pos")))
        if self.normalised is not False and self.on != "pos":
            raise RefusedValue("relative positions are normalised", "on='pos'", self.on)
        object.__setattr__(self, "num_functions", int(self.num_functions))
        if self.normalised is not False and not 0 < self.normalised < inf:
            raise RefusedValue(
                "normalised is a divisor of positions", "finite, > 0", self.normalised
            )

    @property
    def reads_beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """The input of the functions, and the weights that multiply their values."""
        return ("edge_weight", self.on)

    @property
    def num_bases(self) -> int:
        assert self.num_functions is not None  # __post_init__
        return self.num_functions

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"function {k} of {self.on}" for k in range(self.num_bases))

    def basis_on(self, edges: Graph, dtype: torch.dtype | None = None) -> EdgeBasis:
        """The edges once for each label, with the values of the functions."""
        pattern, value = self._pattern(edges), self._values(edges)
        return pattern.with_values(pattern.sort_values(value.t().reshape(-1)))

    def _pattern(self, edges: Graph) -> Pattern:
        if not self.cached or edges.origin is not None:
            return self._make_pattern(edges)
        key = (self.num_bases, edges.size)
        pattern: Pattern = _patterns.get(key, lambda: self._make_pattern(edges), edges.edge_index)
        return pattern

    def _make_pattern(self, edges: Graph) -> Pattern:
        index, count = edges.edge_index, self.num_bases
        label = torch.arange(count, dtype=index.dtype, device=index.device)
        return Pattern.build(
            index.repeat(1, count),
            label.repeat_interleave(edges.num_edges),
            size=edges.size,
            num_labels=count,
            origin=edges.origins().repeat(count),
        )

    def _values(self, edges: Graph) -> Tensor:
        """The values (E, K), in the order of the user's edges."""
        value = self.fn(self._relative(edges) if self.on == "pos" else _attributes(edges))
        wanted = (edges.num_edges, self.num_bases)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            got = getattr(value, "dtype", type(value).__name__)
            raise RefusedType("a kernel's function returns numbers", "floating point", got)
        if value.shape != wanted:
            raise RefusedValue(
                "a kernel's function returns a number for each edge and label",
                wanted,
                tuple(value.shape),
            )
        return value if edges.edge_weight is None else value * edges.edge_weight.unsqueeze(1)

    def _relative(self, edges: Graph) -> Tensor:
        """The position (E, D) of each source minus that of its target."""
        of_sources, of_targets = _positions(edges)
        there = of_sources.index_select(0, edges.source)
        difference = there - of_targets.index_select(0, edges.target)
        if self.normalised is False:
            return difference
        longest: Any = self.normalised
        if longest is True:
            longest = difference.detach().abs().max() if difference.numel() else torch.tensor(1.0)
            longest = torch.where(longest > 0, longest, 1.0)
        return difference / (2 * longest) + 0.5


def _attributes(edges: Graph) -> Tensor:
    edge_attr = edges.edge_attr
    if edge_attr is None:
        raise RefusedValue("a kernel on attributes needs them", "edge_attr (E, D)", "None")
    if not edge_attr.is_floating_point():
        raise RefusedType(
            "edge_attr of a kernel must be floating point", "torch.float32", edge_attr.dtype
        )
    return edge_attr.view(-1, 1) if edge_attr.dim() == 1 else edge_attr


def _positions(edges: Graph) -> tuple[Tensor, Tensor]:
    pos = edges.pos
    if pos is None:
        raise RefusedValue("a kernel on positions needs them", "pos (N, D)", "None")
    check_positions(pos, edges.size)
    return pos
