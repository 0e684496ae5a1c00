"""Verdicts on records that are written by hand; where two curves meet; how time grows."""

from __future__ import annotations

import math

import pytest
from lab.bench.fakes import record, timing

from pyg_outerconv.lab.bench.case import (
    DENSE,
    FLOOR,
    FORWARD,
    KRONECKER,
    OURS,
    PREPARATION,
    PYG,
    SPARSE,
    TORCH,
    TRAINING,
)
from pyg_outerconv.lab.bench.targets import (
    ahead_up_to,
    crossover,
    exponent,
    faster,
    find_crossovers,
    fitted_exponent,
    flat,
    good_choice,
    pays_within,
    say_crossover,
    smaller,
    under,
    within,
)

DENSITIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def times(mode=TRAINING, **seconds):
    """A point where ours, PyG and others take some seconds in a mode."""
    names = {"ours": OURS, "pyg": PYG, "floor": FLOOR}
    return {mode: {names.get(name, name): timing(one) for name, one in seconds.items()}}


def used(**mebibytes):
    names = {"ours": OURS, "pyg": PYG}
    return {
        names[name]: {"step": size << 20, "process": size << 30, "method": ""}
        for name, size in mebibytes.items()
    }


def sweep(points, axis="edges", mode=FORWARD):
    """A record for each (size, seconds), or (size, ours, PyG's)."""
    return [
        record(axis=axis, at=at, sizes={axis: at}, modes=times(mode, ours=ours, **others))
        for at, ours, others in (
            (at, ours, {"pyg": theirs[0]} if theirs else {}) for at, ours, *theirs in points
        )
    ]


def chosen(*points):
    return [
        record(at=name, sizes={f"chosen, {TRAINING}": pick}, modes=times(a=1.0, b=other))
        for name, pick, other in points
    ]


TWO_SIZES = [record(memory=used(ours=size)) for size in (3, 1)]
NANOSECONDS = "10000000.00 ns at 100, 30000000.00 ns at 1e+03"
GROWING = sweep([(100, 1.0), (1000, 30.0), (200, 1.0)])
PREPARED = [record(modes={**times(PREPARATION, ours=4.5), **times(ours=1.0, pyg=4.0)})]
SLOWER = [record(modes={**times(PREPARATION, ours=4.5), **times(ours=4.0, pyg=4.0)})]
PICKS = chosen(("1", "a", 2.0), ("2", "b", 1.1), ("3", "b", 1.2))
AHEAD = sweep([(0.01, 0.5, 2.0), (0.1, 1.0, 2.0), (0.5, 4.0, 2.0)], "density", TRAINING)
EDGES = [record(modes=times(PREPARATION, ours=0.05), memory=used(ours=80))]
PROCESSES = [record(ratios={FORWARD: {PYG: [2.0, 5.0, 3.0]}})]
FLOORED = [record(modes=times(ours=2.0, pyg=3.0, floor=1.6))]
ABSENT = [record(modes=times(ours=1.0), absent={PYG: "not installed"})]
BROKEN = [record(modes=times(ours=1.0), errors={PYG: "differs"})]
MEMORY = [record(memory=used(ours=100, pyg=400))]
CURVED = sweep([(n, n + 1e-2 * n**2) for n in (64, 128, 256, 512)], "length", TRAINING)


def power(exponent):
    return sweep([(n, 1e-6 * n**exponent) for n in (64, 128, 256, 512)], "length", TRAINING)


@pytest.mark.parametrize(
    ("target", "points", "measured", "reached", "note"),
    [
        (faster(PYG, 3.5), [record()], "4.00×", True, ""),
        (faster(PYG, 4.0), [record()], "4.00×", True, ""),
        (faster(PYG, 4.5), [record()], "4.00×", False, ""),
        (faster(PYG, 2.5, FORWARD), PROCESSES, "3.00× (2.00–5.00)", True, ""),
        (
            faster(PYG, 2, floor=FLOOR),
            FLOORED,
            "1.50×",
            False,
            "matrix products alone allow 1.88×, ours takes 1.25 of it",
        ),
        (faster(PYG, 2), ABSENT, None, None, "PyG: not installed"),
        (faster(PYG, 2), BROKEN, None, None, "PyG: differs"),
        (smaller(PYG, 3.0), MEMORY, "4.00×", True, "100 MiB against 400 MiB"),
        (smaller(PYG, 5.0), MEMORY, "4.00×", False, "100 MiB against 400 MiB"),
        (smaller(PYG, 3.0), [record()], None, None, "not measured"),
        (flat("edges", 2), GROWING, "3.00×", False, NANOSECONDS),
        (flat("edges", 3.1), GROWING, "3.00×", True, NANOSECONDS),
        (flat("edges", 2), GROWING[:1], None, None, "needs two points"),
        (under(4), TWO_SIZES, "3.00 GiB", True, ""),
        (under(3), TWO_SIZES, "3.00 GiB", False, ""),
        (under(3), GROWING, None, None, "not measured"),
        (pays_within(PYG, 2), PREPARED, "1.50", True, ""),
        (pays_within(PYG, 1), PREPARED, "1.50", False, ""),
        (pays_within(PYG, 2), SLOWER, "never", False, "a step is not faster"),
        (good_choice(0.6, 0.15), PICKS, "67 % (2 of 3)", True, "3: b takes 1.20 of a"),
        (good_choice(0.9, 0.15), PICKS, "67 % (2 of 3)", False, "3: b takes 1.20 of a"),
        (good_choice(0.9, 0.15), [record()], None, None, "not measured"),
        (ahead_up_to(PYG, 0.1), AHEAD, "2.00×", True, "least at 0.1"),
        (ahead_up_to(PYG, 0.5), AHEAD, "0.50×", False, "least at 0.5"),
        (ahead_up_to(PYG, 0.001), AHEAD, None, None, "no such point"),
        (within(0.1), EDGES, "50 ms", True, ""),
        (within(0.01), EDGES, "50 ms", False, ""),
        (within(0.1, mebibytes=100), EDGES, "50 ms and 80 MiB", True, ""),
        (within(0.1, mebibytes=50), EDGES, "50 ms and 80 MiB", False, ""),
        (within(0.01, mebibytes=100), EDGES, "50 ms and 80 MiB", False, ""),
        (within(1, FORWARD, mebibytes=1), [record()], None, None, "not measured"),
        (exponent(1), power(1.0), "1.00", True, "1.00 from 256 to 512"),
        (exponent(1), power(1.2), "1.20", True, "1.20 from 256 to 512"),
        (exponent(1), power(1.3), "1.30", False, "1.30 from 256 to 512"),
        (exponent(2), CURVED, "1.63", True, "1.78 from 256 to 512"),  # a part grows faster
        (exponent(1), power(1.0)[:1], None, None, "needs two points"),
    ],
    ids=lambda value: getattr(value, "what", None),
)
def test_a_target_is_judged(target, points, measured, reached, note):
    found = target.judge(points)
    assert (found["measured"], found["reached"], found["note"]) == (measured, reached, note)
    assert found["what"] == target.what.format(axis=points[0]["axis"])
    assert found["asked"] == target.asked


def test_what_is_asked_is_said():
    said = [(one.what, one.asked) for one in (faster(PYG, 3.5), within(0.005, mebibytes=2))]
    assert said == [
        ("forward + backward, time of PyG", "3.5×"),
        ("preparation", "under 5 ms and 2 MiB"),
    ]


@pytest.mark.parametrize("where", [2e-4, 1e-3, 0.03, 0.9])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_power_laws_meet_where_they_do(where, power):
    sparse = [(density / where) ** power for density in DENSITIES]
    assert crossover(DENSITIES, sparse, [1.0] * 5) == pytest.approx(where, rel=1e-9)


def test_no_crossover_and_one_below_the_lowest_density():
    assert crossover(DENSITIES, [1.0] * 5, [2.0] * 5) is None
    assert crossover(DENSITIES, [2.0] * 5, [1.0] * 5) == 1e-4
    assert crossover((0.1,), [2.0], [1.0]) == 0.1


@pytest.mark.parametrize(
    "curves",
    [
        # The best dense form counts; ours by its own choice does not where it is kept sparse too.
        lambda density: {OURS: 0.1, SPARSE: density / 0.05, DENSE: 1.0, KRONECKER: 5.0},
        lambda density: {OURS: density / 0.05, TORCH: 1.0},
    ],
)
def test_crossovers_are_of_the_best_dense_form_and_points_need_no_order(curves):
    points = [
        record(axis="density", at=density, modes=times(FORWARD, **curves(density)))
        for density in reversed(DENSITIES)
    ]
    (found,) = find_crossovers([record(), *points])
    assert found["density"] == pytest.approx(0.05)
    assert (found["lowest"], found["highest"]) == (1e-4, 1.0)
    assert say_crossover(found) == "fake, forward: dense is faster from density 0.05 on"


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (None, "sparse is faster up to density 1"),
        (1e-4, "dense is faster from density 0.0001 on"),
        (0.0123, "dense is faster from density 0.012 on"),
    ],
)
def test_what_is_said_of_a_crossover(density, words):
    found = {"case": "a", "mode": "b", "density": density, "lowest": 1e-4, "highest": 1.0}
    assert say_crossover(found) == f"a, b: {words}"


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_a_power_is_found(power):
    sizes = [3.0, 10.0, 70.0]
    assert math.isclose(fitted_exponent(sizes, [4 * n**power for n in sizes]), power, abs_tol=1e-9)
