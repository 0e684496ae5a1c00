"""Peak memory of one step, beyond what was allocated before it; on CUDA devices and on Linux.

On a CPU a step runs in a process of its own, whose allocator is told to give memory back at once;
the system's own record of the peak is reset before the step.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch

from .case import CASES, Context, Point, Step, synchronizer
from .cases import register_all

T = TypeVar("T")

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# Freed blocks of this size and above go back to the system instead of into the heap.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


@dataclass(frozen=True)
class Peak:
    """Bytes."""

    step: int
    process: int
    method: str


def is_known(device: str) -> bool:
    """Whether the peak of a step can be found: by torch's allocator, or by the system's record."""
    return torch.device(device).type == "cuda" or (_STATUS.exists() and _RESET.exists())


def peak_on_cuda(step: Step, device: str) -> Peak:
    """The peak of one step as torch's allocator counts it; a first step is not counted."""
    step()
    before_all = torch.cuda.max_memory_allocated(device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return Peak(peak - before, max(before_all, peak), "torch's allocator")


def peak_here(step: Step) -> Peak:
    """The peak of one step of this process; a first step, which warms up, is not counted."""
    step()
    whole = _high_water()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # free heap goes to the system
        trim(0)
    before = psutil.Process().memory_info().rss
    _RESET.write_text("5", encoding="utf-8")
    step()
    peak = _high_water()
    return Peak(max(0, peak - before), max(whole, peak), "the system's record of the peak")


def _high_water() -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    (found,) = (line for line in lines if line.startswith("VmHWM"))
    return int(found.split()[1]) * 1024


def free_memory(device: str) -> int:
    """Bytes that can still be had on a device."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def peak_alone(context: Context, case: str, at: Point, mode: str, contender: str) -> Peak:
    """Set a case up in a process of its own, and measure one step of one contender there."""
    with _environment(_ALLOCATOR):
        return in_a_process(_peak_of, context, case, at, mode, contender)


def _peak_of(context: Context, case: str, at: Point, mode: str, contender: str) -> Peak:
    register_all()
    torch.set_num_threads(context.threads)
    torch.manual_seed(context.seed)
    setup = CASES[case].make(context, at)
    by_name = {contender.name: contender for contender in setup.contenders}
    peak = peak_here(by_name[contender].steps[mode])
    synchronizer(context.device)()
    return peak


def in_a_process(function: Callable[..., T], *given: Any) -> T:
    """The result of a function in a new process of its own, which shows no warnings."""
    with (
        _environment({"PYTHONWARNINGS": "ignore"}),
        ProcessPoolExecutor(1, get_context("spawn")) as alone,
    ):
        return alone.submit(function, *given).result()


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that a block begins."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
