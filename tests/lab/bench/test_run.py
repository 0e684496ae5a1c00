"""Fake cases: what agrees is timed, what breaks off is said; timing by a clock; least work."""

from __future__ import annotations

import gc
import math
import os
from dataclasses import replace

import pytest
import torch
from lab.bench.fakes import CONTEXT, ROOFLINE, broken, contender, fake_case

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import case as module
from pyg_outerconv.lab.bench import memory
from pyg_outerconv.lab.bench.case import (
    CASES,
    FORWARD,
    OURS,
    PYG,
    SCATTER,
    TRAINING,
    Case,
    Contender,
    Context,
    Setup,
    Work,
    case,
    select,
)
from pyg_outerconv.lab.bench.graphs import Fresh
from pyg_outerconv.lab.bench.memory import peak_alone, peak_here
from pyg_outerconv.lab.bench.report import RECORD, failures
from pyg_outerconv.lab.bench.roofline import attention, convolution, measure_roofline
from pyg_outerconv.lab.bench.run import difference, measure, run_cases, summarise
from pyg_outerconv.lab.bench.targets import faster


def run_one(made):
    (found,) = run_cases([made], CONTEXT, ROOFLINE)
    return found


def test_a_record_has_times_bounds_fractions_and_agreement():
    found = run_one(fake_case(contender(OURS), contender(PYG)))
    assert set(found) == RECORD
    assert list(found["modes"]) == [FORWARD, TRAINING]
    assert list(found["modes"][FORWARD]) == [OURS, PYG]
    assert found["bounds"][FORWARD]["seconds"] == 16e-9
    median = found["modes"][FORWARD][PYG]["median"]
    assert found["fractions"][FORWARD][PYG] == 16e-9 / median
    assert found["agreement"] == {PYG: 0.0}
    assert found["errors"] == found["absent"] == {}


NO_COMPILER = "RuntimeError: no compiler"


@pytest.mark.parametrize(
    ("ours", "other", "timed", "agreement", "errors", "absent"),
    [
        (contender(OURS), contender(PYG, 2.1), [OURS], {PYG: 0.05}, {PYG: "by 5.0e-02"}, {}),
        (contender(OURS), contender(PYG, math.nan), [OURS], {PYG: None}, {PYG: "differs"}, {}),
        (contender(OURS), broken(PYG), [OURS], {}, {}, {PYG: NO_COMPILER}),
        (contender(OURS), broken("an order", own=True), [OURS], {}, {"an order": NO_COMPILER}, {}),
        (broken(OURS), contender(PYG), [PYG], {}, {OURS: NO_COMPILER}, {}),
        # It shows a bound, and is compared with nothing.
        (contender(OURS), Contender("floor", {FORWARD: int}), [OURS, "floor"], {}, {}, {}),
    ],
    ids=["differs", "no number", "a peer breaks off", "an own one", "ours", "a bound"],
)
def test_what_differs_or_breaks_off_is_said_and_all_else_is_timed(
    ours, other, timed, agreement, errors, absent
):
    found = run_one(fake_case(ours, other, contender(SCATTER)))
    assert list(found["modes"][FORWARD]) == [*timed, SCATTER]
    gaps = {name: gap for name, gap in found["agreement"].items() if name != SCATTER}
    assert gaps == pytest.approx(agreement)
    assert found["errors"].keys() == errors.keys()
    assert all(words in found["errors"][name] for name, words in errors.items())
    assert found["absent"] == absent
    said = [f"fake: {name}: {reason}" for name, reason in found["errors"].items()]
    assert failures({"records": [found]}) == said


def test_a_case_that_cannot_be_set_up_does_not_stop_the_others():
    def make(context, at):
        raise MemoryError("too large")

    unmade = Case("unmade", "fakes", "cannot be made", make)
    begun, done = [], []
    found = run_cases(
        [unmade, fake_case(contender(OURS))], CONTEXT, ROOFLINE, begun.append, done.append
    )
    assert found == done
    assert begun == ["unmade", "fake"]
    assert found[0]["errors"] == {OURS: "MemoryError: too large"}
    assert found[1]["modes"]


def test_a_case_is_one_registration(monkeypatch):
    monkeypatch.setattr(module, "CASES", {})

    @case("b", "letters", "times three", targets=(faster(PYG, 2),), factor=3.0)
    @case("a", "letters", "times two", factor=2.0)
    def times(context, factor):
        return Setup([contender(OURS, factor)], {"factor": factor})

    assert list(module.CASES) == ["a", "b"]
    assert module.CASES["b"].make(CONTEXT, None).sizes == {"factor": 3.0}
    with pytest.raises(RefusedValue, match="'a' is taken"):
        case("a", "letters", "again")(times)


def test_cases_are_chosen_by_name_and_by_group():
    made = {
        name: Case(name, group, "", lambda context, at: None)
        for name, group in (("gcn-a", "gcn"), ("gcn-b", "gcn"), ("walk", "polynomial"))
    }
    assert [found.name for found in select([], made)] == ["gcn-a", "gcn-b", "walk"]
    assert [found.name for found in select(["walk", "gcn-b"], made)] == ["gcn-b", "walk"]
    assert [found.name for found in select(["gcn"], made)] == ["gcn-a", "gcn-b"]
    with pytest.raises(RefusedValue, match=r"unknown benchmark 'gnc' \(did you mean 'gcn'\?\)"):
        select(["gnc"], made)
    assert not {"a", "fake"} & set(CASES)


# Timing, the least work, and the machine


class Clock:
    """Goes on only when a step says so."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def step(self, name, *seconds):
        remaining = list(seconds)

        def run():
            self.log.append(name)
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return run


def test_contenders_take_turns_and_change_who_begins():
    clock = Clock()
    steps = {name: clock.step(name, 1.0) for name in "abc"}
    measure(steps, 3, clock=lambda: clock.now)
    assert "".join(clock.log) == "abc" + "abc" + "bca" + "cab"


def test_medians_and_quartiles_leave_the_warm_up_out():
    clock = Clock()
    steps = {"a": clock.step("a", 100.0, 5.0, 1.0, 2.0, 4.0, 3.0)}
    found = measure(steps, 5, clock=lambda: clock.now)["a"]
    quartiles = {"median": 3.0, "low": 2.0, "high": 4.0, "least": 1.0}
    assert found == {**quartiles, "repeats": 5, "inner": 1}
    alone = dict.fromkeys(("median", "low", "high", "least"), 2.0)
    assert summarise([2.0], 1) == {**alone, "repeats": 1, "inner": 1}


@pytest.mark.parametrize(("seconds", "asked", "inner"), [(1e-3, None, 5), (1.0, 3, 3)])
def test_short_steps_are_repeated_within_a_sample_and_a_given_number_is_kept(seconds, asked, inner):
    clock = Clock()
    found = measure({"a": clock.step("a", seconds)}, 2, inner=asked, clock=lambda: clock.now)["a"]
    assert (found["inner"], len(clock.log)) == (inner, 1 + 2 * inner)
    assert found["median"] == pytest.approx(seconds)


def test_what_is_told_before_a_sample_is_not_timed():
    clock, told = Clock(), []

    def ready(count):
        told.append(count)
        clock.now += 100.0

    steps = {name: clock.step(name, 1.0) for name in "ab"}
    found = measure(steps, 2, inner=3, clock=lambda: clock.now, ready={"a": ready, "b": None})
    assert told == [1, 3, 3]
    assert found["a"]["median"] == found["b"]["median"] == 1.0


def test_new_graphs_are_copies_of_each_in_turn():
    x = torch.ones(2, requires_grad=True)
    numbers = [torch.tensor(number) for number in range(3)]
    supply = Fresh([(x, number) for number in numbers])
    supply.ready(2)
    first = [supply.take() for _ in range(2)]
    supply.ready(2)
    second = [supply.take() for _ in range(3)]
    assert [int(number) for _, number in first + second] == [0, 1, 2, 0, 1]
    copies = [copy for copy, _ in first + second]
    assert len({id(copy) for copy in [x, *copies]}) == 6
    assert all(copy.is_leaf and copy.requires_grad and torch.equal(copy, x) for copy in copies)


def test_the_collector_of_garbage_is_left_as_it_was():
    seen = []
    assert gc.isenabled()
    measure({"a": lambda: seen.append(gc.isenabled())}, 1, inner=1)
    assert gc.isenabled()
    assert seen == [True, False]  # the warm-up, then the sample


@pytest.mark.parametrize(
    ("actual", "expected", "gap"),
    [
        ([torch.tensor([1.0, 4.0])], [torch.tensor([2.0, 4.0])], 0.25),
        ([torch.zeros(2), torch.tensor([3.0])], [torch.zeros(2), torch.tensor([2.0])], 0.5),
        ([torch.zeros(0)], [torch.zeros(0)], 0.0),
        ([torch.zeros(2)], [torch.zeros(3)], float("inf")),
        ([torch.zeros(2)], [], float("inf")),
        ([torch.tensor([float("nan"), 1.0])], [torch.ones(2)], float("inf")),
        ([torch.ones(2)], [torch.tensor([float("nan"), 1.0])], float("inf")),
    ],
)
def test_difference(actual, expected, gap):
    assert difference(actual, expected) == gap


def test_the_bound_is_the_slower_of_traffic_and_arithmetic():
    assert ROOFLINE.bound(Work(2e9, 1e9))["seconds"] == 2.0
    assert ROOFLINE.bound(Work(2e9, 1e9))["limit"] == "traffic"
    assert ROOFLINE.bound(Work(1e9, 3e9)) == {
        "bytes": 1e9,
        "flops": 3e9,
        "seconds": 3.0,
        "limit": "arithmetic",
    }


def test_least_work_of_one_small_convolution():
    # 3 sources, 2 targets, P = 5, Q = 4, E = 7: counted by hand.
    work = convolution((3, 2, 5, 4), 20, 7, 3, 4)
    structure = 7 * (4 + 4) + 3 * 4
    forward = 4 * (3 * 5 + 2 * 4 + 20) + structure
    backward = 4 * (2 * 4 + 3 * 5 + 20 + 3 * 5 + 20) + structure
    assert work[FORWARD] == Work(forward, 2 * 7 * 4 + 2 * 3 * 5 * 4)
    assert work[TRAINING] == Work(forward + backward, 2 * (2 * 7 * 4) + 3 * (2 * 3 * 5 * 4))


def test_least_work_of_attention():
    work = attention(10, 30, 8, 4)
    assert work[FORWARD].flops == 4 * 30 * 8
    assert work[TRAINING].flops == 14 * 30 * 8
    assert work[FORWARD].num_bytes == 4 * 4 * 10 * 8 + 4 * 30 + 4 * 11


def test_the_roofline_is_measured():
    found = measure_roofline(Context(quick=True))
    assert 1e8 < found.bandwidth < 1e14
    assert 1e8 < found.flop_rate < 1e16


# Peak memory: known allocations are found, here and in a child ------------------------------------


MIB = 1 << 20


def hold(mib):
    """Hold and touch some memory for a moment."""
    torch.ones(mib * MIB // 4).sum()


@pytest.mark.skipif(not memory.is_known("cpu"), reason="this system has no record of peaks")
def test_the_peak_of_a_step_is_what_it_holds():
    found = peak_here(lambda: hold(256))
    # An allocator may keep the warm-up's block, hence the other bound on the process.
    assert found.step < 300 * MIB
    assert found.process > 256 * MIB


def test_where_no_peak_is_known_a_note_says_so(monkeypatch):
    monkeypatch.setattr("pyg_outerconv.lab.bench.run.is_known", lambda device: False)
    context = replace(CONTEXT, memory=True)
    (found,) = run_cases([fake_case(contender(OURS), memory=(OURS,))], context, ROOFLINE)
    assert found["notes"] == ["peak memory is measured on CUDA devices and on Linux"]
    assert found["memory"] == found["errors"] == {}


@pytest.fixture
def _here(monkeypatch):
    """What a process of its own does is done in this one."""
    monkeypatch.setattr(memory, "in_a_process", lambda function, *given: function(*given))


def test_a_process_measures_one_contender():
    before = dict(os.environ)
    ours = peak_alone(Context(scale=0.2), "gcn-100k", None, TRAINING, OURS)
    # 240k edges × 64 channels of float32 make 58 MiB, which PyG holds several times and ours never.
    assert 0 < ours.step < 58 * MIB
    assert ours.process > 100 * MIB
    assert os.environ == before


@pytest.mark.usefixtures("_here")
def test_pygs_layer_holds_its_messages():
    context = Context(scale=0.2, threads=torch.get_num_threads())
    theirs = peak_alone(context, "gcn-100k", None, TRAINING, PYG)
    assert theirs.step > 2 * 58 * MIB


def test_a_process_that_breaks_off_says_why(monkeypatch):
    with pytest.raises(KeyError, match="no-such-case"):
        peak_alone(Context(), "no-such-case", None, TRAINING, OURS)
    monkeypatch.setattr(memory, "in_a_process", lambda *given: {}["it"])
    context = replace(CONTEXT, memory=True)
    (found,) = run_cases([fake_case(contender(OURS), memory=(OURS,))], context, ROOFLINE)
    assert found["errors"] == {f"memory of {OURS}": "KeyError: 'it'"}
