"""The plan of a search: every choice that its numbers depend on, with checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ...errors import RefusedValue
from ..train import Settings
from ..train.settings import settings_from

MOST_TRIALS, MOST_DEPTH, MOST_HIDDEN = 100_000, 32, 4096


@dataclass(frozen=True)
class Plan:
    """What is searched, and for how long; two searches with equal plans draw equal trials.

    Attributes:
        base: the settings that all trials share; what a trial draws takes the place of others.
        peers: names of PyG's layers that are tuned beside, see :mod:`.contestants`.
        trials: of each contestant, 0 where ``budget`` is given.
        budget: seconds of training in all, shared equally by the contestants; 0 for none.
        seeds: that a trial is trained on, 0, 1, …; each takes a split of its own where there are
            several.
        test_seeds: that the finalists are validated on, and that the winners are tested on.
        finalists: how many of the best trials are validated on all of these.
        seed: of what is drawn.
        max_depth, max_hidden: bounds of what is drawn.
        terms: families that may be in a basis beside what is drawn, as text, see :mod:`.own_terms`.

    Raises:
        ValueError: a number is out of range.
    """

    base: Settings
    peers: tuple[str, ...] = ()
    trials: int = 40
    budget: float = 0.0
    seeds: int = 3
    test_seeds: int = 10
    finalists: int = 5
    seed: int = 0
    max_depth: int = 4
    max_hidden: int = 128
    terms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        least = {"seeds": 1, "finalists": 1, "max_depth": 1, "max_hidden": 1, "seed": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise RefusedValue(f"--{_flag(name)} has a minimum", bound, getattr(self, name))
        most = {"trials": MOST_TRIALS, "max_depth": MOST_DEPTH, "max_hidden": MOST_HIDDEN}
        for name, bound in most.items():
            if getattr(self, name) > bound:
                raise RefusedValue(f"--{_flag(name)} has a maximum", bound, getattr(self, name))
        if self.test_seeds < self.seeds:
            raise RefusedValue(
                "finalists are validated on the seeds of the trials and more",
                f"--test-seeds >= {self.seeds}",
                self.test_seeds,
            )
        if not (self.trials > 0) ^ (self.budget > 0):
            raise RefusedValue(
                "a search ends after so many trials, or seconds",
                "--trials or --budget, positive",
                f"{self.trials} trials, {self.budget} seconds",
            )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``config.json`` holds them."""
        lists = {"peers": list(self.peers), "terms": list(self.terms)}
        return {**asdict(self), **lists, "base": self.base.as_dict()}


def _flag(name: str) -> str:
    return name.replace("_", "-")


def plan_from(values: Any, origin: str) -> Plan:
    """A plan that was written by :meth:`Plan.as_dict`.

    Raises:
        ValueError: it is not of this version.
    """
    known = {field.name for field in fields(Plan)}
    if not isinstance(values, dict) or set(values) != known:
        raise RefusedValue(f"{origin} must hold the plan of a search", sorted(known), values)
    base = settings_from(values["base"], origin)
    tuples = {name: tuple(values[name]) for name in ("peers", "terms")}
    return Plan(**{**values, **tuples, "base": base})
