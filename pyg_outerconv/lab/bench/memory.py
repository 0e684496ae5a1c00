"""Peak memory of one step, beyond what was allocated before it; on CUDA devices and on Linux.

On a CPU a step runs in a process of its own (``python -m pyg_outerconv.lab.bench.memory REQUEST``),
whose allocator is told to give memory back at once; the system's own record of the peak is reset
before the step.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
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


# In a process of its own --------------------------------------------------------------------------


def request_for(
    context: Context, threads: int, case: str, at: Any, mode: str, contender: str
) -> dict[str, Any]:
    """The request to a probe, as plain values."""
    fields = {**vars(context), "dtype": str(context.dtype).removeprefix("torch.")}
    of_case = {"case": case, "at": at, "mode": mode, "contender": contender}
    return {"context": fields, "threads": threads, **of_case}


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


def answer(request: dict[str, Any]) -> dict[str, int | str]:
    """Set the case up, and measure one step of one contender."""
    register_all()
    torch.set_num_threads(request["threads"])
    fields = request["context"]
    context = Context(**{**fields, "dtype": getattr(torch, fields["dtype"])})
    torch.manual_seed(context.seed)
    setup = CASES[request["case"]].make(context, request["at"])
    by_name = {contender.name: contender for contender in setup.contenders}
    peak = peak_here(by_name[request["contender"]].steps[request["mode"]])
    synchronizer(context.device)()
    return asdict(peak)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(answer(json.loads(sys.argv[1]))))
