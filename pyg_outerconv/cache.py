"""What is made once: caches by the identity of tensors, by value, and in an object.

A tensor stands for what was made of it as long as it is the same object, and nothing shows that it
was changed:

- Every change that autograd counts is seen (``index[0, 0] = 3``, ``weight.mul_(2)``), and so are a
  new memory, shape or stride (``index.data = other``), on every device.
- On a CPU a change that autograd does not count (``index.data[...] = 3``, a write through numpy or
  by another process that shares the memory) is seen where it changes one of the numbers that are
  looked at: all of a tensor of up to 32 KiB (2048 edges of int64), of a larger one 512 places of
  64 bytes, evenly spread (4096 numbers of int64).
- Not seen are such a change on CUDA, where looking would wait for the device, and one on a CPU that
  spares the places looked at in a larger tensor. Write to the tensor itself, or call
  :func:`clear_caches` after it.

Tensors of inference mode do not count their changes, and nothing is kept for them. Under
torch.compile and torch.export nothing is kept either: what is made is part of the graph; nor in
forward mode, where it has tangents.
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

LINES, LINE = 512, 64  # lines of memory of a tensor that are looked at, and their bytes
TENSORS = 1024  # for which a cache keeps something
EACH = 16  # things that are kept for one tensor

_caches: weakref.WeakSet[Any] = weakref.WeakSet()


def clear_caches() -> None:
    """Forget every basis, support, eigenvalue and sorted feature matrix that is kept anywhere.

    What is in use stays with those who use it. Caches are bounded, and entries die with their
    tensors; this is for memory that is wanted at once, or after changes that cannot be seen (see
    :mod:`pyg_outerconv.cache`).
    """
    for cache in list(_caches):
        cache.clear()


def recall(entries: dict[Any, Any], key: Hashable, make: Callable[[], Any], limit: int) -> Any:
    """``entries[key]``, or what ``make()`` gives, which is then kept.

    Of more than ``limit`` entries the one goes that was used longest ago: the first of the dict.
    Other threads may be here too: each step finds the dict as it is.
    """
    known = entries.get(key, _NOTHING)
    result = make() if known is _NOTHING else known
    use_last(entries, key, result, limit)
    return result


def use_last(entries: dict[Any, Any], key: Hashable, value: Any, limit: int | None = None) -> None:
    """Make an entry the last of a dict, of which the first ones go beyond ``limit``."""
    entries.pop(key, None)
    entries[key] = value
    if limit is not None and len(entries) > limit:
        for oldest in list(entries)[: max(0, len(entries) - limit)]:
            entries.pop(oldest, None)


_NOTHING = object()


class ValueCache:
    """The last few results by a hashable key: for rules, which no tensor stands for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[Hashable, Any] = {}
        _caches.add(self)

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The kept result, or that of ``make()``, which is then kept; see :func:`recall`."""
        return recall(self._entries, key, make, self._limit)

    def clear(self) -> None:
        """Forget all results."""
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class IdentityCache:
    """Results by the identity of an anchor tensor, of further tensors, and by a hashable key.

    A hit needs the very same tensor objects, no sign that one of them was changed since (this
    module says which signs there are), and an equal key. A result must not refer to the tensors it
    is kept under, or none of them is ever freed.

    Entries die with their anchor. For each anchor the last ``each`` results are kept, and those of
    the last ``tensors`` anchors: what was used longest ago goes first.
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
        """The kept result, or that of ``make()``, which is then kept."""
        if torch.compiler.is_compiling() or forward_ad._current_level >= 0:
            return make()
        tensors = (anchor, *[given for given in others if given is not None])
        for given in tensors:
            if given.is_inference() or is_functorch_wrapped_tensor(given):
                return make()
        anchors, number = self._anchors, id(anchor)
        states = [state_of(given) for given in tensors]
        known = anchors.get(number)
        if known is not None and known[0]() is anchor:
            found = known[1].get(key)
            if found is not None and found[0] == states and _are(others, found[1]):
                use_last(anchors, number, known)
                use_last(known[1], key, found)
                return found[2]
        with lasting(anchor):
            result = make()
        ends = [None if given is None else weakref.ref(given) for given in others]
        known = anchors.get(number)
        if known is None or known[0]() is not anchor:
            known = weakref.ref(anchor, lambda _: anchors.pop(number, None)), {}
        use_last(known[1], key, (states, ends, result), self._each)
        use_last(anchors, number, known, self._tensors)
        return result

    def clear(self) -> None:
        """Forget all results."""
        self._anchors.clear()

    def __len__(self) -> int:
        return sum(len(results) for _, results in list(self._anchors.values()))


def _are(tensors: Sequence[Tensor | None], known: Sequence[weakref.ref[Tensor] | None]) -> bool:
    """Whether they are the very tensors that are known."""
    ends = [None if end is None else end() for end in known]
    return all(end is given for end, given in zip(ends, tensors, strict=True))


def state_of(tensor: Tensor) -> Hashable:
    """What shows that a tensor was changed: equal as long as no change is seen; never waits."""
    if isinstance(tensor, EdgeIndex):
        tensor = tensor.as_tensor()
    counted = tensor._version, tensor.shape
    if tensor.layout is not torch.strided:
        return counted, *map(state_of, _parts(tensor))
    if type(tensor) not in PLAIN or is_functorch_wrapped_tensor(tensor):
        return counted  # there is no memory to look at
    stride = tensor.stride()
    if not tensor.is_cpu:
        return counted, tensor.data_ptr(), stride
    count = tensor.nbytes
    if count and not tensor.is_contiguous():
        extent = 1 + sum([(n - 1) * step for n, step in zip(tensor.shape, stride, strict=True)])
        count = extent * tensor.element_size()
    address = tensor.data_ptr()
    few = count <= LINES * LINE
    seen = ctypes.string_at(address, count) if few else np.asarray(_Lines(address, count)).tobytes()
    return counted, address, stride, seen


def _parts(matrix: Tensor) -> tuple[Tensor, ...]:
    """The strided tensors that a sparse one holds."""
    if matrix.layout == torch.sparse_coo:
        return matrix._indices(), matrix._values()
    if matrix.layout in (torch.sparse_csr, torch.sparse_bsr):
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    return matrix.ccol_indices(), matrix.row_indices(), matrix.values()


class _Lines:
    """``LINES`` lines of memory, evenly spread over ``count`` bytes, as numpy reads an array.

    Read from memory, because within ``torch.func`` and modes even a view becomes something else.
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
    """A property that is computed at its first use, and kept in the object from then on.

    That of ``functools`` holds a lock up to Python 3.11, which torch.compile cannot enter.
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
        made = self._make(instance)
        instance.__dict__[self._name] = made  # which is found before this from now on
        return made
