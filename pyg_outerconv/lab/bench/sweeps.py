"""Sweeps: how time grows along them, and the density at which dense becomes faster than sparse."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from .case import DENSE_FORMS, OURS, SPARSE


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log sizes, by least squares."""
    x, y = ([math.log(number) for number in numbers] for numbers in (sizes, seconds))
    return statistics.linear_regression(x, y).slope


def crossover(
    densities: Sequence[float], sparse: Sequence[float], dense: Sequence[float]
) -> float | None:
    """Where two curves over density meet, both straight between points on logarithmic scales.

    Args:
        densities: ascending.
        sparse, dense: seconds at each density.

    Returns:
        the lowest density from which on dense is faster at the next measured point; the lowest
        density itself if dense is faster there, None if it never is.
    """
    gaps = [math.log(a / b) for a, b in zip(sparse, dense, strict=True)]
    if gaps and gaps[0] >= 0:
        return densities[0]
    for place in range(1, len(gaps)):
        before, after = gaps[place - 1], gaps[place]
        if after >= 0:
            low, high = (math.log(d) for d in densities[place - 1 : place + 1])
            return math.exp(low + (high - low) * before / (before - after))
    return None


def find_crossovers(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each sweep over density and each mode: from where on the best dense form is faster."""
    found = []
    for name in dict.fromkeys(r["case"] for r in records if r["axis"] == "density"):
        mine = [r for r in records if r["case"] == name and r["axis"] == "density"]
        points = sorted(mine, key=lambda r: float(r["at"]))
        modes = dict.fromkeys(mode for record in points for mode in record["modes"])
        for mode in modes:
            # Some cases have no layer that would not be sparse by itself.
            asked = any(SPARSE in r["modes"].get(mode, {}) for r in points)
            ours = SPARSE if asked else OURS
            rows = [
                (float(r["at"]), times[ours]["median"], min(dense))
                for r in points
                if ours in (times := r["modes"].get(mode, {}))
                and (dense := [times[form]["median"] for form in DENSE_FORMS if form in times])
            ]
            if not rows:
                continue
            densities, sparse, best = zip(*rows, strict=True)
            found.append(
                {
                    "case": name,
                    "mode": mode,
                    "density": crossover(densities, sparse, best),
                    "lowest": densities[0],
                    "highest": densities[-1],
                }
            )
    return found


def say_crossover(found: dict[str, Any]) -> str:
    """The crossover of a case and a mode, in one line."""
    density = found["density"]
    if density is None:
        where = f"sparse is faster up to density {found['highest']:g}"
    elif density <= found["lowest"]:
        where = f"dense is faster from density {found['lowest']:g} on"
    else:
        where = f"dense is faster from density {density:.2g} on"
    return f"{found['case']}, {found['mode']}: {where}"
