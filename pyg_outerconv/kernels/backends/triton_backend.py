"""Triton kernels for CUDA; Triton's interpreter runs them on a CPU, to test them."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor

from ..backend import PRIMITIVES, Backend, Request
from .triton_settings import INTERPRETED, TUNE


class Triton(Backend):
    """Fused kernels without atomics; sums of 16-bit dtypes are accumulated in float32.

    With ``TRITON_INTERPRET=1`` set before the package is imported, Triton interprets the kernels,
    slowly, also on a CPU; then this backend is used only if asked for by name.
    """

    name = "triton"
    priority = 0 if INTERPRETED else 20
    devices = frozenset({"cuda", "cpu"} if INTERPRETED else {"cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"spmm_theta"}
    deterministic = True
    tolerance = 1e-5

    def missing(self) -> list[str]:
        """Name the packages that have to be installed."""
        if importlib.util.find_spec("triton") is None:
            return ["triton is not installed (pip install 'pyg_outerconv[triton]')"]
        return []

    def why_not(self, request: Request) -> list[str]:
        """Reasons why this backend cannot serve a request."""
        reasons = super().why_not(request)
        if request.device == "cpu" and not INTERPRETED:
            reasons.append("a cpu needs Triton's interpreter (TRITON_INTERPRET=1 from the start)")
        if request.dtype == torch.bfloat16 and INTERPRETED:
            reasons.append("bfloat16 arithmetic is wrong under Triton's interpreter")
        if os.environ.get(TUNE) == "1" and INTERPRETED:
            reasons.append(f"Triton's interpreter cannot tune ({TUNE}=1)")
        return reasons

    def spmm(self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor) -> Tensor:
        """Multiply a sparse matrix with a dense one, (R, H, channels)."""
        from .triton.spmm import spmm

        return spmm(ptr, index, value, x)

    def spmm_arg(
        self, ptr: Tensor, index: Tensor, value: Tensor | None, x: Tensor, largest: bool
    ) -> Tensor:
        """Find the entry of each row with the largest or least product, (R, H, channels)."""
        from .triton.extreme import spmm_arg

        return spmm_arg(ptr, index, value, x, largest)

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
        from .triton.fused import spmm_theta

        return spmm_theta(ptr, index, label, value, x, theta)

    def sddmm(self, ptr: Tensor, index: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Compute the dot product of row and column operands for each entry, (E, H)."""
        from .triton.sddmm import sddmm

        return sddmm(ptr, index, a, b)

    def segment_sum(self, ptr: Tensor, value: Tensor) -> Tensor:
        """Sum the values of each row, (R, H)."""
        from .triton.sums import segment_sum

        return segment_sum(ptr, value)

    def segment_softmax(self, ptr: Tensor, score: Tensor) -> Tensor:
        """Normalise the scores of each row by a softmax, (E, H)."""
        from .triton.softmax import segment_softmax

        return segment_softmax(ptr, score)

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
        """Attend along the entries: the result (R, H, V) and log(sum exp(score)) (R, H)."""
        from .triton.attend import attend

        return attend(ptr, index, query, key, value, bias, scale)

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
        """Compute the gradients of attention in query, key, value and score."""
        from .triton.attend_backward import attend_backward

        return attend_backward(
            view, transposed_view, query, key, value, bias, scale, out, logsumexp, grad
        )

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
        from .triton.grouped import grouped_matmul

        products = _products(x, gather, scatter)
        return grouped_matmul(x, ptr, theta, gather, scatter, num_rows, products)

    def grouped_outer(
        self,
        x: Tensor,
        ptr: Tensor,
        y: Tensor,
        gather: Tensor | None,
        scatter: Tensor | None,
    ) -> Tensor:
        """Compute the gradient of grouped_matmul in theta, (G, P, Q)."""
        from .triton.grouped import grouped_outer

        return grouped_outer(x, ptr, y, gather, scatter, _products(x, gather, scatter))


def _products(x: Tensor, gather: Tensor | None, scatter: Tensor | None) -> int:
    """The number I of products, that is of rows in all groups."""
    index = gather if gather is not None else scatter
    return x.size(0) if index is None else index.numel()
