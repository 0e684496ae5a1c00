"""What families of content share: nothing that a graph could store, and queries."""

from __future__ import annotations

from typing import Any

import torch

from ..attention.projection import Queries
from ..errors import RefusedValue, refusal
from ..graph.content import Content
from .align import queries, with_graph
from .family import Family


class ContentFamily(Family):
    """A family whose values are made of what nodes hold, at every call anew.

    Attributes:
        align: T, whose Tᵀ X are the queries, or a module that makes queries; None for the identity.
    """

    learns = True

    align: Family | torch.nn.Module | None = None

    @property
    def parts(self) -> tuple[Family, ...]:
        """None: what support and alignment are made of stays their own."""
        return ()

    @staticmethod
    def _read_by(*parts: Any) -> list[str]:
        """What comes beside edges and is read by those of some parts that are families."""
        names = ("edge_weight", "edge_type", "edge_attr", "pos")
        families = [part for part in parts if isinstance(part, Family)]
        return [name for name in names if any(part.makes_use_of(name) for part in families)]

    def content_of(self, structure: Any) -> tuple[Content, Queries]:
        """What the nodes of a structure hold, and the queries Tᵀ X.

        Raises:
            ValueError: they hold nothing, or what they hold does not fit the alignment.
        """
        if structure.content is None:
            raise RefusedValue(
                refusal(
                    f"{type(self).__name__} makes its basis of the features of nodes",
                    "a call of a layer with x, which hands them over",
                    "a structure without features",
                )
            )
        content = structure.content
        if self.align is not None:
            content = with_graph(content, structure)
        return content, queries(self.align, structure, content)


def kept_symmetries(support: Family, align: Family | torch.nn.Module | None) -> tuple[str, ...]:
    """Whether numbers of nodes mean nothing to a support, nor to an alignment beside it."""
    name, parts = "permutation-equivariant", [support] if align is None else [support, align]
    declared = all(isinstance(part, Family) and name in part.laws for part in parts)
    return (name,) if declared else ()


def check_heads(what: str, count: int, heads: int) -> None:
    """Refuse what has neither one label nor one for each head. Raises ValueError."""
    if count not in (1, heads):
        raise RefusedValue(
            refusal(f"{what} is for all heads or for each of them", f"1 or {heads}", count)
        )
