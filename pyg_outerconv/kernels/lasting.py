"""Tensors that outlive a call: a context to make them in, and attributes that are made once."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

_NOTHING = nullcontext()


def lasting(made_of: Tensor | None = None) -> AbstractContextManager[object]:
    """Make the tensors of the block usable in training and after a ``torch.func`` transform.

    Tensors made in inference mode cannot be differentiated through, and tensors made within
    ``torch.func.grad`` stay wrapped, even if the tensor ``made_of`` they are computed from is not,
    or if they are computed from none.
    """
    if torch.compiler.is_compiling():  # the compiler manages its tensors itself
        return nullcontext()
    transforms = torch._C._are_functorch_transforms_active()
    if not transforms and not torch.is_inference_mode_enabled():
        return _NOTHING
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    if transforms and not (made_of is not None and is_functorch_wrapped_tensor(made_of)):
        stack.enter_context(torch._C._DisableFuncTorch())
    return stack


class Part:
    """An attribute that a method of its owner computes, perhaps with others, and then stores.

    Args:
        make: the name of the method. It gets the name of the attribute, and returns it in a
            dictionary of attributes; ``_keep`` of the owner stores those that may outlive the call.
    """

    def __init__(self, make: str) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        if owner is None:
            return self
        parts = getattr(owner, self._make)(self._name)
        owner._keep(parts)
        return parts[self._name]


def part(make: str) -> Any:
    """A :class:`Part`, which stands where a tensor is declared."""
    return Part(make)
