"""Where tensors are made that outlive the mode they are made in."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

_NOTHING = nullcontext()


def lasting(made_of: Tensor) -> AbstractContextManager[object]:
    """In the block, tensors are made that serve training, and outlive a ``torch.func`` transform.

    What is made in inference mode cannot be differentiated through, and what is made within
    ``torch.func.grad`` is wrapped for ever, even if ``made_of`` is not.
    """
    if torch.compiler.is_compiling():  # which decides by itself what it keeps
        return nullcontext()
    transforms = torch._C._are_functorch_transforms_active()
    if not transforms and not torch.is_inference_mode_enabled():
        return _NOTHING
    stack = ExitStack()
    stack.enter_context(torch.inference_mode(False))
    if transforms and not is_functorch_wrapped_tensor(made_of):
        stack.enter_context(torch._C._DisableFuncTorch())
    return stack
