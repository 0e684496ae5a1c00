"""Bases that layers keep and share, as long as the same structure comes back."""

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
# Of layers that were not asked to keep any: those of the last graphs, for the layers of a model.
recent = IdentityCache(each=8, tensors=4)

_sharing = threading.local()


@contextmanager
def share_bases() -> Iterator[None]:
    """In the block, layers with equal families on one unmodified ``edge_index`` share its basis.

    On a CPU they do so anyway, unless they are made with ``cached=False``. On CUDA, where looking
    for changes that autograd does not count would wait for the device, a user has to say that there
    are none: writes through ``.data``, numpy or another process are not seen in the block.

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
    """Whether layers share the bases of what is given without having been asked to keep them."""
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
    """The basis that was made of the same structure before, or a new one, which is then kept.

    Rules for shapes, which are no tensors, are kept by value: the last few of them.

    Args:
        cache: where.
        kind: the kind of structure that is given.
        given: what stands in the place of ``edge_index``.
        beside: what else the basis is made of, by name: tensors, or pairs of them.
        key: all that is not a tensor.
        make: makes the basis.
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
