"""Adding the bias, in place where the result is the layer's own."""

from __future__ import annotations

import torch
from torch import Tensor


def add_bias(out: Tensor, bias: Tensor, own: bool) -> Tensor:
    """Y + bias.

    A new tensor would cost a good part of a sparse product, for large memory is new every time, and
    its first touch is slow. ``own`` says that nobody else holds ``out``, as contractions promise of
    their results.
    """
    in_place = (
        own
        and not torch.compiler.is_compiling()  # which fuses the sum anyway, and reads no views
        and out.dtype == bias.dtype  # under autocast the sum has the longer type
        and not out._is_view()  # of what a primitive made, which autograd must not lose
        and not torch._C._are_functorch_transforms_active()  # bias may be batched, and Y not
    )
    return out.add_(bias) if in_place else out + bias
