"""A context for making tensors that outlive inference mode and ``torch.func`` transforms."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

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
