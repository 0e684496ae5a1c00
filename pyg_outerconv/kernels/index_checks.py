"""What vectors of indices and pointers must be like, and whether they can be looked at."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Parameter
from torch.utils._python_dispatch import _len_torch_dispatch_stack

from ..errors import RefusedType, RefusedValue, refusal

PLAIN = (Tensor, Parameter)
"""The types of tensors that no subclass changes the meaning of."""


def has_numbers(*tensors: Tensor | None) -> bool:
    """Whether entries can be looked at: not without memory, nor while a compiler traces."""
    return not torch.compiler.is_compiling() and not any(
        tensor is not None and (tensor.is_meta or isinstance(tensor, FakeTensor))
        for tensor in tensors
    )


def can_read(index: Tensor) -> bool:
    """Whether numpy can look at it, and nothing wants to see what is done with it.

    Within a transform of ``torch.func`` even a view of a plain tensor has no memory to look at.
    """
    return (
        index.is_cpu
        and has_numbers(index)
        and not torch._C._are_functorch_transforms_active()
        and not torch._C._is_tracing()
        and _len_torch_dispatch_stack() == 0
    )


def check_pointers(name: str, ptr: Tensor, count: int) -> None:
    """Refuse pointers (R + 1,) that do not ascend from 0 to ``count``. Looks at numbers.

    Raises:
        ValueError: they do not.
    """
    ends = (int(ptr[0]), int(ptr[-1]))
    if ends != (0, count) or bool((ptr[1:] < ptr[:-1]).any()):
        raise RefusedValue(
            refusal(
                f"{name} ascends to the number of entries",
                f"from 0 to {count}, never falling",
                ptr.tolist() if ptr.numel() <= 8 else f"from {ends[0]} to {ends[1]}",
            )
        )


def check_indices(name: str, index: Tensor, count: int) -> None:
    """Refuse indices outside [0, ``count``). Looks at numbers.

    Raises:
        ValueError: one is.
    """
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < count:
        raise RefusedValue(
            refusal(
                f"every entry of {name} lies in range",
                f"[0, {count})",
                f"[{int(index.min())}, {int(index.max())}]",
            )
        )


def check_integers(name: str, index: Any) -> None:
    """Refuse what is not a vector of int32 or int64.

    Raises:
        TypeError: it is no tensor of these.
        ValueError: it has not one dimension.
    """
    if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
        got = getattr(index, "dtype", type(index).__name__)
        raise RefusedType(refusal(f"{name} holds integers", "torch.int32 or torch.int64", got))
    if index.dim() != 1 or index.layout != torch.strided:
        raise RefusedValue(refusal(f"{name} is a vector", "one dimension", tuple(index.shape)))
