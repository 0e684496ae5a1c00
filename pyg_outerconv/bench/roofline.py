"""The bandwidth and the flop rate of this machine, and the least time of a step."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import torch

from .case import Work
from .context import Context
from .measure import Step, synchronizer


@dataclass(frozen=True)
class Roofline:
    """Measured in the same run as everything else.

    Attributes:
        bandwidth: bytes a second, read and written, of a copy that no cache holds.
        flop_rate: flops a second of a square matrix product of the context's type.
    """

    bandwidth: float
    flop_rate: float

    def as_dict(self) -> dict[str, float]:
        """Plain values, as JSON has them."""
        return asdict(self)

    def bound(self, work: Work) -> dict[str, float | str]:
        """The least seconds of some work here, and whether traffic or arithmetic sets them."""
        traffic, arithmetic = work.num_bytes / self.bandwidth, work.flops / self.flop_rate
        return {
            "bytes": work.num_bytes,
            "flops": work.flops,
            "seconds": max(traffic, arithmetic),
            "limit": "traffic" if traffic >= arithmetic else "arithmetic",
        }


def measure_roofline(context: Context) -> Roofline:
    """Copy a buffer larger than caches, and multiply square matrices; the best of some trials."""
    on_cuda = torch.device(context.device).type == "cuda"
    trials = 3 if context.quick else 10
    count = ((1 << 30) if on_cuda else (1 << 28)) // context.item_size
    source = torch.ones(count, dtype=context.dtype, device=context.device)
    target = torch.zeros_like(source)
    copying = _best(lambda: target.copy_(source), trials, context.device)
    num_bytes = 2 * count * context.item_size
    size = 8192 if on_cuda else 1024 if context.quick else 2048
    matrix = torch.ones(size, size, dtype=context.dtype, device=context.device)
    multiplying = _best(lambda: matrix @ matrix, trials, context.device)
    return Roofline(num_bytes / copying, 2.0 * size**3 / multiplying)


def _best(step: Step, trials: int, device: str) -> float:
    synchronize = synchronizer(device)
    best = float("inf")
    for trial in range(trials + 2):
        synchronize()
        began = time.perf_counter()
        step()
        synchronize()
        if trial > 1:  # the first two are warm-ups
            best = min(best, time.perf_counter() - began)
    return best
