"""Base class of families that make their basis of the features of nodes."""

from __future__ import annotations

from typing import Any

import torch

from ..attention.projection import Queries
from ..errors import RefusedValue, refusal
from ..graph.content import Content
from .align import queries, with_graph
from .family import Family


class ContentFamily(Family):
    """A family whose basis depends on features, so that a layer makes it at every call.

    Subclasses list ``'x'`` in ``reads_beside``; in ``basis_on`` they get the features and the
    queries from :meth:`content_of`.

    Attributes:
        align: T, whose Tᵀ X are the queries, or a module that makes queries; None for the identity.
    """

    learns = True

    align: Family | torch.nn.Module | None = None

    @property
    def parts(self) -> tuple[Family, ...]:
        """No parts: support and alignment keep their own options."""
        return ()

    @staticmethod
    def _read_by(*parts: Any) -> list[str]:
        """The names of edge attributes that the families among ``parts`` read."""
        names = ("edge_weight", "edge_type", "edge_attr", "pos")
        families = [part for part in parts if isinstance(part, Family)]
        return [name for name in names if any(part.makes_use_of(name) for part in families)]

    def content_of(self, structure: Any) -> tuple[Content, Queries]:
        """The features of nodes, ``content.source`` (M, *batch, P), and the queries Tᵀ X.

        Raises:
            ValueError: the structure has no features, as outside a layer, or they do not fit the
                alignment.
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
    """Permutation-equivariance, if the support and the alignment have it."""
    name, parts = "permutation-equivariant", [support] if align is None else [support, align]
    declared = all(isinstance(part, Family) and name in part.laws for part in parts)
    return (name,) if declared else ()


def check_heads(what: str, count: int, heads: int) -> None:
    """Raise ValueError unless ``count`` is 1 or the number of heads."""
    if count not in (1, heads):
        raise RefusedValue(
            refusal(f"{what} is for all heads or for each of them", f"1 or {heads}", count)
        )
