"""Blocks whose attention is local: windows of images, and long sequences."""

from __future__ import annotations

from typing import Any

from ...attention import RelativeBias
from ...equations import row
from ...families import Blocks, Family, GlobalTokens, RandomLinks, SlidingWindow
from ...families import Union as UnionOf
from ...graph.checks import check_positive
from ...signatures import typed
from .blocks import EncoderBlock


@typed
@row("Ready-made layers", "2103.14030", "")
def windowed_block(
    channels: int,
    heads: int,
    window: int | tuple[int, ...] = 7,
    shift: int | tuple[int, ...] = 0,
    relative: bool = True,
    dim: int = 2,
    **options: Any,
) -> EncoderBlock:
    """An encoder block on a grid with attention within windows.

    From the `"Swin Transformer" <https://arxiv.org/abs/2103.14030>`_ paper (sections 3.1 and 3.2):
    norms first, GELU, and a learned bias of each head for each relative position. In the paper,
    shifts of 0 and of half a window alternate. Windows are cut at the borders; see
    :class:`~pyg_outerconv.families.Blocks`.

    >>> import torch
    >>> from pyg_outerconv import Cells, flatten_grid
    >>> block, images = windowed_block(8, 2, window=4, shift=2), torch.randn(3, 8, 12, 16)
    >>> block(flatten_grid(images), Cells.of_shape((12, 16))).shape
    torch.Size([3, 192, 8])

    Args:
        channels: P.
        heads: H.
        window: cells of a window along all axes, or along each.
        shift: cells by which windows are shifted, along all axes or along each.
        relative: whether scores have a bias for relative positions.
        dim: number of axes of the grid, if ``window`` is one number.
        **options: options of :class:`EncoderBlock`.
    """
    sizes = window if isinstance(window, tuple) else (window,) * dim
    for size in sizes:
        check_positive("a windowed block", window=size)
    moved = shift if isinstance(shift, tuple) else (shift,) * len(sizes)
    terms = (RelativeBias(heads, tuple(size - 1 for size in sizes)),) if relative else ()
    options = {"norm_first": True, "activation": "gelu", "terms": terms, **options}
    return EncoderBlock(channels, heads, support=Blocks(sizes, moved), **options)


@typed
@row("Ready-made layers", "2004.05150", "")
def long_sequence_block(
    channels: int,
    heads: int,
    window: int,
    num_global: int = 0,
    num_random: int = 0,
    dilation: int = 1,
    **options: Any,
) -> EncoderBlock:
    """An encoder block on sequences with sliding windows, global tokens and random links.

    From the `"Longformer" <https://arxiv.org/abs/2004.05150>`_ paper (section 3.1), or with random
    links that of the `"Big Bird" <https://arxiv.org/abs/2007.14062>`_ paper (section 2). Global
    tokens have the same projections as others. Work and memory are linear in the length.

    >>> import torch
    >>> long_sequence_block(8, 2, window=3, num_global=1)(torch.randn(2, 50, 8)).shape
    torch.Size([2, 50, 8])

    Args:
        channels: P.
        heads: H.
        window: sources on each side of a target; half of a window in Longformer.
        num_global: number of the first tokens that are sources and targets of all.
        num_random: number of random sources of each target.
        dilation: distance between neighbours in a window.
        **options: options of :class:`EncoderBlock`.
    """
    parts: list[Family] = [SlidingWindow(window, dilation)]
    parts += [GlobalTokens(num_global)] if num_global else []
    parts += [RandomLinks(num_random)] if num_random else []
    support = parts[0] if len(parts) == 1 else UnionOf(*parts)
    return EncoderBlock(channels, heads, support=support, **options)
