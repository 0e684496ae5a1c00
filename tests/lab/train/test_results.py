"""Means, spreads and paired differences, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pyg_outerconv.lab.train.results import paired_difference, spread, summarise, table


def record(model: str, seed: int, accuracy: float) -> dict[str, Any]:
    return {
        "model": model,
        "seed": seed,
        "test_metric": accuracy,
        "val_metric": accuracy,
        "majority": 0.25,
        "epochs": 10,
        "seconds": 1.0,
    }


def both(ours: list[float], peer: list[float]) -> list[dict[str, Any]]:
    runs = [record("outerconv", seed, value) for seed, value in enumerate(ours)]
    return [*runs, *(record("peer", seed, value) for seed, value in reversed([*enumerate(peer)]))]


def test_spread_is_the_sample_standard_deviation() -> None:
    assert spread([0.2, 0.4, 0.9]) == pytest.approx(0.36055512754639896)
    assert spread([0.5]) is None


def test_differences_are_paired_by_seed() -> None:
    found = paired_difference(both([0.1, 0.5, 0.9], [0.2, 0.4, 0.9]))
    assert found is not None
    assert found["mean"] == pytest.approx(0.0)
    assert found["standard_error"] == pytest.approx(0.1 / 3**0.5)  # differences -0.1, 0.1, 0


def test_unpaired_seeds_do_not_count() -> None:
    found = paired_difference(both([0.5, 0.6, 0.9], [0.5, 0.5]))
    assert found is not None
    assert found["seeds"] == 2
    assert paired_difference([record("outerconv", 0, 0.5)]) is None


def test_the_table_shows_mean_and_deviation() -> None:
    text = table(summarise(both([0.8, 0.9], [0.8, 0.7]), {"outerconv": "A", "peer": "B"}, "f1"))
    assert "test f1 %" in text
    assert "majority class" in text
    assert "25.00" in text
    assert "85.00 ± 7.07" in text
    assert "75.00 ± 7.07" in text
    assert text.endswith("ours − PyG: 10.00 ± 10.00 points (mean ± standard error), 2 seeds")
    one = table(summarise(both([0.5], [0.50001]), {"outerconv": "A", "peer": "B"}, "f1"))
    assert one.endswith("ours − PyG: 0.00 points, 1 seed")
    alone = table(summarise([record("outerconv", 0, 0.5)], {"outerconv": "A"}, "accuracy"))
    assert "50.00" in alone
    assert "±" not in alone
