"""A causal sum by a scan: dense products within chunks, and running states between them."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunks import Chunks
from .latent import states


def scan(query: Tensor, key: Tensor, value: Tensor, chunks: Chunks, strict: bool = False) -> Tensor:
    r"""``out[n, r] = Σ_{m ≤ n} ⟨key[m, r], query[n, r]⟩ value[m, r]`` within each block.

    This is no product through D latent nodes, for each target sees other states of them: the prefix
    sums of key ⊗ value (*Transformers are RNNs*, equation 18). A target adds up C × C products of
    its own chunk, masked, and the state that all chunks before left: O(n (C + D) V) work, and
    O(n C + n/C · D V) numbers held, in both directions. States are added up by doubling, so that
    rounding grows with log n, and all of it is torch's own differentiable operations: no state is
    computed again, and every derivative follows.

    Args:
        query: (N, R, D).
        key: (M, R, D).
        value: (M, R, V).
        chunks: places of sources and targets, block by block; m ≤ n means places.
        strict: whether a target does not see its own place.

    Returns:
        (N, R, V); zeros for targets that see nothing.
    """
    near_key, near_value = (chunks.split(part, chunks.source) for part in (key, value))
    near_query = chunks.split(query, chunks.target)
    before = running(states(near_key, near_value), chunks.block)
    score = (near_query @ near_key.transpose(-2, -1)).tril(-1 if strict else 0)
    out = score @ near_value + near_query @ before
    return chunks.join(out, chunks.target, query.size(0))


def running(state: Tensor, block: Tensor | None = None) -> Tensor:
    """The sum of all states before each, of its block: (chunks, ...) to the same shape.

    Args:
        state: (chunks, ...).
        block: (chunks,) ascending, or None for one.
    """
    total, step = state, 1
    while step < state.size(0):
        total = torch.cat([total[:step], total[step:] + _same(total[:-step], block, step)])
        step *= 2
    return torch.cat([torch.zeros_like(total[:1]), _same(total[:-1], block, 1)])


def _same(earlier: Tensor, block: Tensor | None, step: int) -> Tensor:
    """What is ``step`` chunks earlier, or zero where that is another block."""
    if block is None:
        return earlier
    other = block[step:] != block[:-step]
    return earlier.masked_fill(other.view(-1, *(1,) * (earlier.dim() - 1)), 0.0)
