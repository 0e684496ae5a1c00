"""What a backend is: facts about itself, reasons to refuse, and the primitives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from .activation import Activation

REDUCTIONS = ("sum", "mean", "max", "min")


@dataclass(frozen=True)
class Request:
    """One call of a primitive, as far as a backend needs it to say yes or no.

    ``reduction`` is what happens within a row, of the primitives that reduce.
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


BACKENDS: dict[str, Backend] = {}
"""Every backend that there is, by name."""


class Backend:
    """An implementation of the primitives.

    A class below it that has a name is a backend from then on: :data:`BACKENDS` holds one of it.

    A backend states its facts as class attributes; :meth:`why_not` turns them into reasons.
    Implementations are plain functions of contiguous tensors: no autograd, no knowledge of a
    basis. A backend names the primitives that it has in ``primitives``, and defines those only.

    In all of them a sparse matrix of R rows and C columns is ``ptr`` (R + 1,), where
    ``ptr[r]:ptr[r + 1]`` are the E entries of row r, and ``index`` (E,), the columns, repeats
    allowed; ``value`` (E, H) has one matrix for each of H heads. Dense operands are
    (rows, heads, channels), where one head stands for all H: it is shared by them.

    Attributes:
        name: what users call it.
        priority: the dispatcher tries higher ones first; 0 is never picked automatically.
        devices: device types it runs on.
        dtypes: value types it computes in. Sums of short ones are accumulated in float32.
        primitives: names of the primitives it implements.
        reductions: what its ``spmm`` reduces a row with, on each of its devices.
        deterministic: whether equal input gives bitwise equal output.
        tolerance: closeness to the reference in float32, relative to its largest entry.
    """

    name: ClassVar[str]
    priority: ClassVar[int]
    devices: ClassVar[frozenset[str]]
    dtypes: ClassVar[frozenset[torch.dtype]]
    primitives: ClassVar[frozenset[str]]
    reductions: ClassVar[frozenset[str]] = frozenset(REDUCTIONS)
    deterministic: ClassVar[bool]
    tolerance: ClassVar[float]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            BACKENDS[cls.name] = cls()

    def missing(self) -> list[str]:
        """What has to be installed or built in before this backend can run at all."""
        return []

    def remarks(self) -> list[str]:
        """What :func:`~pyg_outerconv.backends` should say about this backend on this machine."""
        return []

    def why_not(self, request: Request) -> list[str]:
        """Every reason why this backend cannot serve ``request``; empty means that it can.

        Calls that differ in sizes alone get one answer, which is asked for once.
        """
        reasons = self.missing()
        if request.primitive not in self.primitives:
            reasons.append(f"has no {request.primitive}")
        if request.reduction not in self.reductions:
            reasons.append(f"reduces with {_names(self.reductions)}, not with {request.reduction}")
        if request.device not in self.devices:
            reasons.append(f"runs on {_names(self.devices)}, not on {request.device}")
        if request.dtype not in self.dtypes:
            reasons.append(f"computes in {_names(self.dtypes)}, not in {request.dtype}")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """Sparse times dense: ``out[r, h, :] = sum_{e of row r} value[e, h] x[index[e], h, :]``.

        ``value`` (E, H), or None for ones; ``x`` (C, H or 1, channels). Returns (R, H, channels);
        without values H is the number of heads of ``x``.
        """
        raise NotImplementedError

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        """The entry e of row r with the largest (or least) ``value[e, h] x[index[e], h, c]``.

        Returns (R, H, channels) int64 positions of entries, -1 for rows without any; NaN counts
        as largest and as least, and of equal ones the first is taken.
        """
        raise NotImplementedError

    def spmm_theta(
        self,
        ptr: Tensor,
        index: Tensor,
        label: Tensor,
        value: Tensor | None,
        x: Tensor,
        theta: Tensor,
    ) -> Tensor:
        """Propagate and transform in one, with nothing of the size of the labelled rows held.

        ``out[r] = sum_{e of row r} value[e] x[index[e]] theta[label[e]]``.
        Entries of a row are sorted by ``label`` (E,); ``value`` (E,) or None; ``x`` (C, P);
        ``theta`` (K, P, Q). Returns (R, Q).
        """
        raise NotImplementedError

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Sampled dense-dense product: ``out[e, h] = <a[row of e, h, :], b[index[e], h, :]>``.

        ``a`` (R, H or 1, channels), ``b`` (C, H or 1, channels); returns (E, H).
        """
        raise NotImplementedError

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        """Sums within rows: ``out[r, h] = sum_{e of row r} value[e, h]``; (E, H) to (R, H)."""
        raise NotImplementedError

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        """Softmax within rows: ``exp(score[e, h]) / sum_{f of the row of e} exp(score[f, h])``.

        (E, H) to (E, H). Rows in which every score is -inf give zeros.
        """
        raise NotImplementedError

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
        """Score, softmax within rows, sum, in one: no tensor of entries × channels.

        ``score[e, h] = scale <query[row of e, h, :], key[index[e], h, :]> + bias[e, h]``.
        ``query`` (R, H, D), ``key`` (C, H, D), ``value`` (C, H, V), ``bias`` (E, H) or None.
        Returns ``out`` (R, H, V), and ``log(sum exp(score))`` of each row, (R, H), in float32 for
        short types; rows without an entry whose score is above -inf are zeros, and -inf.
        """
        raise NotImplementedError

    def attend_backward(
        self,
        view: tuple[Tensor, Tensor],
        transposed_view: tuple[Tensor, Tensor, Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float,
        out: Tensor,
        logsumexp: Tensor,
        grad: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of :meth:`attend` in query, key, value and score (E, H).

        The gradient in the score is that of the bias; without a bias it may have no entries.

        ``view`` is (ptr, index) of the matrix, ``transposed_view`` is (ptr, index, perm) of its
        transpose, where ``perm[i]`` is the position of the transpose's entry i in ``view``.
        """
        raise NotImplementedError

    def additive(
        self,
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        left: Tensor | None,
        right: Tensor | None,
        phi: Activation,
    ) -> Tensor:
        """Additive scores, with nothing of the size entries × channels held.

        ``out[e, h] = sum_c left[r, h, c] right[i, h, c] phi(a[r, h, c] + b[i, h, c])`` for entry e
        of row r and column i. ``a`` (R, H, channels), ``b`` (C, H, channels); the factors are of
        the same shapes, or have one row for all, or are None for ones. Returns (E, H).
        """
        raise NotImplementedError

    def additive_rows(
        self,
        ptr: Tensor,
        index: Tensor,
        a: Tensor,
        b: Tensor,
        right: Tensor | None,
        value: Tensor,
        phi: Activation,
        count: int,
    ) -> Tensor:
        """What the derivatives of :meth:`additive` are made of: its sums within rows.

        ``out[n, r, h, c] = sum_{e of row r} value[e, h] right[i, h, c] phi_n(a[r, h, c] +
        b[i, h, c])`` with i the column of e and ``phi_n`` the derivative of order n of ``phi``.
        ``right`` (C, H, channels) or None for ones, ``value`` (E, H). Returns
        (count, R, H, channels).
        """
        raise NotImplementedError

    def grouped_matmul(
        self,
        x: Tensor,
        ptr: Tensor,
        theta: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
        num_rows: int,
    ) -> Tensor:
        """A matrix for each group of rows: ``out[scatter[i]] += x[gather[i]] @ theta[g of i]``.

        Row i is of group g where ``ptr[g] <= i < ptr[g + 1]``, and ``ptr[G]`` is I. ``x`` (_, P),
        ``theta`` (G, P, Q), ``gather`` and ``scatter`` (I,), or None for i itself; within a group
        no entry of ``gather``, and none of ``scatter``, comes twice. Returns (num_rows, Q), zero
        where nothing arrives.
        """
        raise NotImplementedError

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
        raise NotImplementedError


PRIMITIVES = frozenset({"spmm", "sddmm", "segment_softmax", "attend", "grouped_matmul"})
"""What every layer can rely on. ``spmm`` with max or min is ``spmm_arg``, ``segment_sum`` goes with
``segment_softmax``, ``grouped_outer`` with ``grouped_matmul``; ``spmm_theta`` is an extra, and so
is ``additive``, with which ``additive_rows`` goes."""


def _names(items: frozenset[str] | frozenset[torch.dtype]) -> str:
    return ", ".join(sorted(str(item) for item in items))
