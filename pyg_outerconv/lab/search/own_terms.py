"""Terms of the user's own in what a search draws: read from text, and tried before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ...errors import RefusedValue
from ...families import Stack, parse_family
from ..train import Settings
from ..train.family_options import make_family, short_name
from ..train.model import backends_used, ours
from .grammar import DIRECTIONS, FORWARD, MOST_STEPS, Mix, stacked
from .space import Bounds, start_model
from .withheld import Unlabelled


def read_terms(texts: Sequence[str], num_relations: int) -> tuple[str, ...]:
    """The short texts of families, as ``--family`` takes them.

    Args:
        texts: of one family each.
        num_relations: number of edge types of the data, for ``relation`` without options.

    Raises:
        ValueError: a name, an option or a value is wrong; a family reads no edges, or is a stack.
    """
    found = []
    for text in texts:
        family = make_family(text, num_relations=num_relations)
        if isinstance(family, Stack):
            wanted = " ".join(f'--term "{short_name(part)}"' for part in family.families)
            raise RefusedValue("a search stacks terms itself, each a --term", wanted, repr(text))
        found.append(short_name(family))
    return tuple(found)


def check_terms(terms: Sequence[str], bounds: Bounds, graph: Unlabelled) -> None:
    """Try each term, in models of every width that is drawn, on the graph.

    Raises:
        ValueError: a term is drawn already, or refuses the graph or a width.
    """
    known = {repr(parse_family(text)) for text in drawn_terms(bounds)} if terms else set()
    for term in terms:
        family = repr(parse_family(term))
        if family in known:
            rule = "each --term adds a family to what is drawn"
            raise RefusedValue(rule, "one that is not drawn already", term)
        known.add(family)
        try:
            for width in bounds.widths:
                _try(term, width, bounds, graph)
        except (ValueError, TypeError) as error:
            rule = "a --term is a family that takes the graph, in models of every width"
            raise RefusedValue(rule, "another one", f"{term!r}: {error}") from error


def drawn_terms(bounds: Bounds) -> set[str]:
    """The texts of all terms that are drawn without any of the user's own."""
    choices = product(
        bounds.neighbours,
        range(1, MOST_STEPS + 1),
        DIRECTIONS if bounds.is_directed else (FORWARD,),
        bounds.heads,
    )
    return {
        text
        for neighbours, steps, way, heads in choices
        for text in Mix(
            neighbours, steps, way, True, heads, num_relations=bounds.num_relations
        ).terms.values()
    }


def _try(term: str, width: int, bounds: Bounds, graph: Unlabelled) -> None:
    """Predict by a model that was not trained, whose basis has the term beside the identity."""
    family = repr(parse_family(stacked(["identity", term])))
    model = {**start_model(bounds), "hidden": width}
    settings = Settings(**{**bounds.fixed, **model, "family": family})
    backends_used(ours(graph.dataset, settings), graph.num_classes, settings)
