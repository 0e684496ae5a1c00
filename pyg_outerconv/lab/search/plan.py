"""The plan of a search: every choice that its numbers depend on, with checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ...errors import RefusedValue
from ..fields import check_settings, setting
from ..settings import Settings, settings_from

SHARED = (
    *("epochs", "patience", "metric", "select", "class_weights"),
    *("normalize_features", "split", "device", "backend"),
)
"""The settings of training that a search takes, for all its trials."""


@dataclass(frozen=True)
class Plan:
    """What is searched, and for how long; two searches with equal plans draw equal trials.

    Attributes:
        base: the settings that all trials share; what a trial draws takes the place of others.
    """

    base: Settings
    peers: str = setting(
        "none",
        "PyG's layers that are tuned with the same budget, with commas: mlp, gcn, gat, sage, "
        "dir-gcn; or none",
        said="mlp,gcn,gat, and dir-gcn on a directed graph",
        metavar="NAMES",
        section="Search",
    )
    trials: int = setting(
        40, "Trials of each contestant, 0 where --budget is given", at_least=0, at_most=100_000
    )
    budget: float = setting(
        0.0,
        "Instead of --trials: seconds of training, shared equally by the contestants",
        said="",
        metavar="SECONDS",
    )
    seeds: int = setting(3, "Seeds of a trial, each with its own split", at_least=1)
    test_seeds: int = setting(
        10, "Seeds on which finalists are validated and winners tested", at_most=10_000
    )
    finalists: int = setting(5, "Best trials, which are validated on all seeds", at_least=1)
    seed: int = setting(0, "Seed of what is drawn", at_least=0)
    max_depth: int = setting(4, "Most convolutions", at_least=1, at_most=32)
    max_hidden: int = setting(128, "Most channels between them", at_least=1, at_most=4096)
    terms: tuple[str, ...] = setting(
        (),
        "A family that may be in a basis beside what the search draws by itself, such as "
        '"diffusion(ppr, alpha=0.1)", or one of --import',
        option="term",
        metavar="FAMILY",
    )

    def __post_init__(self) -> None:
        check_settings(self)
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
        return {**asdict(self), "terms": list(self.terms)}


def plan_from(values: Any, origin: str) -> Plan:
    """A plan that was written by :meth:`Plan.as_dict`."""
    known = {one.name for one in fields(Plan)}
    if not isinstance(values, dict) or set(values) != known:
        raise RefusedValue(f"{origin} must hold the plan of a search", sorted(known), values)
    base = settings_from(values["base"], origin)
    return Plan(**{**values, "base": base, "terms": tuple(values["terms"])})
