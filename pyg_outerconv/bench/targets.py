"""Targets of cases, and whether the results reach them."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .names import FORWARD, OURS, PREPARATION, TRAINING

# The records of one case, one for each point, as report.py describes them.
Records = Sequence[dict[str, Any]]


class Target(ABC):
    """Judges the records of one case."""

    @abstractmethod
    def judge(self, points: Records) -> dict[str, Any]:
        """A verdict, see :func:`verdict`; it is not measured where a part of it is missing."""


def verdict(
    what: str, asked: str, measured: str | None, reached: bool | None, note: str = ""
) -> dict[str, Any]:
    """A target with its measured value; ``reached`` is None where nothing was measured."""
    return {
        "what": what,
        "asked": asked,
        "measured": measured,
        "reached": reached,
        "note": note,
    }


def median(record: dict[str, Any], mode: str, contender: str) -> float | None:
    """Seconds that a contender took, None where it was not measured."""
    found = record["modes"].get(mode, {}).get(contender)
    return None if found is None else float(found["median"])


def _reason(record: dict[str, Any], contender: str) -> str:
    for place in ("errors", "absent"):
        if contender in record[place]:
            return f"{contender}: {record[place][contender]}"
    return "not measured"


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

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        (record,) = points
        what, asked = f"{self.mode}, time of {self.peer}", f"{self.ratio:g}×"
        ours, theirs = (median(record, self.mode, who) for who in (OURS, self.peer))
        if ours is None or theirs is None:
            missing = OURS if ours is None else self.peer
            return verdict(what, asked, None, None, _reason(record, missing))
        ratios = record.get("ratios", {}).get(self.mode, {}).get(self.peer, [theirs / ours])
        measured, note = statistics.median(ratios), ""
        floor = None if self.floor is None else median(record, self.mode, self.floor)
        if floor is not None:
            note = f"{self.floor} allow {theirs / floor:.2f}×, ours takes {ours / floor:.2f} of it"
        said = f"{measured:.2f}×"
        if len(ratios) > 1:
            said += f" ({min(ratios):.2f}–{max(ratios):.2f})"
        return verdict(what, asked, said, measured >= self.ratio, note)


@dataclass(frozen=True)
class Smaller(Target):
    """The peak memory of our step is at most 1/``ratio`` of that of ``peer``."""

    peer: str
    ratio: float

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        (record,) = points
        what, asked = f"peak memory of {self.peer}", f"{self.ratio:g}×"
        ours, theirs = (record["memory"].get(who) for who in (OURS, self.peer))
        if ours is None or theirs is None:
            missing = OURS if ours is None else self.peer
            return verdict(what, asked, None, None, _reason(record, missing))
        measured = theirs["step"] / max(ours["step"], 1)
        note = f"{_mib(ours['step'])} against {_mib(theirs['step'])}"
        return verdict(what, asked, f"{measured:.2f}×", measured >= self.ratio, note)


@dataclass(frozen=True)
class AheadUpTo(Target):
    """Ours is faster than ``peer`` at every point of a sweep up to ``highest``."""

    peer: str
    highest: float
    mode: str = TRAINING

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        what = f"{self.mode}, time of {self.peer} up to {self.highest:g}"
        found = [
            (theirs / ours, float(record["at"]))
            for record in points
            if float(record["at"]) <= self.highest
            and (ours := median(record, self.mode, OURS)) is not None
            and (theirs := median(record, self.mode, self.peer)) is not None
        ]
        if not found:
            return verdict(what, "more than 1×", None, None, "no such point")
        least, at = min(found)
        return verdict(what, "more than 1×", f"{least:.2f}×", least > 1, f"least at {at:g}")


@dataclass(frozen=True)
class Within(Target):
    """Ours takes less than some seconds, and at a step less than some mebibytes, where given."""

    seconds: float
    mode: str = PREPARATION
    mebibytes: float | None = None

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        (record,) = points
        asked = f"under {1e3 * self.seconds:g} ms"
        asked += "" if self.mebibytes is None else f" and {self.mebibytes:g} MiB"
        taken, memory = median(record, self.mode, OURS), record["memory"].get(OURS)
        if taken is None or (self.mebibytes is not None and memory is None):
            return verdict(self.mode, asked, None, None, _reason(record, OURS))
        measured, reached = f"{1e3 * taken:.3g} ms", taken < self.seconds
        if self.mebibytes is not None and memory is not None:
            measured += f" and {_mib(memory['step'])}"
            reached = reached and memory["step"] < self.mebibytes * 2**20
        return verdict(self.mode, asked, measured, reached)


@dataclass(frozen=True)
class Flat(Target):
    """The time for each unit of ``size`` grows at most ``ratio``-fold along a sweep."""

    size: str
    ratio: float
    mode: str = FORWARD

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        what, asked = f"{self.mode}, growth of the time per {self.size}", f"within {self.ratio:g}×"
        costs = {
            float(record["sizes"][self.size]): time / float(record["sizes"][self.size])
            for record in points
            if (time := median(record, self.mode, OURS)) is not None
        }
        if len(costs) < 2:
            return verdict(what, asked, None, None, "needs two points")
        first, last = min(costs), max(costs)
        worst = max(cost / costs[first] for cost in costs.values())
        note = (
            f"{1e9 * costs[first]:.2f} ns at {first:.3g}, {1e9 * costs[last]:.2f} ns at {last:.3g}"
        )
        return verdict(what, asked, f"{worst:.2f}×", worst <= self.ratio, note)


@dataclass(frozen=True)
class Under(Target):
    """The whole process, preparation included, stays under some gibibytes at every point."""

    gibibytes: float

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        what, asked = "peak memory of the process", f"under {self.gibibytes:g} GiB"
        used = [record["memory"][OURS]["process"] for record in points if OURS in record["memory"]]
        if not used:
            return verdict(what, asked, None, None, "not measured")
        most = max(used) / 2**30
        return verdict(what, asked, f"{most:.2f} GiB", most < self.gibibytes)


@dataclass(frozen=True)
class PaysWithin(Target):
    """Preparation takes no longer than what ``steps`` training steps save against ``peer``."""

    peer: str
    steps: float

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        (record,) = points
        what = f"preparation, in steps of what is saved against {self.peer}"
        asked = f"within {self.steps:g}"
        spent = median(record, PREPARATION, OURS)
        ours, theirs = (median(record, TRAINING, who) for who in (OURS, self.peer))
        if spent is None or ours is None or theirs is None:
            return verdict(what, asked, None, None, _reason(record, self.peer))
        saved = theirs - ours
        if saved <= 0:
            return verdict(what, asked, "never", False, "a step is not faster")
        measured = spent / saved
        return verdict(what, asked, f"{measured:.2f}", measured <= self.steps)


@dataclass(frozen=True)
class GoodChoice(Target):
    """In a share of the points the order that was chosen is within ``slack`` of the best one."""

    share: float
    slack: float
    mode: str = TRAINING

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        what = f"{self.mode}, chosen order within {100 * self.slack:.0f} % of the best"
        asked = f"{100 * self.share:.0f} % of problems"
        good, seen, misses = 0, 0, []
        for record in points:
            times = {
                name: row["median"] for name, row in record["modes"].get(self.mode, {}).items()
            }
            chosen = record["sizes"].get(chosen_key(self.mode))
            if chosen not in times:
                continue
            seen += 1
            best = min(times, key=lambda name: times[name])
            if times[chosen] <= (1 + self.slack) * times[best]:
                good += 1
            else:
                misses.append(
                    f"{record['at']}: {chosen} takes {times[chosen] / times[best]:.2f} of {best}"
                )
        if not seen:
            return verdict(what, asked, None, None, "not measured")
        return verdict(
            what,
            asked,
            f"{100 * good / seen:.0f} % ({good} of {seen})",
            good >= self.share * seen,
            "; ".join(misses),
        )


def chosen_key(mode: str) -> str:
    """Under which of a record's sizes the order is named that was chosen for a mode."""
    return f"chosen, {mode}"


def _mib(count: float) -> str:
    return f"{count / 2**20:.0f} MiB"
