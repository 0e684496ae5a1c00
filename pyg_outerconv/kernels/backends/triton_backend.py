"""Triton kernels for CUDA; Triton's interpreter runs them on a CPU, to test them."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module
from typing import Any

import torch

from ..backend import PRIMITIVES, Backend, Request
from . import triton
from .triton import INTERPRETED, TUNE


@cache
def _function(module: str, name: str) -> Any:
    return getattr(import_module(f".triton.{module}", __package__), name)


def _kernel(module: str, name: str) -> Any:
    """A function of a file in ``triton/``, which is imported when it is first called."""

    def run(*arguments: Any) -> Any:
        return _function(module, name)(*arguments)

    return staticmethod(run)


class Triton(Backend):
    """Fused kernels without atomics; sums of 16-bit dtypes are accumulated in float32.

    With ``TRITON_INTERPRET=1`` set before the package is imported, Triton interprets the kernels,
    slowly, also on a CPU; then this backend is used only if asked for by name.
    """

    name = "triton"
    priority = 0 if INTERPRETED else 20
    devices = frozenset({"cuda", "cpu"} if INTERPRETED else {"cuda"})
    dtypes = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
    primitives = PRIMITIVES | {"spmm_theta", "additive"}
    deterministic = devices
    tolerance = 1e-5

    def missing(self) -> list[str]:
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
        if triton.TUNED and INTERPRETED:
            reasons.append(f"Triton's interpreter cannot tune ({TUNE}=1)")
        return reasons

    spmm = _kernel("products", "spmm")
    spmm_arg = _kernel("extreme", "spmm_arg")
    chosen = _kernel("extreme", "chosen")
    chosen_sum = _kernel("extreme", "chosen_sum")
    chosen_sample = _kernel("extreme", "chosen_sample")
    spmm_theta = _kernel("fused", "spmm_theta")
    sddmm = _kernel("products", "sddmm")
    segment_sum = _kernel("segments", "segment_sum")
    segment_softmax = _kernel("segments", "segment_softmax")
    attend = _kernel("attend", "attend")
    attend_backward = _kernel("attend", "attend_backward")
    additive = _kernel("additive", "additive")
    additive_rows = _kernel("additive", "additive_rows")
    grouped_matmul = _kernel("grouped", "grouped_matmul")
    grouped_outer = _kernel("grouped", "grouped_outer")
