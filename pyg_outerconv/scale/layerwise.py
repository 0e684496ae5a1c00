"""One layer over all nodes, chunk by chunk of targets, with the weights of the whole graph.

Powers and products are propagated step by step; what lies between is in memory or in files.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial, singledispatchmethod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..basis import Basis, ChannelPolynomial
from ..basis.algebra import Mixed, Stacked
from ..basis.edge_sets import edge_sets, hidden_part, reached
from ..basis.polynomial import Polynomial, combined
from ..basis.products import Composed
from ..basis.subpattern import spread_runs
from ..contract import contract
from ..errors import RefusedType, RefusedValue
from ..files import reserve
from ..graph import Features
from ..nn import OuterConv
from ..nn.call import Call
from ..signatures import typed
from ..theta import Theta, ThetaValue, add_bias, as_theta

MOST_EDGES = 2**20
"""The default bound on edges plus targets of a chunk."""


def chunks(basis: Basis, most: int = MOST_EDGES) -> Iterator[Tensor]:
    """The targets of a basis (N,) in order, split so that each part has a bounded size.

    Args:
        basis: K matrices of size M × N.
        most: the largest number of edges and targets of a part, in which a target with more edges
            is alone.
    """
    if most < 1:
        raise RefusedValue("a chunk has targets", "a positive number of edges", most)
    count = basis.size[1]
    sizes = torch.ones(count, dtype=torch.long)
    for edges in edge_sets(basis):
        if edges.size[1] == count:
            sizes += edges.pattern.target_ptr.diff().cpu()
    ends = sizes.cumsum(0)
    begin, before = 0, 0
    while begin < count:
        end = max(begin + 1, int(torch.searchsorted(ends, before + most, right=True)))
        yield torch.arange(begin, end, device=basis.device)
        begin, before = end, int(ends[end - 1])


def reaching(basis: Basis, targets: Tensor) -> tuple[Basis, Tensor]:
    """The part of a basis that reaches some targets, with all of its values.

    Returns:
        A_k[sources, targets] for every k, and the sources (M',), ascending.
    """
    into = basis.restricted(None, targets)
    seen = torch.ones(targets.numel(), dtype=torch.bool, device=targets.device)
    sources = reached(into, seen, range(into.num_bases)).nonzero().view(-1)
    return into.restricted(sources, None), sources


def rows_of(x: Tensor, nodes: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows of dense features, or of features in CSR, which remain CSR, in a floating point type."""
    if x.layout == torch.strided:
        return x.index_select(0, nodes).to(dtype)
    begin, end = (x.crow_indices()[at] for at in (nodes, nodes + 1))
    row, within = spread_runs(end - begin)
    chosen = begin[row] + within
    ptr = torch.cat([begin.new_zeros(1), (end - begin).cumsum(0)])
    parts = ptr, x.col_indices()[chosen], x.values()[chosen].to(dtype)
    return torch.sparse_csr_tensor(*parts, (nodes.numel(), x.size(1)), check_invariants=False)


def check_features(x: Features) -> None:
    """Raise ValueError for features that cannot be read row by row."""
    plain = isinstance(x, Tensor) and x.dim() == 2 and x.is_floating_point()
    layouts = (torch.strided, torch.sparse_csr)
    if x is not None and not (plain and isinstance(x, Tensor) and x.layout in layouts):
        raise RefusedValue(
            "layer-wise inference reads features row by row",
            "a matrix of floating point numbers, dense or CSR, or None",
            f"{type(x).__name__} {tuple(getattr(x, 'shape', ()))}",
        )


# Features between layers --------------------------------------------------------------------------


class Scratch:
    """Allocates tensors in memory, or mapped to files of a folder.

    A mapped file has no name once it is open, so that its space is free again when the tensor goes,
    or when the process is killed.

    Args:
        folder: an existing folder for the files; None for memory.
    """

    @typed
    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = folder

    def empty(self, *shape: int, like: Tensor) -> Tensor:
        """A tensor of this shape, of the dtype of ``like``; in memory on its device.

        Raises:
            ValueError: the disk is full, or the folder cannot be written.
        """
        if self.folder is None or not math.prod(shape):
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        kind = torch.empty(0, dtype=like.dtype).numpy().dtype
        try:
            number, path = tempfile.mkstemp(prefix="outerconv-", dir=self.folder)
            try:
                with os.fdopen(number, "r+b") as file:
                    reserve(file, kind.itemsize * math.prod(shape))
                    return torch.from_numpy(np.memmap(file, kind, "r+", shape=shape))
            finally:
                os.unlink(path)
        except OSError as error:
            rule = "features between layers are written to files"
            raise RefusedValue(rule, f"a folder with space at {self.folder}", error) from error


class Stages:
    """Propagates features through bases, holding a chunk of targets at a time.

    Args:
        scratch: where results and intermediate features are allocated.
        most_edges: the bound on a chunk, see :func:`chunks`.
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
    def _(self, basis: Mixed, x: Tensor) -> Tensor:
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


# A layer ------------------------------------------------------------------------------------------

Finish = Callable[[Tensor, slice], Tensor]
"""A function of rows Y[n] (N', Q) and of their place, such as norm and activation."""

Rows = Iterator[tuple[Tensor, Tensor]]


@partial(typed, but=("basis",))
def convolve(
    conv: OuterConv,
    x: Tensor | None,
    basis: Basis,
    *,
    finish: Finish | None = None,
    scratch: Scratch | None = None,
    most_edges: int = MOST_EDGES,
) -> Tensor:
    r"""Y = Σ_k A_kᵀ X Θ_k, exactly, computed chunk by chunk of targets.

    The basis is that of the whole graph, so that degrees, means and the softmax of attention are
    those of whole neighbourhoods: the result is ``conv(x, basis)`` up to rounding. Beside X and Y,
    a chunk is held: its edges, the rows of X at their sources, and its rows of Y. For powers
    (walks, Chebyshev) three matrices of the size of X are held as well, for products of bases the
    features between their factors; all of these are allocated by ``scratch``.

    Args:
        conv: the layer, in evaluation mode.
        x: (M, P) features, dense or CSR, in memory or mapped to a file; None where Θ is an
            embedding of the nodes.
        basis: the basis of the layer's family; for attention the support, a basis without values.
        finish: a function of rows of Y, and of the slice of targets that they are of, whose result
            is kept in their place.
        scratch: allocates Y and what is between; in memory by default.
        most_edges: the bound on edges and targets of a chunk.

    Returns:
        (N, Q).

    Raises:
        TypeError: the structure is not a basis.
        ValueError: x is no matrix; or there is none, and the basis has powers or products.
    """
    check_features(x)
    if not isinstance(basis, Basis):
        raise RefusedType("layer-wise inference reads a basis", "a Basis", type(basis).__name__)
    if x is not None and x.size(0) != basis.size[0]:
        raise RefusedValue("x has a row for each source", basis.size[0], x.size(0))
    stages = Stages(scratch or Scratch(), most_edges)
    way = _staged if hidden_part(basis) else _direct
    rows = way(conv, x, basis, stages)
    out: Tensor | None = None
    for targets, y in rows:
        place = _slice(targets)
        y = y if finish is None else finish(y, place)
        if out is None:
            out = stages.scratch.empty(basis.size[1], y.size(1), like=y)
        out[place] = y
    return torch.empty(0, conv.out_channels) if out is None else out


def _direct(conv: OuterConv, x: Tensor | None, basis: Basis, stages: Stages) -> Rows:
    """The rows of each chunk, by the layer itself on the part of the basis that reaches them."""
    for targets in chunks(basis, stages.most_edges):
        if x is None:
            part = basis.restricted(None, targets)
            part = part.mean(_dtype(conv)) if conv.folds_mean else part
            y = conv._contract(part, None, _parameter(conv, None))
            yield targets, _with_rest(conv, y, None, targets)
            continue
        part, sources = reaching(basis, targets)
        ends = rows_of(x, sources, _dtype(conv)), rows_of(x, targets, _dtype(conv))
        yield targets, conv(ends, part)


def _staged(conv: OuterConv, x: Tensor | None, basis: Basis, stages: Stages) -> Rows:
    """The rows of each chunk, after the powers and products of the whole graph."""
    if x is None:
        raise RefusedValue(
            "layer-wise inference sends features through powers and products of matrices",
            "features, or a basis of edges",
            repr(basis),
        )
    basis = basis.mean(_dtype(conv)) if conv.folds_mean else basis
    theta = as_theta(_parameter(conv, x))
    like = torch.empty(0, dtype=theta.dtype, device=theta.device)
    out = stages.scratch.empty(basis.size[1], conv.out_channels, like=like)
    out.zero_()
    x = _dense(x, _dtype(conv), basis, stages)
    for leaf, of_leaf in basis.absorb(theta, conv.reduce):
        _add_leaf(out, leaf, of_leaf, x, conv, stages)
    for targets in chunks(basis, stages.most_edges):
        yield targets, _with_rest(conv, out[targets], x, targets)


def _add_leaf(
    out: Tensor, leaf: Basis, theta: Theta, x: Tensor, conv: OuterConv, stages: Stages
) -> None:
    """Add Σ_k A_kᵀ X Θ_k for the matrices of one leaf."""
    if hidden_part(leaf) is None:
        for targets in chunks(leaf, stages.most_edges):
            part, sources = reaching(leaf, targets)
            y = contract(part, x.index_select(0, sources), theta, aggr=conv.reduce)
            out.index_add_(0, targets, y)
    elif isinstance(leaf, ChannelPolynomial):
        for part, of_part in leaf.simpler().absorb(theta, conv.reduce):
            _add_leaf(out, part, of_part, x, conv, stages)
    elif isinstance(leaf, Polynomial):  # three terms are held, not K
        for k, h in enumerate(stages.terms(leaf, x)):
            for targets in chunks(leaf, stages.most_edges):
                y = theta.labels(k, k + 1).combine(h[targets], targets.numel())
                out.index_add_(0, targets, y)
    else:
        h = stages.propagate(leaf, x)
        for targets in chunks(leaf, stages.most_edges):
            y = theta.combine(h[targets].flatten(0, 1), targets.numel())
            out.index_add_(0, targets, y)


def _with_rest(conv: OuterConv, y: Tensor, x: Tensor | None, targets: Tensor) -> Tensor:
    """Y with the root weight and the bias of the layer."""
    if conv.root is not None:
        weight = conv.root().flatten(0, 2)
        y = y + (weight.index_select(0, targets) if x is None else x[targets] @ weight)
    return y if conv.bias is None else add_bias(y, conv.bias, own=True)


def _parameter(conv: OuterConv, x: Tensor | None) -> ThetaValue:
    like = (
        None if x is None else x.new_empty(0, x.size(1), dtype=_dtype(conv), layout=torch.strided)
    )
    return conv._parameter(Call(like))


def _dtype(conv: OuterConv) -> torch.dtype:
    parameter = next(conv.parameters(), None)
    return torch.get_default_dtype() if parameter is None else parameter.dtype


def _dense(x: Tensor, dtype: torch.dtype, basis: Basis, stages: Stages) -> Tensor:
    """X as dense rows of the layer's type; the same tensor if it is."""
    if x.layout == torch.strided and x.dtype == dtype:
        return x
    out = stages.scratch.empty(*x.shape, like=torch.empty(0, dtype=dtype, device=x.device))
    for nodes in torch.arange(x.size(0), device=x.device).split(stages.most_edges):
        rows = rows_of(x, nodes, dtype)
        out[nodes] = rows if rows.layout == torch.strided else rows.to_dense()
    return out
