"""The operators of attention, without derivatives; a compiler sees each as one node.

``run_attend`` and ``run_backward`` are the same functions for direct calls. ``attend.py`` defines
the equations and the derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .backend import BACKENDS
from .call import log_if_recording, without_autocast


def run_attend(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """The result (R, H, V), and log(sum exp(score)) (R, H); see :meth:`.Backend.attend`."""
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "attend", ptr, index, key.size(0), query)
    query, key, value = (t.contiguous() for t in (query, key, value))
    bias = None if bias is None else bias.contiguous()
    with without_autocast(query.device.type):
        return implementation.attend(ptr, index, query, key, value, bias, scale)


attend_operator = torch.library.custom_op("pyg_outerconv::attend", run_attend, mutates_args=())


@attend_operator.register_fake
def _(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    backend: str,
) -> tuple[Tensor, Tensor]:
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    out = value.new_empty((query.size(0), *value.shape[1:]))
    return out, query.new_empty(query.shape[:2], dtype=wide)


def run_backward(
    ptr: Tensor,
    index: Tensor,
    ptr_t: Tensor,
    index_t: Tensor,
    perm_t: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients in query, key, value and score; see :meth:`.Backend.attend_backward`."""
    implementation = BACKENDS[backend]
    log_if_recording(implementation, "attend", ptr, index, key.size(0), query)
    query, key, value = (t.contiguous() for t in (query, key, value))
    outputs = (out.contiguous(), logsumexp.contiguous(), grad.contiguous())
    bias = None if bias is None else bias.contiguous()
    with without_autocast(query.device.type):
        *found, of_score = implementation.attend_backward(
            (ptr, index), (ptr_t, index_t, perm_t), query, key, value, bias, scale, *outputs
        )
    if bias is None:
        of_score = query.new_empty((0, query.size(1)))
    return found[0], found[1], found[2], of_score


backward_operator = torch.library.custom_op(
    "pyg_outerconv::attend_backward", run_backward, mutates_args=()
)


@backward_operator.register_fake
def _(
    ptr: Tensor,
    index: Tensor,
    ptr_t: Tensor,
    index_t: Tensor,
    perm_t: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
    out: Tensor,
    logsumexp: Tensor,
    grad: Tensor,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    entries = 0 if bias is None else index.numel()
    like = tuple(t.new_empty(t.shape) for t in (query, key, value))
    return like[0], like[1], like[2], query.new_empty((entries, query.size(1)))
