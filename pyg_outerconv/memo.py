"""What is made once: by the identity of tensors, by a key, and in the attributes of an object.

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

Each stream of CUDA has results of its own, for another stream would have to wait for them. While a
CUDA graph is captured nothing is cached, because nothing is computed then. What was cached before
is used, whichever stream made it, and kept for as long as its first tensor lives: the graph reads
that memory whenever it is replayed. Changes of these tensors do not reach such a graph.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, overload

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric import EdgeIndex
from typing_extensions import Self

from .kernels.capture import HAS_CUDA, is_capturing, stream_on
from .kernels.edge_lists import SORTED
from .kernels.index_checks import PLAIN
from .kernels.lasting import lasting

T = TypeVar("T")

LINES, LINE = 512, 64  # blocks of a large tensor that are compared, and bytes in a block
TENSORS = 1024  # tensors for which one cache holds results, at most
EACH = 16  # results that are cached for one tensor, at most

_memos: weakref.WeakSet[Memo] = weakref.WeakSet()
_clock = count()  # of uses, to tell which was the last


def clear_caches() -> None:
    """Empty all caches: of bases, supports, eigenvalues, sorted matrices and plans.

    Results in use stay valid. Caches are bounded, and entries are removed with their tensors, so
    call this only to free memory at once, or after changes that go unnoticed (see
    :mod:`pyg_outerconv.memo`).
    """
    for memo in list(_memos):
        memo.clear()
    SORTED.clear()


@dataclass(slots=True, eq=False)
class _Entry:
    """A result, the states of its tensors, references to them, and its last use."""

    result: Any
    states: Any
    references: list[Any]
    used: int = field(default_factory=_clock.__next__)


@dataclass(slots=True, eq=False)
class _Shelf:
    """The results for one tensor, by key, and its last use."""

    anchor: Callable[[], Tensor | None]
    entries: dict[Hashable, _Entry] = field(default_factory=dict)
    used: int = field(default_factory=_clock.__next__)


class Memo:
    """Results that are made once: by a key, and by the identity of tensors.

    A cached result is returned for an equal key and the same tensor objects, none of them changed
    since (see :mod:`pyg_outerconv.memo`). A result must not refer to these tensors, or they are
    never freed. Entries are removed with the first of their tensors. Other threads may use a memo
    between any two steps of it.

    Args:
        each: the number of results that are cached for a first tensor, or without tensors; beyond
            it the one whose last use is longest ago is removed.
        tensors: the number of first tensors for which results are cached, in the same way.
        holds_tensors: whether results that are cached by a key alone have tensors.
    """

    def __init__(
        self, each: int = EACH, tensors: int = TENSORS, holds_tensors: bool = True
    ) -> None:
        self._each, self._tensors, self._holds_tensors = each, tensors, holds_tensors
        self._shelves: dict[int, _Shelf] = {}
        _memos.add(self)

    def get(self, key: Hashable, make: Callable[[], Any], *tensors: Tensor | None) -> Any:
        """The cached result; where there is none, the result of ``make()``, which is cached.

        Under a compiler nothing is stored, nor in forward mode for tensors, nor while a CUDA graph
        is captured.
        """
        compiles, anchor, states = torch.compiler.is_compiling(), None, None
        if tensors:
            if compiles or forward_ad._current_level >= 0:
                return make()
            states = []
            for tensor in tensors:
                if tensor is None:
                    continue
                anchor = tensor if anchor is None else anchor
                if tensor.is_inference() or is_functorch_wrapped_tensor(tensor):
                    return make()
                states.append(state_of(tensor))
        shelf = self._shelves.get(id(anchor))
        captures = False
        if HAS_CUDA and self._holds_tensors if anchor is None else anchor.is_cuda:
            captures, key = _on_stream(shelf, key, anchor)
        if shelf is not None and (anchor is None or shelf.anchor() is anchor):
            entry = shelf.entries.get(key)
            if entry is not None and entry.states == states:
                for reference, tensor in zip(entry.references, tensors, strict=True):
                    if reference() is not tensor:
                        break
                else:
                    if captures:
                        _hold(entry.result, anchor)
                    if not compiles:  # a compiler would guard on the count
                        entry.used = shelf.used = next(_clock)
                    return entry.result
        if anchor is None:
            result = make()
        elif torch._C._are_functorch_transforms_active() or torch.is_inference_mode_enabled():
            with lasting(anchor):
                result = make()
        else:
            result = make()
        if compiles or captures:
            return result
        return self._keep(anchor, key, result, states, tensors)

    def _keep(
        self,
        anchor: Tensor | None,
        key: Hashable,
        result: Any,
        states: Any,
        tensors: Sequence[Tensor | None],
    ) -> Any:
        """Store a result, and remove what was used longest ago; returns the result."""
        shelves, number = self._shelves, id(anchor)
        shelf = shelves.get(number)
        if shelf is None or (anchor is not None and shelf.anchor() is not anchor):
            forget = lambda _: shelves.pop(number, None)  # noqa: E731
            shelf = _Shelf(_nothing if anchor is None else weakref.ref(anchor, forget))
            shelves[number] = shelf
        references = [_nothing if one is None else weakref.ref(one) for one in tensors]
        shelf.entries[key] = entry = _Entry(result, states, references)
        shelf.used = entry.used
        if len(shelf.entries) > self._each:
            _remove_oldest(shelf.entries, self._each)
        if len(shelves) > self._tensors:
            _remove_oldest(shelves, self._tensors)
        return result

    def clear(self) -> None:
        """Remove all results."""
        self._shelves.clear()

    def __deepcopy__(self, memo: Any) -> Memo:
        return Memo(*self.__reduce__()[1])  # copies and checkpoints of a layer start empty

    def __reduce__(self) -> Any:
        return Memo, (self._each, self._tensors, self._holds_tensors)

    def __len__(self) -> int:
        return sum(len(shelf.entries) for shelf in list(self._shelves.values()))


# By the tensor that results were cached for.
_captured: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
_captured_of_none: list[Any] = []


def _hold(result: Any, anchor: Tensor | None) -> None:
    """Keep what a CUDA graph reads for as long as the tensor it was cached for, or for good."""
    captured = _captured_of_none if anchor is None else _captured.setdefault(anchor, [])
    if all(one is not result for one in captured):
        captured.append(result)


def _on_stream(
    shelf: _Shelf | None, key: Hashable, anchor: Tensor | None
) -> tuple[bool, tuple[Hashable, int | None]]:
    """Whether a CUDA graph is captured, and the key of the result that this stream may use.

    Captured work may read what any stream made before, for a capture begins with none at work.
    """
    if not is_capturing():
        return False, (key, stream_on(None if anchor is None else anchor.device))
    entries = {} if shelf is None else dict(shelf.entries)
    own: Any = [one for one in entries if one[0] == key]  # type: ignore[index]
    return True, max(own, key=lambda one: entries[one].used, default=(key, None))


def _nothing() -> None:
    """In the place of a reference to a tensor."""


def _remove_oldest(entries: dict[Any, Any], limit: int) -> None:
    """Remove the entries of a dict whose last use is longest ago, down to a number of entries."""
    while len(entries) > limit:
        oldest = min(list(entries.items()), key=lambda item: item[1].used)[0]
        entries.pop(oldest, None)


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
    if count <= LINES * LINE:
        return version, address, stride, ctypes.string_at(address, count)
    # Evenly spaced blocks. A view of the tensor would not do: within torch.func and modes it is a
    # wrapped tensor.
    blocks = {"version": 3, "data": (address, True), "typestr": "|u1"}
    blocks |= {"shape": (LINES, LINE), "strides": (count // LINES, 1)}
    memory = np.asarray(SimpleNamespace(__array_interface__=blocks))
    return version, address, stride, memory.tobytes()


def _parts(matrix: Tensor) -> tuple[Tensor, ...]:
    """The indices and values of a sparse tensor, as strided tensors."""
    if matrix.layout == torch.sparse_coo:
        return matrix._indices(), matrix._values()
    if matrix.layout in (torch.sparse_csr, torch.sparse_bsr):
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    return matrix.ccol_indices(), matrix.row_indices(), matrix.values()


_constants = Memo(256)


def constant(numbers: Hashable, dtype: torch.dtype | None, device: torch.device) -> Tensor:
    """A tensor of a number, or of a tuple of numbers; it is not to be written to.

    To copy numbers to a device is to wait for it, so that they are copied once.
    """
    if device.type == "cpu" or torch.compiler.is_compiling():
        return torch.tensor(numbers, dtype=dtype, device=device)
    key, make = (numbers, dtype, device), partial(torch.tensor, numbers, dtype=dtype, device=device)
    with lasting():
        return _constants.get(key, make)  # type: ignore[no-any-return]


class cached_property(Generic[T]):  # noqa: N801
    """A property that is computed at its first use, and then cached in the object.

    Not while a CUDA graph is captured, unless the object itself was made then (``is_captured``).
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
        if not is_capturing() or instance.__dict__.get("is_captured"):
            instance.__dict__[self._name] = result  # Python looks it up before this descriptor
        return result


def settle(instance: object) -> None:
    """Compute all cached properties of an object now, for a compiler guards on which there are."""
    for kind in type(instance).__mro__:
        for name, one in vars(kind).items():
            if isinstance(one, cached_property):
                getattr(instance, name)
