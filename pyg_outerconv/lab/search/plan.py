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


FIRST_TRIAL_SEED, FIRST_FINAL_SEED = 1000, 2000
"""Seeds of trials and of finals; those of the test begin at 0."""


@dataclass(frozen=True)
class Plan:
    """What is searched, and for how long; two searches with equal plans draw equal trials.

    Seeds 0, 1, … are those of the test, on which ``outerconv train`` trains the winner again.
    Trials have others, and finals have others again.

    Attributes:
        base: the settings that all trials share; what a trial draws takes the place of others.
    """

    base: Settings
    portfolio: str = setting(
        "all",
        "Kinds of model that are tuned beside the basis that is drawn, each with as many trials, "
        "with commas, such as mlp,gcn,appnp; all (those that fit the graph) or none",
        metavar="NAMES",
        section="Search",
    )
    trials: int = setting(
        12, "Trials of each kind, 0 where --budget is given", at_least=0, at_most=100_000
    )
    budget: float = setting(
        0.0,
        "Instead of --trials: seconds of training, of all processes together; each kind gets as "
        "many trials as begin within them",
        said="",
        metavar="SECONDS",
    )
    seeds: int = setting(
        1,
        "Seeds of a trial, each with its own split; a third of the trials go on to three times "
        "as many, and so on",
        at_least=1,
        at_most=100,
    )
    finalists: int = setting(
        6, "Models, of all kinds, that are compared on seeds of their own", at_least=1
    )
    final_seeds: int = setting(
        10, "Seeds on which finalists are compared", at_least=1, at_most=1000
    )
    final_rounds: int = setting(
        3,
        "Rounds of the final, each on --final-seeds more; those that the best finalist does not "
        "beat beyond the 95 % interval go on to the next",
        at_least=1,
        at_most=100,
    )
    test_seeds: int = setting(
        10, "Seeds on which the winner, and the best of each kind, are tested", at_most=1000
    )
    ensemble: int = setting(
        0,
        "Test, beside the winner, the mean of what so many finalists predict",
        said="none",
        at_least=0,
    )
    seed: int = setting(0, "Seed of what is drawn", at_least=0)
    max_depth: int = setting(4, "Most convolutions that are drawn", at_least=1, at_most=32)
    max_hidden: int = setting(64, "Most channels between them", at_least=1, at_most=4096)
    terms: tuple[str, ...] = setting(
        (),
        "A family that may be in a basis beside what the search draws by itself, such as "
        '"diffusion(ppr, alpha=0.1)", or one of --import',
        option="term",
        metavar="FAMILY",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.ensemble == 1 or self.ensemble > self.finalists:
            raise RefusedValue(
                "an ensemble is of several finalists",
                f"--ensemble from 2 to {self.finalists}, or 0",
                self.ensemble,
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
    field_names = {one.name for one in fields(Plan)}
    if not isinstance(values, dict) or set(values) != field_names:
        rule = f"{origin} must hold the plan of a search of this version (begin anew elsewhere)"
        raise RefusedValue(rule, sorted(field_names), values)
    base = settings_from(values["base"], origin)
    return Plan(**{**values, "base": base, "terms": tuple(values["terms"])})
