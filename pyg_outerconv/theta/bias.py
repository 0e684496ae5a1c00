"""Addition of a bias, in place where no other code holds the output."""

from __future__ import annotations

import torch
from torch import Tensor


def add_bias(out: Tensor, bias: Tensor, own: bool) -> Tensor:
    """Y + b, for Y (N, *batch, Q) and b (Q,) or of the shape of Y.

    The sum is written into Y where that is safe: a new tensor costs a good part of a sparse
    product, because large allocations are fresh memory, whose first use is slow.

    Args:
        out: Y.
        bias: b.
        own: whether no other code holds ``out``, as contractions guarantee for their results.
    """
    return out.add_(bias) if is_writable(out, bias, own) else out + bias


def add_product(out: Tensor, factor: Tensor, rows: Tensor, own: bool) -> Tensor:
    """Y + F R, for Y (N, Q), ``factor`` F (N, K) and ``rows`` R (K, Q); see :func:`add_bias`."""
    if out.dim() != 2 or torch.is_autocast_enabled(out.device.type):
        return out + factor @ rows
    if is_writable(out, rows, own):
        return out.addmm_(factor, rows)
    return torch.addmm(out, factor, rows)


def is_writable(out: Tensor, added: Tensor, own: bool) -> bool:
    """Whether ``added`` can be added to ``out`` in place; ``own`` as in :func:`add_bias`."""
    return (
        own
        and not torch.compiler.is_compiling()  # the compiler fuses the sum, and knows no views
        and out.dtype == added.dtype  # under autocast the sum has the longer dtype
        and not out._is_view()  # autograd needs the primitive's result that it is a view of
        and not torch._C._are_functorch_transforms_active()  # the bias may be batched, Y not
    )
