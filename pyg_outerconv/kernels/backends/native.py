"""The backend of torch's own CSR kernels, which holds no tensor of entries × channels."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backend import PRIMITIVES, Backend, Request
from ..tiles import accumulator
from . import native_grouped, tiled_additive
from .native_csr import row_sums, sampled, spread, times, torch_csr

# exp of scores up to this absolute value neither overflows nor underflows in float32, also when
# summed up, so that the highest score of each row need not be subtracted.
_SAFE_SCORE = 60.0


def _attend(
    ptr: Tensor,
    index: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Attend along the entries: the result (R, H, V) and log(sum exp(score)) (R, H)."""
    wide, heads = accumulator(query.dtype), query.size(1)
    out = query.new_empty((query.size(0), heads, value.size(2)))
    logsumexp = query.new_empty((query.size(0), heads), dtype=wide)
    for head in range(heads):
        keys, values = _head(key, head, wide), _head(value, head, wide)
        score = sampled(ptr, index, _head(query, head, wide) * scale, keys)
        if bias is not None:
            score += bias[:, head]
        shift = _row_shifts(ptr, score)
        if shift is not None:
            score -= spread(ptr, shift, score.numel())
        weight = score.exp_()
        total = row_sums(ptr, weight)
        product = times(torch_csr(ptr, index, weight, key.size(0)), values)
        out[:, head] = product / total.masked_fill(total == 0, 1.0).unsqueeze(-1)
        logsumexp[:, head] = total.log() if shift is None else total.log() + shift
    return out, logsumexp


def _attend_backward(
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
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients of attention; shares are computed again, not stored."""
    wide, heads, entries = accumulator(query.dtype), query.size(1), index.numel()
    grads = tuple(torch.empty_like(t) for t in (query, key, value))
    of_score = query.new_empty((entries if bias is not None else 0, heads))
    for head in range(heads):
        queries, keys = _head(query, head, wide) * scale, _head(key, head, wide)
        values, above = _head(value, head, wide), _head(grad, head, wide)
        share = sampled(ptr, index, queries, keys)
        if bias is not None:
            share += bias[:, head]
        # In rows without shares, logsumexp and scores are -inf, and their difference would be NaN.
        total = logsumexp[:, head]
        share -= spread(ptr, total.masked_fill(total == -torch.inf, 0.0), entries)
        share.exp_()
        grads[2][:, head] = times(
            torch_csr(ptr_t, index_t, share.index_select(0, perm_t), query.size(0)), above
        )
        score = sampled(ptr, index, above, values)
        mean = (above * _head(out, head, wide)).sum(-1)
        score -= spread(ptr, mean, entries)
        score *= share
        if bias is not None:
            of_score[:, head] = score
        grads[0][:, head] = times(torch_csr(ptr, index, score, key.size(0)), keys) * scale
        grads[1][:, head] = times(
            torch_csr(ptr_t, index_t, score.index_select(0, perm_t), query.size(0)), queries
        )
    return grads[0], grads[1], grads[2], of_score


def _head(x: Tensor, head: int, dtype: torch.dtype) -> Tensor:
    """One head of x (rows, H, channels), contiguous: (rows, channels)."""
    # MKL is three times slower on strided rows than on contiguous ones.
    return x[:, head].to(dtype).contiguous()


def _row_shifts(ptr: Tensor, score: Tensor) -> Tensor | None:
    """The number to subtract in each row so that exp does not overflow; None if none is needed."""
    if score.numel() == 0:
        return None
    # On CUDA the comparison would wait for the device.
    if not score.is_cuda and float(score.abs().max()) <= _SAFE_SCORE:
        return None
    highest = row_sums(ptr, score, "max")
    return highest.masked_fill(highest == -torch.inf, 0.0)


class Native(Backend):
    """CSR products of torch (MKL or its own kernels on a CPU, cuSPARSE on CUDA)."""

    name = "native"
    priority = 10
    devices = frozenset({"cpu", "cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"additive"}
    deterministic = frozenset({"cpu"})  # cuSPARSE adds long rows in an order of its own
    tolerance = 1e-5

    def remarks(self) -> list[str]:
        """Remarks on this backend for the table of backends."""
        found = []
        if not torch.backends.mkl.is_available():
            found += ["this torch has no MKL; its own CSR products serve, about three times slower"]
        if torch.cuda.is_available():
            found += ["cuSPARSE's products may have other bits each time, on CUDA"]
        return found

    def why_not(self, request: Request) -> list[str]:
        """Reasons why this backend cannot serve a request: torch has max and min on a CPU alone."""
        reasons = super().why_not(request)
        if request.device != "cpu" and request.reduction in ("max", "min"):
            reasons.append(f"reduces with {request.reduction} on cpu only")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        heads = x.size(1) if value is None else value.size(1)
        if value is None:
            matrix = torch_csr(ptr, index, x.new_ones(index.numel()), x.size(0))
            out = times(matrix, x.flatten(1))
            return out.resize_(out.size(0), *x.shape[1:])  # a view could not be changed in place
        if heads == 1:
            matrix = torch_csr(ptr, index, value.view(-1), x.size(0))
            return times(matrix, x.squeeze(1)).unsqueeze_(1)
        out = x.new_empty((ptr.numel() - 1, heads, x.size(2)))
        for head in range(heads):
            matrix = torch_csr(ptr, index, value[:, head].contiguous(), x.size(0))
            out[:, head] = times(matrix, x[:, head if x.size(1) > 1 else 0].contiguous())
        return out

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        heads = x.size(1) if value is None else value.size(1)
        out = torch.empty((ptr.numel() - 1, heads, x.size(2)), dtype=torch.int64, device=x.device)
        for head in range(heads):
            values = x.new_ones(index.numel()) if value is None else value[:, head].contiguous()
            matrix = torch_csr(ptr, index, values, x.size(0))
            column = x[:, head if x.size(1) > 1 else 0].contiguous()
            out[:, head] = _winning_entries(matrix, column, "amax" if largest else "amin")
        return out

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        heads = max(a.size(1), b.size(1))
        if heads == 1:
            return sampled(ptr, index, a.squeeze(1), b.squeeze(1)).unsqueeze_(1)
        out = a.new_empty((index.numel(), heads))
        for head in range(heads):
            left = a[:, head if a.size(1) > 1 else 0].contiguous()
            right = b[:, head if b.size(1) > 1 else 0].contiguous()
            out[:, head] = sampled(ptr, index, left, right)
        return out

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        return row_sums(ptr, value.to(accumulator(value.dtype))).to(value.dtype)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        wide = score.to(accumulator(score.dtype))
        shift = _row_shifts(ptr, wide)
        weight = wide.exp() if shift is None else (wide - spread(ptr, shift, len(score))).exp_()
        total = row_sums(ptr, weight)
        total.masked_fill_(total == 0, 1.0)
        return weight.div_(spread(ptr, total, score.size(0))).to(score.dtype)

    attend = staticmethod(_attend)
    attend_backward = staticmethod(_attend_backward)
    additive_backward = staticmethod(tiled_additive.backward)
    additive = staticmethod(tiled_additive.score)
    additive_rows = staticmethod(tiled_additive.rows_by(tiled_additive.sum_by_product))
    grouped_matmul = staticmethod(native_grouped.grouped_matmul)
    grouped_outer = staticmethod(native_grouped.grouped_outer)


def _winning_entries(matrix: Tensor, x: Tensor, aggr: str) -> Tensor:
    """The entry of the extreme product of each row, (R, channels) int64; -1 without entries."""
    entries = matrix.values().numel()
    if entries == 0 or x.size(1) == 0:
        return torch.full((matrix.size(0), x.size(1)), -1, device=x.device)
    # torch returns the entries only if gradients are required.
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        _, arg = torch.ops.aten._sparse_mm_reduce_impl(matrix, leaf, aggr)
    # torch finds no entry in rows whose products are all -inf, which are equal: take the first.
    ptr = matrix.crow_indices()
    first = torch.where(ptr.diff() > 0, ptr[:-1], -1).unsqueeze(-1)
    return torch.where(arg == entries, first, arg).to(torch.int64)
