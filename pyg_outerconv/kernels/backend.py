"""What a backend is: facts about itself, reasons to refuse, and the primitives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class Request:
    """One call of a primitive, as far as a backend needs it to say yes or no."""

    primitive: str
    device: str
    dtype: torch.dtype
    index_dtype: torch.dtype
    shape: tuple[int, int]
    num_entries: int
    channels: int

    def __str__(self) -> str:
        rows, cols = self.shape
        return (
            f"{self.primitive} of a {rows} x {cols} matrix with {self.num_entries} entries "
            f"and {self.channels} channels, {self.dtype} on {self.device}, "
            f"indices {self.index_dtype}"
        )


class Backend(ABC):
    """An implementation of the primitives.

    A backend states its facts as class attributes; :meth:`why_not` turns them into reasons.
    Implementations are plain functions of tensors: no autograd, no knowledge of a basis.

    Attributes:
        name: what users call it.
        priority: the dispatcher tries higher ones first; 0 is never picked automatically.
        devices: device types it runs on.
        dtypes: value types it computes in.
        primitives: names of the primitives it implements.
        deterministic: whether equal input gives bitwise equal output.
        tolerance: closeness to the reference in float32, relative to its largest entry.
    """

    name: ClassVar[str]
    priority: ClassVar[int]
    devices: ClassVar[frozenset[str]]
    dtypes: ClassVar[frozenset[torch.dtype]]
    primitives: ClassVar[frozenset[str]] = frozenset({"spmm", "sddmm"})
    deterministic: ClassVar[bool]
    tolerance: ClassVar[float]

    def missing(self) -> list[str]:
        """What has to be installed or built in before this backend can run at all."""
        return []

    def why_not(self, request: Request) -> list[str]:
        """Every reason why this backend cannot serve ``request``; empty means that it can."""
        reasons = self.missing()
        if request.primitive not in self.primitives:
            reasons.append(f"has no {request.primitive}")
        if request.device not in self.devices:
            reasons.append(f"runs on {_names(self.devices)}, not on {request.device}")
        if request.dtype not in self.dtypes:
            reasons.append(f"computes in {_names(self.dtypes)}, not in {request.dtype}")
        return reasons

    @abstractmethod
    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """Sparse times dense: ``out[r, :] = sum_e value[e] * x[index[e], :]`` over row r.

        ``ptr`` (R + 1,), ``index`` (E,), ``value`` (E,) or None for ones, ``x`` (C, channels).
        """

    @abstractmethod
    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Sampled dense-dense product: ``out[e] = <a[row of e, :], b[index[e], :]>``.

        ``a`` (R, channels), ``b`` (C, channels); the result is (E,).
        """


def _names(items: frozenset[str] | frozenset[torch.dtype]) -> str:
    return ", ".join(sorted(str(item) for item in items))
