"""The parameter Θ, a matrix for each label, and products with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, Union

import torch
from torch import Tensor

_ARGUMENTS = "inner", "coefficient", "outer", "bias", "heads", "factor", "is_unit", "constant"


class Theta:
    """K matrices Θ_k of size P × Q, made of inner matrices V and of what else is there.

    - *Matrices*: Θ_k = V_k, block-diagonal with G blocks; a tensor (K, G, P/G, Q/G) says it all.
    - *A mixture*, with ``coefficient``: Θ_k = Σ_b c_kb V_b, so that Σ_k A_k ⊗ Θ_k =
      Σ_b (Σ_k c_kb A_k) ⊗ V_b has B terms, not K. Each c_kb may be a number for each output
      channel, Θ_k = Σ_b V_b diag(c_kb): a filter for each channel of X V_b.
    - *Heads*, with ``outer``, ``bias`` or ``heads``: Θ_h = V_h O_h, so that head h is propagated
      with V channels, not Q, and brings ``(Σ_m A_h[m, n] (X V_h + b_h)) O_h``.

    Scaled, mixed and selected labels of a basis are absorbed into Θ by its methods. Products
    with X are its methods too, so that an order asks no form what it is.

    Attributes:
        shape: (K, G, P/G, Q/G).
        dtype: that of V.
        device: that of V.
        requires_grad: whether any of its tensors requires gradients, as they came.
        is_tensor: whether V is all of it.
        form: a key on which the choice of an order depends, equal for Θ of equal form and sizes.
        value: V (H, P, V), if it is of heads.

    Args:
        inner: V (K, G, P/G, Q/G); of a mixture (B, G, P/G, Q/G), of heads (H, 1, P, V). Where
            G = 1, its axis may be left out.
        coefficient: c (K, B), or (K, B, Q) of full matrices, or None.
        outer: O (H, V, Q), or None.
        bias: b (H, V), or None. It is no part of Θ, but acts as one more channel of X that is 1.
        heads: how the results of heads are put together: ``'sum'``, O_h being the identity if there
            is no ``outer``; or ``'concat'``, O_h being zero but for the identity in block h of its
            H·V columns. None: there are no heads, or their results are added up.
        factor: a number by which the results of all heads are multiplied, not their values, of
            which scores of GAT are made: 1 for a sum of heads, 1/H for a mean.
        is_unit: whether Θ_k = c_k I: V is ones (1, P, 1, 1), requires no gradient, and needs no
            product.
        constant: the value of every c_k, if it is known without reading the tensor; else None.
    """

    coefficient: Tensor | None = None
    outer: Tensor | None = None
    bias: Tensor | None = None
    heads: str | None = None
    factor: float = 1.0
    is_unit: bool = False
    constant: float | None = None
    is_tensor = True
    value: Tensor

    def __init__(
        self,
        inner: Tensor,
        coefficient: Tensor | None = None,
        outer: Tensor | None = None,
        bias: Tensor | None = None,
        heads: str | None = None,
        factor: float = 1.0,
        is_unit: bool = False,
        constant: float | None = None,
    ) -> None:
        self._inner, self.dtype, self.device = inner, inner.dtype, inner.device
        self.shape, self.requires_grad = inner.shape, inner.requires_grad
        if len(self.shape) == 3:
            count, rows, columns = self.shape
            self.shape = torch.Size((count, 1, rows, columns))
        self.form: Hashable = self.shape
        if coefficient is not None:
            self.coefficient, self.is_unit, self.constant = coefficient, is_unit, constant
            self.is_tensor = False
            self.shape = torch.Size((coefficient.size(0), *self.shape[1:]))
            self.form = self.shape, coefficient.shape[1:], is_unit, constant
            self.requires_grad = coefficient.requires_grad or inner.requires_grad
        if heads is None and outer is None and bias is None:
            return
        self.outer, self.bias, self.heads, self.factor = outer, bias, heads or "sum", factor
        self.is_tensor = False
        count, _, rows, columns = self.shape
        if outer is not None:
            columns = outer.size(2)
        elif self.heads == "concat":
            columns = count * columns
        self.shape = torch.Size((count, 1, rows, columns))
        self.form = self.shape, inner.size(-1), self.heads, outer is not None, bias is not None
        self.value = inner if inner.dim() == 3 else inner.squeeze(1)
        for other in (outer, bias):
            self.requires_grad |= other is not None and other.requires_grad

    @staticmethod
    def identity(num_labels: int, channels: int, like: Tensor) -> Theta:
        """Θ_k = I of ``channels`` channels for every k, with the dtype and device of ``like``."""
        ones = torch.ones(1, dtype=like.dtype, device=like.device)  # not batched, as like may be
        inner, coefficient = ones.expand(1, channels, 1, 1), ones.expand(num_labels, 1)
        return Theta(inner, coefficient, is_unit=True, constant=1.0)

    def but(self, **changes: Any) -> Theta:
        """A copy with some of the arguments changed."""
        return Theta(**({name: getattr(self, name) for name in _ARGUMENTS} | changes))

    @property
    def inner(self) -> Tensor:
        """V (K, G, P/G, Q/G)."""
        return self._inner.unsqueeze(1) if self._inner.dim() == 3 else self._inner

    @property
    def has_filters(self) -> bool:
        """Whether it is a mixture whose coefficients are numbers for each output channel."""
        return self.coefficient is not None and self.coefficient.dim() == 3

    @property
    def num_matrices(self) -> int:
        """The number of matrices V: B of a mixture."""
        return self._inner.size(0)

    # As tensors ----------------------------------------------------------------------------------

    def full(self) -> Tensor:
        """Θ as one tensor (K, G, P/G, Q/G), without the bias; a mixture in the dtype of V."""
        if self.coefficient is not None:
            if self.has_filters:
                return torch.einsum("kbq,bgpq->kgpq", self.coefficient, self.inner).to(self.dtype)
            flat = self.coefficient @ self.inner.flatten(1)
            return flat.view(self.shape).to(self.dtype)
        if self.heads is not None:
            is_sum = self.heads == "sum" and self.outer is None
            product = self.value if is_sum else self.value @ self.outer_matrices()
            return self._times_factor(product).unsqueeze(1)
        return self.inner

    def full_bias(self) -> Tensor | None:
        """b_h O_h (H, 1, 1, Q): Θ_h of a channel of X that is 1; None without a bias."""
        if self.bias is None:
            return None
        product = self.bias.unsqueeze(1) @ self.outer_matrices()
        return self._times_factor(product).unsqueeze(1)

    def outer_matrices(self) -> Tensor:
        """O (H, V, Q), as a tensor also where heads are concatenated or added up."""
        if self.outer is not None:
            return self.outer
        count, width, columns = self.shape[0], self._inner.size(-1), self.shape[3]
        place = torch.eye(columns, dtype=self.dtype, device=self.device)
        if self.heads == "concat":
            return place.view(count, width, columns)
        return place.expand(count, width, width)

    def _times_factor(self, x: Tensor) -> Tensor:
        return x if self.factor == 1.0 else x * self.factor

    # Linear combinations -------------------------------------------------------------------------

    def labels(self, start: int, end: int) -> Theta:
        """Θ_k for k from ``start`` to ``end``, with all Q columns."""
        if (start, end) == (0, self.shape[0]):
            return self
        if self.coefficient is not None:
            return self.but(coefficient=self.coefficient[start:end])
        if self.heads is None:
            return Theta(self.inner[start:end])
        outer, heads = self.outer, self.heads
        if heads == "concat" or outer is not None:
            outer, heads = self.outer_matrices()[start:end], "sum"
        bias = None if self.bias is None else self.bias[start:end]
        return self.but(inner=self.inner[start:end], outer=outer, bias=bias, heads=heads)

    def scaled(self, factor: Tensor | float) -> Theta:
        """c_k Θ_k, and c_k b_k O_k, for ``factor`` (K,) or one number.

        Of a mixture c is scaled; of heads O, if it is there, or their common factor.
        """
        if not isinstance(factor, Tensor):
            if self.coefficient is not None:
                constant = None if self.constant is None else self.constant * factor
                return self.but(coefficient=self.coefficient * factor, constant=constant)
            if self.heads is not None:
                return self.but(factor=self.factor * factor)
            return Theta(self.inner * factor)
        if self.coefficient is not None:
            factor = factor.to(self.coefficient.dtype)
            coefficient = self.coefficient * factor.view(-1, *(1,) * (self.coefficient.dim() - 1))
            return self.but(coefficient=coefficient, constant=None)
        factor = factor.to(self.dtype)
        if self.outer is not None:
            return self.but(outer=self.outer * factor.view(-1, 1, 1))
        bias = None if self.bias is None else self.bias * factor.view(-1, 1)
        return self.but(inner=self.inner * factor.view(-1, 1, 1, 1), bias=bias)

    def mixed(self, matrix: Tensor) -> Theta:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (J, K); a mixture of the Θ_j if J < K."""
        if self.coefficient is None and self.bias is None and matrix.size(0) < matrix.size(1):
            whole = self.full()
            return Theta(whole, matrix.to(whole.dtype).t())
        return self._combined(lambda rows: torch.tensordot(matrix.t().to(rows.dtype), rows, dims=1))

    def gathered(self, label: Tensor, num_labels: int) -> Theta:
        """For each k of ``num_labels``, the sum of the Θ_i with ``label[i] == k``."""
        return self._combined(lambda rows: add_rows(rows, label, num_labels))

    def _combined(self, combine: Callable[[Tensor], Tensor]) -> Theta:
        """The Θ_k, and the b_k O_k, combined linearly: coefficients, or else full matrices."""
        if self.coefficient is not None:
            return self.but(coefficient=combine(self.coefficient), constant=None)
        bias = self.full_bias()
        return Theta(combine(self.full()), bias=None if bias is None else combine(bias[:, 0, 0]))

    def expanded(self, size: tuple[int, ...]) -> Theta:
        """Θ expanded to another size without a copy; only its sizes are used, for costs."""
        if self.coefficient is not None:
            return self.but(inner=self.inner.expand(size))
        return Theta(self.full().expand(size))

    # Products with X -----------------------------------------------------------------------------

    def transform(self, x: Tensor) -> Tensor:
        """X Θ_k for every label and dense X (M, *batch, P): (M, K, *batch, Q).

        No product is made where V is I.
        """
        if self.is_unit and self.coefficient is not None:
            return torch.einsum("m...p,k->mk...p", x, self.coefficient[:, 0].to(x.dtype))
        theta = self.full()
        num_labels, groups, rows, columns = theta.shape
        if groups > 1:
            blocks = x.unflatten(-1, (groups, rows))
            product = torch.einsum("m...gp,kgpq->m...kgq", blocks, theta).flatten(-2)
            return product.movedim(-2, 1)
        if num_labels == 1:
            return (x @ column_major(theta.reshape(rows, columns), x)).unsqueeze(1)
        wide = theta[:, 0].permute(1, 0, 2).reshape(rows, num_labels * columns)
        product = (x @ column_major(wide, x)).unflatten(-1, (num_labels, columns))
        return product.movedim(-2, 1)

    def combine(self, h: Tensor, num_rows: int, bias: Tensor | None = None) -> Tensor:
        """Σ_k H_k Θ_k + b: (N, *batch, Q). No product is made where V is I.

        Args:
            h: H (N·K, *batch, P); the K rows of a target are adjacent.
            num_rows: N.
            bias: b (Q,), or (N, *batch, Q), which is overwritten; or None.
        """
        if self.is_unit and self.coefficient is not None:
            coefficient = self.coefficient[:, 0].to(h.dtype)
            each = by_label(h, num_rows, coefficient.numel())
            out = torch.einsum("nk...p,k->n...p", each, coefficient)
            return out if bias is None else add_bias(out, bias, own=True)
        num_labels, groups, rows, columns = self.shape
        if self.heads == "concat":  # a head fills its own columns alone
            each = by_label(h, num_rows, num_labels)
            out = torch.einsum("nh...p,hpv->n...hv", each, self.value).flatten(-2)
            out = self._times_factor(out)
            return out if bias is None else add_bias(out, bias, own=True)
        if groups > 1:
            blocks = by_label(h, num_rows, num_labels).movedim(1, -2).unflatten(-1, (groups, rows))
            out = torch.einsum("n...kgp,kgpq->n...gq", blocks, self.full()).flatten(-2)
            return out if bias is None else add_bias(out, bias, own=True)
        if num_labels != 1:
            h = by_label(h, num_rows, num_labels).movedim(1, -2).flatten(-2)
        tall = (self._inner if self.is_tensor else self.full()).flatten(0, -2)
        if columns <= NARROW:
            tall = column_major(tall, h)
        if bias is None:
            return h @ tall
        if h.dim() == 2 and h.dtype == bias.dtype and not torch.is_autocast_enabled(h.device.type):
            if bias.dim() == 1:
                return torch.addmm(bias, h, tall)
            return add_product(bias, h, tall, own=True)
        return add_bias(h @ tall, bias, own=True)

    def collect(self, h: Tensor) -> Tensor:
        """Σ_h H_h O_h, or the concatenated heads, for H (N, *batch, H, V): (N, *batch, Q)."""
        if self.outer is not None:
            h, outer = autocast_pair(h, self.outer)
            return self._times_factor(h.flatten(-2) @ outer.flatten(0, 1))
        h = h.flatten(-2) if self.heads == "concat" else h.sum(-2)
        return h if self.factor == 1.0 else h * self.factor


class ThetaParts(Theta):
    """Θ of K₁ labels in one form, then of K₂ in another, and so on: those of a stack of families.

    A stack of bases takes :meth:`labels` of each of its parts, which then has its own form, such as
    the values of heads; whatever combines labels of several parts makes full matrices.

    Args:
        parts: of equal P and Q; :attr:`shape` has their G blocks if all have as many, else one.
    """

    is_tensor = False

    def __init__(self, parts: tuple[Theta, ...]) -> None:
        self.parts, (first, *_) = parts, parts
        count, (_, groups, rows, columns) = sum(part.shape[0] for part in parts), first.shape
        if any(part.shape[1:] != first.shape[1:] for part in parts):
            groups, rows, columns = 1, groups * rows, groups * columns
        self.shape = torch.Size((count, groups, rows, columns))
        self.form = tuple(part.form for part in parts)
        self.dtype, self.device = first.dtype, first.device
        self.requires_grad = any(part.requires_grad for part in parts)

    def full(self) -> Tensor:
        tensors = [part.full() for part in self.parts]
        if len({tensor.size(1) for tensor in tensors}) > 1:
            blocks = [[torch.block_diag(*one) for one in tensor] for tensor in tensors]
            tensors = [torch.stack(one).unsqueeze(1) for one in blocks]
        return torch.cat(tensors)

    def labels(self, start: int, end: int) -> Theta:
        """Θ_k for k from ``start`` to ``end``: of one part, if they all are in it."""
        chosen = [
            part.labels(max(start - first, 0), min(end, last) - first)
            for part, first, last in self._ranges()
            if max(start, first) < min(end, last)
        ]
        if len(chosen) == 1:
            return chosen[0]
        return ThetaParts(tuple(chosen)) if chosen else Theta(self.full()[start:end])

    def scaled(self, factor: Tensor | float) -> Theta:
        return ThetaParts(
            tuple(
                part.scaled(factor[first:last] if isinstance(factor, Tensor) else factor)
                for part, first, last in self._ranges()
            )
        )

    def _ranges(self) -> Iterator[tuple[Theta, int, int]]:
        """Each part with the first of its labels, and the one past its last."""
        first = 0
        for part in self.parts:
            last = first + part.shape[0]
            yield part, first, last
            first = last


class ThetaOfChannels(Theta):
    """Θ_{kQ+q} = c_kq W e_q e_qᵀ: each label makes one channel of X W, times a number.

    So channel q of Y is Σ_k c_kq A_{kQ+q}ᵀ (X W)_q, a filter of matrices of its own.

    Args:
        weight: W (P, Q).
        filters: c (K, Q), for K·Q labels.
    """

    is_tensor = False

    def __init__(self, weight: Tensor, filters: Tensor) -> None:
        self.weight, self.filters = weight, filters
        count = filters.numel()
        self.shape = torch.Size((count, 1, *weight.shape))
        self.form = "channels", self.shape
        self.dtype, self.device = weight.dtype, weight.device
        self.requires_grad = weight.requires_grad or filters.requires_grad

    def full(self) -> Tensor:
        alone = torch.diag_embed(self.filters).flatten(0, 1)  # (K·Q, Q), of which one is not 0
        return (alone.unsqueeze(1) * self.weight).unsqueeze(1)

    def labels(self, start: int, end: int) -> Theta:
        """Θ_k for k from ``start`` to ``end``: a mixture of W, unless they are all."""
        if (start, end) == (0, self.shape[0]):
            return self
        alone = torch.diag_embed(self.filters).flatten(0, 1)[start:end]
        return self._mixture(alone)

    def scaled(self, factor: Tensor | float) -> ThetaOfChannels:
        if isinstance(factor, Tensor):
            factor = factor.to(self.dtype).view(self.filters.shape)
        return ThetaOfChannels(self.weight, self.filters * factor)

    def mixed(self, matrix: Tensor) -> Theta:
        """Σ_j C[j, k] Θ_j for each k, for ``matrix`` C (K·Q, J): a mixture of W with filters."""
        each = matrix.to(self.dtype).unflatten(0, self.filters.shape)
        return self._mixture(torch.einsum("kq,kqj->jq", self.filters, each))

    def gathered(self, label: Tensor, num_labels: int) -> Theta:
        """For each k, the sum of the Θ_i with ``label[i] == k``: a mixture of W with filters."""
        alone = torch.diag_embed(self.filters).flatten(0, 1)
        return self._mixture(add_rows(alone, label, num_labels))

    def _mixture(self, filters: Tensor) -> Theta:
        """W diag(f_k) for filters f (K, Q)."""
        return Theta(self.weight.unsqueeze(0).unsqueeze(0), filters.unsqueeze(1))


# PyG parses the type hints of layers, and can parse this spelling.
ThetaValue = Union[Tensor, Theta]  # noqa: UP007
"""Θ (K, G, P/G, Q/G), as a tensor or as a :class:`Theta`."""


def as_theta(theta: ThetaValue) -> Theta:
    """Θ as an object of :class:`Theta`."""
    return Theta(theta) if isinstance(theta, Tensor) else theta


def as_heads(theta: ThetaValue) -> ThetaValue:
    """Full matrices (K, 1, P, Q) as heads whose results are added up; others as they are."""
    is_full = (isinstance(theta, Tensor) or theta.is_tensor) and theta.shape[1:2] == (1,)
    return Theta(as_theta(theta)._inner, heads="sum") if is_full else theta


def full(theta: ThetaValue) -> Tensor:
    """Θ as a tensor (K, G, P/G, Q/G)."""
    return theta if isinstance(theta, Tensor) else theta.full()


def scaled(theta: ThetaValue, factor: Tensor | float) -> ThetaValue:
    """c_k Θ_k, for ``factor`` (K,) or one number; a tensor if ``theta`` is a tensor."""
    product = as_theta(theta).scaled(factor)
    return product.full() if isinstance(theta, Tensor) else product


# Products and sums -------------------------------------------------------------------------------

NARROW, _MANY = 16, 1000  # at most so many columns of Θ, at least so many rows of X


def column_major(matrix: Tensor, x: Tensor) -> Tensor:
    """Θ (P, Q) stored column by column, if it is narrow, X (M, P) has many rows, and on a CPU.

    MKL multiplies many rows with few columns slowly otherwise, forwards and even more for the
    gradient of Θ, for which autograd uses the same layout: 500 to 7 channels take half the time.
    """
    if matrix.size(1) > NARROW or not matrix.is_cpu or torch.compiler.is_compiling():
        return matrix  # a compiled graph must not depend on the number of rows
    return matrix if x.numel() < _MANY * matrix.size(0) else matrix.t().contiguous().t()


def by_label(rows: Tensor, num_rows: int, num_labels: int) -> Tensor:
    """Rows (N·K, …) of pairs of node and label, viewed as (N, K, …)."""
    return rows.view(num_rows, num_labels, *rows.shape[1:])


def add_rows(rows: Tensor, label: Tensor, num_labels: int) -> Tensor:
    """Sum the rows of each label, (num_labels, …)."""
    return rows.new_zeros((num_labels, *rows.shape[1:])).index_add(0, label, rows)


def add_bias(out: Tensor, bias: Tensor, own: bool) -> Tensor:
    """Y + b for b (Q,) or of the shape of Y (N, *batch, Q), in Y where that is safe.

    A new tensor costs a good part of a sparse product: large allocations are fresh memory, whose
    first use is slow. ``own``: whether no other code holds Y, as contractions guarantee.
    """
    return out.add_(bias) if _is_writable(out, bias, own) else out + bias


def add_product(out: Tensor, factor: Tensor, rows: Tensor, own: bool) -> Tensor:
    """Y + F R, for Y (N, Q), ``factor`` F (N, K) and ``rows`` R (K, Q); see :func:`add_bias`."""
    if out.dim() != 2 or torch.is_autocast_enabled(out.device.type):
        return out + factor @ rows
    if _is_writable(out, rows, own):
        return out.addmm_(factor, rows)
    return torch.addmm(out, factor, rows)


def _is_writable(out: Tensor, added: Tensor, own: bool) -> bool:
    return (
        own
        and not torch.compiler.is_compiling()  # the compiler fuses the sum, and knows no views
        and out.dtype == added.dtype  # under autocast the sum has the longer dtype
        and not out._is_view()  # autograd needs the primitive's result that it is a view of
        and not torch._C._are_functorch_transforms_active()  # the bias may be batched, Y not
    )


def autocast_pair(value: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands in the dtype of autocast, as for a dense product; float64 is not converted."""
    kind = value.device.type
    if torch.is_autocast_enabled(kind) and torch.float64 not in (value.dtype, theta.dtype):
        dtype = torch.get_autocast_dtype(kind)
        return value.to(dtype), theta.to(dtype)
    return value, theta
