"""Propagation chunk by chunk: H_k = A_kᵀ X for powers and products, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatchmethod

from torch import Tensor

from ..basis import Basis
from ..basis.algebra import LabelMap, Stacked
from ..basis.edge_sets import hidden_part
from ..basis.polynomial import Polynomial, combined
from ..basis.products import Composed
from .chunks import MOST_EDGES, chunks, reaching, rows_of
from .scratch import Scratch


class Stages:
    """Propagates features through bases, holding a chunk of targets at a time.

    Args:
        scratch: where results and intermediate features are allocated.
        most_edges: the bound on a chunk, see :func:`.chunks.chunks`.
    """

    def __init__(self, scratch: Scratch | None = None, most_edges: int = MOST_EDGES) -> None:
        self.scratch, self.most_edges = scratch or Scratch(), most_edges

    def propagate(self, basis: Basis, x: Tensor) -> Tensor:
        """H_k = A_kᵀ X for dense X (M, *batch, P): (N, K, *batch, P)."""
        if hidden_part(basis) is not None:
            return self._staged(basis, x)
        out = self.scratch.empty(basis.size[1], basis.num_bases, *x.shape[1:], like=x)
        for targets in chunks(basis, self.most_edges):
            part, sources = reaching(basis, targets)
            out[_slice(targets)] = part.propagate(rows_of(x, sources, x.dtype))
        return out

    @singledispatchmethod
    def _staged(self, basis: Basis, x: Tensor) -> Tensor:
        return self.propagate(basis.simpler(), x)

    @_staged.register
    def _(self, basis: Polynomial, x: Tensor) -> Tensor:
        out = self.scratch.empty(basis.size[1], basis.num_bases, *x.shape[1:], like=x)
        for k, h in enumerate(self.terms(basis, x)):
            for part in chunks(basis, self.most_edges):
                out[_slice(part), k] = h[_slice(part)]
        return out

    @_staged.register
    def _(self, basis: Composed, x: Tensor) -> Tensor:
        h = self.propagate(basis.second, self.propagate(basis.first, x))  # (N, K₂, K₁, …)
        return h.transpose(1, 2).reshape(h.size(0), basis.num_bases, *x.shape[1:])

    @_staged.register
    def _(self, basis: Stacked, x: Tensor) -> Tensor:
        out = self.scratch.empty(basis.size[1], basis.num_bases, *x.shape[1:], like=x)
        start = 0
        for part in basis.parts:
            out[:, start : start + part.num_bases] = self.propagate(part, x)
            start += part.num_bases
        return out

    @_staged.register
    def _(self, basis: LabelMap, x: Tensor) -> Tensor:
        h = self.propagate(basis.base, x)
        out = self.scratch.empty(h.size(0), basis.num_bases, *x.shape[1:], like=x)
        for targets in chunks(basis, self.most_edges):
            out[_slice(targets)] = basis.of_labels(h[_slice(targets)], 1)
        return out

    def terms(self, basis: Polynomial, x: Tensor) -> Iterator[Tensor]:
        """Yield h_k = p_k(A)ᵀ X (N, *batch, P) for each label; three terms are held at a time."""
        last, here = None, x
        if 0 in basis.labels:
            yield here
        for k in range(1, basis.num_terms):
            alpha, beta, gamma = basis.recurrence.factors(k)
            ahead = self.scratch.empty(*x.shape, like=x)
            for targets in chunks(basis, self.most_edges):
                part, sources = reaching(basis.operator, targets)
                step = part.propagate(rows_of(here, sources, x.dtype)).squeeze(1) * alpha
                rows = _slice(targets)
                before = None if last is None else last[rows]
                ahead[rows] = combined(step, here[rows], before, beta, gamma)
            last, here = here, ahead
            if k in basis.labels:
                yield here


def _slice(targets: Tensor) -> slice:
    """The range of a chunk, whose numbers follow one another."""
    return slice(int(targets[0]), int(targets[-1]) + 1)
