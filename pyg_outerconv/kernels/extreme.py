"""Max and min over the entries of each row: a kernel finds the entry, torch gathers the value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .backend import BACKENDS
from .call import View, log_if_recording, without_autocast
from .differentiable import apply, differentiable
from .products import in_order


def _run_spmm_arg(
    ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool, backend: str
) -> Tensor:
    implementation, reduction = BACKENDS[backend], "max" if largest else "min"
    log_if_recording(implementation, "spmm", ptr, index, x.size(0), x, reduction)
    value = None if value is None else value.contiguous()
    with without_autocast(x.device.type):
        return implementation.spmm_arg(ptr, index, value, x.contiguous(), largest)


_spmm_arg = torch.library.custom_op("pyg_outerconv::spmm_arg", _run_spmm_arg, mutates_args=())


@_spmm_arg.register_fake
def _(
    ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool, backend: str
) -> Tensor:
    heads = x.size(1) if value is None else value.size(1)
    return x.new_empty((ptr.numel() - 1, heads, x.size(2)), dtype=torch.int64)


@differentiable
class _Arguments(torch.autograd.Function):
    """The position of the largest or least product of each row: no derivative, but a vmap rule.

    It returns a tuple, because torch.compile cannot trace a single tensor without a derivative.
    """

    @staticmethod
    def forward(
        ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool, backend: str
    ) -> tuple[Tensor]:
        # Always as an operator: torch finds the entries with gradients enabled, which hooks notice.
        return (_spmm_arg(ptr, index, value, x, largest, backend),)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, ...]:
        return None, None, None, None, None, None

    @staticmethod
    def tangent(ctx: Any, primals: list[Any], tangents: tuple[Any, ...]) -> tuple[None]:
        return (None,)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[Tensor], tuple[int]]:
        ptr, index, value, x, largest, backend = args
        value_dim, x_dim = in_dims[2], in_dims[3]
        outs = []
        for item in range(info.batch_size):
            one_value = value if value_dim is None else value.select(value_dim, item)
            one_x = x if x_dim is None else x.select(x_dim, item)
            outs.extend(apply(_Arguments, ptr, index, one_value, one_x, largest, backend))
        return (torch.stack(outs),), (0,)


def extreme(view: View, value: Tensor | None, x: Tensor, backend: str, *, largest: bool) -> Tensor:
    """out[r, h, c] = max (or min) over the entries e of row r of value[e, h] x[index[e], h, c].

    Rows without entries give zeros. The gradient goes to the first of equal products.
    """
    ptr, index, perm = view
    value = in_order(value, perm) if perm is not None else value
    if value is not None and value.size(1) == 1 and x.size(1) > 1:
        value = value.expand(-1, x.size(1))
    (arg,) = apply(_Arguments, ptr, index, value, x, largest, backend)
    if index.numel() == 0:
        zero = x[:0].sum() if value is None else x[:0].sum() + value.sum()
        return x.new_zeros(arg.shape) + zero  # zeros with gradients of zero
    found, entry = arg >= 0, arg.clamp(min=0)
    # Gather from flat tensors: their gradients need no tensor of entries × channels, and are summed
    # in a fixed order on CUDA too.
    head, channel = (torch.arange(n, device=x.device) for n in arg.shape[1:])
    of_head = head.unsqueeze(-1) if x.size(1) > 1 else 0
    place = (index.long()[entry] * x.size(1) + of_head) * x.size(2) + channel
    # Mask each factor, so that rows without entries get no gradient from entry 0, which they look
    # up: not even NaN, of zero times infinity.
    chosen = torch.where(found, x.flatten()[place], 0.0)
    if value is not None:
        weight = value.flatten()[entry * value.size(1) + head.unsqueeze(-1)]
        chosen = chosen * torch.where(found, weight, 0.0)
    return chosen
