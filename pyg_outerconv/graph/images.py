"""Images as nodes: the numbering ω of the cells of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from ..errors import RefusedValue, refusal


def flatten_grid(images: Tensor) -> Tensor:
    r"""The cells of images as nodes, the last axis running fastest.

    .. math:: \omega(i_1, \dots, i_D) = (\dots(i_1 M_2 + i_2) M_3 + \dots) M_D + i_D

    The mapping ω of section 3.2 of `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_, whose indices start at 1. A view where the images are
    contiguous.

    Args:
        images: (B, P, \*shape), as torch's convolutions take them.

    Returns:
        (B, M, P), with M the product of ``shape``.

    Raises:
        ValueError: there is no axis besides batch and channels.
    """
    if images.dim() < 3:
        raise RefusedValue(refusal("images have axes", "shape (B, P, *shape)", tuple(images.shape)))
    return images.flatten(2).transpose(1, 2)


def unflatten_grid(nodes: Tensor, shape: Sequence[int]) -> Tensor:
    r"""Nodes as images again: the inverse of :func:`flatten_grid`.

    Args:
        nodes: (B, N, Q), as layers return them; a view of it is returned where one exists.
        shape: the number of cells on each axis.

    Returns:
        (B, Q, \*shape).

    Raises:
        ValueError: there are not as many nodes as cells of the shape.
    """
    if nodes.dim() != 3 or nodes.size(1) != prod(shape) or not shape:
        raise RefusedValue(
            refusal(
                "nodes of a grid are its cells",
                f"shape (B, {prod(shape)}, Q) for {tuple(shape)}",
                tuple(nodes.shape),
            )
        )
    return nodes.transpose(1, 2).unflatten(2, tuple(shape))
