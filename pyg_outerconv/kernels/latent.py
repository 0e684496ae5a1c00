"""Through latent nodes: from M sources to D of them, and on to N targets, by dense products."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunks import Chunks


def collect(key: Tensor, value: Tensor, chunks: Chunks | None = None) -> Tensor:
    """What the D latent nodes of each of G blocks receive: ``Σ_m key[m, r, d] value[m, r, v]``.

    Made of torch's own products, so that every derivative is torch's.

    Args:
        key: (M, R, D).
        value: (M, R, V).
        chunks: where the blocks are; None for a single one, which takes one product.

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
    """What targets receive from the latent nodes of their block: ``Σ_d query[n, r, d] latent``.

    Args:
        query: (N, R, D).
        latent: (G, R, D, V).
        chunks: where the blocks are; None for a single one.

    Returns:
        (N, R, V).
    """
    if chunks is None:
        return torch.einsum("nrd,rdv->nrv", query, latent[0])
    of_chunk = latent if chunks.block is None else latent.index_select(0, chunks.block)
    out = chunks.split(query, chunks.target) @ of_chunk
    return chunks.join(out, chunks.target, query.size(0))


def states(key: Tensor, value: Tensor) -> Tensor:
    """(chunks, R, D, V) of what each chunk gives its latent nodes, from (chunks, R, C, ·)."""
    return key.transpose(-2, -1) @ value
