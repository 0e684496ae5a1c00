"""The base class of backends: their abilities, reasons to refuse a call, and the primitives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..errors import RefusedType
from ..registry import Named, Registry
from .activation import Activation
from .tiles import exact, repeated

REDUCTIONS = ("sum", "mean", "max", "min")


@dataclass(frozen=True)
class Request:
    """The properties of a call of a primitive on which a backend decides whether it can serve it.

    Attributes:
        primitive: the name of the primitive.
        device: the type of the device.
        dtype: the dtype of the operands.
        index_dtype: the dtype of the indices.
        shape: (R, C) of the sparse matrix.
        num_entries: E.
        channels: the number of channels.
        heads: H.
        reduction: the reduction within a row; one of ``REDUCTIONS``.
    """

    primitive: str
    device: str
    dtype: torch.dtype
    index_dtype: torch.dtype
    shape: tuple[int, int]
    num_entries: int
    channels: int
    heads: int = 1
    reduction: str = "sum"

    def __str__(self) -> str:
        rows, cols = self.shape
        reduction = "" if self.reduction == "sum" else f" ({self.reduction})"
        return (
            f"{self.primitive}{reduction} of a {rows} x {cols} matrix with {self.num_entries} "
            f"entries, {self.heads} heads and {self.channels} channels, {self.dtype} on "
            f"{self.device}, indices {self.index_dtype}"
        )


class Attention(NamedTuple):
    """The operands of attention along the entries of a matrix.

    ``score[e, h] = scale <query[row of e, h, :], key[index[e], h, :]> + bias[e, h]``; with
    ``ends``, ``leaky_relu(query[row of e, h] + key[index[e], h])``.

    Attributes:
        query: (R, H, D), or (R, H) for ends.
        key: (C, H, D), or (C, H).
        value: (C, H, V).
        bias: (E, H) or None; none for ends.
        scale: the factor of scores; for ends the slope of the leaky ReLU below zero.
        ends: whether scores are sums of one number for each end.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    scale: float
    ends: bool


class Neurons(NamedTuple):
    """The operands of additive scores.

    ``score[e, h] = sum_c left[r, h, c] right[i, h, c] phi(a[r, h, c] + b[i, h, c])`` for entry e of
    row r and column i.

    Attributes:
        a: (R, H, channels).
        b: (C, H, channels).
        left: of the shape of ``a``, or one row for all, or None for ones.
        right: of the shape of ``b``, or one row for all, or None for ones.
        phi: the activation, or a derivative of it.
    """

    a: Tensor
    b: Tensor
    left: Tensor | None
    right: Tensor | None
    phi: Activation

    def turned(self) -> Neurons:
        """The same scores for the transposed matrix."""
        return Neurons(self.b, self.a, self.right, self.left, self.phi)


class Groups(NamedTuple):
    """Which rows are multiplied with which matrix, and where their products go.

    Attributes:
        ptr: (G + 1,) product i is of group g if ``ptr[g] <= i < ptr[g + 1]``; ``ptr[G]`` is I.
        gather: (I,) the row of the operand in product i, without repetitions within a group; None
            for i itself.
        scatter: (I,) the row of the result likewise.
        num_rows: the number of rows of the result.
    """

    ptr: Tensor
    gather: Tensor | None
    scatter: Tensor | None
    num_rows: int

    def num_products(self, x: Tensor) -> int:
        """I, for the operand ``x``."""
        index = self.gather if self.gather is not None else self.scatter
        return x.size(0) if index is None else index.numel()

    def turned(self, num_rows: int) -> Groups:
        """From rows of the result to so many of the operand."""
        return Groups(self.ptr, self.scatter, self.gather, num_rows)


BACKENDS: Registry[Backend] = Registry("backend", objects=True)
"""The backends, by name."""
CHOSEN: dict[tuple[object, ...], str] = {}
"""The backend of a call, by all that the choice depends on; forgotten when one is registered."""


class Backend(Named, registry=BACKENDS):
    """An implementation of the primitives.

    A subclass with a ``name`` is registered in :data:`BACKENDS`.

    A backend states its abilities as class attributes; :meth:`why_not` compares a request with
    them. The primitives are functions of contiguous tensors, without autograd. They return no
    views, for autograd lets no caller change a view that comes from within a ``Function``. A
    backend lists its primitives in ``primitives``, and defines these and those that their
    derivatives are made of, such as ``sddmm`` and ``segment_sum`` for ``spmm``; the methods of this
    class return empty tensors of the shapes of the results.

    In all of them a sparse matrix with R rows, C columns and E entries is given by ``ptr`` (R + 1,)
    and ``index`` (E,): the entries of row r are ``ptr[r]:ptr[r + 1]``, and ``index`` holds their
    columns, repeats allowed. ``value`` (E, H) holds the values of H matrices with these entries.
    Dense operands are (rows, H, channels), or (rows, 1, channels) for an operand that all heads
    share.

    Attributes:
        name: the name of the backend.
        priority: backends of higher priority are tried first; 0 is used only if asked for by name.
        devices: the types of devices on which it runs.
        dtypes: the dtypes in which it computes; sums of 16-bit dtypes are accumulated in float32.
        primitives: the names of the primitives it implements.
        reductions: the reductions of its ``spmm``, on each of its devices.
        deterministic: those of its devices on which equal input gives bitwise equal output, where
            torch is asked for its deterministic operators.
        tolerance: the largest difference from the reference in float32, relative to the largest
            entry of the result.
    """

    name: ClassVar[str]
    priority: ClassVar[int]
    devices: ClassVar[frozenset[str]]
    dtypes: ClassVar[frozenset[torch.dtype]]
    primitives: ClassVar[frozenset[str]]
    reductions: ClassVar[frozenset[str]] = frozenset(REDUCTIONS)
    deterministic: ClassVar[frozenset[str]]
    tolerance: ClassVar[float]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "name" in vars(cls):
            _check_declared(cls)
        super().__init_subclass__(**kwargs)
        CHOSEN.clear()

    def missing(self) -> list[str]:
        """Names of what has to be installed or built before this backend can run; else empty."""
        return []

    def remarks(self) -> list[str]:
        """Remarks on this backend on this machine, for :func:`~pyg_outerconv.backends`."""
        return []

    def why_not(self, request: Request) -> list[str]:
        """All reasons why this backend cannot serve ``request``; empty if it can.

        The reasons must not depend on sizes: the answer is cached for requests that differ only
        in sizes.
        """
        reasons = self.missing()
        if request.primitive not in self.primitives:
            reasons.append(f"has no {request.primitive}")
        if request.reduction not in self.reductions:
            reasons.append(f"reduces with {_names(self.reductions)}, not with {request.reduction}")
        if request.device not in (*self.devices, "meta"):  # there operators give shapes alone
            reasons.append(f"runs on {_names(self.devices)}, not on {request.device}")
        if request.dtype not in self.dtypes:
            reasons.append(f"computes in {_names(self.dtypes)}, not in {request.dtype}")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """Sparse times dense: ``out[r, h, :] = sum_{e of row r} value[e, h] x[index[e], h, :]``.

        ``value`` is (E, H), or None for ones; ``x`` is (C, H or 1, channels). Returns
        (R, H, channels); without values H is the number of heads of ``x``.
        """
        heads = x.size(1) if value is None else value.size(1)
        return x.new_empty((ptr.numel() - 1, heads, x.size(2)))

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        """The entry e of row r with the largest (or least) ``value[e, h] x[index[e], h, c]``.

        Returns the positions of entries, (R, H, channels) int64, -1 for rows without entries. NaN
        counts as the largest and as the least number; of equal products the first one is taken.
        """
        heads = x.size(1) if value is None else value.size(1)
        return x.new_empty((ptr.numel() - 1, heads, x.size(2)), dtype=torch.int64)

    def chosen(self, index: Tensor, arg: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """The products that max and min chose, ``out[r, h, c] = value[n, h] x[index[n], h, c]``.

        n is ``arg[r, h, c]``, of (R, H, channels); where it is -1, out is 0. ``index`` (E,) and
        ``value`` (E, H), or None for ones, are in one order; ``x`` is (C, H or 1, channels).
        A backend has this, ``chosen_sum`` and ``chosen_sample``, the gradients, or none of them:
        torch then differentiates a gather.
        """
        return x.new_empty(arg.shape)

    def chosen_sum(
        self,
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        arg: Tensor,
        value: Tensor | None,
        x: Tensor,
    ) -> Tensor:
        """The gradient of max and min in the dense operand, by rows of the transposed matrix.

        ``out[r, h, c] = sum_{e of row r} value[n, h] x[index[e], h, c]`` of those entries whose
        number n, which is ``perm[e]`` or e, equals ``arg[index[e], h, c]``. ``x`` and ``arg``
        (C, H, channels), ``value`` (E, H) or None for ones. Returns (R, H, channels).
        """
        return x.new_empty((ptr.numel() - 1, *x.shape[1:]))

    def chosen_sample(
        self,
        ptr: Tensor,
        index: Tensor,
        perm: Tensor | None,
        arg: Tensor,
        a: Tensor,
        b: Tensor,
    ) -> Tensor:
        """The gradient of max and min in the values.

        ``out[n, h] = sum_c a[r, h, c] b[index[e], h, c]`` over the channels c in which ``arg[r, h,
        c]`` of row r is the number n of the entry e, ``perm[e]`` or e. ``a`` and ``arg`` (R, H,
        channels), ``b`` (C, H or 1, channels). Returns (E, H).
        """
        return a.new_empty((index.numel(), a.size(1)))

    def spmm_theta(
        self,
        ptr: Tensor,
        index: Tensor,
        label: Tensor,
        value: Tensor | None,
        x: Tensor,
        theta: Tensor,
    ) -> Tensor:
        """Propagate and transform in one step, without a tensor of R × K × P numbers.

        ``out[r] = sum_{e of row r} value[e] x[index[e]] theta[label[e]]``. The entries of a row are
        sorted by ``label`` (E,); ``value`` is (E,), or None for ones; ``x`` (C, P); ``theta``
        (K, P, Q). Returns (R, Q).
        """
        return x.new_empty((ptr.numel() - 1, theta.size(2)))

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Sampled dense-dense product: ``out[e, h] = <a[row of e, h, :], b[index[e], h, :]>``.

        ``a`` (R, H or 1, channels), ``b`` (C, H or 1, channels); returns (E, H).
        """
        return a.new_empty((index.numel(), max(a.size(1), b.size(1))))

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        """Sums within rows: ``out[r, h] = sum_{e of row r} value[e, h]``; (E, H) to (R, H)."""
        return value.new_empty((ptr.numel() - 1, value.size(1)))

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        """Softmax within rows: ``exp(score[e, h]) / sum_{f of the row of e} exp(score[f, h])``.

        (E, H) to (E, H). Rows in which every score is -inf give zeros.
        """
        return score.new_empty(score.shape)

    def attend(self, ptr: Tensor, index: Tensor, attention: Attention) -> tuple[Tensor, Tensor]:
        """Scores, softmax within rows and weighted sum, without a tensor of entries × channels.

        Returns ``out`` (R, H, V), zeros for rows without an entry of score above -inf, and
        numbers (R, H) for :meth:`attend_backward`, in float32 for 16-bit dtypes. Where a backend
        does not define it, it is made of other primitives.
        """
        score, _ = self._scores(ptr, index, attention)
        share = self.segment_softmax(ptr, score)
        out = self.spmm(ptr, index, share, exact(attention.value)).to(attention.value.dtype)
        return out, score.new_zeros(attention.query.shape[:2])

    def attend_backward(
        self,
        ptr: Tensor,
        index: Tensor,
        ptr_t: Tensor,
        index_t: Tensor,
        perm_t: Tensor,
        attention: Attention,
        out: Tensor,
        of_rows: Tensor,
        grad: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of :meth:`attend` in query, key, value and bias; (0, H) without a bias.

        ``ptr_t`` and ``index_t`` are those of the transposed matrix, and ``perm_t[i]`` is the
        position of its entry i in the matrix. ``out`` and ``of_rows`` are what it returned. Shares
        are computed again.
        """
        query, key, value, bias, scale, ends = attention
        score, bend = self._scores(ptr, index, attention)
        share, above = self.segment_softmax(ptr, score), exact(grad)
        of_score = self.sddmm(ptr, index, above, exact(value))
        of_score -= repeated((above * exact(out)).sum(-1), ptr, of_score.size(0))
        of_score *= share if bend is None else share * bend
        ordered = of_score.index_select(0, perm_t)
        if ends:
            of_query, of_key = self.segment_sum(ptr, of_score), self.segment_sum(ptr_t, ordered)
        else:
            of_query = self.spmm(ptr, index, of_score, exact(key)) * scale
            of_key = self.spmm(ptr_t, index_t, ordered, exact(query)) * scale
        of_value = self.spmm(ptr_t, index_t, share.index_select(0, perm_t), above)
        of_bias = of_score.new_empty((0, of_score.size(1))) if bias is None else of_score
        gradients = [x.to(value.dtype) for x in (of_query, of_key, of_value, of_bias)]
        return gradients[0], gradients[1], gradients[2], gradients[3]

    def _scores(
        self, ptr: Tensor, index: Tensor, attention: Attention
    ) -> tuple[Tensor, Tensor | None]:
        """Scores (E, H) of :meth:`attend`, and the slope of the leaky ReLU of ``ends``."""
        query, key, _, bias, scale, ends = attention
        if ends:
            term = repeated(exact(query), ptr, index.numel()) + exact(key).index_select(0, index)
            bend = torch.ones_like(term).masked_fill(term <= 0, scale)
            return term * bend, bend
        score = self.sddmm(ptr, index, exact(query) * scale, exact(key))
        return score if bias is None else score + bias.to(score.dtype), None

    def additive(self, ptr: Tensor, index: Tensor, layer: Neurons) -> Tensor:
        """Additive scores, without a tensor of entries × channels; returns (E, H)."""
        return layer.a.new_empty((index.numel(), layer.a.size(1)))

    def additive_rows(
        self, ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor, count: int
    ) -> Tensor:
        """Weighted sums within rows, of which the derivatives of :meth:`additive` are made.

        ``out[n, r, h, c] = sum_{e of row r} value[e, h] right[i, h, c] phi_n(a[r, h, c] +
        b[i, h, c])`` with i the column of e and ``phi_n`` the derivative of order n of ``phi``.
        ``left`` is None, ``right`` (C, H, channels) or None, ``value`` (E, H). Returns
        (count, R, H, channels).
        """
        return layer.a.new_empty((count, *layer.a.shape))

    def additive_backward(
        self, ptr: Tensor, index: Tensor, layer: Neurons, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients in a, b and left of ``sum_eh value[e, h] score[e, h]``, on a CPU.

        The scores are those of :meth:`additive` with ``left`` (1, H, channels) alone. A backend
        may leave it out: :meth:`additive_rows` then serves each end.
        """
        a, b, left, *_ = layer
        assert left is not None
        return a.new_empty(a.shape), b.new_empty(b.shape), left.new_empty(left.shape)

    def grouped_matmul(self, x: Tensor, theta: Tensor, groups: Groups) -> Tensor:
        """Multiply rows with the matrix of their group: ``out[scatter[i]] += x[gather[i]] Θ_g``.

        ``x`` is (any, P), ``theta`` Θ (G, P, Q). Returns (num_rows, Q), zero in rows to which
        nothing is added.
        """
        return x.new_empty((groups.num_rows, theta.size(2)))

    def grouped_outer(self, x: Tensor, y: Tensor, groups: Groups) -> Tensor:
        """The gradient of :meth:`grouped_matmul` in theta, for ``y`` (num_rows, Q).

        ``out[g] = sum_{i of g} x[gather[i]]^T y[scatter[i]]``; returns (G, P, Q).
        """
        return x.new_empty((groups.ptr.numel() - 1, x.size(1), y.size(1)))


PRIMITIVES = frozenset({"spmm", "sddmm", "segment_softmax", "attend", "grouped_matmul"})
"""The primitives that suffice for every layer; beyond these there are spmm_theta and additive."""


def defines(name: str, method: Callable[..., Any]) -> bool:
    """Whether a backend has its own one of these methods of :class:`Backend`."""
    return getattr(type(BACKENDS[name]), method.__name__, method) is not method


_DECLARED = ("priority", "devices", "dtypes", "primitives", "deterministic", "tolerance")

# What the backend of a primitive is called for besides, above all by derivatives.
_INCLUDED = {
    "spmm": ("spmm_arg", "sddmm", "segment_sum"),
    "spmm_theta": ("spmm", "sddmm"),
    "sddmm": ("spmm", "segment_sum"),
    "segment_softmax": ("segment_sum",),
    "attend": ("spmm", "sddmm", "segment_softmax", "segment_sum"),
    "additive": ("additive_rows",),
    "grouped_matmul": ("grouped_outer",),
}


def _check_declared(kind: type[Backend]) -> None:
    """Refuse a backend that leaves an ability unsaid, or whose gradients would be empty tensors."""
    if unsaid := [name for name in _DECLARED if not hasattr(kind, name)]:
        rule = f"the backend {kind.name!r} states its abilities"
        raise RefusedType(rule, ", ".join(_DECLARED), f"no {', '.join(unsaid)}")
    compares = not kind.reductions.isdisjoint(("max", "min"))
    for primitive in sorted(kind.primitives):
        own = () if primitive == "attend" else (primitive,)  # which is made of others
        for method in (*own, *_INCLUDED.get(primitive, ())):
            is_own = getattr(kind, method) is not getattr(Backend, method)
            if not is_own and (compares or method != "spmm_arg"):
                rule = f"{primitive} and its derivatives call {method} of the same backend"
                expected = f"{kind.name!r} to define it"
                if method == "spmm_arg":
                    expected += ", or `reductions` without max and min"
                raise RefusedType(rule, expected, "no such method")


def _names(items: frozenset[str] | frozenset[torch.dtype]) -> str:
    return ", ".join(sorted(str(item) for item in items))
