"""Fitted exponents of times that are known."""

from __future__ import annotations

import math

import pytest
from bench.fakes import record, timing

from pyg_outerconv.bench.exponents import Exponent, fitted_exponent
from pyg_outerconv.bench.names import OURS, TRAINING


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
