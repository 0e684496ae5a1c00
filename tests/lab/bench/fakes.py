"""Small cases and records that the benchmark's tests share."""

import torch

from pyg_outerconv.lab.bench.case import (
    FORWARD,
    OURS,
    PYG,
    TRAINING,
    Case,
    Contender,
    Context,
    Setup,
    Work,
)
from pyg_outerconv.lab.bench.roofline import Roofline

ROOFLINE = Roofline(bandwidth=1e9, flop_rate=1e9)
CONTEXT = Context(scale=0.01, quick=True, repeats=2)


def contender(name, factor=2.0, **options):
    """Multiplies some numbers; a factor other than 2 differs from the rest."""

    def step():
        return torch.arange(4.0) * factor

    return Contender(name, {FORWARD: step, TRAINING: step}, lambda: [step()], **options)


def broken(name, **options):
    def step():
        raise RuntimeError("no compiler\nand more")

    return Contender(name, {FORWARD: step}, lambda: [step()], **options)


def fake_case(*contenders, **options):
    setup = Setup(contenders, {"nodes": 4}, work={FORWARD: Work(16.0, 4.0)})
    return Case("fake", "fakes", "numbers times two", lambda context, at: setup, **options)


def timing(median, spread=0.0):
    return {
        "median": median,
        "low": median * (1 - spread),
        "high": median * (1 + spread),
        "least": median * (1 - spread),
        "repeats": 5,
        "inner": 1,
    }


def record(**changes):
    """A point where ours takes 1 s and PyG 4 s, in both modes."""
    times = {OURS: timing(1.0), PYG: timing(4.0)}
    return {
        "case": "fake",
        "group": "fakes",
        "description": "numbers times two",
        "axis": None,
        "at": None,
        "sizes": {"nodes": 4},
        "modes": {FORWARD: times, TRAINING: times},
        "bounds": {},
        "fractions": {},
        "agreement": {},
        "memory": {},
        "absent": {},
        "errors": {},
        "notes": [],
        "seconds": 1.0,
        **changes,
    }
