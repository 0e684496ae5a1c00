"""The reference for tests: a contraction with dense tensors and a mask of edges."""

from __future__ import annotations

import torch
from torch import Tensor

from ..basis import Basis, EdgeBasis
from ..graph import Features, SparseFeatures
from ..nn.dense import full_matrices
from ..theta import ThetaValue, ValueOutput, full


def dense_contraction(
    basis: Basis,
    x: Features,
    theta: ThetaValue,
    reduce: str = "sum",
    label_reduce: str = "sum",
) -> Tensor:
    """``Y[n] = label_reduce_k ( reduce_m A[k, m, n] X[m] ) Θ_k`` with dense tensors.

    For sums it is ``einsum('kmn,mp,kpq->nq')`` for each item of a batch. Other reductions use a
    mask of edges, because a value of zero differs from an absent edge, and a dimension for parallel
    edges, which a dense matrix would add.
    """
    matrices = full_matrices(full(theta))
    rows = _dense_features(x, matrices.size(1), matrices)
    if (reduce, label_reduce) == ("sum", "sum"):
        dense = basis.to_dense(matrices.dtype)
        out = torch.einsum("kmn,m...p,kpq->n...q", dense, rows, matrices)
        of_bias = theta.full_bias() if isinstance(theta, ValueOutput) else None
        if of_bias is None:
            return out
        added = torch.einsum("kmn,kq->nq", dense, of_bias[:, 0, 0])
        return out + added.view(out.size(0), *(1,) * (out.dim() - 2), -1)
    received, is_edge = _layers(basis.edges(), rows)
    h = _reduced(received, is_edge, reduce, 2)
    out = torch.einsum("nk...p,kpq->nk...q", h, matrices)
    return _reduced(out, is_edge.any(2), label_reduce, 1)


def _layers(edges: EdgeBasis, rows: Tensor) -> tuple[Tensor, Tensor]:
    """A[k, m, n] X[m] as (N, K, L, *batch, P), and the mask (N, K, L) of edges.

    L is the largest number of edges with one target and label.
    """
    pattern = edges.pattern
    target, label, source = (t.long() for t in (pattern.target, pattern.label, pattern.source))
    messages = torch.einsum("e,e...p->e...p", edges.values(rows.dtype), rows[source])
    group = target * edges.num_bases + label  # sorted
    layer = torch.arange(group.numel(), device=group.device) - torch.searchsorted(group, group)
    depth = int(layer.max()) + 1 if layer.numel() else 1
    shape = (edges.size[1], edges.num_bases, depth)
    where = (target, label, layer)
    received = messages.new_zeros(*shape, *rows.shape[1:]).index_put(where, messages)
    is_edge = torch.zeros(shape, dtype=torch.bool, device=rows.device)
    is_edge[where] = True
    return received, is_edge


def _reduced(x: Tensor, mask: Tensor, reduce: str, dim: int) -> Tensor:
    """Reduce the entries in the mask along a dimension; 0 without entries."""
    mask = mask.view(*mask.shape, *(1,) * (x.dim() - mask.dim()))
    if reduce == "sum":
        return x.where(mask, 0.0).sum(dim)
    if reduce == "mean":
        return x.where(mask, 0.0).sum(dim) / mask.sum(dim).clamp(min=1)
    if x.size(dim) == 0:
        return x.sum(dim)
    largest = reduce == "max"
    filled = x.masked_fill(~mask, -torch.inf if largest else torch.inf)
    best = filled.max(dim).values if largest else filled.min(dim).values
    return best.masked_fill(~mask.any(dim), 0.0)


def _dense_features(x: Features, in_channels: int, like: Tensor) -> Tensor:
    """X (M, *batch, P); indices become rows of the identity matrix, None all of it."""
    if isinstance(x, SparseFeatures):
        counts = x.sparsity.rowptr.diff()
        row = torch.arange(x.size(0), device=x.device).repeat_interleave(counts)
        zeros = x.value.new_zeros(x.shape)
        return zeros.index_put((row, x.sparsity.col.long()), x.value, accumulate=True)
    if x is not None and x.is_floating_point():
        return x
    eye = torch.eye(in_channels, dtype=like.dtype, device=like.device)
    return eye if x is None else eye[x]
