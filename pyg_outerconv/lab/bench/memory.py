"""Peak memory of one step, beyond what was allocated before it.

On a CPU a step runs in a process of its own (``python -m pyg_outerconv.lab.bench.memory REQUEST``),
whose allocator is told to give memory back at once; the system's own record of the peak is reset
before the step. Where the system has no such record, the resident size is sampled by a thread, and
the result says so.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import torch

from .case import CASES, Context, Step, synchronizer
from .cases import register_all

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# Freed blocks of this size and above go back to the system instead of into the heap.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


class ProbeFailed(Exception):  # noqa: N818 - as Interrupted
    """The process that was to measure a step broke off; the message says how."""


@dataclass(frozen=True)
class Peak:
    """Bytes.

    Attributes:
        step: the peak of one step above what was there before it.
        process: the peak of the whole process, preparation included.
        method: how the first was found.
    """

    step: int
    process: int
    method: str


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


def peak_in_child(request: dict[str, Any]) -> Peak:
    """Have a process of its own measure one step, see :func:`answer`."""
    done = subprocess.run(
        [sys.executable, "-m", "pyg_outerconv.lab.bench.memory", json.dumps(request)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **_ALLOCATOR, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ProbeFailed(lines[-1])
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def peak_here(step: Step) -> Peak:
    """The peak of one step of this process; a first step, which warms up, is not counted."""
    step()
    whole = _high_water()
    _trim()
    before = psutil.Process().memory_info().rss
    if _reset_high_water():
        step()
        peak, method = _high_water(), "the system's record of the peak"
    else:
        with Sampler(lambda: psutil.Process().memory_info().rss) as sampler:
            step()
        peak, method = sampler.peak, "samples of the resident size"
    return Peak(max(0, peak - before), max(whole, peak), method)


class Sampler:
    """Within the block, a thread keeps the highest value that a function gives."""

    def __init__(self, read: Callable[[], int], seconds: float = 1e-3) -> None:
        self.read, self.seconds = read, seconds
        self.peak = read()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stop.wait(self.seconds):
            self.peak = max(self.peak, self.read())

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, self.read())


def _high_water() -> int:
    if not _STATUS.is_file():
        return int(psutil.Process().memory_info().rss)
    for line in _STATUS.read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)


def _reset_high_water() -> bool:
    """Whether the system keeps a record of the peak and let us reset it."""
    try:
        _RESET.write_text("5", encoding="utf-8")
    except OSError:
        return False
    return True


def _trim() -> None:
    """Give free heap back to the system, where the C library can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def free_memory(device: str) -> int:
    """Bytes that can still be had on a device."""
    if torch.device(device).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)


def peak_of_step(step: Step, device: str) -> Peak:
    """The peak of one step of this process on a device."""
    if torch.device(device).type == "cuda":
        return peak_on_cuda(step, device)
    peak = peak_here(step)
    synchronizer(device)()
    return peak


def context_of(request: dict[str, Any]) -> Context:
    """The context that :func:`request_for` wrote."""
    fields = dict(request["context"])
    return Context(**{**fields, "dtype": getattr(torch, fields["dtype"])})


def request_for(
    context: Context, threads: int, case: str, at: Any, mode: str, contender: str
) -> dict[str, Any]:
    """The request to a probe, as plain values."""
    fields = {**vars(context), "dtype": str(context.dtype).removeprefix("torch.")}
    return {
        "context": fields,
        "threads": threads,
        "case": case,
        "at": at,
        "mode": mode,
        "contender": contender,
    }


def answer(request: dict[str, Any]) -> dict[str, int | str]:
    """Set the case up, and measure one step of one contender."""
    register_all()
    torch.set_num_threads(request["threads"])
    context = context_of(request)
    torch.manual_seed(context.seed)
    setup = CASES[request["case"]].make(context, request["at"])
    (step,) = (
        contender.steps[request["mode"]]
        for contender in setup.contenders
        if contender.name == request["contender"]
    )
    return asdict(peak_of_step(step, context.device))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(answer(json.loads(sys.argv[1]))))
