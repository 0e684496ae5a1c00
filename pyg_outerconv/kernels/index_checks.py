"""Checks of index and pointer vectors, and whether their numbers can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental import symbolic_shapes
from torch.nn import Parameter
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from ..errors import RefusedType, RefusedValue
from .capture import is_capturing

PLAIN = (Tensor, Parameter)
"""The classes of tensors that are no subclasses with a behaviour of their own."""


# Before torch 2.7 a compiler raises an error where a condition depends on the data.
_known_true: Callable[[Any], bool] = getattr(symbolic_shapes, "guard_or_false", bool)


def surely(*conditions: Any) -> bool:
    """Whether conditions on sizes hold; False where a compiler does not know these sizes."""
    is_true = _known_true if torch.compiler.is_compiling() else bool  # of a traced size, a tensor
    for condition in conditions:  # noqa: SIM110  a compiler traces loops
        if not is_true(condition):
            return False
    return True


def is_exporting() -> bool:
    """Whether torch.export is tracing; before torch 2.7, whether any compiler is."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()


def has_numbers(*tensors: Tensor | None) -> bool:
    """Whether the numbers can be read.

    Not of meta and fake tensors, nor under a compiler, nor while a CUDA graph is captured.
    """
    if torch.compiler.is_compiling():
        return False
    for tensor in tensors:  # a loop, because every call of a layer comes here several times
        if tensor is None:
            continue
        if tensor.is_meta or isinstance(tensor, FakeTensor):
            return False
        if tensor.is_cuda and is_capturing():
            return False
    return True


def waits(index: Tensor) -> bool:
    """Whether its numbers can be read, and whoever reads them waits for a device."""
    return (
        not index.is_cpu
        and type(index) in PLAIN
        and has_numbers(index)
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._is_tracing()
        and _len_torch_dispatch_stack() == 0
    )


def can_read(index: Tensor) -> bool:
    """Whether numpy may read it: on a CPU, without a compiler, tracer, mode or ``torch.func``.

    Within a transform of ``torch.func`` even a view of a plain tensor is wrapped.
    """
    return (
        index.is_cpu
        and type(index) in PLAIN
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._is_tracing()
        and _len_torch_dispatch_stack() == 0
    )


def check_pointers(name: str, ptr: Tensor, count: int) -> None:
    """Check that pointers (R + 1,) ascend from 0 to ``count``; reads the numbers."""
    ends = (int(ptr[0]), int(ptr[-1]))
    if ends != (0, count) or bool((ptr[1:] < ptr[:-1]).any()):
        raise RefusedValue(
            f"{name} must ascend from 0 to the number of entries",
            f"from 0 to {count}, nowhere descending",
            ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
        )


def check_indices(name: str, index: Tensor, count: int) -> None:
    """Check that all indices lie in [0, ``count``); reads the numbers."""
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise RefusedValue(
            f"every entry of {name} lies in range",
            f"[0, {count})",
            f"[{int(index.min())}, {int(index.max())}]",
        )


def check_integers(name: str, index: Any) -> None:
    """Check that ``index`` is a vector of int32 or int64."""
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
        got = getattr(index, "dtype", type(index).__name__)
        raise RefusedType(f"{name} holds integers", "torch.int32 or torch.int64", got)
    if index.dim() != 1 or index.layout != torch.strided:
        raise RefusedValue(f"{name} is a vector", "one dimension", tuple(index.shape))
