"""Caches: by the identity of tensors, by value, and in the attributes of an object.

A result is cached for a tensor as long as that tensor is the same object and shows no change:

- On every device, changes that autograd counts are noticed (``index[0, 0] = 3``,
  ``weight.mul_(2)``), and so are new memory, a new shape or a new stride (``index.data = other``).
- On a CPU, a change that autograd does not count (``index.data[...] = 3``, a write through numpy or
  by another process that shares the memory) is noticed if it changes bytes that are compared: all
  bytes of a tensor of up to 32 KiB (2048 edges of int64); of a larger tensor 512 evenly spaced
  blocks of 64 bytes (4096 numbers of int64).
- Such a change is not noticed on CUDA, where reading would wait for the device, nor on a CPU where
  it misses the blocks of a larger tensor. Write to the tensor itself, or call :func:`clear_caches`
  afterwards.

Tensors of inference mode do not count changes, so nothing is cached for them. Nothing is cached
under torch.compile and torch.export either, where a result is part of the graph, nor in forward
mode, where a result has tangents.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, overload

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch_geometric import EdgeIndex
from typing_extensions import Self

from .kernels.index_checks import PLAIN
from .kernels.lasting import lasting

T = TypeVar("T")

LINES, LINE = 512, 64  # blocks of a large tensor that are compared, and bytes in a block
TENSORS = 1024  # tensors for which one cache holds results, at most
EACH = 16  # results that are cached for one tensor, at most

_caches: weakref.WeakSet[Any] = weakref.WeakSet()


def clear_caches() -> None:
    """Empty all caches: of bases, supports, eigenvalues and sorted feature matrices.

    Results in use stay valid. Caches are bounded, and entries are removed with their tensors, so
    call this only to free memory at once, or after changes that go unnoticed (see
    :mod:`pyg_outerconv.cache`).
    """
    for cache in list(_caches):
        cache.clear()


def recall(entries: dict[Any, Any], key: Hashable, make: Callable[[], Any], limit: int) -> Any:
    """``entries[key]``; where it is missing, the result of ``make()``, which is then stored.

    Beyond ``limit`` entries the least recently used one, the first of the dict, is removed. Other
    threads may change the dict between two steps of this function.
    """
    cached = entries.get(key, _MISSING)
    result = make() if cached is _MISSING else cached
    use_last(entries, key, result, limit)
    return result


def use_last(entries: dict[Any, Any], key: Hashable, value: Any, limit: int | None = None) -> None:
    """Move an entry to the end of a dict; beyond ``limit`` entries the first ones are removed."""
    entries.pop(key, None)
    entries[key] = value
    if limit is not None and len(entries) > limit:
        for oldest in list(entries)[: max(0, len(entries) - limit)]:
            entries.pop(oldest, None)


_MISSING = object()


class ValueCache:
    """The most recently used results by a hashable key, for results that depend on no tensor."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[Hashable, Any] = {}
        _caches.add(self)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The cached result; where it is missing, the result of ``make()``, which is cached."""
        return recall(self._entries, key, make, self._limit)

    def clear(self) -> None:
        """Remove all results."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class IdentityCache:
    """Results by the identity of a first tensor (the anchor), of other tensors, and by a key.

    A cached result is returned for the same tensor objects, none of them changed since (see
    :mod:`pyg_outerconv.cache`), and an equal key. A result must not refer to these tensors, or they
    are never freed.

    Entries are removed with their anchor. At most ``each`` results are cached for an anchor, and
    results for at most ``tensors`` anchors; the least recently used are removed first.
    """

    def __init__(self, each: int = EACH, tensors: int = TENSORS) -> None:
        self._each, self._tensors = each, tensors
        self._anchors: dict[int, tuple[weakref.ref[Tensor], dict[Hashable, Any]]] = {}
        _caches.add(self)

    def get(
        self,
        anchor: Tensor,
        others: tuple[Tensor | None, ...],
        key: Hashable,
        make: Callable[[], Any],
    ) -> Any:
        """The cached result; where there is none, the result of ``make()``, which is cached.

        Args:
            anchor: the tensor with which the result is removed.
            others: further tensors that the result depends on, or None in their places.
            key: what else the result depends on.
            make: computes the result.
        """
        if torch.compiler.is_compiling() or forward_ad._current_level >= 0:
            return make()
        tensors = (anchor, *[tensor for tensor in others if tensor is not None])
        for tensor in tensors:
            if tensor.is_inference() or is_functorch_wrapped_tensor(tensor):
                return make()
        anchors, number = self._anchors, id(anchor)
        states = [state_of(tensor) for tensor in tensors]
        entry = anchors.get(number)
        if entry is not None and entry[0]() is anchor:
            cached = entry[1].get(key)
            if cached is not None and cached[0] == states and _are_same(others, cached[1]):
                use_last(anchors, number, entry)
                use_last(entry[1], key, cached)
                return cached[2]
        with lasting(anchor):
            result = make()
        references = [None if tensor is None else weakref.ref(tensor) for tensor in others]
        entry = anchors.get(number)
        if entry is None or entry[0]() is not anchor:
            entry = weakref.ref(anchor, lambda _: anchors.pop(number, None)), {}
        use_last(entry[1], key, (states, references, result), self._each)
        use_last(anchors, number, entry, self._tensors)
        return result

    def clear(self) -> None:
        """Remove all results."""
        self._anchors.clear()

    def __len__(self) -> int:
        return sum(len(results) for _, results in list(self._anchors.values()))


def _are_same(
    tensors: Sequence[Tensor | None], references: Sequence[weakref.ref[Tensor] | None]
) -> bool:
    """Whether the tensors are the objects that the weak references point to."""
    cached = [None if reference is None else reference() for reference in references]
    return all(known is tensor for known, tensor in zip(cached, tensors, strict=True))


def state_of(tensor: Tensor) -> Hashable:
    """A key that changes with the tensor, as the module describes; it never waits for a device."""
    if isinstance(tensor, EdgeIndex):
        tensor = tensor.as_tensor()
    version = tensor._version, tensor.shape
    if tensor.layout is not torch.strided:
        return version, *map(state_of, _parts(tensor))
    if type(tensor) not in PLAIN or is_functorch_wrapped_tensor(tensor):
        return version  # there is no memory to read
    stride = tensor.stride()
    if not tensor.is_cpu:
        return version, tensor.data_ptr(), stride
    count = tensor.nbytes
    if count and not tensor.is_contiguous():
        extent = 1 + sum([(n - 1) * step for n, step in zip(tensor.shape, stride, strict=True)])
        count = extent * tensor.element_size()
    address = tensor.data_ptr()
    few = count <= LINES * LINE
    data = ctypes.string_at(address, count) if few else np.asarray(_Lines(address, count)).tobytes()
    return version, address, stride, data


def _parts(matrix: Tensor) -> tuple[Tensor, ...]:
    """The indices and values of a sparse tensor, as strided tensors."""
    if matrix.layout == torch.sparse_coo:
        return matrix._indices(), matrix._values()
    if matrix.layout in (torch.sparse_csr, torch.sparse_bsr):
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    return matrix.ccol_indices(), matrix.row_indices(), matrix.values()


class _Lines:
    """``LINES`` evenly spaced blocks of ``count`` bytes of memory, as an array that numpy can read.

    A view of the tensor would not do: within ``torch.func`` and modes it is a wrapped tensor.
    """

    def __init__(self, address: int, count: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (address, True),
            "typestr": "|u1",
            "shape": (LINES, LINE),
            "strides": (count // LINES, 1),
        }


class cached_property(Generic[T]):  # noqa: N801
    """A property that is computed at its first use, and then cached in the object.

    The one of ``functools`` takes a lock up to Python 3.11, which torch.compile cannot trace.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self._name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        result = self._make(instance)
        instance.__dict__[self._name] = result  # Python looks it up before this descriptor
        return result
