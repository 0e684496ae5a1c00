"""Images as node features and back: the numbering ω of the cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from ..errors import RefusedValue, refusal


def flatten_grid(images: Tensor) -> Tensor:
    r"""Flatten images into node features, the last axis running fastest.

    .. math:: \omega(i_1, \dots, i_D) = (\dots(i_1 M_2 + i_2) M_3 + \dots) M_D + i_D

    The mapping ω of section 3.2 of `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_, whose indices start at 1. A view where the images are
    contiguous.

    Args:
        images: (B, P, \*shape), as torch's convolutions take them.

    Returns:
        (B, M, P), with M the product of ``shape``.

    Raises:
        ValueError: the images have no axis besides batch and channels.
    """
    if images.dim() < 3:
        raise RefusedValue(
            refusal("images have grid axes", "shape (B, P, *shape)", tuple(images.shape))
        )
    return images.flatten(2).transpose(1, 2)


def unflatten_grid(nodes: Tensor, shape: Sequence[int]) -> Tensor:
    r"""Reshape node features into images: the inverse of :func:`flatten_grid`.

    Args:
        nodes: (B, N, Q), as layers return them; the result is a view where possible.
        shape: the number of cells on each axis.

    Returns:
        (B, Q, \*shape).

    Raises:
        ValueError: N is not the number of cells of the shape.
    """
    if nodes.dim() != 3 or nodes.size(1) != prod(shape) or not shape:
        raise RefusedValue(
            refusal(
                "a grid has one node per cell",
                f"shape (B, {prod(shape)}, Q) for {tuple(shape)}",
                tuple(nodes.shape),
            )
        )
    return nodes.transpose(1, 2).unflatten(2, tuple(shape))
