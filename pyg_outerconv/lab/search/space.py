"""What a trial draws: the mix of a basis, and the options of a model and of its training."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, islice
from typing import Any

from optuna import Trial

from ...families import parse_family
from ..train import Settings
from .grammar import BOTH, DIRECTIONS, FORWARD, HEADS, MOST_STEPS, NONE, RELATION, REVERSE, Mix

SMALLEST_WIDTH = 16
START_WIDTH = 64
OWN = "term "


@dataclass(frozen=True)
class Bounds:
    """Bounds of the search space, and facts of the graph that shape it.

    Attributes:
        fixed: settings that every trial shares, by name: the dataset, its split, the epochs, ….
        neighbours: see :func:`.grammar.neighbours_for`.
        has_features: whether nodes have features, which attention reads.
        is_directed: whether the edges and the reversed edges differ.
        num_relations: number of edge types.
        max_depth: of convolutions.
        max_hidden: of channels between them; widths are 16, 32, 64, … up to it.
        terms: that the user gave, as text, see :mod:`.own_terms`.
    """

    fixed: dict[str, Any]
    neighbours: tuple[str, ...]
    has_features: bool = True
    is_directed: bool = False
    num_relations: int = 1
    max_depth: int = 4
    max_hidden: int = 128
    terms: tuple[str, ...] = ()

    @property
    def widths(self) -> list[int]:
        """The widths that are tried."""
        found = [min(SMALLEST_WIDTH, self.max_hidden)]
        while 2 * found[-1] <= self.max_hidden:
            found.append(2 * found[-1])
        return found

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers of attention heads that are tried, which share every width evenly."""
        most = HEADS if self.has_features else HEADS[:1]
        return tuple(n for n in most if not n or all(width % n == 0 for width in self.widths))


def choice_of(term: str) -> str:
    """The name under which a trial draws whether its basis has a term of the user's own."""
    return f"{OWN}{term}"


def draw_mix(trial: Trial, bounds: Bounds) -> Mix:
    """The terms of a basis."""
    neighbours = trial.suggest_categorical("neighbours", bounds.neighbours)
    high_pass = trial.suggest_categorical("high_pass", (False, True))
    values: dict[str, Any] = {"neighbours": neighbours, "high_pass": high_pass}
    if bounds.has_features:
        values["heads"] = trial.suggest_categorical("heads", bounds.heads)
    if neighbours not in (NONE, RELATION):
        values["steps"] = trial.suggest_int("steps", 1, MOST_STEPS)
    values["own"] = tuple(
        term for term in bounds.terms if trial.suggest_categorical(choice_of(term), (False, True))
    )
    is_turned = neighbours != NONE or high_pass or bool(values.get("heads"))
    if is_turned or values["own"]:
        values["identity"] = trial.suggest_categorical("identity", (False, True))
    if is_turned and bounds.is_directed:
        values["direction"] = trial.suggest_categorical("direction", DIRECTIONS)
    return Mix(**values, num_relations=bounds.num_relations)


def start_model(bounds: Bounds) -> dict[str, Any]:
    """The model that every contestant tries first: two layers, with usual settings."""
    return {
        "depth": min(2, bounds.max_depth),
        "hidden": [width for width in bounds.widths if width <= START_WIDTH][-1],
        "layer_norm": "none",
        "skip": "none",
        "dropout": 0.5,
        "input_dropout": 0.0,
        "normalize_features": False,
        "lr": 0.01,
        "weight_decay": 5e-4,
    }


CHANGES: tuple[dict[str, Any], ...] = (
    {"normalize_features": True},
    {"dropout": 0.8},
    {"weight_decay": 5e-3},
    {"layer_norm": "batch"},
    {"skip": "concat"},
    {"lr": 3e-3},
    {"input_dropout": 0.5},
)
"""What first trials of a peer change in the first model: nothing, one of these, then two."""


def start_models(bounds: Bounds) -> list[dict[str, Any]]:
    """The models that a peer tries first: as many as the bases that ours tries first."""
    subsets = chain.from_iterable(combinations(CHANGES, size) for size in range(len(CHANGES) + 1))
    first = start_model(bounds)
    return [
        dict(chain(first.items(), *(change.items() for change in subset)))
        for subset in islice(subsets, len(starts(bounds)))
    ]


def starts(bounds: Bounds) -> list[dict[str, Any]]:
    """The bases that are tried first, in one model: what a graph wants shows in few trials.

    The identity alone, beside it each term of the user's own, GCN, and beside the identity the
    mean over neighbours or I − Â, on a directed graph also against the edges and both ways.
    """
    alone = {"neighbours": NONE, "high_pass": False, "heads": 0}
    alone |= {choice_of(term): False for term in bounds.terms}
    own = [{**alone, choice_of(term): True, "identity": True} for term in bounds.terms]
    mean = RELATION if bounds.num_relations > 1 else "mean"
    beside = [
        {**alone, "neighbours": mean, "steps": 1, "identity": True},
        {**alone, "high_pass": True, "identity": True},
    ]
    gcn = {**alone, "neighbours": "gcn", "steps": 1, "identity": False}
    found = [alone, *own, *({**basis, "direction": FORWARD} for basis in (gcn, *beside))]
    if bounds.is_directed:
        found += [{**basis, "direction": way} for way in (REVERSE, BOTH) for basis in beside]
    return [{**basis, **start_model(bounds)} for basis in found]


def draw_model(trial: Trial, bounds: Bounds) -> dict[str, Any]:
    """Depth, width, skips, norms, dropout, learning rate, decay: as all contestants draw them."""
    depth = trial.suggest_int("depth", 1, bounds.max_depth)
    values: dict[str, Any] = {"depth": depth}
    if depth > 1:
        values["hidden"] = trial.suggest_categorical("hidden", bounds.widths)
        values["layer_norm"] = trial.suggest_categorical("layer_norm", ("none", "batch", "layer"))
        values["dropout"] = _share(trial, "dropout")
    if depth == 2:
        values["skip"] = trial.suggest_categorical("skip", ("none", "concat"))
    elif depth > 2:
        choices = ("none", "residual", "concat")
        values["skip"] = trial.suggest_categorical("deep_skip", choices)
    values["input_dropout"] = _share(trial, "input_dropout")
    values["normalize_features"] = trial.suggest_categorical("normalize_features", (False, True))
    values["lr"] = trial.suggest_float("lr", 3e-3, 1e-1, log=True)
    values["weight_decay"] = trial.suggest_float("weight_decay", 1e-6, 1e-2, log=True)
    return values


def _share(trial: Trial, name: str) -> float:
    """0, 0.1, …, 0.8, as one writes them."""
    return round(trial.suggest_float(name, 0.0, 0.8, step=0.1), 1)


def draw_ours(trial: Trial, bounds: Bounds) -> Settings:
    """The settings of a trial of ours, each of which ``outerconv train`` takes."""
    family = repr(parse_family(draw_mix(trial, bounds).text))
    return Settings(**{**bounds.fixed, **draw_model(trial, bounds), "family": family})
