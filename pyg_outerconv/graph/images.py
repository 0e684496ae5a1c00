"""Images as node features, and unfoldings of tensors as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from ..errors import RefusedIndex, RefusedValue
from ..signatures import typed


@typed
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
        raise RefusedValue("images have grid axes", "shape (B, P, *shape)", tuple(images.shape))
    return images.flatten(2).transpose(1, 2)


@typed
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
            "a grid has one node per cell",
            f"shape (B, {prod(shape)}, Q) for {tuple(shape)}",
            tuple(nodes.shape),
        )
    return nodes.transpose(1, 2).unflatten(2, tuple(shape))


@typed
def unfold(x: Tensor, mode: int, *, batch_dims: int = 0, first_fastest: bool = False) -> Tensor:
    r"""The mode-n unfolding of a tensor: one axis as the rows, all others as the columns.

    .. math:: X_{(n)}[i_n, j] = X[i_1, \dots, i_D], \qquad j = \omega(\text{the other indices})

    Section 2.4 of `"Tensor Decompositions and Applications"
    <https://doi.org/10.1137/07070111X>`_, whose modes count from 1 where axes here count from 0:
    the unfolding of an image h × w × c along mode 3, a matrix c × hw, is ``unfold(image, 2)``, or
    ``unfold(image, -1)``, which is right for videos too; of c × h × w it is ``unfold(image, 0)``.

    The order of columns is a convention. Here the last of the other axes runs fastest, as cells
    are numbered everywhere in this package: column j is node j of ``flatten_grid``, so that
    ``unfold(image, 0).T`` of channels × cells are its features. In the paper the first axis runs
    fastest: ``first_fastest=True``.

    This is not torch's ``unfold``, which makes windows.

    Args:
        x: (\*batch, I_1, …, I_D).
        mode: n, the number of an axis from 0 to D - 1; negative from the end.
        batch_dims: the number of leading axes that stay as they are.
        first_fastest: whether the first of the other axes runs fastest along columns.

    Returns:
        (\*batch, I_n, J), J the product of the other axes; a view where one exists, as of a
        contiguous x with its first or last axis as the mode.

    Raises:
        TypeError: an argument that counts axes is not an integer.
        ValueError: x has fewer axes than ``batch_dims``, or no other.
        IndexError: there is no axis ``mode``.

    >>> import torch
    >>> unfold(torch.arange(6).view(3, 2), 1).tolist()  # three cells of two channels
    [[0, 2, 4], [1, 3, 5]]
    """
    order = _order(x.dim() - _count(batch_dims, x.dim()), mode, first_fastest)
    permuted = x.permute(*range(batch_dims), *(batch_dims + axis for axis in order))
    rows = batch_dims + 1
    return permuted.reshape(*permuted.shape[:rows], prod(permuted.shape[rows:]))


@typed
def fold(
    matrix: Tensor,
    mode: int,
    shape: Sequence[int],
    *,
    batch_dims: int = 0,
    first_fastest: bool = False,
) -> Tensor:
    r"""Fold a matrix into a tensor: the inverse of :func:`unfold`.

    Args:
        matrix: (\*batch, I_n, J).
        mode, batch_dims, first_fastest: as for :func:`unfold`.
        shape: I_1, …, I_D.

    Returns:
        (\*batch, I_1, …, I_D), a view where one exists.

    Raises:
        TypeError: an argument that counts axes is not an integer.
        ValueError: the matrix does not have the size of the unfolding, or ``shape`` has no axis.
        IndexError: there is no axis ``mode``.

    >>> import torch
    >>> fold(torch.tensor([[0, 2, 4], [1, 3, 5]]), 1, (3, 2)).tolist()
    [[0, 1], [2, 3], [4, 5]]
    """
    order = _order(len(shape), mode, first_fastest)
    sizes = [shape[axis] for axis in order]
    wanted = (sizes[0], prod(sizes[1:]))
    batch_dims = _count(batch_dims, matrix.dim())
    if tuple(matrix.shape[batch_dims:]) != wanted:
        raise RefusedValue(
            f"the unfolding of a tensor of {tuple(shape)} along axis {mode} has a size",
            wanted,
            tuple(matrix.shape[batch_dims:]),
        )
    back = sorted(range(len(order)), key=order.__getitem__)
    tensor = matrix.reshape(*matrix.shape[:batch_dims], *sizes)
    return tensor.permute(*range(batch_dims), *(batch_dims + axis for axis in back))


def _order(axes: int, mode: int, first_fastest: bool) -> list[int]:
    """The axis ``mode``, then the other axes, slowest first."""
    if axes < 1:
        raise RefusedValue("a tensor to unfold has axes", ">= 1 beside the batch", axes)
    if not -axes <= mode < axes:
        raise RefusedIndex("a mode is one of the axes", f"[{-axes}, {axes})", mode)
    others = [axis for axis in range(axes) if axis != mode % axes]
    return [int(mode) % axes, *(reversed(others) if first_fastest else others)]


def _count(batch_dims: int, axes: int) -> int:
    if not 0 <= batch_dims <= axes:
        raise RefusedValue("leading axes stay as they are", f"[0, {axes}]", batch_dims)
    return batch_dims
