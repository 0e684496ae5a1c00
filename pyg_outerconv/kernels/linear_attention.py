"""Linear attention: products through latent nodes, causal scans, and weights of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .absent_pairs import over_all_pairs
from .additive import additive
from .csr import CSR
from .spmm import spmm

Within = Callable[[Tensor, Tensor, Tensor, bool], Tensor]


@dataclass(frozen=True, eq=False)
class Chunks:
    """Places for sources and targets in chunks of C places; the nodes of a chunk are of one block.

    Attributes:
        size: C.
        count: the number of chunks.
        block: (chunks,) the block of each chunk, ascending; None if there is a single block.
        num_blocks: G.
        source: (M,) the place of each source; None if source m has place m.
        target: (N,) the place of each target; None if target n has place n.
    """

    size: int
    count: int
    block: Tensor | None = None
    num_blocks: int = 1
    source: Tensor | None = None
    target: Tensor | None = None

    def split(self, x: Tensor, place: Tensor | None, fill: float = 0.0) -> Tensor:
        """Move nodes to their places: (nodes, R, F) to (chunks, R, C, F), empty places ``fill``."""
        places = self.count * self.size
        if place is None:
            x = F.pad(x, (0, 0, 0, 0, 0, places - x.size(0)), value=fill)
        else:
            x = x.new_full((places, *x.shape[1:]), fill).index_copy(0, place, x)
        return x.unflatten(0, (self.count, self.size)).transpose(1, 2).contiguous()

    def join(self, x: Tensor, place: Tensor | None, num_nodes: int) -> Tensor:
        """The inverse of :meth:`split`: (chunks, R, C, F) to (nodes, R, F)."""
        x = x.transpose(1, 2).flatten(0, 1)
        return x[:num_nodes] if place is None else x.index_select(0, place)


def collect(key: Tensor, value: Tensor, chunks: Chunks | None = None) -> Tensor:
    """Propagate values to the D latent nodes of each of G blocks: ``Σ_m key[m, r, d] value[m, r]``.

    Keys are (M, R, D), values (M, R, V), the result (G, R, D, V). A single block, without chunks,
    takes one product. The derivatives are those of torch's products.
    """
    if chunks is None:
        return torch.einsum("mrd,mrv->rdv", key, value).unsqueeze(0)
    latent = states(chunks.split(key, chunks.source), chunks.split(value, chunks.source))
    if chunks.block is None:
        return latent.sum(0, keepdim=True)
    none = latent.new_zeros(chunks.num_blocks, *latent.shape[1:])
    return none.index_add(0, chunks.block, latent)


def spread(query: Tensor, latent: Tensor, chunks: Chunks | None = None) -> Tensor:
    """Propagate latent nodes to the targets of their block: ``Σ_d query[n, r, d] latent[g, r, d]``.

    Queries are (N, R, D), latent nodes (G, R, D, V), the result (N, R, V).
    """
    if chunks is None:
        return torch.einsum("nrd,rdv->nrv", query, latent[0])
    of_chunk = latent if chunks.block is None else latent.index_select(0, chunks.block)
    out = chunks.split(query, chunks.target) @ of_chunk
    return chunks.join(out, chunks.target, query.size(0))


def states(key: Tensor, value: Tensor) -> Tensor:
    """Sum key ⊗ value over each chunk, (chunks, R, D, V), for (chunks, R, C, D) and (…, V)."""
    return key.transpose(-2, -1) @ value


def on_edges(csr: CSR, query: Tensor, key: Tensor) -> Tensor:
    """``Σ_d exp(query[row, h, d] + key[column, h, d] - c[row, h])`` for each entry, (E, H).

    c[row, h] is the largest exponent of the row. Queries are (R, H, D), keys (C, H, D), -inf for
    absent sources.
    """
    with torch.no_grad():
        peak = spmm(csr, None, key, aggr="max")
    shifted = query - largest(query, peak).unsqueeze(-1)
    return additive(csr, shifted, key, key.new_ones(key.shape[1:]), activation="exp")


def of_all(
    query: Tensor, key: Tensor, block: tuple[Tensor, Tensor] | None = None, num_blocks: int = 1
) -> tuple[Tensor, Tensor]:
    """Factors of the weights if targets attend to all sources, or to all of their block.

    Args:
        query: (N, ..., D).
        key: (M, ..., D), -inf for absent sources.
        block: the block of each source (M,) and of each target (N,), from 0; None for a single one.
        num_blocks: the number of blocks.

    Returns:
        Factors (N, ..., D) and (M, ..., D) from 0 to 1; the weights are their products, summed
        over D.
    """
    of_block = key.detach().new_full((num_blocks, *key.shape[1:]), -torch.inf)
    if block is None:
        source = target = key.new_zeros((), dtype=torch.long)
        if key.size(0):
            of_block = key.detach().amax(0, keepdim=True)
        seen, own = of_block.expand_as(query), of_block.expand_as(key)
    else:
        source, target = (end.long() for end in block)
        place = source.view(-1, *(1,) * (key.dim() - 1)).expand_as(key)
        of_block = of_block.scatter_reduce(0, place, key.detach(), "amax")
        seen, own = of_block.index_select(0, target), of_block.index_select(0, source)
    of_target = (query + seen - largest(query, seen).unsqueeze(-1)).exp()
    return of_target, (key - finite(own)).exp()


def largest(query: Tensor, peak: Tensor) -> Tensor:
    """max_d (query + peak), (...), for (..., D) and (..., D); 0 instead of -inf; no gradient."""
    return finite((query.detach() + peak.detach()).amax(-1))


def finite(x: Tensor) -> Tensor:
    """Replace -inf by 0."""
    return x.masked_fill(x == -torch.inf, 0.0)


def scan(query: Tensor, key: Tensor, value: Tensor, chunks: Chunks, strict: bool = False) -> Tensor:
    r"""``out[n, r] = Σ_{m ≤ n} ⟨key[m, r], query[n, r]⟩ value[m, r]`` within each block.

    Each target reads a different state, the sum of key ⊗ value up to its place (Katharopoulos et
    al., *Transformers are RNNs*, equation 18). A target takes the sum over its own chunk, by masked
    products of C × C, and the state after the chunk before: O(n (C + D) V) work and
    O(n C + n/C · D V) numbers held, forwards and backwards. States are added up by doubling, so
    that rounding errors grow with log n. All operations are torch's, which gives derivatives of any
    order. Where numbers are not finite, or cannot be looked at, a chunk is cut into halves instead,
    as in :func:`scan_exponentials`, so that no later source is multiplied by 0.

    Args:
        query: (N, R, D).
        key: (M, R, D).
        value: (M, R, V).
        chunks: places of sources and targets, block by block; m ≤ n compares places.
        strict: whether m < n is required, so that a target does not attend to its own place.

    Returns:
        (N, R, V); zeros for targets without sources.
    """

    def run(within: Within, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (chunks.split(part, chunks.source) for part in (key, value))
        asked = chunks.split(query, chunks.target)
        before = running(states(key, value), chunks.block)
        return chunks.join(
            within(asked, key, value, strict) + asked @ before, chunks.target, query.size(0)
        )

    operands = query, key, value
    return over_all_pairs(partial(run, _masked), partial(run, _halved), *operands)


def _masked(query: Tensor, key: Tensor, value: Tensor, strict: bool) -> Tensor:
    """The sums over the own chunk of finite operands (chunks, R, C, ...), by a masked product."""
    return (query @ key.transpose(-2, -1)).tril(-1 if strict else 0) @ value


def _halved(query: Tensor, key: Tensor, value: Tensor, strict: bool) -> Tensor:
    """The same sums, without a product of a target and a later source."""
    count = query.size(2)
    padded = 1 << (count - 1).bit_length()
    query, key, value = (F.pad(x, (0, 0, 0, padded - count)) for x in (query, key, value))

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return (query @ key.transpose(-2, -1)) @ value

    out = _second_halves(attend, query, key, value)
    if not strict:
        out = out + (query * key).sum(-1, keepdim=True) * value
    return out[:, :, :count]


def _second_halves(attend: Callable[..., Tensor], query: Tensor, *sources: Tensor) -> Tensor:
    """Σ ``attend(query of second halves, *sources of first halves)`` over runs of 2, 4, … places.

    Args:
        attend: from (chunks, R, runs, half, D) and the sources likewise to (chunks, R, runs, half,
            V).
        query: (chunks, R, C, D), where C is a power of two.
        sources: (chunks, R, C, ...) each; the last one has V channels.

    Returns:
        (chunks, R, C, V); zeros for the first place.
    """
    half, out = 1, torch.zeros_like(sources[-1])
    while half < query.size(2):
        first = (x.unflatten(2, (-1, 2, half))[:, :, :, 0] for x in sources)
        second = attend(query.unflatten(2, (-1, 2, half))[:, :, :, 1], *first)
        out = out + torch.stack([torch.zeros_like(second), second], 3).flatten(2, 4)
        half *= 2
    return out


def scan_exponentials(
    query: Tensor, key: Tensor, value: Tensor, chunks: Chunks, strict: bool = False
) -> Tensor:
    r"""``out[n, r] = Σ_{m ≤ n} Σ_d exp(query[n, r, d] + key[m, r, d] - c[n, r]) value[m, r]``.

    c[n, r] is the largest exponent of the sum, so that no factor exceeds 1. A state is stored as a
    multiple of the exponential of the largest key up to there, in each dimension, and scaled down
    at a larger key. Within a chunk, the second half of the places attends to the first half by
    factors of the largest key of the first half; likewise within each half, and so on. No factor
    depends on later places. Work and memory are log C times those of :func:`scan`, apart from
    states; all operations are torch's, which gives derivatives of any order. Arguments are those of
    :func:`scan`; keys of absent sources are -inf, and C is a power of two.
    """
    key = chunks.split(key, chunks.source, -torch.inf)
    value = chunks.split(value, chunks.source)
    shifted = chunks.split(query, chunks.target)
    within = key.detach().cummax(2).values
    earlier = running_peak(within[:, :, -1], chunks.block)
    peak = torch.maximum(within, earlier.unsqueeze(2))  # the largest key up to each place
    seen = torch.cat([earlier.unsqueeze(2), peak[:, :, :-1]], 2) if strict else peak
    shifted = shifted - largest(shifted, seen).unsqueeze(-1)

    last = peak[:, :, -1]
    state = states((key - finite(last).unsqueeze(2)).exp(), value)
    out = (shifted + earlier.unsqueeze(2)).exp() @ running(state, chunks.block, last)
    if not strict:
        out = out + (shifted + key).exp().sum(-1, keepdim=True) * value
    out = out + _second_halves(_attend_up_to_peaks, shifted, key, peak, value)
    return chunks.join(out, chunks.target, query.size(0))


def _attend_up_to_peaks(query: Tensor, key: Tensor, peak: Tensor, value: Tensor) -> Tensor:
    """Sums of exponentials over the first halves, by factors of the largest key at their ends."""
    middle = peak[..., -1:, :]
    score = (query + middle).exp() @ (key - finite(middle)).exp().transpose(-2, -1)
    return score @ value


def running(state: Tensor, block: Tensor | None = None, peak: Tensor | None = None) -> Tensor:
    """Sum the states of all chunks before each chunk, within its block: (chunks, ...).

    Args:
        state: (chunks, ...).
        block: (chunks,) the block of each chunk, ascending; None for a single block.
        peak: (chunks, R, D) ascending within a block, for states (chunks, R, D, V) that are stored
            as multiples of exp(peak); each sum is a multiple of exp(peak) of the chunk before.
    """
    total, step = state, 1
    while step < state.size(0):
        total = torch.cat([total[:step], total[step:] + _earlier_state(total, block, step, peak)])
        step *= 2
    return torch.cat([torch.zeros_like(total[:1]), _earlier_state(total, block, 1)])


def running_peak(peak: Tensor, block: Tensor | None = None) -> Tensor:
    """The maximum over all chunks before each chunk, within its block; -inf without any."""
    total, step = peak, 1
    while step < peak.size(0):
        earlier = _masked_by_block(total[:-step], block, step, -torch.inf)
        total = torch.cat([total[:step], torch.maximum(total[step:], earlier)])
        step *= 2
    none = torch.full_like(total[:1], -torch.inf)
    return torch.cat([none, _masked_by_block(total[:-1], block, 1, -torch.inf)])


def _earlier_state(
    total: Tensor, block: Tensor | None, step: int, peak: Tensor | None = None
) -> Tensor:
    """The state ``step`` chunks earlier, rescaled by ``peak``; zero if it is of another block."""
    if peak is None:
        return _masked_by_block(total[:-step], block, step, 0.0)
    growth = _masked_by_block(peak[:-step], block, step, -torch.inf) - finite(peak[step:])
    # Of another block, the product may be of 0 and NaN.
    return _masked_by_block(total[:-step] * growth.exp().unsqueeze(-1), block, step, 0.0)


def _masked_by_block(earlier: Tensor, block: Tensor | None, step: int, fill: float) -> Tensor:
    """The numbers of chunks ``step`` earlier, or ``fill`` if these are of another block."""
    if block is None:
        return earlier
    other = block[step:] != block[:-step]
    return earlier.masked_fill(other.view(-1, *(1,) * (earlier.dim() - 1)), fill)
