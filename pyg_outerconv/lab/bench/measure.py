"""Timing: contenders take turns, so that what slows the machine down slows all of them.

``torch.utils.benchmark.Timer`` cannot do this: before each sample it runs the step at least twice
more, so that a step follows itself instead of the other contenders, a step of seconds takes three
times as long, and inputs that are prepared for the steps of a sample run out.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch
from torch import Tensor

# A sample shorter than this says more of the clock than of the work.
SHORTEST_SAMPLE = 5e-3
MOST_INNER = 1000

Step = Callable[[], Any]


@dataclass(frozen=True)
class Timing:
    """Seconds of one step.

    Attributes:
        median, low, high, least: of the samples; low and high are the quartiles.
        repeats: number of samples.
        inner: steps in each sample, over which it is the mean.
    """

    median: float
    low: float
    high: float
    least: float
    repeats: int
    inner: int


def summarise(samples: list[float], inner: int) -> Timing:
    """Median and quartiles of some samples."""
    low, high = samples[0], samples[0]
    if len(samples) > 1:
        low, _, high = quantiles(samples, n=4, method="inclusive")
    return Timing(median(samples), low, high, min(samples), len(samples), inner)


def measure(
    steps: Mapping[str, Step],
    repeats: int,
    synchronize: Step = lambda: None,
    inner: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    ready: Mapping[str, Callable[[int], Any] | None] | None = None,
) -> dict[str, Timing]:
    """Time some steps in rounds, one sample of each in a round.

    Every round begins with another contender, so that none always follows the same one.

    Args:
        steps: the timed functions, by name.
        repeats: samples of each.
        synchronize: waits for the device.
        inner: steps in a sample; chosen for each contender from one warm-up step if None.
        clock: tells seconds.
        ready: functions called with the number of steps before a sample, by name.
    """
    ready = ready or {}

    def sample(name: str, count: int) -> float:
        if (prepare := ready.get(name)) is not None:
            prepare(count)
        return _sample(steps[name], count, synchronize, clock)

    counts = {}
    for name in steps:
        once = sample(name, 1)
        counts[name] = inner or max(1, min(MOST_INNER, int(SHORTEST_SAMPLE / max(once, 1e-9))))
    samples: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(repeats):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                samples[name].append(sample(name, counts[name]))
    finally:
        if collecting:
            gc.enable()
    return {name: summarise(samples[name], counts[name]) for name in names}


def _sample(step: Step, inner: int, synchronize: Step, clock: Callable[[], float]) -> float:
    synchronize()
    began = clock()
    for _ in range(inner):
        step()
    synchronize()
    return (clock() - began) / inner


def synchronizer(device: str) -> Step:
    """A function that waits until a device has done its work."""
    if torch.device(device).type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    if torch.device(device).type == "mps":
        return torch.mps.synchronize
    return lambda: None


def difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """max|Δ| / max|expected|, the largest over pairs of tensors; inf where shapes differ."""
    if len(actual) != len(expected):
        return math.inf
    largest = 0.0
    for mine, theirs in zip(actual, expected, strict=True):
        if mine.shape != theirs.shape:
            return math.inf
        if not theirs.numel():
            continue
        scale = float(theirs.abs().max())
        gap = float((mine.to(theirs.dtype) - theirs).abs().max())
        ratio = gap if scale == 0 else gap / scale
        if math.isnan(ratio):  # max() would drop it
            return math.inf
        largest = max(largest, ratio)
    return largest
