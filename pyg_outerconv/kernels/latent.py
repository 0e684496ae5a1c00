"""Propagation from M sources to D latent nodes and on to N targets, by dense products."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunks import Chunks


def collect(key: Tensor, value: Tensor, chunks: Chunks | None = None) -> Tensor:
    """Propagate values to the D latent nodes of each of G blocks: ``Σ_m key[m, r, d] value[m, r]``.

    The derivatives are those of torch's products.

    Args:
        key: (M, R, D).
        value: (M, R, V).
        chunks: the blocks; None for a single block, which takes one product.

    Returns:
        (G, R, D, V).
    """
    if chunks is None:
        return torch.einsum("mrd,mrv->rdv", key, value).unsqueeze(0)
    found = states(chunks.split(key, chunks.source), chunks.split(value, chunks.source))
    if chunks.block is None:
        return found.sum(0, keepdim=True)
    none = found.new_zeros(chunks.num_blocks, *found.shape[1:])
    return none.index_add(0, chunks.block, found)


def spread(query: Tensor, latent: Tensor, chunks: Chunks | None = None) -> Tensor:
    """Propagate latent nodes to the targets of their block: ``Σ_d query[n, r, d] latent[g, r, d]``.

    Args:
        query: (N, R, D).
        latent: (G, R, D, V).
        chunks: the blocks; None for a single block.

    Returns:
        (N, R, V).
    """
    if chunks is None:
        return torch.einsum("nrd,rdv->nrv", query, latent[0])
    of_chunk = latent if chunks.block is None else latent.index_select(0, chunks.block)
    out = chunks.split(query, chunks.target) @ of_chunk
    return chunks.join(out, chunks.target, query.size(0))


def states(key: Tensor, value: Tensor) -> Tensor:
    """Sum key ⊗ value over each chunk, (chunks, R, D, V), for (chunks, R, C, D) and (…, V)."""
    return key.transpose(-2, -1) @ value
