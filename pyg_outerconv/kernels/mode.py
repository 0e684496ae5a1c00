"""What surrounds a call: compilers, tracers, transforms, modes of torch, and the asked backend."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _len_torch_dispatch_stack

ENVIRONMENT_VARIABLE = "PYG_OUTERCONV_BACKEND"
# Read once, because reading the environment at each call takes as long as a small product.
BACKEND_OF_PROCESS = os.environ.get(ENVIRONMENT_VARIABLE) or None

asked = threading.local()
"""``asked.backend`` is that of the innermost ``use_backend`` of a thread. The threads of autograd
do not need it: a backward pass uses the backend of its forward pass."""


@dataclass(eq=False)
class Mode:
    """What surrounds a call, looked at once for all that depends on it; one object for each kind.

    Attributes:
        traces: whether torch.jit.trace traces the call.
        transforms: whether it is within a transform of ``torch.func``.
        differentiates: whether it is within forward-mode differentiation.
        dispatches: whether it is within a mode that sees every operator.
        wants_gradients: whether gradients may be required. Not where torch.jit traces, which can
            save operators but no autograd functions in Python.
        inference: whether it is within inference mode.
        threads: the number of threads of torch.
        backend: the backend that is asked for by name, or None.
        compiles: whether torch.compile or torch.export trace the call.
        is_plain: whether nothing sees the call but autograd, and kernels may be called directly.
    """

    traces: bool
    transforms: bool
    differentiates: bool
    dispatches: bool
    wants_gradients: bool
    inference: bool
    threads: int
    backend: str | None
    compiles: bool = False

    def __post_init__(self) -> None:
        self.wants_gradients = self.wants_gradients and not self.traces
        seen = self.compiles, self.traces, self.transforms, self.differentiates, self.dispatches
        self.is_plain = not any(seen)

    def __str__(self) -> str:
        seen_by = {
            "torch.compile": self.compiles,
            "torch.jit.trace": self.traces,
            "torch.func": self.transforms,
            "forward mode": self.differentiates,
            "a mode of torch": self.dispatches,
        }
        where = [f"within {name}" for name, is_on in seen_by.items() if is_on] or ["eager"]
        gradients = "with gradients" if self.wants_gradients else "without gradients"
        backend = [f"backend {self.backend!r}"] if self.backend else []
        return ", ".join([*where, gradients, f"{self.threads} threads", *backend])


_modes: dict[tuple[Any, ...], Mode] = {}
# What a compiler guards on is looked at by itself where it matters, not here.
_COMPILED = Mode(False, False, False, False, True, False, 1, None, compiles=True)


def mode() -> Mode:
    """The mode of this moment and thread; equal modes are the same object."""
    if torch.compiler.is_compiling():
        return _COMPILED
    flags = (
        torch._C._is_tracing(),
        torch._C._are_functorch_transforms_active(),
        forward_ad._current_level >= 0,
        _len_torch_dispatch_stack() > 0,
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
        getattr(asked, "backend", None) or BACKEND_OF_PROCESS,
    )
    here = _modes.get(flags)
    if here is None:
        here = _modes[flags] = Mode(*flags)
    return here
