"""Where two curves meet: exact where both are straight on logarithmic scales."""

from __future__ import annotations

import pytest
from bench.fakes import record, timing

from pyg_outerconv.bench.crossover import crossover, find_crossovers, say_crossover
from pyg_outerconv.bench.names import DENSE, FORWARD, KRONECKER, OURS, SPARSE, TORCH

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
