"""The base class of backends: their abilities, reasons to refuse a call, and the primitives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import RefusedType
from ..registry import Named, Registry
from .tiles import accumulator

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


BACKENDS: Registry[Backend] = Registry("backend", objects=True)
"""The backends, by name."""


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
        """Scores, softmax within rows and weighted sum, without a tensor of entries × channels.

        ``score[e, h] = scale <query[row of e, h, :], key[index[e], h, :]> + bias[e, h]``.
        ``query`` (R, H, D), ``key`` (C, H, D), ``value`` (C, H, V), ``bias`` (E, H) or None.
        Returns ``out`` (R, H, V), and ``log(sum exp(score))`` of each row, (R, H), in float32 for
        16-bit dtypes; these are zeros and -inf for rows without an entry of score above -inf.
        """
        out = value.new_empty((query.size(0), *value.shape[1:]))
        return out, query.new_empty(query.shape[:2], dtype=accumulator(query.dtype))

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
        """The gradients of :meth:`attend` in query, key, value and bias; (0, H) without a bias.

        ``ptr_t`` and ``index_t`` are those of the transposed matrix, and ``perm_t[i]`` is the
        position of its entry i in the matrix.
        """
        found = query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)
        return *found, query.new_empty((0 if bias is None else index.numel(), query.size(1)))

    def attend_ends(
        self,
        ptr: Tensor,
        index: Tensor,
        at_target: Tensor,
        at_source: Tensor,
        value: Tensor,
        slope: float,
    ) -> tuple[Tensor, Tensor]:
        """:meth:`attend` with scores of one number for each end.

        ``score[e, h] = leaky_relu(at_target[row of e, h] + at_source[index[e], h])``, with
        ``slope`` below zero. ``at_target`` (R, H), ``at_source`` (C, H), ``value`` (C, H, V).
        Returns what :meth:`attend` does.
        """
        out = value.new_empty((ptr.numel() - 1, *value.shape[1:]))
        return out, value.new_empty(at_target.shape, dtype=accumulator(value.dtype))

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
        """The gradients of :meth:`attend_ends` in at_target, at_source and value."""
        ends = at_target, at_source, value
        return tuple([x.new_empty(x.shape) for x in ends])  # type: ignore[return-value]

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
        """Additive scores, without a tensor of entries × channels.

        ``out[e, h] = sum_c left[r, h, c] right[i, h, c] phi(a[r, h, c] + b[i, h, c])`` for entry e
        of row r and column i. ``a`` is (R, H, channels), ``b`` (C, H, channels). ``left`` has the
        shape of ``a``, ``right`` of ``b``, or one row for all, or they are None for ones.
        ``phi`` is the :class:`~.activation.Activation` of ``activation``, ``slope`` and ``order``.
        Returns (E, H).
        """
        return a.new_empty((index.numel(), a.size(1)))

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
        """Weighted sums within rows, of which the derivatives of :meth:`additive` are made.

        ``out[n, r, h, c] = sum_{e of row r} value[e, h] right[i, h, c] phi_n(a[r, h, c] +
        b[i, h, c])`` with i the column of e and ``phi_n`` the derivative of order n of ``phi``.
        ``right`` (C, H, channels) or None for ones, ``value`` (E, H). Returns
        (count, R, H, channels).
        """
        return a.new_empty((count, *a.shape))

    def additive_backward(
        self,
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        weight: Tensor,
        value: Tensor,
        activation: str,
        slope: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients in a, b and weight of ``sum_eh value[e, h] score[e, h]``, on a CPU.

        The scores are those of :meth:`additive` with the ``weight`` (H, channels) alone. A backend
        may leave it out: :meth:`additive_rows` then serves each end.
        """
        return a.new_empty(a.shape), b.new_empty(b.shape), weight.new_empty(weight.shape)

    def grouped_matmul(
        self,
        x: Tensor,
        ptr: Tensor,
        theta: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
    ) -> Tensor:
        """Multiply rows with the matrix of their group: ``out[scatter[i]] += x[gather[i]] Θ_g``.

        Row i is in group g if ``ptr[g] <= i < ptr[g + 1]``, and ``ptr[G]`` is I. ``x`` is (any, P),
        ``theta`` Θ (G, P, Q); ``gather`` and ``scatter`` are (I,), or None for i itself, without
        repetitions within a group. Returns (num_rows, Q), zero in rows to which nothing is added.
        """
        return x.new_empty((num_rows, theta.size(2)))

    def grouped_outer(
        self,
        x: Tensor,
        ptr: Tensor,
        y: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
    ) -> Tensor:
        """The gradient of :meth:`grouped_matmul` in theta, for ``y`` (num_rows, Q).

        ``out[g] = sum_{i of g} x[gather[i]]^T y[scatter[i]]``; returns (G, P, Q).
        """
        return x.new_empty((ptr.numel() - 1, x.size(1), y.size(1)))


PRIMITIVES = frozenset({"spmm", "sddmm", "segment_softmax", "attend", "grouped_matmul"})
"""The primitives that suffice for every layer; beyond these there are spmm_theta, additive and
attend_ends."""

_DECLARED = ("priority", "devices", "dtypes", "primitives", "deterministic", "tolerance")

# What the backend of a primitive is called for besides, above all by derivatives.
_INCLUDED = {
    "spmm": ("spmm_arg", "sddmm", "segment_sum"),
    "spmm_theta": ("spmm", "sddmm"),
    "sddmm": ("spmm", "segment_sum"),
    "segment_softmax": ("segment_sum",),
    "attend": ("attend_backward", "spmm", "sddmm", "segment_softmax", "segment_sum"),
    "attend_ends": ("attend_ends_backward", "spmm", "sddmm", "segment_softmax", "segment_sum"),
    "additive": ("additive_rows",),
    "grouped_matmul": ("grouped_outer",),
}


def _check_declared(kind: type[Backend]) -> None:
    """Refuse a backend that leaves an ability unsaid, or whose gradients would be empty tensors.

    Raises:
        TypeError: it does.
    """
    if unsaid := [name for name in _DECLARED if not hasattr(kind, name)]:
        rule = f"the backend {kind.name!r} states its abilities"
        raise RefusedType(rule, ", ".join(_DECLARED), f"no {', '.join(unsaid)}")
    compares = not kind.reductions.isdisjoint(("max", "min"))
    for primitive in sorted(kind.primitives):
        for method in (primitive, *_INCLUDED.get(primitive, ())):
            is_own = getattr(kind, method) is not getattr(Backend, method)
            if not is_own and (compares or method != "spmm_arg"):
                rule = f"{primitive} and its derivatives call {method} of the same backend"
                expected = f"{kind.name!r} to define it"
                if method == "spmm_arg":
                    expected += ", or `reductions` without max and min"
                raise RefusedType(rule, expected, "no such method")


def _names(items: frozenset[str] | frozenset[torch.dtype]) -> str:
    return ", ".join(sorted(str(item) for item in items))
