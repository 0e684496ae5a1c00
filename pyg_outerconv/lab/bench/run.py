"""Running cases: set up, compare the contenders, time them, and keep a record of each point.

Contenders take turns, so that what slows the machine down slows all of them.
``torch.utils.benchmark.Timer`` cannot do this: before each sample it runs the step at least twice
more, so that a step follows itself instead of the other contenders, a step of seconds takes three
times as long, and inputs that are prepared for the steps of a sample run out.
"""

from __future__ import annotations

import gc
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from .case import OURS, Case, Contender, Context, Point, Setup, Step, synchronizer
from .memory import is_known, peak_alone, peak_on_cuda
from .roofline import Roofline

Record = dict[str, Any]


def run_cases(
    cases: Iterable[Case],
    context: Context,
    roofline: Roofline,
    begin: Callable[[str], None] = lambda title: None,
    done: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Run every point of some cases; an error is recorded and does not stop the other points."""
    records = []
    for case in cases:
        for at in case.points(context):
            begin(case.name if at is None else f"{case.name} at {at}")
            with _quiet():
                began = time.perf_counter()
                record = run_point(case, at, context, roofline)
                record["seconds"] = round(time.perf_counter() - began, 2)
            records.append(record)
            done(record)
    return records


def run_point(case: Case, at: Point, context: Context, roofline: Roofline) -> Record:
    """The record of one point, see :mod:`.report`."""
    named = {"case": case.name, "group": case.group, "description": case.description}
    parts = ("sizes", "modes", "bounds", "fractions", "agreement", "memory", "absent", "errors")
    record: Record = {**named, "axis": case.axis, "at": at, **{part: {} for part in parts}}
    record |= {"notes": [], "seconds": 0.0}
    torch.manual_seed(context.seed)
    try:
        setup = case.make(context, at)
    except Exception as error:  # of any kind: the record says it, and the other cases run
        record["errors"][OURS] = _tell(error)
        return record
    record["sizes"], record["absent"] = dict(setup.sizes), dict(setup.absent)
    running = compare(setup.contenders, context.tolerance, record)
    _time(running, setup, context, record)
    for mode, work in setup.work.items():
        if mode in record["modes"]:
            record["bounds"][mode] = bound = roofline.bound(work)
            record["fractions"][mode] = {
                name: bound["seconds"] / timing["median"]
                for name, timing in record["modes"][mode].items()
            }
    modes = {one.name: list(one.steps)[-1] for one in running if one.name in case.memory}
    if modes and context.memory and not is_known(context.device):
        record["notes"].append("peak memory is measured on CUDA devices and on Linux")
    elif context.memory and torch.device(context.device).type == "cuda":
        for one in running:
            if one.name in modes:
                peak = peak_on_cuda(one.steps[modes[one.name]], context.device)
                record["memory"][one.name] = asdict(peak)
    elif context.memory:
        del setup, running  # a child sets the case up again, and needs the room
        gc.collect()
        for name, mode in modes.items():  # the last mode, which does most
            try:
                peak = peak_alone(context, case.name, at, mode, name)
                record["memory"][name] = asdict(peak)
            except Exception as error:  # of any kind, such as memory that was not enough there
                record["errors"][f"memory of {name}"] = _tell(error)
    return record


def compare(contenders: Sequence[Contender], tolerance: float, record: Record) -> list[Contender]:
    """The contenders that run and agree with ours; the record has the reasons for the others.

    A peer that cannot run is absent, with its reason. One of ours breaking off, or results that
    differ, are errors.
    """
    ours, *others = contenders
    running, expected = [], None
    try:
        expected = None if ours.check is None else ours.check()
        running.append(ours)
    except Exception as error:  # of any kind: the peers are timed all the same
        record["errors"][ours.name] = _tell(error)
    for contender in others:
        try:
            found = None if contender.check is None else contender.check()
        except Exception as error:  # such as a compiler that is missing
            place = "errors" if contender.own else "absent"
            record[place][contender.name] = _tell(error)
            continue
        if found is not None and expected is not None:
            gap = difference(found, expected)
            record["agreement"][contender.name] = gap if math.isfinite(gap) else None
            if not gap <= tolerance:
                record["errors"][contender.name] = (
                    f"differs from {ours.name} by {gap:.1e} of the largest value, "
                    f"more than {tolerance:.0e}"
                )
                continue
        running.append(contender)
    return running


def _time(running: Sequence[Contender], setup: Setup, context: Context, record: Record) -> None:
    modes = dict.fromkeys(mode for contender in running for mode in contender.steps)
    synchronize = synchronizer(context.device)
    for mode in modes:
        steps = {c.name: c.steps[mode] for c in running if mode in c.steps}
        ready = {c.name: c.ready for c in running}
        try:
            timings = measure(steps, context.repeats, synchronize, setup.inner, ready=ready)
            record["modes"][mode] = timings
        except Exception as error:  # of any kind: the other modes are timed all the same
            record["errors"][mode] = _tell(error)


def _tell(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:300].rstrip(": ")


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings of peers and the messages of their compilation."""
    dynamo = logging.getLogger("torch._dynamo")
    level = dynamo.level
    dynamo.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        dynamo.setLevel(level)


# Timing -------------------------------------------------------------------------------------------

# A sample shorter than this says more of the clock than of the work.
SHORTEST_SAMPLE = 5e-3
MOST_INNER = 1000


def summarise(samples: Sequence[float], inner: int) -> dict[str, float]:
    """Seconds of one step: median and quartiles of some samples, and the least of them."""
    low, median, high = pd.Series(samples).quantile([0.25, 0.5, 0.75]).tolist()
    counts = {"least": min(samples), "repeats": len(samples), "inner": inner}
    return {"median": median, "low": low, "high": high, **counts}


def measure(
    steps: Mapping[str, Step],
    repeats: int,
    synchronize: Step = lambda: None,
    inner: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    ready: Mapping[str, Callable[[int], Any] | None] | None = None,
) -> dict[str, dict[str, float]]:
    """Time some steps in rounds, one sample of each in a round; see :func:`summarise`.

    Every round begins with another contender, so that none always follows the same one.
    """
    ready = ready or {}

    def sample(name: str, count: int) -> float:
        if (prepare := ready.get(name)) is not None:
            prepare(count)
        step = steps[name]
        synchronize()
        began = clock()
        for _ in range(count):
            step()
        synchronize()
        return (clock() - began) / count

    counts: dict[str, int] = {}
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
