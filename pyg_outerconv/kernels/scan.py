"""A causal sum by a scan: dense products within chunks, and running states between them."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunks import Chunks
from .exponentials import finite, largest
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


def scan_exponentials(
    query: Tensor, key: Tensor, value: Tensor, chunks: Chunks, strict: bool = False
) -> Tensor:
    r"""``out[n, r] = Σ_{m ≤ n} Σ_d exp(query[n, r, d] + key[m, r, d] - c[n, r]) value[m, r]``.

    c is the largest exponent that n sees, so that no factor is more than 1, whatever keys are: a
    state is held as a multiple of the exponential of the largest key so far, in each dimension, and
    scaled down where a larger one comes. Within a chunk the second half of the places sees the
    first by factors of the largest key of the first half; so do the halves of each half, and so on.
    Nothing that comes later has a part in any of them. Work and memory are log C times those of
    :func:`scan`, without the states; all derivatives are torch's.

    Args:
        query: (N, R, D).
        key: (M, R, D), -inf for what is not there.
        value: (M, R, V).
        chunks: see :func:`scan`; C is a power of two.
        strict: see :func:`scan`.
    """
    key = chunks.split(key, chunks.source, -torch.inf)
    value = chunks.split(value, chunks.source)
    far = chunks.split(query, chunks.target)
    within = key.detach().cummax(2).values
    earlier = running_peak(within[:, :, -1], chunks.block)
    peak = torch.maximum(within, earlier.unsqueeze(2))  # of all keys up to each place
    seen = torch.cat([earlier.unsqueeze(2), peak[:, :, :-1]], 2) if strict else peak
    far = far - largest(far, seen).unsqueeze(-1)

    last = peak[:, :, -1]
    state = states((key - finite(last).unsqueeze(2)).exp(), value)
    out = (far + earlier.unsqueeze(2)).exp() @ running(state, chunks.block, last)
    if not strict:
        out = out + (far + key).exp().sum(-1, keepdim=True) * value
    half = 1
    while half < chunks.size:
        out = out + _by_halves(far, key, value, peak, half)
        half *= 2
    return chunks.join(out, chunks.target, query.size(0))


def _by_halves(far: Tensor, key: Tensor, value: Tensor, peak: Tensor, half: int) -> Tensor:
    """What the second ``half`` places of every run of twice as many receive from the first."""
    (first, top, sent), second = (
        [x.unflatten(2, (-1, 2, half))[:, :, :, 0] for x in (key, peak, value)],
        far.unflatten(2, (-1, 2, half))[:, :, :, 1],
    )
    middle = top[..., -1:, :]
    score = (second + middle).exp() @ (first - finite(middle)).exp().transpose(-2, -1)
    found = score @ sent
    return torch.stack([torch.zeros_like(found), found], 3).flatten(2, 4)


def running(state: Tensor, block: Tensor | None = None, peak: Tensor | None = None) -> Tensor:
    """The sum of all states before each, of its block: (chunks, ...) to the same shape.

    Args:
        state: (chunks, ...).
        block: (chunks,) ascending, or None for one.
        peak: (chunks, R, D), of states (chunks, R, D, V) that are multiples of exp(peak), which
            grows; sums are multiples of that of the chunk before.
    """
    total, step = state, 1
    while step < state.size(0):
        total = torch.cat([total[:step], total[step:] + _same(total, block, step, peak)])
        step *= 2
    return torch.cat([torch.zeros_like(total[:1]), _same(total, block, 1)])


def running_peak(peak: Tensor, block: Tensor | None = None) -> Tensor:
    """The largest of all before each, of its block, and -inf where there are none."""
    total, step = peak, 1
    while step < peak.size(0):
        earlier = _of_block(total[:-step], block, step, -torch.inf)
        total = torch.cat([total[:step], torch.maximum(total[step:], earlier)])
        step *= 2
    none = torch.full_like(total[:1], -torch.inf)
    return torch.cat([none, _of_block(total[:-1], block, 1, -torch.inf)])


def _same(total: Tensor, block: Tensor | None, step: int, peak: Tensor | None = None) -> Tensor:
    """What is ``step`` chunks earlier, or zero where that is another block."""
    if peak is None:
        return _of_block(total[:-step], block, step, 0.0)
    grown = _of_block(peak[:-step], block, step, -torch.inf) - finite(peak[step:])
    return total[:-step] * grown.exp().unsqueeze(-1)


def _of_block(earlier: Tensor, block: Tensor | None, step: int, fill: float) -> Tensor:
    """What was ``step`` chunks earlier, or ``fill`` where that is another block."""
    if block is None:
        return earlier
    other = block[step:] != block[:-step]
    return earlier.masked_fill(other.view(-1, *(1,) * (earlier.dim() - 1)), fill)
