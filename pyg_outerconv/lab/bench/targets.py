"""Targets of cases: a text each, and a function that judges the records of one case.

Sweeps are judged here too: how time grows along them, and at which density dense becomes faster
than sparse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .case import DENSE_FORMS, FORWARD, OURS, PREPARATION, SPARSE, TRAINING

# The records of one case, one for each point, as report.py describes them.
Record = dict[str, Any]
Records = Sequence[Record]
# What was measured, whether it reaches the target, and a note.
Measured = tuple[str, bool, str]


class NotMeasured(Exception):  # noqa: N818 - as Interrupted
    """Raised by a target where a part of it is missing, with the reason."""


@dataclass(frozen=True)
class Target:
    """What the results of a case must reach.

    Attributes:
        what: the quantity; ``{axis}`` in it is that of a sweep.
        asked: the value to reach.
        measure: what the records of the case say; it raises :class:`NotMeasured`.
    """

    what: str
    asked: str
    measure: Callable[[Records], Measured]

    def judge(self, points: Records) -> dict[str, Any]:
        """The target with its measured value; None of it, and why, where a part is missing."""
        verdict: tuple[str | None, bool | None, str]
        try:
            verdict = self.measure(points)
        except NotMeasured as reason:
            verdict = None, None, str(reason)
        found = dict(zip(("measured", "reached", "note"), verdict, strict=True))
        return {"what": self.what.format(**points[0]), "asked": self.asked, **found}


def _median(record: Record, mode: str, contender: str) -> float | None:
    """Seconds that a contender took, None where it was not measured."""
    found = record["modes"].get(mode, {}).get(contender)
    return None if found is None else float(found["median"])


def _seconds(record: Record, mode: str, contender: str) -> float:
    found = _median(record, mode, contender)
    if found is None:
        raise _missing(record, contender)
    return found


def _peak(record: Record, contender: str) -> int:
    """Bytes of a step."""
    if contender not in record["memory"]:
        raise _missing(record, contender)
    return int(record["memory"][contender]["step"])


def _missing(record: Record, contender: str) -> NotMeasured:
    for place in ("errors", "absent"):
        if contender in record[place]:
            return NotMeasured(f"{contender}: {record[place][contender]}")
    return NotMeasured("not measured")


def _sweep(points: Records, mode: str, contender: str = OURS) -> list[tuple[Record, float]]:
    """The points where a contender was measured, and its seconds."""
    found = [(record, _median(record, mode, contender)) for record in points]
    return [(record, seconds) for record, seconds in found if seconds is not None]


def _mib(count: float) -> str:
    return f"{count / 2**20:.0f} MiB"


# Of single points ---------------------------------------------------------------------------------


def ratios_of(record: Record, mode: str, peer: str) -> list[float]:
    """The time of a peer over ours: one number, or one for each of several processes."""
    found: list[float] | None = record.get("ratios", {}).get(mode, {}).get(peer)
    return found or [_seconds(record, mode, peer) / _seconds(record, mode, OURS)]


def faster(peer: str, ratio: float, mode: str = TRAINING, floor: str | None = None) -> Target:
    """Ours takes at most 1/``ratio`` of the time of ``peer``.

    ``floor`` names a contender that does only what nobody can leave out; where it forbids the
    ratio, the note says what it allows. Over several processes it is the median of their ratios.
    """

    def measure(points: Records) -> Measured:
        (record,) = points
        ours, theirs = (_seconds(record, mode, who) for who in (OURS, peer))
        ratios, note = ratios_of(record, mode, peer), ""
        least = None if floor is None else _median(record, mode, floor)
        if least is not None:
            note = f"{floor} allow {theirs / least:.2f}×, ours takes {ours / least:.2f} of it"
        said = f"{statistics.median(ratios):.2f}×"
        if len(ratios) > 1:
            said += f" ({min(ratios):.2f}–{max(ratios):.2f})"
        return said, statistics.median(ratios) >= ratio, note

    return Target(f"{mode}, time of {peer}", f"{ratio:g}×", measure)


def smaller(peer: str, ratio: float) -> Target:
    """The peak memory of our step is at most 1/``ratio`` of that of ``peer``."""

    def measure(points: Records) -> Measured:
        (record,) = points
        ours, theirs = (_peak(record, who) for who in (OURS, peer))
        measured = theirs / max(ours, 1)
        return f"{measured:.2f}×", measured >= ratio, f"{_mib(ours)} against {_mib(theirs)}"

    return Target(f"peak memory of {peer}", f"{ratio:g}×", measure)


def within(seconds: float, mode: str = PREPARATION, mebibytes: float | None = None) -> Target:
    """Ours takes less than some seconds, and at a step less than some mebibytes, where given."""

    def measure(points: Records) -> Measured:
        (record,) = points
        taken = _seconds(record, mode, OURS)
        if mebibytes is None:
            return f"{1e3 * taken:.3g} ms", taken < seconds, ""
        memory = _peak(record, OURS)
        reached = taken < seconds and memory < mebibytes * 2**20
        return f"{1e3 * taken:.3g} ms and {_mib(memory)}", reached, ""

    memory = "" if mebibytes is None else f" and {mebibytes:g} MiB"
    return Target(mode, f"under {1e3 * seconds:g} ms{memory}", measure)


def pays_within(peer: str, steps: float) -> Target:
    """Preparation takes no longer than what ``steps`` training steps save against ``peer``."""

    def measure(points: Records) -> Measured:
        (record,) = points
        spent = _seconds(record, PREPARATION, OURS)
        saved = _seconds(record, TRAINING, peer) - _seconds(record, TRAINING, OURS)
        if saved <= 0:
            return "never", False, "a step is not faster"
        return f"{spent / saved:.2f}", spent / saved <= steps, ""

    what = f"preparation, in steps of what is saved against {peer}"
    return Target(what, f"within {steps:g}", measure)


# Of sweeps ----------------------------------------------------------------------------------------


def ahead_up_to(peer: str, highest: float, mode: str = TRAINING) -> Target:
    """Ours is faster than ``peer`` at every point of a sweep up to ``highest``."""

    def measure(points: Records) -> Measured:
        theirs = {record["at"]: seconds for record, seconds in _sweep(points, mode, peer)}
        found = [
            (theirs[record["at"]] / ours, float(record["at"]))
            for record, ours in _sweep(points, mode)
            if record["at"] in theirs and float(record["at"]) <= highest
        ]
        if not found:
            raise NotMeasured("no such point")
        least, at = min(found)
        return f"{least:.2f}×", least > 1, f"least at {at:g}"

    return Target(f"{mode}, time of {peer} up to {highest:g}", "more than 1×", measure)


def flat(size: str, ratio: float, mode: str = FORWARD) -> Target:
    """The time for each unit of ``size`` grows at most ``ratio``-fold along a sweep."""

    def measure(points: Records) -> Measured:
        sizes = {float(record["sizes"][size]): time for record, time in _sweep(points, mode)}
        costs = {count: time / count for count, time in sizes.items()}
        if len(costs) < 2:
            raise NotMeasured("needs two points")
        first, last = min(costs), max(costs)
        worst = max(cost / costs[first] for cost in costs.values())
        ends = (f"{1e9 * costs[count]:.2f} ns at {count:.3g}" for count in (first, last))
        return f"{worst:.2f}×", worst <= ratio, ", ".join(ends)

    return Target(f"{mode}, growth of the time per {size}", f"within {ratio:g}×", measure)


def under(gibibytes: float) -> Target:
    """The whole process, preparation included, stays under some gibibytes at every point."""

    def measure(points: Records) -> Measured:
        used = [record["memory"][OURS]["process"] for record in points if OURS in record["memory"]]
        if not used:
            raise NotMeasured("not measured")
        most = max(used) / 2**30
        return f"{most:.2f} GiB", most < gibibytes, ""

    return Target("peak memory of the process", f"under {gibibytes:g} GiB", measure)


def good_choice(share: float, slack: float, mode: str = TRAINING) -> Target:
    """In a share of the points the order that was chosen is within ``slack`` of the best one."""

    def measure(points: Records) -> Measured:
        good, seen, misses = 0, 0, []
        for record in points:
            timings = record["modes"].get(mode, {})
            times = {name: timing["median"] for name, timing in timings.items()}
            chosen = record["sizes"].get(chosen_key(mode))
            if chosen not in times:
                continue
            seen += 1
            best = min(times, key=lambda name: times[name])
            if times[chosen] <= (1 + slack) * times[best]:
                good += 1
            else:
                ratio = times[chosen] / times[best]
                misses.append(f"{record['at']}: {chosen} takes {ratio:.2f} of {best}")
        if not seen:
            raise NotMeasured("not measured")
        said = f"{100 * good / seen:.0f} % ({good} of {seen})"
        return said, good >= share * seen, "; ".join(misses)

    what = f"{mode}, chosen order within {100 * slack:.0f} % of the best"
    return Target(what, f"{100 * share:.0f} % of problems", measure)


def chosen_key(mode: str) -> str:
    """Under which of a record's sizes the order is named that was chosen for a mode."""
    return f"chosen, {mode}"


def exponent(
    predicted: float, contender: str = OURS, mode: str = TRAINING, slack: float = 0.25
) -> Target:
    """The time grows at most as a power of the axis of a sweep, within some slack.

    Overheads of small sizes and better use of the machine at large ones make it less; so it is
    reached where the fitted exponent is at most ``slack`` above the predicted one.
    """

    def measure(points: Records) -> Measured:
        found = [(float(one["at"]), time) for one, time in _sweep(points, mode, contender)]
        if len(found) < 2:
            raise NotMeasured("needs two points")
        fitted = fitted_exponent(*zip(*found, strict=True))
        # Where a quadratic part is added to a linear one, the last step tells more than the fit.
        last = fitted_exponent(*zip(*found[-2:], strict=True))
        note = f"{last:.2f} from {found[-2][0]:g} to {found[-1][0]:g}"
        return f"{fitted:.2f}", fitted <= predicted + slack, note

    asked = f"{predicted:g}, at most {predicted + slack:g}"
    return Target(f"{mode}, exponent of {{axis}}", asked, measure)


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log sizes, by least squares."""
    x, y = ([math.log(number) for number in numbers] for numbers in (sizes, seconds))
    return statistics.linear_regression(x, y).slope


# Where dense becomes faster than sparse -----------------------------------------------------------


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


def find_crossovers(records: Records) -> list[dict[str, Any]]:
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
