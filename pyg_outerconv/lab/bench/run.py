"""Running cases: set up, compare the contenders, time them, and keep a record of each point.

Contenders take turns, so that what slows the machine down slows all of them.
``torch.utils.benchmark.Timer`` cannot do this: before each sample it runs the step at least twice
more, so that a step follows itself instead of the other contenders, a step of seconds takes three
times as long, and inputs that are prepared for the steps of a sample run out.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import psutil
import torch
from torch import Tensor

from ..spawned import spawned
from .case import CASES, OURS, Case, Contender, Context, Point, Setup, Step, synchronizer
from .cases import register_all
from .roofline import Roofline

Record = dict[str, Any]
T = TypeVar("T")


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
    running = compare(setup.contenders, setup.slack * context.tolerance, record)
    _time(running, setup, context, record)
    for mode, work in setup.work.items():
        if mode in record["modes"]:
            record["bounds"][mode] = bound = roofline.bound(work)
            record["fractions"][mode] = {
                name: bound["seconds"] / timing["median"]
                for name, timing in record["modes"][mode].items()
            }
    steps: dict[str, tuple[str, Step | None]] = {
        one.name: list(one.steps.items())[-1] for one in running if one.name in case.memory
    }
    if steps and context.memory and not is_known(context.device):
        record["notes"].append("peak memory is measured on CUDA devices and on Linux")
    elif context.memory:
        on_cuda = torch.device(context.device).type == "cuda"
        if not on_cuda:  # a child sets the case up again, and needs the room
            steps = {name: (mode, None) for name, (mode, _) in steps.items()}
            del setup, running
            gc.collect()
        for name, (mode, step) in steps.items():  # the last mode, which does most
            try:
                if step is None:
                    peak = peak_alone(context, case.name, at, mode, name)
                else:
                    peak = peak_on_cuda(step, context.device)
                record["memory"][name] = peak
            except Exception as error:  # of any kind, such as memory that was not enough there
                record["errors"][f"memory of {name}"] = _tell(error)
    return record


def compare(contenders: Sequence[Contender], tolerance: float, record: Record) -> list[Contender]:
    """The contenders that run and agree with ours; the record has the reasons for the others.

    A peer that cannot run is absent, with its reason. One of ours breaking off, or results that
    differ, are errors.
    """
    running, expected = list[Contender](), None
    for contender in contenders:
        is_first = contender is contenders[0]
        try:
            outputs = None if contender.check is None else contender.check()
        except Exception as error:  # such as a compiler that is missing; all others are timed
            place = "errors" if contender.own or is_first else "absent"
            record[place][contender.name] = _tell(error)
            continue
        if is_first:
            expected = outputs
        elif outputs is not None and expected is not None:
            gap = difference(outputs, expected)
            record["agreement"][contender.name] = gap if math.isfinite(gap) else None
            if not gap <= tolerance:
                record["errors"][contender.name] = (
                    f"differs from {contenders[0].name} by {gap:.1e} of the largest value, "
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


# Peak memory of one step, beyond what was allocated before it; on CUDA devices and on Linux -------

# On a CPU a step runs in a process of its own, whose allocator is told to give memory back at once;
# the system's own record of the peak is reset before the step.
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# Freed blocks of this size and above go back to the system instead of into the heap.
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def is_known(device: str) -> bool:
    """Whether the peak of a step can be found: by torch's allocator, or by the system's record."""
    return torch.device(device).type == "cuda" or (_STATUS.exists() and _RESET.exists())


def peak_on_cuda(step: Step, device: str) -> Record:
    """The peak of one step as torch's allocator counts it; a first step is not counted."""
    step()
    before_all = torch.cuda.max_memory_allocated(device)
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    return _peak(peak - before, max(before_all, peak), "torch's allocator")


def peak_here(step: Step) -> Record:
    """The peak of one step of this process; a first step, which warms up, is not counted."""
    step()
    whole = _high_water()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # free heap goes to the system
        trim(0)
    before = psutil.Process().memory_info().rss
    _RESET.write_text("5", encoding="utf-8")
    step()
    peak = _high_water()
    return _peak(peak - before, max(whole, peak), "the system's record of the peak")


def _peak(step: int, process: int, method: str) -> Record:
    """Bytes of a step and of the process, as a record has them."""
    return {"step": max(0, step), "process": process, "method": method}


def _high_water() -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    (peak_line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(peak_line.split()[1]) * 1024


def peak_alone(context: Context, case: str, at: Point, mode: str, contender: str) -> Record:
    """Set a case up in a process of its own, and measure one step of one contender there."""
    with _environment(_ALLOCATOR):
        return in_a_process(_peak_of, context, case, at, mode, contender)


def _peak_of(context: Context, case: str, at: Point, mode: str, contender: str) -> Record:
    register_all()
    torch.set_num_threads(context.threads)
    torch.manual_seed(context.seed)
    setup = CASES[case].make(context, at)
    by_name = {contender.name: contender for contender in setup.contenders}
    peak = peak_here(by_name[contender].steps[mode])
    synchronizer(context.device)()
    return peak


def in_a_process(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a function in a new process of its own, which shows no warnings."""
    with _environment({"PYTHONWARNINGS": "ignore"}), spawned(1) as alone:
        return alone.submit(function, *arguments).result()


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
