"""How the time of a layer grows: fitted exponents beside those that its operations predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .names import OURS, TRAINING
from .targets import Records, Target, median, verdict


def fitted_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The slope of log seconds over log sizes, by least squares."""
    x, y = [math.log(size) for size in sizes], [math.log(time) for time in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


@dataclass(frozen=True)
class Exponent(Target):
    """The time grows at most as a power of the axis of a sweep, within some slack.

    Overheads of small sizes and better use of the machine at large ones make it less; so it is
    reached where the fitted exponent is at most ``slack`` above the predicted one.

    Attributes:
        predicted: the exponent.
        contender: whose time.
        mode: forward, or with backward.
        slack: see above.
    """

    predicted: float
    contender: str = OURS
    mode: str = TRAINING
    slack: float = 0.25

    def judge(self, points: Records) -> dict[str, Any]:
        """See :class:`Target`."""
        axis = points[0]["axis"]
        what = f"{self.mode}, exponent of {axis}"
        asked = f"{self.predicted:g}, at most {self.predicted + self.slack:g}"
        found = [
            (float(record["at"]), time)
            for record in points
            if (time := median(record, self.mode, self.contender)) is not None
        ]
        if len(found) < 2:
            return verdict(what, asked, None, None, "needs two points")
        fitted = fitted_exponent(*zip(*found, strict=True))
        # Where a quadratic part is added to a linear one, the last step tells more than the fit.
        last = fitted_exponent(*zip(*found[-2:], strict=True))
        note = f"{last:.2f} from {found[-2][0]:g} to {found[-1][0]:g}"
        reached = fitted <= self.predicted + self.slack
        return verdict(what, asked, f"{fitted:.2f}", reached, note)
