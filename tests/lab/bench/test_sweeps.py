"""Sweeps: where two curves meet, exact where both are straight on logarithmic scales; exponents."""

from __future__ import annotations

import math

import pytest
from lab.bench.fakes import record, timing

from pyg_outerconv.lab.bench.case import DENSE, FORWARD, KRONECKER, OURS, SPARSE, TORCH, TRAINING
from pyg_outerconv.lab.bench.sweeps import (
    crossover,
    find_crossovers,
    fitted_exponent,
    say_crossover,
)
from pyg_outerconv.lab.bench.targets import Exponent

DENSITIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@pytest.mark.parametrize("where", [2e-4, 1e-3, 0.03, 0.9])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_power_laws_meet_where_they_do(where, power):
    sparse = [(density / where) ** power for density in DENSITIES]
    assert crossover(DENSITIES, sparse, [1.0] * 5) == pytest.approx(where, rel=1e-9)


def test_no_crossover_and_one_below_the_lowest_density():
    assert crossover(DENSITIES, [1.0] * 5, [2.0] * 5) is None
    assert crossover(DENSITIES, [2.0] * 5, [1.0] * 5) == 1e-4
    assert crossover((0.1,), [2.0], [1.0]) == 0.1


def test_the_best_dense_form_counts_and_points_need_no_order():
    points = [
        record(
            axis="density",
            at=density,
            modes={
                FORWARD: {
                    OURS: timing(0.1),
                    SPARSE: timing(density / 0.05),
                    DENSE: timing(1.0),
                    KRONECKER: timing(5.0),
                }
            },
        )
        for density in reversed(DENSITIES)
    ]
    (found,) = find_crossovers([record(), *points])
    assert found["density"] == pytest.approx(0.05)
    assert (found["lowest"], found["highest"]) == (1e-4, 1.0)
    assert say_crossover(found) == "fake, forward: dense is faster from density 0.05 on"


def test_a_layer_that_is_always_sparse_is_compared_by_its_own_choice():
    points = [
        record(
            axis="density",
            at=density,
            modes={FORWARD: {OURS: timing(density / 0.05), TORCH: timing(1.0)}},
        )
        for density in DENSITIES
    ]
    (found,) = find_crossovers(points)
    assert found["density"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (None, "sparse is faster up to density 1"),
        (1e-4, "dense is faster from density 0.0001 on"),
        (0.0123, "dense is faster from density 0.012 on"),
    ],
)
def test_what_is_said(density, words):
    found = {"case": "a", "mode": "b", "density": density, "lowest": 1e-4, "highest": 1.0}
    assert say_crossover(found) == f"a, b: {words}"


def sweep(seconds):
    """A record for each size, with the time that a function says."""
    return [
        {**record(modes={TRAINING: {OURS: timing(seconds(size))}}), "axis": "length", "at": size}
        for size in (64, 128, 256, 512)
    ]


@pytest.mark.parametrize("power", [0.0, 1.0, 2.5])
def test_a_power_is_found(power):
    sizes = [3.0, 10.0, 70.0]
    assert math.isclose(fitted_exponent(sizes, [4 * n**power for n in sizes]), power, abs_tol=1e-9)


@pytest.mark.parametrize(("power", "reached"), [(1.0, True), (1.2, True), (1.3, False)])
def test_growth_is_judged_by_the_fit(power, reached):
    found = Exponent(1).judge(sweep(lambda size: 1e-6 * size**power))
    assert found["measured"] == f"{power:.2f}"
    assert found["reached"] is reached
    assert found["note"] == f"{power:.2f} from 256 to 512"


def test_a_part_that_grows_faster_shows_in_the_last_step():
    found = Exponent(2).judge(sweep(lambda size: size + 1e-2 * size**2))
    assert float(found["note"].split()[0]) > float(found["measured"])


def test_one_point_is_no_growth():
    assert Exponent(1).judge(sweep(float)[:1])["reached"] is None
