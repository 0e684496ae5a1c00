"""The grammar of bases that a search draws from: stacks of a few terms, as the text of a family."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import RefusedValue
from ...families import Stack, parse_family
from ..data import Dataset
from ..train.family_options import short_name

FORWARD, REVERSE, BOTH = "forward", "reverse", "both"
DIRECTIONS = (FORWARD, REVERSE, BOTH)
NONE = "none"
MOST_STEPS = 3
HEADS = (0, 4, 8)


def _walk(norm: str | None, loops: bool) -> Callable[[int], str]:
    """The powers 1 … L of a transition matrix, without the identity."""

    def text(steps: int) -> str:
        powers = f"({', '.join(str(power) for power in range(1, steps + 1))},)"
        return f"walk({steps}, norm={norm!r}, powers={powers}, add_self_loops={loops})"

    return text


def _gcn(steps: int) -> str:
    return "gcn" if steps == 1 else _walk("sym", True)(steps)


def _chebyshev(steps: int) -> str:
    kept = ", ".join(str(term) for term in range(1, steps + 1))
    return f"select(chebyshev({steps + 1}), keep=({kept},))"


# What a node may see of its neighbours, up to some steps away; each without the node itself.
NEIGHBOURS: dict[str, Callable[[int], str]] = {
    "gcn": _gcn,
    "mean": _walk("target", False),
    "walk": _walk("source", False),
    "sum": _walk(None, False),
    "chebyshev": _chebyshev,
}
RELATION = "relation"


@dataclass(frozen=True)
class Mix:
    """A stack of terms.

    Attributes:
        neighbours: a key of ``NEIGHBOURS``, ``'relation'``, or ``'none'``.
        steps: L; the term has the powers 1 … L.
        direction: along the edges (``'forward'``), against them (``'reverse'``), or both, each with
            a Θ of its own.
        high_pass: whether the stack has I − Â, in the same direction.
        heads: of graph attention, in the same direction; 0 for none.
        identity: whether the stack has I. Without any other term it has.
        num_relations: R of ``'relation'``.
        own: terms that the user gave, as text, each as it is written whatever the direction.
    """

    neighbours: str = NONE
    steps: int = 1
    direction: str = FORWARD
    high_pass: bool = False
    heads: int = 0
    identity: bool = True
    num_relations: int = 1
    own: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = (NONE, RELATION, *NEIGHBOURS)
        if self.neighbours not in known:
            raise RefusedValue("neighbours of a mix", f"one of {', '.join(known)}", self.neighbours)
        if self.direction not in DIRECTIONS:
            wanted = f"one of {', '.join(DIRECTIONS)}"
            raise RefusedValue("direction of a mix", wanted, self.direction)
        if not 1 <= self.steps <= MOST_STEPS:
            raise RefusedValue("steps of a mix", f"1 to {MOST_STEPS}", self.steps)

        if self.heads not in HEADS:
            raise RefusedValue("heads of a mix", f"one of {HEADS}", self.heads)

    @property
    def terms(self) -> dict[str, str]:
        """The text of each term by its name: identity, neighbours, high-pass, attention, own."""
        found = {}
        if self.neighbours == RELATION:
            found[RELATION] = self._turned(f"relation({self.num_relations})")
        elif self.neighbours != NONE:
            found[self.neighbours] = self._turned(NEIGHBOURS[self.neighbours](self.steps))
        if self.high_pass:
            found["high_pass"] = self._turned("high_pass")
        if self.heads:
            found["attention"] = self._turned(f"gat({self.heads})")
        found |= {text: text for text in self.own}
        if self.identity or not found:
            found = {"identity": "identity", **found}
        return found

    def _turned(self, text: str) -> str:
        return {FORWARD: text, REVERSE: f"reverse({text})", BOTH: f"directed({text})"}[
            self.direction
        ]

    @property
    def text(self) -> str:
        """The family as text, as ``outerconv train --family`` takes it."""
        return stacked(list(self.terms.values()))


def stacked(terms: list[str]) -> str:
    """The text of a family that has these terms; the identity where there is none."""
    if len(terms) < 2:
        return terms[0] if terms else "identity"
    return f"stack({', '.join(terms)})"


def terms_of(family: str) -> list[str]:
    """The texts of the terms of a family, which is one itself if it is no stack."""
    made = parse_family(family)
    return [short_name(term) for term in (made.families if isinstance(made, Stack) else (made,))]


def terms_text(family: str) -> str:
    """A family as short text."""
    return short_name(parse_family(family))


def neighbours_for(dataset: Dataset) -> tuple[str, ...]:
    """The neighbours' terms that fit a graph: those of relations where its edges have types."""
    if dataset.num_relations > 1:
        return (NONE, RELATION, "gcn", "mean")
    return (NONE, *NEIGHBOURS)
