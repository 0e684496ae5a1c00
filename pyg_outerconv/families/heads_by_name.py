"""What families of heads by name have in common: layers make their modules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from ..attention import SCORES, make_normaliser, make_score
from ..basis.base import Basis
from ..errors import RefusedValue, unknown
from ..graph.checks import check_positive
from ..graph.structure import Structure
from .attention import Attention
from .content_family import ContentFamily
from .family import Family
from .support.hops import Hops

COMBINATIONS = ("concat", "mean", "sum")


class HeadsByName(ContentFamily):
    """Attention by a name in text; :meth:`sized` makes a layer's :class:`Attention` from it."""

    heads: int
    combine: str
    dropout: float

    symmetries = ("permutation-equivariant",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(type(self).__name__, heads=self.heads)
        if self.combine not in COMBINATIONS:
            raise RefusedValue(unknown("combine", self.combine, COMBINATIONS))
        if not 0 <= self.dropout < 1:
            raise RefusedValue("dropout is a share of attention weights", "[0, 1)", self.dropout)

    @property
    def num_bases(self) -> int:
        """K = H, the number of heads."""
        return self.heads

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"head {head} of {self.scored_by()[0]}" for head in range(self.heads))

    @property
    def edges(self) -> Family:
        """The edges over which weights are normalised."""
        return Hops(add_self_loops=True)

    @property
    def width(self) -> int | None:
        """D of keys and queries; None for the channels of a value."""
        return None

    @property
    def normaliser(self) -> str:
        """f, as text."""
        return "softmax"

    def scored_by(self) -> tuple[str, dict[str, Any]]:
        """The name of the score, and its options."""
        raise NotImplementedError(f"{type(self).__name__} says no score")

    @property
    def reads(self) -> type[Structure]:  # type: ignore[override]
        """The kind of structure that the support reads."""
        return self.edges.reads

    @property
    def reads_beside(self) -> tuple[str, ...]:  # type: ignore[override]
        """The features, and what the support reads."""
        return tuple(sorted({"x", *self._read_by(self.edges)}))

    @property
    def add_self_loops(self) -> bool:  # type: ignore[override]
        """Whether the support adds self-loops."""
        return bool(self.edges.add_self_loops)

    @property
    def keeps_nodes(self) -> bool:  # type: ignore[override]
        """Whether targets are the nodes of the structure."""
        return self.edges.keeps_nodes

    @property
    def takes_nodes_alone(self) -> bool:  # type: ignore[override]
        """Whether the support needs no edges."""
        return self.edges.takes_nodes_alone

    def combinations(self) -> list[tuple[str, int]]:
        """Heads side by side, their mean, or a sum."""
        return [(self.combine, self.heads)]

    def averaged(self, heads: int = 0) -> Family:
        """The same heads, or as many others, whose mean is taken in the place of all beside."""
        combine = "mean" if self.combine == "concat" else self.combine
        return replace(self, combine=combine, heads=heads or self.heads)  # type: ignore[type-var]

    def sized(
        self, in_channels: int | tuple[int, int], out_channels: int, shares: bool = False
    ) -> Attention:
        """The attention of a layer of these channels.

        Raises:
            ValueError: heads side by side do not divide Q, or an option does not fit the score.
        """
        return Attention(
            self.score_for(in_channels, out_channels, shares),
            self.edges,
            make_normaliser(self.normaliser, dropout=self.dropout),
        )

    def score_for(self, in_channels: int | tuple[int, int], out_channels: int, shares: bool) -> Any:
        """The score for a layer of these channels, see :meth:`sized`."""
        if out_channels < 1:
            rule = f"{type(self).__name__} makes values for a layer of known out_channels"
            raise RefusedValue(rule, "out_channels >= 1", out_channels)
        if self.combine == "concat" and out_channels % self.heads:
            rule = "heads side by side share out_channels evenly"
            expected = f"out_channels a multiple of {self.heads}, or combine=mean"
            raise RefusedValue(rule, expected, out_channels)
        value = out_channels // self.heads if self.combine == "concat" else out_channels
        name, options = self.scored_by()
        if SCORES.kind_in(name).uses_theta and not (shares and self.combine != "sum"):
            options = {"own": True, **options}
        return make_score(name, self.heads, self.width or value, in_channels, value, **options)

    def basis_on(self, structure: Any, dtype: torch.dtype | None = None) -> Basis:
        """Refused: only the layer's :class:`Attention` has parameters.

        Raises:
            ValueError: always.
        """
        rule = f"{type(self).__name__} makes its basis in a layer, which knows the channels"
        raise RefusedValue(rule, f"OuterConv(in_channels, out_channels, {self})", "no layer")
