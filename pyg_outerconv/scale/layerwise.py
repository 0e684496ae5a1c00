"""One layer over all nodes, chunk by chunk of targets, with the weights of the whole graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from ..basis import Basis, ChannelPolynomial
from ..basis.edge_sets import hidden_part
from ..basis.polynomial import Polynomial
from ..contract import contract
from ..errors import RefusedType, RefusedValue
from ..nn import OuterConv
from ..nn.call import Call
from ..signatures import typed
from ..theta import Theta, ThetaValue, add_bias, as_theta
from .chunks import MOST_EDGES, check_features, chunks, reaching, rows_of
from .scratch import Scratch
from .stages import Stages

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
        place = slice(int(targets[0]), int(targets[-1]) + 1)
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
