"""Timing by a clock that the test winds, and what an ideal machine's bound is."""

from __future__ import annotations

import pytest
import torch
from lab.bench.fakes import ROOFLINE

from pyg_outerconv.lab.bench.case import FORWARD, TRAINING, Context, Work
from pyg_outerconv.lab.bench.graphs import Fresh
from pyg_outerconv.lab.bench.measure import difference, measure, summarise
from pyg_outerconv.lab.bench.roofline import attention, convolution, measure_roofline


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
    assert (found.median, found.low, found.high, found.least) == (3.0, 2.0, 4.0, 1.0)
    assert (found.repeats, found.inner) == (5, 1)


def test_short_steps_are_repeated_within_a_sample():
    clock = Clock()
    found = measure({"a": clock.step("a", 1e-3)}, 2, clock=lambda: clock.now)["a"]
    assert found.inner == 5
    assert found.median == pytest.approx(1e-3)
    assert len(clock.log) == 1 + 2 * 5


def test_a_given_number_of_steps_is_kept():
    clock = Clock()
    found = measure({"a": clock.step("a", 1.0)}, 2, inner=3, clock=lambda: clock.now)["a"]
    assert (found.inner, len(clock.log)) == (3, 1 + 2 * 3)


def test_what_is_told_before_a_sample_is_not_timed():
    clock, told = Clock(), []

    def ready(count):
        told.append(count)
        clock.now += 100.0

    steps = {name: clock.step(name, 1.0) for name in "ab"}
    found = measure(steps, 2, inner=3, clock=lambda: clock.now, ready={"a": ready, "b": None})
    assert told == [1, 3, 3]
    assert found["a"].median == found["b"].median == 1.0


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
    import gc

    seen = []
    assert gc.isenabled()
    measure({"a": lambda: seen.append(gc.isenabled())}, 1, inner=1)
    assert gc.isenabled()
    assert seen == [True, False]  # the warm-up, then the sample


def test_one_sample_is_its_own_quartiles():
    found = summarise([2.0], 1)
    assert (found.low, found.median, found.high) == (2.0, 2.0, 2.0)


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
