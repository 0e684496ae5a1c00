"""Launch a kernel on the device of its tensors."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor

from ..triton_settings import TUNE
from .balance import Pieces

WARPS = (1, 2, 4, 8)


def launch(kernel: Any, programs: int, like: Tensor, *arguments: Any, **constants: Any) -> None:
    """Run ``programs`` programs of ``kernel`` on the device of ``like``.

    Without the guard the kernel would run on the current device, and read memory of another one.
    """
    if programs == 0:
        return
    if os.environ.get(TUNE) == "1":
        kernel = tuned(kernel)
        del constants["num_warps"]
    with torch.cuda.device(like.device) if like.is_cuda else nullcontext():
        kernel[(programs,)](*arguments, **constants)


@cache
def tuned(kernel: Any) -> Any:
    """``kernel`` with the fastest number of warps on this device, measured for each set of sizes.

    Off unless asked for: the number of warps decides in which order a tile is summed, so that
    another process, with other timings, may return a bitwise different result.
    """
    names = ("heads", "channels", "depth", "width", "inputs", "outputs")
    return triton.autotune(
        configs=[triton.Config({}, num_warps=number) for number in WARPS],
        key=[name for name in names if name in kernel.arg_names],
    )(kernel)


def jobs_of(ptr: Tensor, pieces: Pieces | None) -> tuple[int, tuple[Any, ...]]:
    """The number of jobs, and arguments of ``addressing.bounds``: jobs, ptr, pieces, their limit.

    Without pieces the kernel is compiled without SPLIT, and does not read the arguments in their
    place.
    """
    rows = ptr.numel() - 1
    if pieces is None:
        return rows, (rows, ptr, ptr, ptr, 0, 0)
    jobs = rows + pieces.number
    return jobs, (jobs, ptr, pieces.row, pieces.begin, pieces.number, pieces.limit)
