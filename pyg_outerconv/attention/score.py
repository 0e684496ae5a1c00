"""What a score is: how content becomes a number for each edge and head."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..basis.base import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedType, RefusedValue, refusal
from ..graph import Features
from .edge_context import EdgeContext
from .projection import Queries

SCORES: dict[str, type[Score]] = {}


@dataclass(frozen=True)
class Dot:
    """Scores that are products of the two ends, so that they need not be made edge by edge.

    ``score[e, h] = scale ⟨query[n, h], key[m, h]⟩ + bias[e, h]`` for e: m → n.

    Attributes:
        query: (N, *batch, H, D).
        key: (M, *batch, H, D).
        scale: of the products.
        bias: (E, *batch, H/L) or with sizes of 1, in the order of the support's pattern, or None.
        is_positive: whether no product is ever negative.
        exponents: whether query and key are exponents of what is multiplied, and scores known up to
            a factor of each target: ``Σ_d exp(query[n, h, d] + key[m, h, d])``.
    """

    query: Tensor
    key: Tensor
    scale: float = 1.0
    bias: Tensor | None = None
    is_positive: bool = False
    exponents: bool = False

    def plus(self, bias: Tensor | None) -> Dot:
        """With something added to the scores."""
        if bias is None:
            return self
        return replace(self, bias=bias if self.bias is None else self.bias + bias)

    def times(self, factor: float) -> Dot:
        """All scores times a number."""
        if factor == 1.0:
            return self
        bias = None if self.bias is None else self.bias * factor
        return replace(self, scale=self.scale * factor, bias=bias)


class Score(torch.nn.Module):
    """How content becomes scores (section 4 of *Convolution is outer product*).

    Called with the features of sources X (M, *batch, P), those of the queries Q = TᵀX
    (N, *batch, P_q), or :class:`~.projection.PerHead`, and the support, it gives a :class:`Dot`
    where scores are products of the two ends, and else a tensor (E, *batch, H/L) in the order of
    the support's pattern.

    A new score is a file with a subclass, which states ``name`` and ``equation``, gives its
    parameters values in :meth:`reset_parameters`, and defines :meth:`score`.

    Attributes:
        name: what users call it.
        equation: the scores, in one line of text.
        page: the same as EQUATIONS.md has it, and where it comes from.
        uses_theta: whether scores are of features that the layer's Θ has transformed.
        needs_queries: whether there are no scores where targets have no features.
        up_to_factor: whether scores of a target may be off by a common factor, which L1 cancels.
        reads_beside: which of ``edge_attr`` and ``pos`` scores are made of; others are refused.
        takes_any_order: whether it reads edges by ``support.add``, ``dot``, ``entries`` and
            ``of_given`` alone, so that few of them need not be sorted.

    Args:
        heads: H.

    Raises:
        ValueError: a number of heads or channels is not positive.
    """

    name: ClassVar[str]
    equation: ClassVar[str]
    page: ClassVar[tuple[str, str]]
    uses_theta: bool = False
    needs_queries: ClassVar[bool] = True
    up_to_factor: bool = False
    reads_beside: tuple[str, ...] = ()
    takes_any_order: ClassVar[bool] = False

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = positive("heads", heads)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            SCORES[cls.name] = cls

    def reset_parameters(self) -> None:
        """Give all parameters initial values."""

    @abstractmethod
    def score(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores; see above."""

    def values(self, source: Features, theta: Any) -> Tensor | None:
        """(M, *batch, H, V) what Θ makes of the sources, if scores are made of all of it.

        A layer makes it once, for the score and for what is summed.
        """
        return None

    def sums_at_once(self, source: Features, theta: Any) -> bool:
        """Whether :meth:`at_once` may be asked, for queries that are the sources."""
        return False

    def at_once(
        self, source: Features, theta: Any, over: EdgeBasis | ImplicitEdges
    ) -> Basis | None:
        """The softmax of scores, nothing of it made, of which sums of values are asked for.

        None where the support is none that it is for.
        """
        return None

    def of_sources(self, source: Features, support: EdgeContext) -> Dot | Tensor:
        """The scores where targets have no features, of a score that needs none."""
        raise NotImplementedError(f"{type(self).__name__} needs queries")

    def forward(self, source: Features, query: Queries, support: EdgeContext) -> Dot | Tensor:
        """The scores; see above."""
        return self.score(source, query, support)


def check_scores(score: Score, scores: Any, support: EdgeContext) -> None:
    """Refuse scores of another shape than those of the edges, or of the two ends, must have.

    Raises:
        TypeError: they are neither a tensor nor a :class:`Dot`.
        ValueError: their shape is not (E, *batch, H/L), or (N, *batch, H, D) and (M, *batch, H, D).
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # sizes are not known there
        return
    name, heads = type(score).__name__, score.heads
    if isinstance(scores, Dot):
        sources, targets = support.size
        for end, count, x in (("key", sources, scores.key), ("query", targets, scores.query)):
            if x.dim() < 3 or (x.size(0), x.size(-2)) != (count, heads):
                rule = f"the {end} of the Dot of {name} is a vector for each node and head"
                expected = f"shape ({count}, *batch, {heads}, D)"
                raise RefusedValue(refusal(rule, expected, tuple(x.shape)))
        return
    if not isinstance(scores, Tensor):
        rule = f"scores of {name} are a number for each edge and head"
        raise RefusedType(refusal(rule, "a tensor, or a Dot", type(scores).__name__))
    edges, columns = support.num_edges, heads // support.num_labels
    shape = scores.shape
    if len(shape) < 2 or (shape[0], shape[-1]) != (edges, columns):
        rule = f"scores of {name} are a number for each edge and head"
        raise RefusedValue(refusal(rule, f"shape ({edges}, *batch, {columns})", tuple(shape)))


def positive(what: str, count: Any) -> int:
    """A whole number of at least one.

    Raises:
        TypeError, ValueError: it is none.
    """
    if not isinstance(count, int) or isinstance(count, bool):
        raise RefusedType(refusal(f"{what} must be a number", "an integer", repr(count)))
    if count < 1:
        raise RefusedValue(refusal(f"{what} must be a number", "an integer >= 1", count))
    return count


def glorot(*parameters: Tensor) -> None:
    """Draw vectors (H, D) uniformly, as PyG draws those of attention (1, H, D)."""
    for parameter in parameters:
        bound = math.sqrt(6.0 / max(parameter.size(0) + parameter.size(1), 1))
        torch.nn.init.uniform_(parameter, -bound, bound)
