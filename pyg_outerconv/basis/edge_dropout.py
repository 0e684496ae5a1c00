"""Random dropout of edges, which replaces values and keeps the pattern."""

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
    """Set each edge's value to zero with probability ``p``, and divide the others by 1 − p.

    The pattern object is shared, so that nothing is sorted again. A dropped edge stays an edge of
    value zero, which takes part in a maximum. From the `"DropEdge"
    <https://arxiv.org/abs/1907.10903>`_ paper, but with the remaining values scaled as in dropout,
    and after normalisation.

    The expected values are those of the basis, if it consists of edges, or of edges transposed,
    scaled, selected, mixed, stacked, repeated or restricted, or is a product of two such bases,
    whose edges are dropped independently.

    For a polynomial (walks, diffusion, Chebyshev) the edges of its operator are dropped, once for
    all powers, as if the graph lacked them; no power is computed. **The expectation of powers
    changes**: a walk that takes an edge of weight w j times has the factor (w / (1 − p))ʲ if the
    edge remains, which is wʲ (1 − p)^(1−j) on average. ``drop_edges(basis.edges())`` preserves all
    expectations, by dropping the edges of each power independently; these can be many.

    In a training step::

        basis = drop_edges(conv.basis(x, edge_index), 0.1, conv.training)
        out = conv(x, basis)

    Learned edge weights are set in the same way: ``edges.with_values(pattern.sort_values(w))``.

    In a basis made of others, each part and each factor drops its own edges; identities drop none;
    other rules are converted into edges first.

    Args:
        basis: any basis; ``conv.basis(x, edge_index)`` is that of a layer, which takes the result
            in the place of ``edge_index``.
        p: the probability of dropping an edge, from 0 to 1.
        training: if False, the basis is returned unchanged.
        whole: whether an edge of the user's list is dropped under all of its labels together; edges
            that a family added are then kept.
        generator: the random number generator; torch's default if None.
        dtype: the dtype of values that are ones; torch's default if None.

    Raises:
        TypeError: ``basis`` is not a basis, or ``p`` is not a number.
        ValueError: ``p`` is not in [0, 1]; or ``whole`` is set, and edges have no origin in a list.
    """
    if not isinstance(basis, Basis):
        raise RefusedType(refusal("drop_edges takes a basis", "a Basis", type(basis).__name__))
    if not isinstance(p, Real) or isinstance(p, bool):
        raise RefusedType(refusal("edges are dropped with a probability", "a number", repr(p)))
    if not 0 <= p <= 1:
        raise RefusedValue(refusal("edges are dropped with a probability", "0 <= p <= 1", p))
    if not training or p == 0:
        return basis

    known = basis.dtype or dtype  # the same for all parts
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
        assert edges.pattern.origin is not None  # as _num_given checks
        # An edge that a family added has the origin -1, which indexes the appended one.
        scale = torch.cat([scale, scale.new_ones(1)])[edges.pattern.origin.long()]
    return edges.with_values(value * scale)


def _num_given(pattern: Pattern) -> int:
    if pattern.origin is None:
        raise RefusedValue(
            refusal(
                "whole=True needs edges that come from an edge list",
                "a pattern with an origin",
                f"{pattern!r}, whose edges are products or were stored by a transform",
            )
        )
    return int(pattern.origin.max()) + 1 if pattern.num_edges else 0
