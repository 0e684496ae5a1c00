"""Softmax attention in tiles: some targets and some sources, with a score for all of their pairs.

Bands, blocks and all pairs are lists of such tiles. One forward and one backward pass serve them,
torch's fused kernel where it can, and else dense products; no pass holds the scores of all tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .primitive import Primitive, folded, is_differentiated, is_lean, without_autocast
from .tiles import exact

# The most scores, or numbers of a mask, that are held at a time. On a CPU 1 MiB in float32, which
# stays in a cache; other devices need more work at a time.
CHUNK_ELEMENTS = {"cpu": 1 << 18}
_OF_OTHER_DEVICES = 1 << 24

_FLASH = 1  # torch's number for its fused kernel


class Tiles(NamedTuple):
    """B tiles of T targets and S sources each.

    Attributes:
        targets: a range of targets, cut into tiles; or (B, T) the targets of each tile.
        sources: the range of all sources of the tiles, T from one tile to the next; or (B, S).
        shape: (T, S).
        hidden: (T, S) booleans, the pairs of each tile that have no edge; or None.
        missing: (B, S) booleans, true where a source is padding; or None.
        all_see: whether each target sees a source, if no source is absent.
    """

    targets: slice | Tensor
    sources: slice | Tensor
    shape: tuple[int, int]
    hidden: Tensor | None = None
    missing: Tensor | None = None
    all_see: bool = True

    def of_targets(self, x: Tensor) -> Tensor:
        """(N, H, C) of targets as (B, H, T, C), a view of a range."""
        return self._cut(x, self.targets, self.shape[0])

    def of_sources(self, x: Tensor) -> Tensor:
        """(M, H, C) of sources as (B, H, S, C), a view of a range, in which tiles overlap."""
        return self._cut(x, self.sources, self.shape[1])

    def _cut(self, x: Tensor, at: slice | Tensor, size: int) -> Tensor:
        if isinstance(at, Tensor):
            return x.index_select(0, at.flatten()).unflatten(0, at.shape).transpose(1, 2)
        if at == slice(None):
            return x.transpose(0, 1).unsqueeze(0)
        if torch._C._are_functorch_transforms_active():  # where unfold has no rule for a batch
            place = torch.arange(x.size(0), device=x.device)[at].unfold(0, size, self.shape[0])
            return self._cut(x, place, size)
        return x[at].unfold(0, size, self.shape[0]).transpose(2, 3)


class Options(NamedTuple):
    """What all tiles of a call have in common.

    Attributes:
        scale: the factor of scores.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
        causal: whether target t of a tile attends to its sources 0, …, t alone.
        seed: that of the shares that are dropped, which each pass draws anew; None if torch draws
            and holds them.
    """

    scale: float
    dropout_p: float = 0.0
    causal: bool = False
    seed: int | None = None


def attend_tiles(
    tiles: list[Tiles],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    options: Options,
    absent: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The attention of the targets of all tiles, tile by tile: (B_1 T_1 + B_2 T_2 + …, H, V).

    Zeros for targets without sources. Queries are (N, H, D), keys (M, H, D), values (M, H, V), and
    ``absent`` (M, H) or (M, 1) booleans, true for sources that no target attends to. The bias
    (1, H or 1, T, S), which may require gradients, is added to the scores of a single tile, -inf
    for pairs without an edge.
    """
    channels = value.size(2)
    width = max(query.size(2), channels)
    if options.scale <= 0.0:
        # torch scales masked scores: -inf times a scale ≤ 0 is inf or NaN.
        query, options = query * options.scale, options._replace(scale=1.0)
    # Fused kernels require equally many channels.
    query, key, value = (
        x if x.size(2) == width else F.pad(x, (0, width - x.size(2))) for x in (query, key, value)
    )
    outs = []
    for number, part in enumerate(tiles):
        gone = None if absent is None else part.of_sources(absent.unsqueeze(-1)).transpose(2, 3)
        if part.missing is not None:
            missing = part.missing[:, None, None]
            gone = missing if gone is None else gone | missing
        hidden = None if part.hidden is None else part.hidden[None, None]
        ends = part.of_targets(query), part.of_sources(key), part.of_sources(value)
        own = options
        if options.seed is not None:
            own = options._replace(seed=options.seed + number)
        may_be_empty = bias is not None or absent is not None or not part.all_see
        out = _attend(*ends, bias, gone, hidden, own, may_be_empty)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    out = outs[0] if len(outs) == 1 else torch.cat(outs)
    return out if width == channels else out[..., :channels]


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    absent: Tensor | None,
    hidden: Tensor | None,
    options: Options,
    may_be_empty: bool,
) -> Tensor:
    """(B, H, T, V) of some tiles, see :class:`_Tiles`; torch's operation where that does it all."""
    device, drops, empty = query.device.type, options.dropout_p > 0, None
    by_torch = torch.compiler.is_compiling()
    by_torch = by_torch or (drops and (options.seed is None or not is_lean()))
    if by_torch or hidden is None or absent is None:  # else each tile has a mask of its own
        bias, empty = _mask(query, bias, absent, hidden, may_be_empty)
        hidden = absent = None
        casts = device != "meta" and torch.is_autocast_enabled(device)
        if not (by_torch or drops or casts):
            ends = (query, key, value) if bias is None else (query, key, value, bias)
            learns = torch.is_grad_enabled() and any(x.requires_grad for x in ends)
            by_torch = not learns and is_lean()
    if by_torch:
        beside = bias, options.dropout_p, options.causal
        out = F.scaled_dot_product_attention(query, key, value, *beside, scale=options.scale)
    else:
        out = _Tiles.apply(query, key, value, bias, absent, hidden, options)[0]
    return out if empty is None else out.masked_fill(empty, 0.0)


class _Tiles(Primitive):
    """Attention in tiles; a backward pass that is differentiated itself holds all scores.

    Operands are queries (B, H, T, D), keys (B, H, S, D), values (B, H, S, V), a mask (B or 1, H or
    1, T or 1, S), which is added to scores, or None, and booleans (B, H or 1, 1, S) of absent
    sources or None. Then come booleans (1, 1, T, S) of hidden pairs, if sources may be absent, and
    :class:`Options`. The results are (B, H, T, V) and the logarithms of the sums of exponentials,
    where the fused kernel gives them.
    """

    operands = 5

    @staticmethod
    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        absent: Tensor | None,
        hidden: Tensor | None,
        options: Options,
    ) -> tuple[Tensor, Tensor]:
        outs, sums, drops = [], [], options.dropout_p > 0
        with without_autocast(query.device.type):
            for part in _parts(drops, query, key, value, mask, absent, hidden, options):
                out, total = (_dropped if drops else _fused)(part, options)
                outs.append(out if part.empty is None else out.masked_fill(part.empty, 0.0))
                sums.append(total)
        return _joined(outs), _joined(sums)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, absent, out, sums = ctx.saved_tensors
        hidden, options = ctx.rest
        of_mask = ctx.needs_input_grad[3]
        holds_scores = options.dropout_p > 0 or of_mask or is_differentiated()
        gradients = []
        with without_autocast(query.device.type):
            for part in _parts(holds_scores, query, key, value, mask, absent, hidden, options):
                above = part.of(grad)
                above = above if part.empty is None else above.masked_fill(part.empty, 0.0)
                if holds_scores:
                    *ends, of_score = _gradients(part, options, above)
                    if of_mask:
                        ends.append(of_score.sum_to_size(mask.shape).to(mask.dtype))
                    gradients.append(tuple(ends))
                elif sums.numel():
                    outputs = part.of(out), part.of(sums)
                    gradients.append(_fused_gradients(part, options, above, *outputs))
                else:
                    gradients.append(_recomputed_gradients(part, options, above))
        total = (
            gradients[0] if len(gradients) == 1 else map(torch.cat, zip(*gradients, strict=True))
        )
        return *total, *(() if of_mask else (None,)), None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[Tensor, None]:
        of_outs, options = [], ctx.rest[1]
        for part in _parts(True, *primals, *ctx.rest):
            of_query, of_key, of_value = (exact(part.of(x)) for x in tangents[:3])
            query, key, value = (exact(x) for x in part[1:4])
            share = part.shares(options)
            of_score = (of_query @ key.mT + query @ of_key.mT) * options.scale
            if (of_mask := tangents[3]) is not None:
                of_score = of_score + part.of(of_mask)
            of_share = _softmax_derivative(share, of_score)
            of_outs.append((of_share @ value + share @ of_value).to(part.value.dtype))
        return _joined(of_outs), None

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        operands = folded(info, in_dims, arguments[: cls.operands], 1)
        out, sums = cls.apply(*operands, *arguments[cls.operands :])
        return (out.unflatten(1, (-1, info.batch_size)), sums), (2, None)


class _Part(NamedTuple):
    """Some tiles that are computed together.

    Attributes:
        at: their numbers; None for all.
        query, key, value: as in :class:`_Tiles`.
        mask: (B or 1, H or 1, T or 1, S), to be added to scores, or None.
        empty: (B or 1, H or 1, T or 1, 1) booleans, the targets without sources, or None.
        kept: the factors of shares where some are dropped, or None.
    """

    at: slice | None
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    empty: Tensor | None
    kept: Tensor | None

    def of(self, x: Tensor) -> Tensor:
        """The numbers of these tiles, which may be the same for all."""
        return x if self.at is None or x.size(0) == 1 else x[self.at]

    def shares(self, options: Options) -> Tensor:
        """The softmax of scores, (B, H, T, S), zeros for targets without sources."""
        score = exact(self.query) * options.scale @ exact(self.key).mT
        score = score if self.mask is None else score + self.mask
        if options.causal:
            later = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).triu(1)
            score = score.masked_fill(later, -torch.inf)
        share = score.softmax(-1)
        return share if self.empty is None else share.masked_fill(self.empty, 0.0)


def _parts(
    holds_scores: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    absent: Tensor | None,
    hidden: Tensor | None,
    options: Options,
) -> Iterator[_Part]:
    """Tiles in parts, if their scores are held, or a mask for each tile."""
    (count, heads, targets, _), step = query.shape, query.size(0)
    several = heads if holds_scores else 0 if absent is None else absent.size(1)
    if several and count > 1:
        most = CHUNK_ELEMENTS.get(query.device.type, _OF_OTHER_DEVICES)
        step = max(1, most // (several * targets * key.size(2)))
    generator = None
    if options.dropout_p > 0:
        assert options.seed is not None  # else torch drops shares
        generator = torch.Generator(query.device).manual_seed(options.seed)
    for first in range(0, count, step):
        part = _Part(None, query, key, value, mask, None, None)
        if step < count:
            part = part._replace(at=slice(first, first + step))
            ends = part.of(query), part.of(key), part.of(value)
            part = _Part(part.at, *ends, mask if mask is None else part.of(mask), None, None)
        if absent is not None:
            own, empty = _mask(query, part.mask, part.of(absent), hidden, True)
            part = part._replace(mask=own, empty=empty)
        if generator is not None:
            part = part._replace(kept=_kept(part, options.dropout_p, generator))
        yield part


def _kept(part: _Part, dropout_p: float, generator: torch.Generator) -> Tensor:
    """Random factors 0 and 1 / (1 - p) of shares, equal in all passes."""
    shape = *part.query.shape[:3], part.key.size(2)
    like: Any = {"dtype": exact(part.query[:0]).dtype, "device": part.query.device}
    drawn = torch.rand(shape, generator=generator, **like)
    return (drawn >= dropout_p).to(drawn.dtype) / max(1.0 - dropout_p, 1e-38)


def _mask(
    query: Tensor,
    bias: Tensor | None,
    absent: Tensor | None,
    hidden: Tensor | None,
    may_be_empty: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """What is added to scores, 0 in rows without a source, and which rows these are, if any."""
    if bias is None and absent is None and hidden is None:
        return None, None
    mask = query.new_zeros(()) if bias is None else bias
    for gone in (hidden, absent):
        mask = mask if gone is None else torch.where(gone, -torch.inf, mask)
    if not may_be_empty:
        return mask, None
    empty = (mask == -torch.inf).all(-1, keepdim=True)
    return mask.masked_fill(empty, 0.0), empty


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


# The passes of some tiles ------------------------------------------------------------------------


def _dropped(part: _Part, options: Options) -> tuple[Tensor, Tensor]:
    """The sums of values over the shares that are kept."""
    assert part.kept is not None  # where shares are dropped
    out = part.shares(options) * part.kept @ exact(part.value)
    return out.to(part.value.dtype), out.new_empty(0)


def _fused(part: _Part, options: Options) -> tuple[Tensor, Tensor]:
    """torch's attention, and its logarithms of sums of exponentials, or nothing."""
    query, key, value, mask = part[1:5]
    arguments = (query, key, value, mask, 0.0, options.causal)
    by_name = query.device.type == "cpu"
    if not by_name or torch._fused_sdp_choice(*arguments, scale=options.scale) != _FLASH:
        out = F.scaled_dot_product_attention(*arguments, scale=options.scale)
        return out, out.new_empty(0)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(  # type: ignore[no-any-return]
        query, key, value, 0.0, options.causal, attn_mask=mask, scale=options.scale
    )


def _fused_gradients(
    part: _Part, options: Options, grad: Tensor, out: Tensor, sums: Tensor
) -> tuple[Tensor, ...]:
    """The gradients in queries, keys and values by torch's kernel on a CPU."""
    arguments = grad, *part[1:4], out, sums, 0.0, options.causal
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(  # type: ignore[no-any-return]
        *arguments, attn_mask=part.mask, scale=options.scale
    )


def _recomputed_gradients(part: _Part, options: Options, grad: Tensor) -> tuple[Tensor, ...]:
    """The gradients by torch's backward kernel, after another call of its forward kernel."""
    with torch.enable_grad():
        query, key, value = ends = [x.detach().requires_grad_() for x in part[1:4]]
        beside = part.mask, 0.0, options.causal
        out = F.scaled_dot_product_attention(query, key, value, *beside, scale=options.scale)
        return torch.autograd.grad(out, ends, grad)


def _gradients(part: _Part, options: Options, grad: Tensor) -> tuple[Tensor, ...]:
    """The gradients, also of scores, by products that are differentiable themselves."""
    query, key, value, above = (exact(x) for x in (*part[1:4], grad))
    share, of_share = part.shares(options), above @ value.mT
    sent = share
    if part.kept is not None:
        sent, of_share = share * part.kept, of_share * part.kept
    of_score = _softmax_derivative(share, of_share)
    gradients = of_score @ key * options.scale, of_score.mT @ query * options.scale, sent.mT @ above
    return *[x.to(grad.dtype) for x in gradients], of_score


def _softmax_derivative(share: Tensor, along: Tensor) -> Tensor:
    """Multiply ``along`` (B, H, T, S) with the Jacobian matrix of softmax, which is symmetric."""
    weighted = share * along
    return weighted - share * weighted.sum(-1, keepdim=True)
