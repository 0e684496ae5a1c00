"""Edges dropped at random: values replaced, nothing sorted."""

from __future__ import annotations

from numbers import Real

import torch

from ..errors import RefusedType, RefusedValue, refusal
from .base import Basis
from .edges import EdgeBasis
from .pattern import Pattern


def drop_edges(
    basis: Basis,
    p: float = 0.5,
    training: bool = True,
    *,
    whole: bool = False,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Basis:
    """The basis with each edge's value zero with probability ``p``, and divided by 1 − p if not.

    The pattern stays the very same object, so that nothing is sorted again. An edge that was
    dropped is still there: under a maximum its value is zero. From the `"DropEdge"
    <https://arxiv.org/abs/1907.10903>`_ paper, with the values that are left scaled as in dropout,
    and after any norm.

    A sum over edges keeps its mean: what is drawn is on average the matrices themselves, where
    these are explicit, or explicit ones transposed, scaled, selected, mixed, stacked, repeated or
    restricted, or products of two such, whose edges are drawn apart.

    Of a polynomial (walks, diffusion, Chebyshev) the edges of its operator are dropped, once for
    all powers, as if the graph lacked them; no power is multiplied out. **Powers do not keep their
    mean**: a walk that takes an edge of weight w several times, j of them, has the factor
    (w / (1 − p))ʲ if the edge is left, wʲ (1 − p)^(1−j) on average. ``drop_edges(basis.edges())``
    keeps every mean, by dropping the edges of each power, which can be many, apart.

    In a training step::

        basis = drop_edges(conv.basis(x, edge_index), 0.1, conv.training)
        out = conv(x, basis)

    Edge weights that learn come in the same way, ``edges.with_values(pattern.sort_values(w))``.

    Of what is made of other bases, those drop their edges, each part and each factor of its own;
    identities drop nothing; other rules become edges first.

    Args:
        basis: any basis; ``conv.basis(x, edge_index)`` is that of a layer, which takes the result
            in the place of ``edge_index``.
        p: the probability, from 0 to 1.
        training: if not, the basis is returned as it is.
        whole: whether an edge of the list that the basis was made of is dropped under all of its
            labels together; edges that a family added are then kept.
        generator: where random numbers come from.
        dtype: type of the values where they are ones; torch's default if None.

    Raises:
        TypeError: ``basis`` is none, or ``p`` is no number.
        ValueError: ``p`` is no probability; or ``whole``, and edges do not stem from a list.
    """
    if not isinstance(basis, Basis):
        raise RefusedType(refusal("edges of a basis are dropped", "a Basis", type(basis).__name__))
    if not isinstance(p, Real) or isinstance(p, bool):
        raise RefusedType(refusal("edges are dropped with a probability", "a number", repr(p)))
    if not 0 <= p <= 1:
        raise RefusedValue(refusal("edges are dropped with a probability", "0 <= p <= 1", p))
    if not training or p == 0:
        return basis

    known = basis.dtype or dtype  # of all that it is made of
    return basis.with_edges(lambda edges: _drop(edges, p, whole, generator, known))


def _drop(
    edges: EdgeBasis,
    p: float,
    whole: bool,
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
) -> EdgeBasis:
    """The same pattern with values scaled at random."""
    value = edges.values(dtype)
    count = _num_given(edges.pattern) if whole else edges.num_edges
    drawn = torch.rand(count, generator=generator, device=edges.device)
    scale = (drawn >= p).to(value.dtype) / (1 - p if p < 1 else 1)
    if whole:
        assert edges.pattern.origin is not None  # _num_given
        # An edge that a family added has the origin -1, which takes the last.
        scale = torch.cat([scale, scale.new_ones(1)])[edges.pattern.origin.long()]
    return edges.with_values(value * scale)


def _num_given(pattern: Pattern) -> int:
    if pattern.origin is None:
        raise RefusedValue(
            refusal(
                "whole edges are dropped of a list of edges",
                "a basis whose edges stem from one",
                f"{pattern!r}, whose edges are products or were stored",
            )
        )
    return int(pattern.origin.max()) + 1 if pattern.num_edges else 0
