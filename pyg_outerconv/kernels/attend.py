"""Attention along entries; and along all pairs of a rule, by edges where numbers are not finite.

Attention along all pairs, or all pairs of a tile, multiplies those without an edge by 0. It runs
where its operands are finite; :func:`over_pairs` looks, and goes by edges if it must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import RefusedValue
from ..signatures import typed
from .absent_pairs import (
    are_finite,
    can_look,
    gradients_of,
    is_transformed,
    over_all_pairs,
    over_all_pairs_below,
    parted,
)
from .attend_entries import attend_kept, fused
from .backend import Attention
from .capture import unsafe_to_capture
from .csr import CSR
from .lasting import lasting
from .operands import agreeing, check_order, one_value_an_entry, scale_of
from .primitive import Primitive, within_operator, without_autocast
from .tiles import accumulator


class BandLimits(NamedTuple):
    """Row n attends to the columns ``n + offset + dilation j``, where ``-left <= j <= right``."""

    left: int
    right: int
    offset: int
    dilation: int


class PaddedBlocks(NamedTuple):
    """Some blocks of similar size, padded to the largest of them.

    Attributes:
        targets: (blocks, T) the targets of each block; the last target is repeated as padding.
        sources: (blocks, S) the sources of each block, padded likewise.
        missing: (blocks, S) booleans, true where a source is padding; None if none is.
    """

    targets: Tensor
    sources: Tensor
    missing: Tensor | None


class NodeBlocks(NamedTuple):
    """A partition of M sources and N targets into blocks, from :func:`blocks_of`.

    Attributes:
        padded: the blocks that have sources and targets, grouped by size.
        place: (N,) the position of each target's result in the concatenated results of
            ``padded``; the position after the last one for targets without sources.
        num_sources: M.
    """

    padded: tuple[PaddedBlocks, ...]
    place: Tensor
    num_sources: int


Pairs = Union[BandLimits, NodeBlocks, CSR]  # noqa: UP007
"""The pairs of a target and a source that may have an edge."""

Entries = tuple[CSR, Tensor, Tensor]


def within(band: BandLimits, rows: int, cols: int, device: torch.device) -> Tensor:
    """The pairs within a band, (N, M) booleans."""
    place = torch.arange(max(rows, cols), device=device)
    away = place[:cols] - place[:rows].unsqueeze(-1) - band.offset
    first, last = -band.left * band.dilation, band.right * band.dilation
    return (away >= first) & (away <= last) & (away % band.dilation == 0)


def _entries(pairs: BandLimits | NodeBlocks, query: Tensor, key: Tensor) -> Entries:
    """The pairs sorted by target, with the target and the source of each."""
    rows, cols = query.size(0), key.size(0)
    if isinstance(pairs, BandLimits):
        target, source = within(pairs, rows, cols, query.device).nonzero(as_tuple=True)
    else:
        ends, begin = [(pairs.place[:0], pairs.place[:0])], 0
        for part in pairs.padded:
            number = torch.arange(part.targets.numel(), device=query.device) + begin
            real = pairs.place[part.targets] == number.view_as(part.targets)
            seen = real.unsqueeze(2).expand(-1, -1, part.sources.size(1))
            seen = seen if part.missing is None else seen & ~part.missing.unsqueeze(1)
            block, row, col = seen.nonzero(as_tuple=True)
            ends.append((part.targets[block, row], part.sources[block, col]))
            begin += part.targets.numel()
        target, source = (torch.cat(end) for end in zip(*ends, strict=True))
        order = target.argsort(stable=True)
        target, source = target[order], source[order]
    ptr = F.pad(target.bincount(minlength=rows).cumsum(0), (1, 0))
    return CSR.of(ptr, source, cols), target, source


class Softmax(NamedTuple):
    """How scores of pairs become shares.

    Attributes:
        source_mask: (M, H) or (M, 1) booleans, true for the sources that are attended to, or None.
        scale: the factor of scores.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
    """

    source_mask: Tensor | None
    scale: float
    dropout_p: float


def _along_edges(pairs: Pairs, softmax: Softmax, seed: Tensor | None, *operands: Any) -> Tensor:
    """Attention along edges alone, of queries, keys, values, and a bias if there is one."""
    query, key, value, bias = (*operands, None)[:4]
    entries, of_pair = pairs, bias
    if not isinstance(entries, CSR):
        entries, target, source = _entries(entries, query, key)
        if bias is not None:
            of_pair = bias.to(query.dtype)[target, source]
        if softmax.source_mask is not None:
            none = query.new_zeros(()) if of_pair is None else of_pair
            seen = softmax.source_mask.expand(-1, query.size(1))[source]
            of_pair = torch.where(seen, none, -torch.inf)
    with seeded(seed):
        attention = Attention(query, key, value, of_pair, softmax.scale, False)
        return attend_kept(entries, attention, softmax.dropout_p)


def over_pairs(
    product: Callable[..., Tensor],
    pairs: Pairs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    softmax: Softmax,
) -> Tensor:
    """Attention (N, H, V) by ``product`` where its operands are finite, or by edges.

    ``product`` takes queries (N, H, D), keys (M, H, D), values (M, H, V), and the bias if there is
    one: (N, M, H), or (E, H) of a list, where -inf says that a pair has no edge.
    """
    operands = query, key, value
    if is_transformed(*operands, bias):
        seed = drawn_seed() if softmax.dropout_p > 0 else None
        mask = softmax.source_mask

        def by_edges(*tensors: Tensor) -> Tensor:
            tensors, own = (tensors, mask) if mask is None else (tensors[:-1], tensors[-1])
            return _along_edges(pairs, softmax._replace(source_mask=own), seed, *tensors)

        return over_all_pairs_below(product, by_edges, *operands, bias=bias, mask=mask)
    if is_recorded():
        return _recorded(product, pairs, *operands, bias, softmax)
    if not can_look(*operands, bias):
        return product(*(x for x in (*operands, bias) if x is not None))
    along = partial(_along_edges, pairs, softmax, None)
    return over_all_pairs(product, along, *operands, bias=bias)


def drawn_seed() -> Tensor:
    """A seed of dropout, the same for all items of a batch that ``torch.func`` hides."""
    with lasting():
        return torch.randint(2**62, ())


@contextmanager
def seeded(seed: Tensor | None) -> Iterator[None]:
    """Draw the same shares in both passes, and leave torch's own generators as they are."""
    with torch.random.fork_rng(enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(int(seed))
        yield


# Where a compiler or a tracer sees a product over all pairs, one node looks at its numbers --------


def is_recorded() -> bool:
    """Whether a compiler or torch.jit records a call, which is not differentiated forwards."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return recorded and forward_ad._current_level < 0


def _recorded(
    product: Callable[..., Tensor],
    pairs: Pairs,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    softmax: Softmax,
) -> Tensor:
    """``product(query, key, value)``, or with the bias, if these are finite, else by edges.

    The product multiplies zeros in the place of numbers that are not finite. One operator, and one
    backwards, looks at the numbers when the recorded call runs, and goes by edges if it must.
    """
    operands = [x for x in (query, key, value, bias) if x is not None]
    looked = [query, key, value]
    if bias is not None and bias.numel():
        looked.append(bias.amax())
    finite = torch.stack([_is_finite(x.detach()) for x in looked]).all()
    out = product(*[torch.where(finite, x, torch.zeros_like(x)) for x in operands])
    seed = torch.randint(2**62, ()) if softmax.dropout_p > 0 else None
    how = *_as_operands(pairs), finite, seed, *softmax
    return _Mended.apply(out, query, key, value, bias, how)  # type: ignore[no-any-return]


def _is_finite(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dtype=accumulator(x.dtype)).isfinite()


def _as_operands(pairs: Pairs) -> tuple[list[Tensor], list[int]]:
    """Pairs as tensors and numbers, which operators of torch take; see :func:`_of_operands`."""
    tensors: list[Tensor] = []
    if isinstance(pairs, BandLimits):
        numbers = list(pairs)
    elif isinstance(pairs, CSR):
        tensors, numbers = [pairs.ptr, pairs.index], [pairs.shape[1]]
    else:
        tensors, numbers = [pairs.place], [pairs.num_sources]
        none = torch.empty(0, dtype=torch.bool, device=pairs.place.device)
        for targets, sources, missing in pairs.padded:
            tensors += [targets, sources, none if missing is None else missing]
    # A tracer's sizes are tensors, which no list of integers holds.
    return tensors, [int(x) for x in numbers] if torch.jit.is_tracing() else numbers


def _of_operands(tensors: Sequence[Tensor], numbers: Sequence[int]) -> Pairs:
    if len(numbers) > 1:
        return BandLimits(*numbers)
    if len(tensors) == 2:
        return CSR.of(tensors[0], tensors[1], numbers[0])
    place, *parts = tensors
    of_each = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    padded = [PaddedBlocks(t, s, missing if missing.numel() else None) for t, s, missing in of_each]
    return NodeBlocks(tuple(padded), place, numbers[0])


class _Mended(Primitive):
    """The result of a product over all pairs, computed by edges if its operands are not finite."""

    operands = 5

    @staticmethod
    def forward(
        out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        how: tuple[Any, ...],
    ) -> Tensor:
        return _mended(out, query, key, value, bias, *how)  # type: ignore[no-any-return]

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        ctx.save_for_backward(*operands[1:])

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *operands, bias = ctx.saved_tensors
        gradients = _mended_gradients(grad, *operands, bias, *ctx.rest[0])
        return *gradients, *(() if bias is not None else (None,))

    # It has no tangent: forward mode goes through the product.


def _run(out: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Any, *how: Any) -> Tensor:
    tensors, numbers, finite, seed, *softmax = how
    if bool(finite):
        return out.clone(memory_format=torch.contiguous_format)
    settings = _of_operands(tensors, numbers), Softmax(*softmax), seed
    with without_autocast(query.device.type):
        out_by_edges = _along_edges(*settings, query, key, value, bias)
    return out_by_edges.to(out.dtype).contiguous()


def _run_backward(grad: Tensor, *arguments: Any) -> list[Tensor]:
    """The gradients of the product's result, which are finite, and of the operands by edges."""
    *operands, tensors, numbers, finite, seed, mask, scale, dropout_p = arguments
    operands = [x for x in operands if x is not None]
    if bool(finite) and are_finite(grad):
        return [grad.clone(memory_format=torch.contiguous_format), *map(_zeros_like, operands)]
    wild, tame = parted(grad) if bool(finite) else (grad, torch.zeros_like(grad))
    softmax = Softmax(mask, scale, dropout_p)
    along = partial(_along_edges, _of_operands(tensors, numbers), softmax, seed)
    with within_operator(), without_autocast(grad.device.type):
        wanted = (True,) * len(operands)
        gradients = gradients_of(along, wanted)(*operands, wild.to(operands[2].dtype))
    return [tame.contiguous(), *(x.contiguous() for x in gradients)]


def _zeros_like(x: Tensor) -> Tensor:
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor[] tensors, SymInt[] numbers, "
    "Tensor finite, Tensor? seed, Tensor? source_mask, float scale, float dropout_p"
)
_mended = torch.library.custom_op(
    "pyg_outerconv::mended",
    _run,
    mutates_args=(),
    schema=f"(Tensor out, {_ARGUMENTS}) -> Tensor",
    **unsafe_to_capture(),
)
_mended.register_fake(lambda out, *_: out.new_empty(out.shape))
_mended_gradients = torch.library.custom_op(
    "pyg_outerconv::mended_gradients",
    _run_backward,
    mutates_args=(),
    schema=f"(Tensor grad, {_ARGUMENTS}) -> Tensor[]",
    **unsafe_to_capture(),
)
_mended_gradients.register_fake(
    lambda *arguments: [x.new_empty(x.shape) for x in arguments[:5] if x is not None]
)


# Along a list of entries --------------------------------------------------------------------------


@typed
def attend(
    csr: CSR,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    *,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention in which row r attends to the columns of its entries.

    ``score[e, h] = scale <query[row of e, h, :], key[col of e, h, :]> + bias[e, h]``,
    ``out[r, h, :] = sum_{e in row r} softmax_r(score)[e, h] value[col of e, h, :]``
    (Vaswani et al., *Attention Is All You Need*, equation 1, on a sparse support). No tensor of
    entries × channels is held; differentiable in all tensors any number of times.

    Args:
        csr: the places of the E entries of the R × C support.
        query: (R, H, D).
        key: (C, H, D).
        value: (C, H, V).
        bias: (E, H) or (E,), added to the scores, in row order; -inf excludes an entry.
        scale: the factor of scores; 1/√D if None.

    Returns:
        (R, H, V); zeros for rows without entries, or whose entries are all excluded.

    Raises:
        ValueError: the shapes do not fit, or no backend can serve the call.
        TypeError: the operands have different dtypes.
    """
    check_order("attend", csr)
    operands = agreeing("attend", csr.ptr, query, key, value, bias)
    query, key, value, bias = operands  # type: ignore[assignment]
    rows, cols = csr.shape
    fits = (
        query.dim() == key.dim() == value.dim() == 3
        and query.shape[1:] == key.shape[1:]
        and (query.size(0), key.size(0)) == (rows, cols)
        and key.shape[:2] == value.shape[:2]
    )
    if not fits:
        raise RefusedValue(
            "attend needs queries for rows, keys and values for columns",
            f"({rows}, H, D), ({cols}, H, D) and ({cols}, H, V)",
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}",
        )
    if bias is not None:
        bias = one_value_an_entry("attend", bias, csr.num_entries)
        if bias.size(1) not in (1, query.size(1)):
            raise RefusedValue("attend needs a bias for each head", query.size(1), bias.size(1))
        bias = bias.expand(-1, query.size(1))
    scale = scale_of(query, scale)
    if bias is None or are_finite(bias):
        return fused(csr, Attention(query, key, value, bias, scale, False))

    def product(q: Tensor, k: Tensor, v: Tensor, b: Tensor) -> Tensor:
        return fused(csr, Attention(q, k, v, b, scale, False))

    return over_pairs(product, csr, query, key, value, bias, Softmax(None, scale, 0.0))
