"""Small cases and records that the benchmark's tests share."""

import torch

from pyg_outerconv.lab.bench import case
from pyg_outerconv.lab.bench.roofline import Roofline

ROOFLINE = Roofline(bandwidth=1e9, flop_rate=1e9)
CONTEXT = case.Context(scale=0.01, quick=True, repeats=2)


def contender(name, factor=2.0, **options):
    """Multiplies some numbers; a factor other than 2 differs from the rest."""

    def step():
        return torch.arange(4.0) * factor

    return case.Contender(
        name, {case.FORWARD: step, case.TRAINING: step}, lambda: [step()], **options
    )


def broken(name, **options):
    def step():
        raise RuntimeError("no compiler\nand more")

    return case.Contender(name, {case.FORWARD: step}, lambda: [step()], **options)


def fake_case(*contenders, slack=1.0, **options):
    work = {case.FORWARD: case.Work(16.0, 4.0)}
    setup = case.Setup(contenders, {"nodes": 4}, work=work, slack=slack)
    return case.Case("fake", "fakes", "numbers times two", lambda context, at: setup, **options)


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
    times = {case.OURS: timing(1.0), case.PYG: timing(4.0)}
    return {
        "case": "fake",
        "group": "fakes",
        "description": "numbers times two",
        "axis": None,
        "at": None,
        "sizes": {"nodes": 4},
        "modes": {case.FORWARD: times, case.TRAINING: times},
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
