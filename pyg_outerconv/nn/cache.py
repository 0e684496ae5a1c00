"""The caches of bases that layers share while the same structure comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from ..basis import Basis
from ..cache import IdentityCache, ValueCache
from ..graph.structure import Structure

bases = IdentityCache()
rules = ValueCache(64)
# For layers with cached=None: bases of the last few graphs, shared by the layers of a model.
recent = IdentityCache(each=8, tensors=4)

_sharing = threading.local()


@contextmanager
def share_bases() -> Iterator[None]:
    """Context in which layers with equal families share the basis of an unmodified ``edge_index``.

    On a CPU layers share bases anyway, unless ``cached=False``. On CUDA the comparison of numbers
    would synchronise with the device, so sharing must be requested: writes through ``.data``, numpy
    or another process are not noticed in this context.

    >>> import torch
    >>> from pyg_outerconv import OuterConv, share_bases
    >>> first, second = OuterConv(4, 8, "gcn"), OuterConv(8, 2, "gcn")
    >>> x, edge_index = torch.ones(3, 4), torch.tensor([[0, 1], [1, 2]])
    >>> with share_bases():
    ...     out = second(first(x, edge_index), edge_index)
    """
    before, _sharing.on = getattr(_sharing, "on", False), True
    try:
        yield
    finally:
        _sharing.on = before


def shares_here(given: Any) -> bool:
    """Whether layers with ``cached=None`` share the basis of this ``edge_index``."""
    return (
        not torch.compiler.is_compiling()
        and type(given) is Tensor
        and (given.is_cpu or getattr(_sharing, "on", False))
        and not torch.jit.is_tracing()
        and _len_torch_dispatch_stack() == 0
    )


def cached_basis(
    cache: IdentityCache,
    kind: type[Structure],
    given: Any,
    beside: Iterable[tuple[str, Any]],
    key: Hashable,
    make: Callable[[], Basis],
) -> Basis:
    """The cached basis of a structure, or a new one, which is then cached.

    Bases of shapes, which are no tensors, are cached by value.

    Args:
        cache: the cache for bases of tensors.
        kind: the kind of the structure.
        given: the argument ``edge_index``.
        beside: names and values of the further arguments: tensors, or pairs of tensors.
        key: all arguments that are not tensors.
        make: the function that makes the basis.
    """
    known, value = kind.identity(given)
    names: list[Hashable] = []
    parts: list[Any] = []
    for name, ends in (("given", known), *beside):
        for end, part in enumerate(ends if isinstance(ends, tuple | list) else (ends,)):
            if part is None:
                continue
            if not isinstance(part, Tensor) or part.requires_grad:
                return make()
            names.append((name, end))
            parts.append(part)
    key = key, value, *names
    if not parts:
        return rules.get(key, make)  # type: ignore[no-any-return]
    return cache.get(parts[0], tuple(parts[1:]), key, make)  # type: ignore[no-any-return]
