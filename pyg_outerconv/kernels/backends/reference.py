"""The reference backend: gather, multiply, scatter. The other backends are tested against it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..backend import PRIMITIVES, Backend, Groups, Neurons
from ..tiles import accumulator, rows_of


class Reference(Backend):
    """Plain indexing by torch; holds tensors of entries × channels, used only if asked for.

    Sums of 16-bit dtypes are accumulated in float32.
    """

    name = "reference"
    priority = 0
    devices = frozenset({"cpu", "cuda", "mps", "xpu"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"spmm_theta", "additive"}
    deterministic = devices
    tolerance = 0.0

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        messages = _messages(index, value, x)
        out = messages.new_zeros((ptr.numel() - 1, *messages.shape[1:]))
        return out.index_add_(0, rows_of(ptr), messages).to(x.dtype)

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        messages, rows = _messages(index, value, x), rows_of(ptr)
        arg = torch.full(
            (ptr.numel() - 1, *messages.shape[1:]), -1, dtype=torch.int64, device=x.device
        )
        for row in rows.unique().tolist():
            entries = (rows == row).nonzero().view(-1)
            scores = messages[entries] if largest else -messages[entries]
            scores = scores.nan_to_num(nan=torch.inf, posinf=torch.finfo(scores.dtype).max)
            best = scores == scores.amax(0, keepdim=True)
            arg[row] = entries[best.int().argmax(0)]  # the first of equal products
        return arg

    def spmm_theta(
        self,
        ptr: Tensor,
        index: Tensor,
        label: Tensor,
        value: Tensor | None,
        x: Tensor,
        theta: Tensor,
    ) -> Tensor:
        """Propagate along labelled entries and multiply with Θ of their label, (R, Q)."""
        value = None if value is None else value.unsqueeze(-1)
        messages = _messages(index, value, x.unsqueeze(1)).squeeze(1)
        sent = torch.einsum("ep,epq->eq", messages, theta.index_select(0, label).to(messages.dtype))
        out = sent.new_zeros((ptr.numel() - 1, theta.size(2)))
        return out.index_add_(0, rows_of(ptr), sent).to(x.dtype)

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        wide = accumulator(a.dtype)
        left, right = a.index_select(0, rows_of(ptr)), b.index_select(0, index)
        return (left.to(wide) * right.to(wide)).sum(-1).to(a.dtype)

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        wide = value.to(accumulator(value.dtype))
        out = wide.new_zeros((ptr.numel() - 1, value.size(1)))
        return out.index_add_(0, rows_of(ptr), wide).to(value.dtype)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        wide, rows = score.to(accumulator(score.dtype)), rows_of(ptr)
        highest = wide.new_full((ptr.numel() - 1, score.size(1)), -torch.inf)
        highest.scatter_reduce_(0, rows.unsqueeze(-1).expand_as(wide), wide, "amax")
        highest.masked_fill_(highest == -torch.inf, 0.0)
        weight = (wide - highest.index_select(0, rows)).exp()
        total = torch.zeros_like(highest).index_add_(0, rows, weight)
        total.masked_fill_(total == 0, 1.0)  # in rows whose scores are all -inf
        return (weight / total.index_select(0, rows)).to(score.dtype)

    def additive(self, ptr: Tensor, index: Tensor, layer: Neurons) -> Tensor:
        """Compute the additive score of each entry, (E, H)."""
        a, b, left, right, phi = layer
        rows, wide = rows_of(ptr), accumulator(a.dtype)
        sums = a.to(wide).index_select(0, rows) + b.to(wide).index_select(0, index)
        terms = phi.write(sums, torch.empty_like(sums))
        for factor, place in ((left, rows), (right, index)):
            if factor is not None:
                terms = terms * (factor if factor.size(0) == 1 else factor.index_select(0, place))
        return terms.sum(-1).to(a.dtype)

    def additive_rows(
        self, ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor, count: int
    ) -> Tensor:
        """Sum the weighted terms of additive scores within rows, (count, R, H, channels)."""
        a, b, _, right, phi = layer
        rows, wide = rows_of(ptr), accumulator(a.dtype)
        sums = a.to(wide).index_select(0, rows) + b.to(wide).index_select(0, index)
        out = sums.new_zeros((count, *a.shape))
        for number in range(count):
            terms = phi.after(number).write(sums, torch.empty_like(sums)) * value.unsqueeze(-1)
            out[number].index_add_(0, rows, terms if right is None else terms * right[index])
        return out.to(a.dtype)

    def grouped_matmul(self, x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
        """Multiply the rows of each group with its matrix, (num_rows, Q)."""
        ptr, gather, scatter, num_rows = groups
        wide, group = accumulator(x.dtype), rows_of(ptr)
        rows = x if gather is None else x.index_select(0, gather)
        product = torch.einsum("ip,ipq->iq", rows.to(wide), theta.to(wide).index_select(0, group))
        out = product.new_zeros((num_rows, theta.size(2)))
        place = torch.arange(group.numel(), device=x.device) if scatter is None else scatter
        return out.index_add_(0, place, product).to(x.dtype)

    def grouped_outer(self, x: Tensor, y: Tensor, groups: Groups) -> Tensor:
        """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
        ptr, gather, scatter, _ = groups
        wide = accumulator(x.dtype)
        left = x if gather is None else x.index_select(0, gather)
        right = y if scatter is None else y.index_select(0, scatter)
        outer = torch.einsum("ip,iq->ipq", left.to(wide), right.to(wide))
        out = outer.new_zeros((ptr.numel() - 1, x.size(1), y.size(1)))
        return out.index_add_(0, rows_of(ptr), outer).to(x.dtype)


def _messages(index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
    """The messages ``value[e, h] x[index[e], h, :]``, (E, H, channels)."""
    gathered = x.index_select(0, index).to(accumulator(x.dtype))
    return gathered if value is None else gathered * value.to(gathered.dtype).unsqueeze(-1)
