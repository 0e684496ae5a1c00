"""Targets of cases, and whether the results reach them."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .case import FORWARD, OURS, PREPARATION, TRAINING
from .sweeps import fitted_exponent

# The records of one case, one for each point, as report.py describes them.
Records = Sequence[dict[str, Any]]
# What was measured, whether it reaches the target, and a note.
Measured = tuple[str, bool, str]


class NotMeasured(Exception):  # noqa: N818 - as Interrupted
    """Raised by a target where a part of it is missing, with the reason."""


class Target(ABC):
    """Judges the records of one case."""

    def judge(self, points: Records) -> dict[str, Any]:
        """The target with its measured value; None of it, and why, where a part is missing."""
        verdict: tuple[str | None, bool | None, str]
        try:
            verdict = self._measures(points)
        except NotMeasured as reason:
            verdict = None, None, str(reason)
        names = ("what", "asked", "measured", "reached", "note")
        return dict(zip(names, (*self._asks(points), *verdict), strict=True))

    @abstractmethod
    def _asks(self, points: Records) -> tuple[str, str]: ...  # the quantity, the value to reach

    @abstractmethod
    def _measures(self, points: Records) -> Measured: ...


def _median(record: dict[str, Any], mode: str, contender: str) -> float | None:
    """Seconds that a contender took, None where it was not measured."""
    found = record["modes"].get(mode, {}).get(contender)
    return None if found is None else float(found["median"])


def _seconds(record: dict[str, Any], mode: str, contender: str) -> float:
    found = _median(record, mode, contender)
    if found is None:
        raise _missing(record, contender)
    return found


def _peak(record: dict[str, Any], contender: str) -> int:
    """Bytes of a step."""
    if contender not in record["memory"]:
        raise _missing(record, contender)
    return int(record["memory"][contender]["step"])


def _missing(record: dict[str, Any], contender: str) -> NotMeasured:
    for place in ("errors", "absent"):
        if contender in record[place]:
            return NotMeasured(f"{contender}: {record[place][contender]}")
    return NotMeasured("not measured")


@dataclass(frozen=True)
class Faster(Target):
    """Ours takes at most 1/``ratio`` of the time of ``peer``.

    ``floor`` names a contender that does only what nobody can leave out; where it forbids the
    ratio, the note says what it allows. Over several processes it is the median of their ratios.
    """

    peer: str
    ratio: float
    mode: str = TRAINING
    floor: str | None = None

    def _asks(self, points: Records) -> tuple[str, str]:
        return f"{self.mode}, time of {self.peer}", f"{self.ratio:g}×"

    def _measures(self, points: Records) -> Measured:
        (record,) = points
        ours, theirs = (_seconds(record, self.mode, who) for who in (OURS, self.peer))
        ratios = record.get("ratios", {}).get(self.mode, {}).get(self.peer, [theirs / ours])
        measured, note = statistics.median(ratios), ""
        floor = None if self.floor is None else _median(record, self.mode, self.floor)
        if floor is not None:
            note = f"{self.floor} allow {theirs / floor:.2f}×, ours takes {ours / floor:.2f} of it"
        said = f"{measured:.2f}×"
        if len(ratios) > 1:
            said += f" ({min(ratios):.2f}–{max(ratios):.2f})"
        return said, measured >= self.ratio, note


@dataclass(frozen=True)
class Smaller(Target):
    """The peak memory of our step is at most 1/``ratio`` of that of ``peer``."""

    peer: str
    ratio: float

    def _asks(self, points: Records) -> tuple[str, str]:
        return f"peak memory of {self.peer}", f"{self.ratio:g}×"

    def _measures(self, points: Records) -> Measured:
        (record,) = points
        ours, theirs = (_peak(record, who) for who in (OURS, self.peer))
        measured = theirs / max(ours, 1)
        return f"{measured:.2f}×", measured >= self.ratio, f"{_mib(ours)} against {_mib(theirs)}"


@dataclass(frozen=True)
class AheadUpTo(Target):
    """Ours is faster than ``peer`` at every point of a sweep up to ``highest``."""

    peer: str
    highest: float
    mode: str = TRAINING

    def _asks(self, points: Records) -> tuple[str, str]:
        return f"{self.mode}, time of {self.peer} up to {self.highest:g}", "more than 1×"

    def _measures(self, points: Records) -> Measured:
        found = [
            (theirs / ours, float(record["at"]))
            for record in points
            if float(record["at"]) <= self.highest
            and (ours := _median(record, self.mode, OURS)) is not None
            and (theirs := _median(record, self.mode, self.peer)) is not None
        ]
        if not found:
            raise NotMeasured("no such point")
        least, at = min(found)
        return f"{least:.2f}×", least > 1, f"least at {at:g}"


@dataclass(frozen=True)
class Within(Target):
    """Ours takes less than some seconds, and at a step less than some mebibytes, where given."""

    seconds: float
    mode: str = PREPARATION
    mebibytes: float | None = None

    def _asks(self, points: Records) -> tuple[str, str]:
        memory = "" if self.mebibytes is None else f" and {self.mebibytes:g} MiB"
        return self.mode, f"under {1e3 * self.seconds:g} ms{memory}"

    def _measures(self, points: Records) -> Measured:
        (record,) = points
        taken = _seconds(record, self.mode, OURS)
        measured, reached = f"{1e3 * taken:.3g} ms", taken < self.seconds
        if self.mebibytes is not None:
            memory = _peak(record, OURS)
            measured += f" and {_mib(memory)}"
            reached = reached and memory < self.mebibytes * 2**20
        return measured, reached, ""


@dataclass(frozen=True)
class Flat(Target):
    """The time for each unit of ``size`` grows at most ``ratio``-fold along a sweep."""

    size: str
    ratio: float
    mode: str = FORWARD

    def _asks(self, points: Records) -> tuple[str, str]:
        return f"{self.mode}, growth of the time per {self.size}", f"within {self.ratio:g}×"

    def _measures(self, points: Records) -> Measured:
        costs = {
            float(record["sizes"][self.size]): time / float(record["sizes"][self.size])
            for record in points
            if (time := _median(record, self.mode, OURS)) is not None
        }
        if len(costs) < 2:
            raise NotMeasured("needs two points")
        first, last = min(costs), max(costs)
        worst = max(cost / costs[first] for cost in costs.values())
        ends = (f"{1e9 * costs[size]:.2f} ns at {size:.3g}" for size in (first, last))
        return f"{worst:.2f}×", worst <= self.ratio, ", ".join(ends)


@dataclass(frozen=True)
class Under(Target):
    """The whole process, preparation included, stays under some gibibytes at every point."""

    gibibytes: float

    def _asks(self, points: Records) -> tuple[str, str]:
        return "peak memory of the process", f"under {self.gibibytes:g} GiB"

    def _measures(self, points: Records) -> Measured:
        used = [record["memory"][OURS]["process"] for record in points if OURS in record["memory"]]
        if not used:
            raise NotMeasured("not measured")
        most = max(used) / 2**30
        return f"{most:.2f} GiB", most < self.gibibytes, ""


@dataclass(frozen=True)
class PaysWithin(Target):
    """Preparation takes no longer than what ``steps`` training steps save against ``peer``."""

    peer: str
    steps: float

    def _asks(self, points: Records) -> tuple[str, str]:
        what = f"preparation, in steps of what is saved against {self.peer}"
        return what, f"within {self.steps:g}"

    def _measures(self, points: Records) -> Measured:
        (record,) = points
        spent = _seconds(record, PREPARATION, OURS)
        saved = _seconds(record, TRAINING, self.peer) - _seconds(record, TRAINING, OURS)
        if saved <= 0:
            return "never", False, "a step is not faster"
        return f"{spent / saved:.2f}", spent / saved <= self.steps, ""


@dataclass(frozen=True)
class GoodChoice(Target):
    """In a share of the points the order that was chosen is within ``slack`` of the best one."""

    share: float
    slack: float
    mode: str = TRAINING

    def _asks(self, points: Records) -> tuple[str, str]:
        what = f"{self.mode}, chosen order within {100 * self.slack:.0f} % of the best"
        return what, f"{100 * self.share:.0f} % of problems"

    def _measures(self, points: Records) -> Measured:
        good, seen, misses = 0, 0, []
        for record in points:
            timings = record["modes"].get(self.mode, {})
            times = {name: timing["median"] for name, timing in timings.items()}
            chosen = record["sizes"].get(chosen_key(self.mode))
            if chosen not in times:
                continue
            seen += 1
            best = min(times, key=lambda name: times[name])
            if times[chosen] <= (1 + self.slack) * times[best]:
                good += 1
            else:
                ratio = times[chosen] / times[best]
                misses.append(f"{record['at']}: {chosen} takes {ratio:.2f} of {best}")
        if not seen:
            raise NotMeasured("not measured")
        said = f"{100 * good / seen:.0f} % ({good} of {seen})"
        return said, good >= self.share * seen, "; ".join(misses)


@dataclass(frozen=True)
class Exponent(Target):
    """The time grows at most as a power of the axis of a sweep, within some slack.

    Overheads of small sizes and better use of the machine at large ones make it less; so it is
    reached where the fitted exponent is at most ``slack`` above the predicted one.
    """

    predicted: float
    contender: str = OURS
    mode: str = TRAINING
    slack: float = 0.25

    def _asks(self, points: Records) -> tuple[str, str]:
        asked = f"{self.predicted:g}, at most {self.predicted + self.slack:g}"
        return f"{self.mode}, exponent of {points[0]['axis']}", asked

    def _measures(self, points: Records) -> Measured:
        found = [
            (float(record["at"]), time)
            for record in points
            if (time := _median(record, self.mode, self.contender)) is not None
        ]
        if len(found) < 2:
            raise NotMeasured("needs two points")
        fitted = fitted_exponent(*zip(*found, strict=True))
        # Where a quadratic part is added to a linear one, the last step tells more than the fit.
        last = fitted_exponent(*zip(*found[-2:], strict=True))
        note = f"{last:.2f} from {found[-2][0]:g} to {found[-1][0]:g}"
        return f"{fitted:.2f}", fitted <= self.predicted + self.slack, note


def chosen_key(mode: str) -> str:
    """Under which of a record's sizes the order is named that was chosen for a mode."""
    return f"chosen, {mode}"


def _mib(count: float) -> str:
    return f"{count / 2**20:.0f} MiB"
