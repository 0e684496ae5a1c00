"""Targets of cases: a text each, and a function that judges the points of one case.

Also at which density of a sweep dense becomes faster than sparse.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .case import OURS, PREPARATION, TRAINING

Record = dict[str, Any]
Records = Sequence[Record]
# What was measured, whether it reaches the target, and a note.
Measured = tuple[str, bool, str]


class NotMeasured(Exception):  # noqa: N818 - as Interrupted
    """Raised by a target where a part of it is missing, with the reason."""


@dataclass(frozen=True)
class Point:
    """A record, as ``report.py`` describes it, asked for its numbers."""

    record: Record

    def seconds(self, mode: str, who: str = OURS) -> float:
        """What a contender took."""
        timing = self.record["modes"].get(mode, {}).get(who)
        if timing is None:
            raise self._missing(who)
        return float(timing["median"])

    def has(self, mode: str, who: str) -> bool:
        """Whether a contender was timed."""
        return who in self.record["modes"].get(mode, {})

    def peak(self, who: str = OURS, of: str = "step") -> int:
        """Bytes of a step, or of the process."""
        if who not in self.record["memory"]:
            raise self._missing(who)
        return int(self.record["memory"][who][of])

    def ratios(self, mode: str, peer: str) -> list[float]:
        """The time of a peer over ours: one number, or one for each of several processes."""
        ratio = self.seconds(mode, peer) / self.seconds(mode)
        return self.record.get("ratios", {}).get(mode, {}).get(peer) or [ratio]

    def _missing(self, who: str) -> NotMeasured:
        for place in ("errors", "absent"):
            if who in self.record[place]:
                return NotMeasured(f"{who}: {self.record[place][who]}")
        return NotMeasured("not measured")


@dataclass(frozen=True)
class Target:
    """What the results of a case must reach."""

    what: str
    asked: str
    measure: Callable[[list[Point]], Measured]

    def judge(self, records: Records) -> dict[str, Any]:
        """The target with its measured value; None of it, and why, where a part is missing."""
        verdict: tuple[str | None, bool | None, str]
        try:
            verdict = self.measure([Point(record) for record in records])
        except NotMeasured as reason:
            verdict = None, None, str(reason)
        judgement = dict(zip(("measured", "reached", "note"), verdict, strict=True))
        return {"what": self.what, "asked": self.asked, **judgement}


def of_point(what: str, asked: str, measure: Callable[[Point], Measured]) -> Target:
    """A target of a case that has a single point."""
    return Target(what, asked, lambda points: measure(points[0]))


def _mib(count: float) -> str:
    return f"{count / 2**20:.0f} MiB"


# Of single points ---------------------------------------------------------------------------------


def faster(peer: str, ratio: float, mode: str = TRAINING, floor: str = "") -> Target:
    """Ours takes at most 1/``ratio`` of the time of ``peer``.

    ``floor`` names a contender that does only what nobody can leave out; where it forbids the
    ratio, the note says what it allows. Over several processes it is the median of their ratios.
    """

    def measure(one: Point) -> Measured:
        ratios, note = one.ratios(mode, peer), ""
        if one.has(mode, floor):
            least = one.seconds(mode, floor)
            ours, theirs = (one.seconds(mode, who) / least for who in (OURS, peer))
            note = f"{floor} allow {theirs:.2f}×, ours takes {ours:.2f} of it"
        said = f"{statistics.median(ratios):.2f}×"
        if len(ratios) > 1:
            said += f" ({min(ratios):.2f}–{max(ratios):.2f})"
        return said, statistics.median(ratios) >= ratio, note

    return of_point(f"{mode}, time of {peer}", f"{ratio:g}×", measure)


def smaller(peer: str, ratio: float) -> Target:
    """The peak memory of our step is at most 1/``ratio`` of that of ``peer``."""

    def measure(one: Point) -> Measured:
        ours, theirs = one.peak(), one.peak(peer)
        times = theirs / max(ours, 1)
        return f"{times:.2f}×", times >= ratio, f"{_mib(ours)} against {_mib(theirs)}"

    return of_point(f"peak memory of {peer}", f"{ratio:g}×", measure)


def within(seconds: float, mode: str = PREPARATION, mebibytes: float | None = None) -> Target:
    """Ours takes less than some seconds, and at a step less than some mebibytes, where given."""

    def measure(one: Point) -> Measured:
        taken = one.seconds(mode)
        said, reached = f"{1e3 * taken:.3g} ms", taken < seconds
        if mebibytes is None:
            return said, reached, ""
        return f"{said} and {_mib(one.peak())}", reached and one.peak() < mebibytes * 2**20, ""

    memory = "" if mebibytes is None else f" and {mebibytes:g} MiB"
    return of_point(mode, f"under {1e3 * seconds:g} ms{memory}", measure)


def under(gibibytes: float) -> Target:
    """The whole process, preparation included, stays under some gibibytes."""

    def measure(one: Point) -> Measured:
        taken = one.peak(of="process") / 2**30
        return f"{taken:.2f} GiB", taken < gibibytes, ""

    return of_point("peak memory of the process", f"under {gibibytes:g} GiB", measure)


# Of sweeps ----------------------------------------------------------------------------------------


def ahead_up_to(peer: str, highest: float, mode: str = TRAINING) -> Target:
    """Ours is faster than ``peer`` at every point of a sweep up to ``highest``."""

    def measure(points: list[Point]) -> Measured:
        ratios = [
            (one.seconds(mode, peer) / one.seconds(mode), one.record["at"])
            for one in points
            if one.has(mode, peer) and one.has(mode, OURS) and one.record["at"] <= highest
        ]
        if not ratios:
            raise NotMeasured("no such point")
        least, at = min(ratios)
        return f"{least:.2f}×", least > 1, f"least at {at:g}"

    return Target(f"{mode}, time of {peer} up to {highest:g}", "more than 1×", measure)


def good_choice(share: float, slack: float, mode: str = TRAINING) -> Target:
    """In a share of the points the order that was chosen is within ``slack`` of the best one."""

    def measure(points: list[Point]) -> Measured:
        seen, misses = 0, []
        for one in points:
            chosen = one.record["sizes"].get(chosen_key(mode), "")
            if not one.has(mode, chosen):
                continue
            seen += 1
            times = {name: one.seconds(mode, name) for name in one.record["modes"][mode]}
            best = min(times, key=lambda name: times[name])
            if (ratio := times[chosen] / times[best]) > 1 + slack:
                misses.append(f"{one.record['at']}: {chosen} takes {ratio:.2f} of {best}")
        if not seen:
            raise NotMeasured("not measured")
        good = seen - len(misses)
        said = f"{100 * good / seen:.0f} % ({good} of {seen})"
        return said, good >= share * seen, "; ".join(misses)

    what = f"{mode}, chosen order within {100 * slack:.0f} % of the best"
    return Target(what, f"{100 * share:.0f} % of problems", measure)


def chosen_key(mode: str) -> str:
    """Under which of a record's sizes the order is named that was chosen for a mode."""
    return f"chosen, {mode}"


# Where dense becomes faster than sparse -----------------------------------------------------------


def crossover(
    densities: Sequence[float], sparse: Sequence[float], dense: Sequence[float]
) -> float | None:
    """Where two curves over ascending densities meet, straight on logarithmic scales between them.

    It is the lowest density from which on dense is faster at the next measured point; the lowest
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


def say_crossover(crossing: dict[str, Any]) -> str:
    """The crossover of a case and a mode, in one line."""
    density = crossing["density"]
    if density is None:
        where = f"sparse is faster up to density {crossing['highest']:g}"
    elif density <= crossing["lowest"]:
        where = f"dense is faster from density {crossing['lowest']:g} on"
    else:
        where = f"dense is faster from density {density:.2g} on"
    return f"{crossing['case']}, {crossing['mode']}: {where}"
