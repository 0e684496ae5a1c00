"""Attention by edges, of a band or a list, where numbers are not finite; compiled too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from .absent_pairs import are_finite, parted
from .attend_entries import attend_kept, attend_kept_gradients
from .band import BandLimits
from .csr import CSR
from .lasting import lasting
from .primitive import Primitive, without_autocast
from .tiles import accumulator

_Entries = tuple[CSR, Tensor, Tensor]


def within(band: BandLimits, rows: int, cols: int, device: torch.device) -> Tensor:
    """The pairs within a band, (N, M) booleans."""
    place = torch.arange(max(rows, cols), device=device)
    away = place[:cols] - place[:rows].unsqueeze(-1) - band.offset
    first, last = -band.left * band.dilation, band.right * band.dilation
    return (away >= first) & (away <= last) & (away % band.dilation == 0)


def by_edges(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    band: BandLimits,
    source_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """Attention within a band, (N, H, V), which touches no other pair.

    Args:
        query: (N, H, D).
        key: (M, H, D).
        value: (M, H, V).
        bias: (N, M, H) or None; -inf says that a pair has no edge.
        band: the pairs that may have an edge.
        source_mask: (M, H) booleans or None.
        scale: the factor of scores.
        dropout_p: p, with which a share becomes zero; the others are multiplied by 1 / (1 - p).
    """
    entries, of_pair, _ = _entries(query, key, bias, band, source_mask)
    return attend_kept(entries, query, key, value, of_pair, scale, dropout_p)


def _entries(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    band: BandLimits,
    source_mask: Tensor | None,
    ptr: Tensor | None = None,
    index: Tensor | None = None,
) -> tuple[CSR, Tensor | None, tuple[Tensor, Tensor] | None]:
    """The pairs of a band, or listed ones, their bias, and their places in a bias of all pairs."""
    if ptr is not None and index is not None:
        return CSR.of(ptr, index, key.size(0)), bias, None
    entries, target, source = _pairs(query, key, band)
    of_pair = None
    if bias is not None or source_mask is not None:
        of_pair = _of_pairs(bias, source_mask, target, source, query)
    return entries, of_pair, (target, source)


def _pairs(query: Tensor, key: Tensor, band: BandLimits) -> _Entries:
    """The pairs within a band, sorted by target, with their targets and their sources."""
    pairs = within(band, query.size(0), key.size(0), query.device)
    target, source = pairs.nonzero(as_tuple=True)
    ptr = F.pad(pairs.sum(1).cumsum(0), (1, 0))
    return CSR.of(ptr, source, key.size(0)), target, source


def _of_pairs(
    bias: Tensor | None, source_mask: Tensor | None, target: Tensor, source: Tensor, like: Tensor
) -> Tensor:
    """The bias of each pair and head, (E, H); -inf for sources that the mask excludes."""
    of_pair = like.new_zeros(()) if bias is None else bias.to(like.dtype)[target, source]
    if source_mask is None:
        return of_pair
    return torch.where(source_mask[source], of_pair, -torch.inf)


# Where a compiler or a tracer sees a product over all pairs, one node looks at its numbers --------


def is_recorded() -> bool:
    """Whether a compiler or torch.jit records a call, which is not differentiated forwards."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
    return recorded and forward_ad._current_level < 0


def mended(
    product: Callable[..., Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    pairs: BandLimits | CSR,
    source_mask: Tensor | None,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """``product(query, key, value)``, or with the bias, if these are finite, else by edges.

    The product multiplies zeros in the place of numbers that are not finite. One operator, and one
    backwards, looks at the numbers when the recorded call runs, and goes by edges if it must.
    """
    operands = tuple([x for x in (query, key, value, bias) if x is not None])
    highest = bias.detach().amax() if bias is not None and bias.numel() else None
    looked = [x for x in (query, key, value, highest) if x is not None]
    finite = torch.stack([_is_finite(x.detach()) for x in looked]).all()
    out = product(*[torch.where(finite, x, torch.zeros_like(x)) for x in operands])
    seed = torch.randint(2**62, ()) if dropout_p > 0 else None
    if isinstance(pairs, CSR):  # which has no mask
        listed: tuple[Tensor | None, ...] = pairs.ptr, pairs.index
        band = BandLimits(0, 0, 0, 1)
    else:
        listed, band = (None, None), pairs
    given = source_mask, *listed, finite, seed, scale, dropout_p, *band
    return _Mended.apply(out, query, key, value, bias, *given)  # type: ignore[no-any-return]


def _is_finite(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dtype=accumulator(x.dtype)).isfinite()


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
        source_mask: Tensor | None,
        ptr: Tensor | None,
        index: Tensor | None,
        finite: Tensor,
        seed: Tensor | None,
        scale: float,
        dropout_p: float,
        left: int,
        right: int,
        offset: int,
        dilation: int,
    ) -> Tensor:
        beside = source_mask, ptr, index, finite, seed, scale, dropout_p
        limits = left, right, offset, dilation
        return _mended(out, query, key, value, bias, *beside, *limits)  # type: ignore[no-any-return]

    @staticmethod
    def keep(ctx: Any, operands: Any, output: Any) -> None:
        ctx.save_for_backward(*operands[1:])

    @staticmethod
    def gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias = ctx.saved_tensors
        found = _mended_gradients(grad, query, key, value, bias, *ctx.rest)
        return *found, *(() if bias is not None else (None,))

    # It has no tangent: forward mode goes through the product.


def _run(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    source_mask: Tensor | None,
    ptr: Tensor | None,
    index: Tensor | None,
    finite: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    left: int,
    right: int,
    offset: int,
    dilation: int,
) -> Tensor:
    if bool(finite):
        return out.clone(memory_format=torch.contiguous_format)
    band = BandLimits(left, right, offset, dilation)
    entries, of_pair, _ = _entries(query, key, bias, band, source_mask, ptr, index)
    with seeded(seed), without_autocast(query.device.type):
        found = attend_kept(entries, query, key, value, of_pair, scale, dropout_p)
        return found.to(out.dtype).contiguous()


def _run_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    source_mask: Tensor | None,
    ptr: Tensor | None,
    index: Tensor | None,
    finite: Tensor,
    seed: Tensor | None,
    scale: float,
    dropout_p: float,
    left: int,
    right: int,
    offset: int,
    dilation: int,
) -> list[Tensor]:
    """The gradients of the product's result, which are finite, and of the operands by edges."""
    operands = [x for x in (query, key, value, bias) if x is not None]
    if bool(finite) and are_finite(grad):
        return [grad.clone(memory_format=torch.contiguous_format), *map(_zeros_like, operands)]
    wild, tame = parted(grad) if bool(finite) else (grad, torch.zeros_like(grad))
    band = BandLimits(left, right, offset, dilation)
    entries, of_pair, place = _entries(query, key, bias, band, source_mask, ptr, index)
    with seeded(seed), without_autocast(query.device.type):
        *found, of_bias = attend_kept_gradients(
            entries, query, key, value, of_pair, scale, dropout_p, wild
        )
    if bias is not None:
        of_bias = of_bias.to(bias.dtype)
        found.append(of_bias if place is None else torch.zeros_like(bias).index_put(place, of_bias))
    return [tame.contiguous(), *(x.contiguous() for x in found)]


def _zeros_like(x: Tensor) -> Tensor:
    return torch.zeros_like(x, memory_format=torch.contiguous_format)


def drawn_seed() -> Tensor:
    """A seed of dropout, the same for all items of a batch that ``torch.func`` hides."""
    with lasting():
        return torch.randint(2**62, ())


def seeded(seed: Tensor | None) -> AbstractContextManager[Any]:
    """Draw the same shares in both passes, and leave torch's own generators as they are."""
    return nullcontext() if seed is None else _Seeded(seed)


class _Seeded:
    def __init__(self, seed: Tensor) -> None:
        self._seed, self._forked = seed, torch.random.fork_rng()

    def __enter__(self) -> None:
        self._forked.__enter__()
        torch.manual_seed(int(self._seed))

    def __exit__(self, *error: Any) -> None:
        self._forked.__exit__(*error)


_mended = torch.library.custom_op("pyg_outerconv::mended", _run, mutates_args=())
_mended.register_fake(lambda out, *_: out.new_empty(out.shape))
_mended_gradients = torch.library.custom_op(
    "pyg_outerconv::mended_gradients", _run_backward, mutates_args=()
)


@_mended_gradients.register_fake
def _sizes_of_gradients(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *_: Any
) -> list[Tensor]:
    operands = [x for x in (grad, query, key, value, bias) if x is not None]
    return [x.new_empty(x.shape) for x in operands]
