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
    return out.add_(bias) if is_writable(out, bias, own) else out + bias


def add_product(out: Tensor, factor: Tensor, rows: Tensor, own: bool) -> Tensor:
    """Y + factor (N, K) times rows (K, Q), in place as :func:`add_bias` is."""
    if out.dim() != 2 or torch.is_autocast_enabled(out.device.type):
        return out + factor @ rows
    if is_writable(out, rows, own):
        return out.addmm_(factor, rows)
    return torch.addmm(out, factor, rows)


def is_writable(out: Tensor, added: Tensor, own: bool) -> bool:
    """Whether something can be added to ``out`` in place."""
    return (
        own
        and not torch.compiler.is_compiling()  # which fuses the sum anyway, and reads no views
        and out.dtype == added.dtype  # under autocast the sum has the longer type
        and not out._is_view()  # of what a primitive made, which autograd must not lose
        and not torch._C._are_functorch_transforms_active()  # it may be batched, and Y not
    )
