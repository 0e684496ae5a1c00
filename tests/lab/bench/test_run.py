"""Running fake cases: what agrees is timed, what breaks off is said, nothing is dropped."""

from __future__ import annotations

import pytest
from lab.bench.fakes import PLAN, ROOFLINE, broken, contender, fake_case

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import case as module
from pyg_outerconv.lab.bench.case import (
    CASES,
    FORWARD,
    OURS,
    PYG,
    SCATTER,
    TRAINING,
    Case,
    Contender,
    Setup,
    case,
    select,
)
from pyg_outerconv.lab.bench.report import RECORD, failures
from pyg_outerconv.lab.bench.run import run_cases
from pyg_outerconv.lab.bench.targets import Faster


def run_one(made: Case) -> dict:
    (found,) = run_cases([made], PLAN, ROOFLINE)
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


def test_a_peer_that_differs_is_an_error_and_is_not_timed():
    found = run_one(fake_case(contender(OURS), contender(PYG, 2.1), contender(SCATTER)))
    assert "differs from outerconv by 5.0e-02" in found["errors"][PYG]
    assert list(found["modes"][FORWARD]) == [OURS, SCATTER]
    assert found["agreement"][PYG] == pytest.approx(0.05)
    assert failures({"records": [found]}) == [f"fake: {PYG}: {found['errors'][PYG]}"]


def test_a_peer_that_is_no_number_is_an_error():
    found = run_one(fake_case(contender(OURS), contender(PYG, float("nan"))))
    assert "differs" in found["errors"][PYG]
    assert found["agreement"][PYG] is None


def test_a_peer_that_cannot_run_is_absent_with_its_reason():
    found = run_one(fake_case(contender(OURS), broken(PYG)))
    assert found["absent"] == {PYG: "RuntimeError: no compiler"}
    assert found["errors"] == {}
    assert list(found["modes"][FORWARD]) == [OURS]


def test_one_of_ours_that_cannot_run_is_an_error():
    found = run_one(fake_case(contender(OURS), broken("an order", own=True)))
    assert found["errors"] == {"an order": "RuntimeError: no compiler"}
    assert found["absent"] == {}


def test_peers_are_timed_where_ours_breaks_off():
    found = run_one(fake_case(broken(OURS), contender(PYG)))
    assert found["errors"] == {OURS: "RuntimeError: no compiler"}
    assert list(found["modes"][FORWARD]) == [PYG]


def test_a_part_that_shows_a_bound_is_timed_without_being_compared():
    floor = Contender("floor", {FORWARD: lambda: None})
    found = run_one(fake_case(contender(OURS), floor))
    assert list(found["modes"][FORWARD]) == [OURS, "floor"]
    assert found["agreement"] == {}


def test_a_case_that_cannot_be_set_up_does_not_stop_the_others():
    def make(context, at):
        raise MemoryError("too large")

    unmade = Case("unmade", "fakes", "cannot be made", make)
    begun, done = [], []
    found = run_cases(
        [unmade, fake_case(contender(OURS))], PLAN, ROOFLINE, begun.append, done.append
    )
    assert found == done
    assert begun == ["unmade", "fake"]
    assert found[0]["errors"] == {OURS: "MemoryError: too large"}
    assert found[1]["modes"]


def test_every_point_of_a_sweep_has_a_record():
    sweep = Case(
        "sweep",
        "fakes",
        "numbers",
        lambda context, at: Setup([contender(OURS)], {"edges": at}),
        axis="edges",
        points=lambda context: (10, 20),
    )
    found = run_cases([sweep], PLAN, ROOFLINE)
    assert [(record["at"], record["sizes"]["edges"]) for record in found] == [(10, 10), (20, 20)]


def test_a_case_is_one_registration(monkeypatch):
    monkeypatch.setattr(module, "CASES", {})

    @case("b", "letters", "times three", targets=(Faster(PYG, 2),), factor=3.0)
    @case("a", "letters", "times two", factor=2.0)
    def times(context, factor):
        return Setup([contender(OURS, factor)], {"factor": factor})

    assert list(module.CASES) == ["a", "b"]
    assert module.CASES["b"].make(PLAN.context, None).sizes == {"factor": 3.0}
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
