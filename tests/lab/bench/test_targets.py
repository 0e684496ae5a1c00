"""Verdicts on records that are written by hand."""

from __future__ import annotations

import pytest
from lab.bench.fakes import record, timing

from pyg_outerconv.lab.bench.case import FLOOR, FORWARD, OURS, PREPARATION, PYG, TRAINING
from pyg_outerconv.lab.bench.targets import (
    AheadUpTo,
    Faster,
    Flat,
    GoodChoice,
    PaysWithin,
    Smaller,
    Under,
    Within,
)


@pytest.mark.parametrize(("ratio", "reached"), [(3.5, True), (4.0, True), (4.5, False)])
def test_faster(ratio, reached):
    found = Faster(PYG, ratio).judge([record()])
    assert found["asked"] == f"{ratio:g}×"
    assert (found["measured"], found["reached"]) == ("4.00×", reached)


def test_faster_says_what_the_floor_allows():
    modes = {TRAINING: {OURS: timing(2.0), PYG: timing(3.0), FLOOR: timing(1.6)}}
    found = Faster(PYG, 2, floor=FLOOR).judge([record(modes=modes)])
    assert found["reached"] is False
    assert found["note"] == "matrix products alone allow 1.88×, ours takes 1.25 of it"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"absent": {PYG: "not installed"}}, "PyG: not installed"),
        ({"errors": {PYG: "differs"}}, "PyG: differs"),
    ],
)
def test_what_is_missing_is_not_measured_and_says_why(changes, note):
    modes = {TRAINING: {OURS: timing(1.0)}}
    found = Faster(PYG, 2).judge([record(modes=modes, **changes)])
    assert (found["measured"], found["reached"], found["note"]) == (None, None, note)


@pytest.mark.parametrize(("ratio", "reached"), [(3.0, True), (5.0, False)])
def test_smaller(ratio, reached):
    memory = {
        OURS: {"step": 100 << 20, "process": 1, "method": ""},
        PYG: {"step": 400 << 20, "process": 1, "method": ""},
    }
    found = Smaller(PYG, ratio).judge([record(memory=memory)])
    assert (found["measured"], found["reached"]) == ("4.00×", reached)
    assert found["note"] == "100 MiB against 400 MiB"
    assert Smaller(PYG, ratio).judge([record()])["reached"] is None


def sweep(*rows):
    return [
        record(axis="edges", at=size, sizes={"edges": size}, modes={FORWARD: {OURS: timing(time)}})
        for size, time in rows
    ]


def test_flat_compares_with_the_smallest_point():
    points = sweep((100, 1.0), (1000, 30.0), (200, 1.0))
    found = Flat("edges", 2).judge(points)
    assert (found["measured"], found["reached"]) == ("3.00×", False)
    assert Flat("edges", 3.1).judge(points)["reached"] is True
    assert Flat("edges", 2).judge(points[:1])["reached"] is None


def test_under_takes_the_largest_point():
    points = sweep((1, 1.0), (2, 1.0))
    for point, size in zip(points, (3, 1), strict=True):
        point["memory"] = {OURS: {"step": 0, "process": size << 30, "method": ""}}
    assert Under(4).judge(points)["measured"] == "3.00 GiB"
    assert Under(4).judge(points)["reached"] is True
    assert Under(3).judge(points)["reached"] is False
    assert Under(3).judge(sweep((1, 1.0)))["reached"] is None


def test_preparation_pays_within_some_steps():
    modes = {
        PREPARATION: {OURS: timing(4.5)},
        TRAINING: {OURS: timing(1.0), PYG: timing(4.0)},
    }
    found = PaysWithin(PYG, 2).judge([record(modes=modes)])
    assert (found["measured"], found["reached"]) == ("1.50", True)
    assert PaysWithin(PYG, 1).judge([record(modes=modes)])["reached"] is False
    slower = {**modes, TRAINING: {OURS: timing(4.0), PYG: timing(4.0)}}
    assert PaysWithin(PYG, 2).judge([record(modes=slower)])["reached"] is False


def test_a_good_choice_is_close_to_the_best():
    points = [
        record(
            at=name,
            sizes={"chosen, forward + backward": chosen},
            modes={TRAINING: {"a": timing(1.0), "b": timing(other)}},
        )
        for name, chosen, other in (("1", "a", 2.0), ("2", "b", 1.1), ("3", "b", 1.2))
    ]
    found = GoodChoice(0.6, 0.15).judge(points)
    assert (found["measured"], found["reached"]) == ("67 % (2 of 3)", True)
    assert found["note"] == "3: b takes 1.20 of a"
    assert GoodChoice(0.9, 0.15).judge(points)["reached"] is False


@pytest.mark.parametrize(("highest", "reached"), [(0.1, True), (0.5, False)])
def test_ahead_up_to_a_density_judges_the_worst_point(highest, reached):
    points = [
        record(at=at, modes={TRAINING: {OURS: timing(ours), PYG: timing(2.0)}})
        for at, ours in ((0.01, 0.5), (0.1, 1.0), (0.5, 4.0))
    ]
    found = AheadUpTo(PYG, highest).judge(points)
    assert found["reached"] is reached
    assert found["measured"] == ("2.00×" if reached else "0.50×")
    assert AheadUpTo(PYG, 0.001).judge(points)["reached"] is None


@pytest.mark.parametrize(
    ("seconds", "mebibytes", "reached"),
    [(0.1, None, True), (0.01, None, False), (0.1, 100, True), (0.1, 50, False)],
)
def test_within_seconds_and_memory(seconds, mebibytes, reached):
    modes = {PREPARATION: {OURS: timing(0.05)}}
    memory = {OURS: {"step": 80 * 2**20, "process": 2**30}}
    found = Within(seconds, mebibytes=mebibytes).judge([record(modes=modes, memory=memory)])
    assert found["reached"] is reached
    assert found["measured"] == ("50 ms" if mebibytes is None else "50 ms and 80 MiB")


def test_within_is_not_measured_where_memory_is_missing():
    modes = {PREPARATION: {OURS: timing(0.05)}}
    assert Within(1, mebibytes=1).judge([record(modes=modes, memory={})])["reached"] is None
