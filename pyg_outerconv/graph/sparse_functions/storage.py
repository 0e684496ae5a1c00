"""Memory that is shared between processes, and new tensors like sparse features.

PyG's loaders allocate the memory of a result where a worker process asks for it, and pass it as
``out=``. Sparse features have no single storage: a result of unknown entries is put into the tensor
that such an allocation returns, and its tensors are shared when it is sent to the main process.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from ...errors import RefusedType, RefusedValue
from ..sparse_features import SparseFeatures, features_of
from ..sparse_matrix import SparseMatrix
from ..sparse_patterns import pattern_of
from .table import rule_for


class NoStorage(torch.UntypedStorage):
    """The storage of sparse features: of no bytes, whatever is allocated like it."""

    @classmethod
    def _new_shared(cls, size: int, *, device: Any = "cpu") -> NoStorage:
        return cls()


@rule_for(Tensor.untyped_storage)
def untyped_storage(x: SparseFeatures) -> NoStorage:
    """No bytes."""
    return NoStorage()


@rule_for(Tensor.new)
def new(x: SparseFeatures, *args: Any, **kwargs: Any) -> Any:
    """A tensor to be filled, of the storage of sparse features; else a dense one."""
    if args and isinstance(args[0], NoStorage):
        return unfilled(x, 0, 0)
    return x.value.detach().new(*args, **kwargs)


def unfilled(like: SparseFeatures, rows: int, columns: int) -> SparseFeatures:
    """Sparse features (rows, columns) without entries."""
    place = torch.empty(0, dtype=torch.int64, device=like.value.device)
    matrix = SparseMatrix(pattern_of(place, (rows, columns)), like.value.detach()[:0])
    out = features_of(matrix)
    out.is_unfilled = True
    return out


@rule_for(Tensor.resize_, Tensor.view, Tensor.reshape)
def shaped(x: SparseFeatures, *size: Any, **kwargs: Any) -> Any:
    """Any shape of a tensor to be filled; else that of X itself."""
    shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    if x.is_unfilled and len(shape) == 2 and all(isinstance(n, int) and n >= 0 for n in shape):
        return unfilled(x, *shape)
    rows, columns = x.sparsity.shape
    if len(shape) == 2 and kwargs == {} and _solved(shape, rows * columns) == (rows, columns):
        return features_of(x.matrix, is_copy=x.is_copy)
    return NotImplemented


def _solved(shape: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    """A shape with a number in place of −1."""
    if shape.count(-1) != 1:
        return shape
    known = prod(n for n in shape if n != -1)
    return tuple(count // max(1, known) if n == -1 else n for n in shape)


def fill(out: SparseFeatures, found: SparseFeatures) -> SparseFeatures:
    """The result in the tensor that was allocated for it.

    Raises:
        TypeError: ``out`` holds features already.
        ValueError: it has another shape or dtype.
    """
    if not out.is_unfilled:
        rule = "out= takes sparse features that were allocated for a result"
        raise RefusedType(rule, "the function without out=", out)
    if out.shape != found.shape or out.dtype != found.dtype:
        raise RefusedValue("out= has the shape and type of the result", found, out)
    out.matrix, out.is_unfilled = found.matrix, False
    return out


# New dense tensors -------------------------------------------------------------------------------

_NEW = (Tensor.new_empty, Tensor.new_full, Tensor.new_ones, Tensor.new_tensor, Tensor.new_zeros)
_LIKE: dict[Any, Any] = {
    torch.empty_like: Tensor.new_empty,
    torch.full_like: Tensor.new_full,
    torch.ones_like: Tensor.new_ones,
    torch.zeros_like: Tensor.new_zeros,
}
_DRAWN: dict[Any, Any] = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}


def _register() -> None:
    for function in _NEW:

        def make(x: Any, *args: Any, function: Any = function, **kwargs: Any) -> Any:
            if not isinstance(x, SparseFeatures):
                return NotImplemented
            return function(x.value.detach(), *args, **kwargs)

        rule_for(function)(make)
    for function, of_shape in _LIKE.items():

        def like(x: Any, *args: Any, of_shape: Any = of_shape, **kwargs: Any) -> Any:
            kwargs.pop("memory_format", None)
            return of_shape(x.value.detach(), tuple(x.shape), *args, **kwargs)

        rule_for(function)(like)
    for function, of_shape in _DRAWN.items():

        def drawn(x: Any, of_shape: Any = of_shape, **kwargs: Any) -> Any:
            kwargs.pop("memory_format", None)
            return of_shape(tuple(x.shape), **{"dtype": x.dtype, "device": x.device, **kwargs})

        rule_for(function)(drawn)


_register()


for _function, _of_shape in (
    (Tensor.expand_as, Tensor.expand),
    (Tensor.view_as, Tensor.view),
    (Tensor.reshape_as, Tensor.reshape),
):

    def shaped_as(x: Any, other: Any, of_shape: Any = _of_shape) -> Any:
        """A dense tensor in the shape of sparse features."""
        return NotImplemented if isinstance(x, SparseFeatures) else of_shape(x, tuple(other.shape))

    rule_for(_function)(shaped_as)
