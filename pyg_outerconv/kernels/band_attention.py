"""Attention within a band, by dense products of blocks; the backward pass recomputes shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .band import BandLimits, Slabs, Strip, strips
from .primitive import Primitive, is_differentiated, without_autocast
from .tiles import accumulator


class BandOptions(NamedTuple):
    """BandOptions of attention, the same in the forward and the backward pass.

    Attributes:
        scale: the factor of scores.
        dropout_p: the probability with which a share becomes zero.
        seed: the seed of dropout.
    """

    scale: float
    dropout_p: float
    seed: int


class _Job(NamedTuple):
    """One head of one strip: padded operands in the accumulating dtype, with scaled queries."""

    strip: Strip
    head: int
    slabs: Slabs
    query: Tensor
    key: Tensor
    value: Tensor
    seen: Tensor | None


def band_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: BandOptions,
) -> Tensor:
    """Attention within the band, (R, H, V); ``seen`` (C, H) excludes columns, or is None."""
    out = query.new_zeros((*query.shape[:2], value.size(2)))
    dropout = _Dropout(options, query.device)
    for job in _jobs(query, key, value, seen, band, options):
        found = []
        for chunk in job.slabs.chunks():
            share = _shares(job, chunk)
            keep = dropout.factor(share)
            share = share if keep is None else share * keep
            found.append(torch.bmm(share, job.slabs.of_columns(job.value, chunk)))
        rows = torch.cat(found).flatten(0, 1)[: job.slabs.num_rows]
        out[job.strip.rows, job.head] = rows.to(out.dtype)
    return out


def band_gradients(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: BandOptions,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients in query, key and value; differentiable, which then stores all shares."""
    # Start sums with a zero made of all operands, so that under vmap they have the batch of any.
    begin = sum((x[:0].sum() for x in (query, key, value, grad)), grad.new_zeros(()))
    totals = [x.new_zeros(x.shape) + begin for x in (query, key, value)]
    dropout = _Dropout(options, query.device)
    for job in _jobs(query, key, value, seen, band, options):
        slabs, rows, cols = job.slabs, job.strip.rows, job.strip.cols
        above = slabs.of_rows(grad[rows, job.head].to(job.query.dtype))
        of_key, of_value = (slabs.zeros(x) + begin for x in (job.key, job.value))
        found = []
        for chunk in slabs.chunks():
            keys, values = (slabs.of_columns(x, chunk) for x in (job.key, job.value))
            ours, queries = above[chunk.start : chunk.stop], job.query[chunk.start : chunk.stop]
            share = _shares(job, chunk)
            keep, of_share = dropout.factor(share), torch.bmm(ours, values.mT)
            dropped = share if keep is None else share * keep
            of_share = of_share if keep is None else of_share * keep
            slabs.add(of_value, torch.bmm(dropped.mT, ours), chunk)
            of_score = torch._softmax_backward_data(of_share, share, -1, share.dtype)
            slabs.add(of_key, torch.bmm(of_score.mT, queries), chunk)
            found.append(torch.bmm(of_score, keys))
        of_query = torch.cat(found).flatten(0, 1)[: slabs.num_rows] * options.scale
        for total, place, x in (
            (totals[0], rows, of_query),
            (totals[1], cols, slabs.unpadded(of_key)),
            (totals[2], cols, slabs.unpadded(of_value)),
        ):
            total[place, job.head] = x.to(total.dtype)
    return totals[0], totals[1], totals[2]


def band_tangent(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: BandOptions,
    of_query: Tensor,
    of_key: Tensor,
    of_value: Tensor,
) -> Tensor:
    """The derivative (R, H, V) along tangents of query, key and value; differentiable."""
    primals, tangents = (query, key, value), (of_query, of_key, of_value)
    # As in backward.
    begin = sum((x[:0].sum() for x in (*primals, *tangents)), query.new_zeros(()))
    out = query.new_zeros((*query.shape[:2], value.size(2))) + begin
    dropout = _Dropout(options, query.device)
    for job, moved in zip(
        _jobs(*primals, seen, band, options), _jobs(*tangents, seen, band, options), strict=True
    ):
        slabs, found = job.slabs, []
        for chunk in slabs.chunks():
            blocks = slice(chunk.start, chunk.stop)
            keys, values, of_keys, of_values = (
                slabs.of_columns(x, chunk) for x in (job.key, job.value, moved.key, moved.value)
            )
            share = _shares(job, chunk)
            keep = dropout.factor(share)
            of_score = torch.bmm(moved.query[blocks], keys.mT)
            of_score = of_score + torch.bmm(job.query[blocks], of_keys.mT)
            weighted = share * of_score
            of_share = weighted - share * weighted.sum(-1, keepdim=True)
            if keep is not None:
                share, of_share = share * keep, of_share * keep
            found.append(torch.bmm(of_share, values) + torch.bmm(share, of_values))
        rows = torch.cat(found).flatten(0, 1)[: slabs.num_rows]
        out[job.strip.rows, job.head] = rows.to(out.dtype)
    return out


def _jobs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: BandOptions,
) -> Iterator[_Job]:
    wide = accumulator(query.dtype)
    for strip in strips(band, query.size(0), key.size(0)):
        for head in range(query.size(1)):
            # Matrix products are faster on contiguous rows.
            queries = query[strip.rows, head].to(wide).contiguous() * options.scale
            keys, values = (x[strip.cols, head].to(wide) for x in (key, value))
            here = None if seen is None else seen[strip.cols, head]
            slabs = Slabs(strip, queries.size(0), keys.size(0), query.device)
            yield _Job(
                strip,
                head,
                slabs,
                slabs.of_rows(queries),
                slabs.padded(keys.contiguous()),
                slabs.padded(values.contiguous()),
                here,
            )


def _shares(job: _Job, chunk: range) -> Tensor:
    """The softmax of the scores of a chunk, (blocks, B, slab); zeros in rows without columns."""
    keys = job.slabs.of_columns(job.key, chunk)
    score = torch.bmm(job.query[chunk.start : chunk.stop], keys.mT)
    hidden, may_be_empty = job.slabs.hidden(chunk, job.seen)
    score = score.masked_fill_(hidden, -torch.inf)
    if not may_be_empty:
        return torch.softmax(score, -1)
    empty = hidden.all(-1, keepdim=True)
    return torch.softmax(score.masked_fill_(empty, 0.0), -1).masked_fill(empty, 0.0)


class _Dropout:
    """Random factors 0 and 1 / (1 - p); equal in all passes that draw them in the same order."""

    def __init__(self, options: BandOptions, device: torch.device) -> None:
        self.p, self.generator = options.dropout_p, None
        if self.p > 0:
            self.generator = torch.Generator(device).manual_seed(options.seed)

    def factor(self, share: Tensor) -> Tensor | None:
        if self.generator is None:
            return None
        random = torch.rand(
            share.shape, generator=self.generator, dtype=share.dtype, device=share.device
        )
        return (random >= self.p).to(share.dtype) / max(1.0 - self.p, 1e-38)


def banded(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: BandLimits,
    options: BandOptions,
) -> Tensor:
    """Attention within a band, (R, H, V).

    ``seen`` (C, H) excludes columns, whose keys and values are finite all the same; or is None.
    """
    return _Banded.apply(query, key, value, seen, band, options)  # type: ignore[no-any-return]


@torch.library.custom_op("pyg_outerconv::band_attention", mutates_args=())
def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: Sequence[int],
    scale: float,
    dropout_p: float,
    seed: int,
) -> Tensor:
    options = BandOptions(scale, dropout_p, seed)
    with without_autocast(query.device.type):
        return band_forward(query, key, value, seen, BandLimits(*band), options)


@_forward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
    return query.new_empty((*query.shape[:2], value.size(2)))


@torch.library.custom_op("pyg_outerconv::band_attention_backward", mutates_args=())
def _backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Tensor | None,
    band: Sequence[int],
    scale: float,
    dropout_p: float,
    seed: int,
    grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    options = BandOptions(scale, dropout_p, seed)
    with without_autocast(query.device.type):
        return band_gradients(query, key, value, seen, BandLimits(*band), options, grad)


@_backward.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


class _Banded(Primitive):
    """Attention within a band; backward is one operator, unless it is differentiated itself."""

    operands = 4

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        seen: Tensor | None,
        band: BandLimits,
        options: BandOptions,
    ) -> Tensor:
        limits: list[Any] = list(band)
        if torch.jit.is_tracing():  # where sizes are tensors, which no list of integers holds
            limits = [int(limit) for limit in limits]
        return _forward(query, key, value, seen, limits, *options)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (query, key, value, seen), (band, options) = ctx.saved_tensors, ctx.rest
        if is_differentiated():
            found = band_gradients(query, key, value, seen, band, options, grad)
            return *found, None
        return *_backward(query, key, value, seen, list(band), *options, grad), None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> Tensor:
        return band_tangent(*primals, *ctx.rest, *tangents[:3])
