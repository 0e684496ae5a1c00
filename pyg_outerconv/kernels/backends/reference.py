"""The reference backend: gather, multiply, scatter. The other backends are tested against it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..activation import Activation
from ..backend import PRIMITIVES, Backend
from ..tiles import accumulator, exact, rows_of


class Reference(Backend):
    """Plain indexing by torch; holds tensors of entries × channels, used only if asked for.

    Sums of 16-bit dtypes are accumulated in float32.
    """

    name = "reference"
    priority = 0
    devices = frozenset({"cpu", "cuda", "mps", "xpu"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"spmm_theta", "additive", "attend_ends"}
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
        weight, total, _ = _exponentials(ptr, score.to(accumulator(score.dtype)))
        total = total.masked_fill(total == 0, 1.0)  # in rows whose scores are all -inf
        return (weight / total.index_select(0, rows_of(ptr))).to(score.dtype)

    def attend(
        self,
        ptr: Tensor,
        index: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        wide = accumulator(query.dtype)
        score = scale * self.sddmm(ptr, index, query.to(wide), key.to(wide))
        score = score if bias is None else score + bias.to(wide)
        share = self.segment_softmax(ptr, score)
        _, total, highest = _exponentials(ptr, score)
        out = self.spmm(ptr, index, share, value.to(wide)).to(query.dtype)
        return out, total.log() + highest

    def attend_backward(
        self,
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
        """Compute the gradients of attention in query, key, value and score."""
        wide = accumulator(query.dtype)
        rows, above = rows_of(ptr), grad.to(wide)
        queries, keys, values = (t.to(wide) for t in (query, key, value))
        score = scale * self.sddmm(ptr, index, queries, keys)
        share = self.segment_softmax(ptr, score if bias is None else score + bias.to(wide))
        of_share = self.sddmm(ptr, index, above, values)
        mean = self.segment_sum(ptr, share * of_share)
        of_score = share * (of_share - mean.index_select(0, rows))
        of_query = scale * self.spmm(ptr, index, of_score, keys)
        of_key, of_value = torch.zeros_like(keys), torch.zeros_like(values)
        of_key.index_add_(0, index, scale * of_score.unsqueeze(-1) * queries.index_select(0, rows))
        of_value.index_add_(0, index, share.unsqueeze(-1) * above.index_select(0, rows))
        found = [t.to(query.dtype) for t in (of_query, of_key, of_value, of_score)]
        return found[0], found[1], found[2], found[3][: 0 if bias is None else None]

    def attend_ends(
        self,
        ptr: Tensor,
        index: Tensor,
        at_target: Tensor,
        at_source: Tensor,
        value: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        score, _ = _of_ends(ptr, index, at_target, at_source, slope)
        _, total, highest = _exponentials(ptr, score)
        out = self.spmm(ptr, index, self.segment_softmax(ptr, score), exact(value))
        return out.to(value.dtype), total.log() + highest

    def attend_ends_backward(
        self,
        ptr: Tensor,
        index: Tensor,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor,
        at_target: Tensor,
        at_source: Tensor,
        value: Tensor,
        slope: float,
        out: Tensor,
        logsumexp: Tensor,
        grad: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the gradients in the terms of both ends, and in the values."""
        rows, above, values = rows_of(ptr), exact(grad), exact(value)
        score, bend = _of_ends(ptr, index, at_target, at_source, slope)
        share = self.segment_softmax(ptr, score)
        of_share = self.sddmm(ptr, index, above, values)
        mean = self.segment_sum(ptr, share * of_share)
        of_term = bend * share * (of_share - mean.index_select(0, rows))
        of_source = exact(at_source.new_zeros(at_source.shape)).index_add_(0, index, of_term)
        sent = share.unsqueeze(-1) * above.index_select(0, rows)
        of_value = torch.zeros_like(values).index_add_(0, index, sent)
        found = self.segment_sum(ptr, of_term), of_source, of_value
        return found[0].to(value.dtype), found[1].to(value.dtype), found[2].to(value.dtype)

    def additive(
        self,
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        left: Tensor | None,
        right: Tensor | None,
        activation: str,
        slope: float,
        order: int,
    ) -> Tensor:
        """Compute the additive score of each entry, (E, H)."""
        rows, wide = rows_of(ptr), accumulator(a.dtype)
        sums = a.to(wide).index_select(0, rows) + b.to(wide).index_select(0, index)
        terms = Activation(activation, slope, order).write(sums, torch.empty_like(sums))
        for factor, place in ((left, rows), (right, index)):
            if factor is not None:
                terms = terms * (factor if factor.size(0) == 1 else factor.index_select(0, place))
        return terms.sum(-1).to(a.dtype)

    def additive_rows(
        self,
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        right: Tensor | None,
        value: Tensor,
        activation: str,
        slope: float,
        order: int,
        count: int,
    ) -> Tensor:
        """Sum the weighted terms of additive scores within rows, (count, R, H, channels)."""
        rows, wide = rows_of(ptr), accumulator(a.dtype)
        sums = a.to(wide).index_select(0, rows) + b.to(wide).index_select(0, index)
        out = sums.new_zeros((count, *a.shape))
        for number in range(count):
            phi = Activation(activation, slope, order + number)
            terms = phi.write(sums, torch.empty_like(sums)) * value.unsqueeze(-1)
            out[number].index_add_(0, rows, terms if right is None else terms * right[index])
        return out.to(a.dtype)

    def grouped_matmul(
        self,
        x: Tensor,
        ptr: Tensor,
        theta: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
    ) -> Tensor:
        """Multiply the rows of each group with its matrix, (num_rows, Q)."""
        wide, group = accumulator(x.dtype), rows_of(ptr)
        rows = x if gather is None else x.index_select(0, gather)
        product = torch.einsum("ip,ipq->iq", rows.to(wide), theta.to(wide).index_select(0, group))
        out = product.new_zeros((num_rows, theta.size(2)))
        place = torch.arange(group.numel(), device=x.device) if scatter is None else scatter
        return out.index_add_(0, place, product).to(x.dtype)

    def grouped_outer(
        self,
        x: Tensor,
        ptr: Tensor,
        y: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
    ) -> Tensor:
        """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
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


def _of_ends(
    ptr: Tensor, index: Tensor, at_target: Tensor, at_source: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """The scores of the entries from both ends, and the slope of the leaky ReLU there, (E, H)."""
    terms = exact(at_target).index_select(0, rows_of(ptr))
    terms = terms + exact(at_source).index_select(0, index)
    bend = torch.ones_like(terms).masked_fill(terms <= 0, slope)
    return terms * bend, bend


def _exponentials(ptr: Tensor, score: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """exp(score − highest score of the row) (E, H), its sums (R, H), and the highest (R, H)."""
    rows = rows_of(ptr)
    highest = score.new_full((ptr.numel() - 1, score.size(1)), -torch.inf)
    place = rows.unsqueeze(-1).expand_as(score)
    highest = highest.scatter_reduce(0, place, score.detach(), "amax")
    shift = highest.masked_fill(highest == -torch.inf, 0.0)
    weight = (score - shift.index_select(0, rows)).exp()
    total = torch.zeros_like(highest).index_add(0, rows, weight)
    return weight, total, highest
