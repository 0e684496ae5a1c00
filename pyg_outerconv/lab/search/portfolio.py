"""Who takes part in a search: the basis that it draws, and a portfolio of kinds of model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from optuna import Trial
from torch import Tensor
from torch_geometric.utils import is_undirected

from ...errors import RefusedValue, unknown
from ...families import parse_family
from ..data import Dataset
from ..fields import read_toml
from ..train import Settings, Split, make_split
from .space import Bounds, as_drawn, draw_mix, draw_model, start_model, starts

OURS = "outerconv"
ALL, NONE = "all", "none"
DEEPER = 4  # times as deep as what is drawn may be what a kind has as a choice


@dataclass(frozen=True)
class Kind:
    """A kind of model, with a study of its own: ours, whose basis is drawn.

    Attributes:
        name: of its study.
        title: how tables call it.
        choices: what models of this kind leave open beside the model around the basis.
    """

    name: str = OURS
    title: str = "basis searched"
    choices: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def fits(self, bounds: Bounds) -> bool:
        """Whether the graph has what models of this kind need."""
        return True

    def draw(self, trial: Trial, bounds: Bounds) -> Settings:
        """The settings of a trial, each of which ``outerconv train`` takes."""
        family = repr(parse_family(draw_mix(trial, bounds).text))
        return Settings(**{**bounds.fixed, **draw_model(trial, bounds), "family": family})

    def starts(self, bounds: Bounds) -> list[dict[str, Any]]:
        """What its first trials are to draw."""
        return starts(bounds)

    def told(self, start: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
        """What a sampler is told of a first trial, or of a model of another kind."""
        model = as_drawn(start, bounds)
        return {**start, **model, **{name: start[name] for name in self.choices if name in start}}

    def given(self, start: dict[str, Any], settings: Settings, bounds: Bounds) -> Settings:
        """The settings of a first trial: those that were drawn, with what its start says."""
        return settings


@dataclass(frozen=True)
class Known(Kind):
    """A kind of the portfolio, as ``portfolio.toml`` has it."""

    family: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    start: tuple[dict[str, Any], ...] = ()

    def fits(self, bounds: Bounds) -> bool:
        directed = bounds.is_directed
        has = {"features": bounds.has_features, "direction": directed, "both ways": not directed}
        return all(has[need] for need in self.needs)

    def draw(self, trial: Trial, bounds: Bounds) -> Settings:
        chosen = {
            name: trial.suggest_categorical(name, self._values(name, bounds))
            for name in self.choices
        }
        return self._made(chosen, draw_model(trial, bounds, {**self.settings, **chosen}), bounds)

    def starts(self, bounds: Bounds) -> list[dict[str, Any]]:
        found = []
        for one in self.start:
            start = {**start_model(bounds), **one["settings"]}
            for name in self.choices:
                values = self._values(name, bounds)
                start[name] = start[name] if start[name] in values else values[0]
            found.append(start)
        return found

    def given(self, start: dict[str, Any], settings: Settings, bounds: Bounds) -> Settings:
        """As published, also in depth; but the width, by which time and memory grow, is bounded."""
        chosen = {name: start[name] for name in self.choices}
        model = {name: value for name, value in start.items() if name not in self.choices}
        model["hidden"] = bounds.cut(model)["hidden"]
        return self._made(chosen, model, bounds)

    def _values(self, name: str, bounds: Bounds) -> tuple[Any, ...]:
        """The values of a choice; heads share every width evenly, and depths are bounded."""
        values = self.choices[name]
        if name == "heads":
            return tuple(one for one in values if bounds.is_shared(one))
        if name == "depth":
            return tuple(dict.fromkeys(min(one, DEEPER * bounds.max_depth) for one in values))
        return values

    def _made(self, chosen: dict[str, Any], model: dict[str, Any], bounds: Bounds) -> Settings:
        texts = {"family": self.family, **self.settings}
        said = {
            name: text.format(**chosen) if isinstance(text, str) else text
            for name, text in texts.items()
        }
        said["family"] = repr(parse_family(said["family"]))
        own = {name: value for name, value in chosen.items() if name in bounds.fixed}
        return Settings(**{**bounds.fixed, **model, **own, **said})


@cache
def portfolio() -> dict[str, Known]:
    """The kinds of ``portfolio.toml`` by name."""
    found = {}
    for one in read_toml(Path(__file__).with_suffix(".toml"))["kind"]:
        choices = {name: tuple(values) for name, values in one.pop("choices", {}).items()}
        lists: dict[str, Any] = {name: tuple(one.pop(name, ())) for name in ("needs", "start")}
        found[one["name"]] = Known(**one, choices=choices, **lists)
    return found


def check_portfolio(names: str) -> None:
    """Refuse names of no kind."""
    asked = [] if names in (ALL, NONE) else [name.strip() for name in names.split(",")]
    for name in asked:
        if name not in portfolio():
            raise RefusedValue(unknown("kind of the portfolio", name, [*portfolio(), ALL, NONE]))
    if len(set(asked)) < len(asked):
        raise RefusedValue("a kind of the portfolio is named once", "different kinds", names)


def kinds_for(names: str, bounds: Bounds) -> list[Kind]:
    """Our basis, then the kinds that a text names, with commas; those of ``'all'`` that fit."""
    check_portfolio(names)
    known = portfolio()
    if names == ALL:
        return [Kind(), *(kind for kind in known.values() if kind.fits(bounds))]
    asked = [] if names == NONE else [known[name.strip()] for name in names.split(",")]
    for kind in asked:
        if not kind.fits(bounds):
            rule = f"kind {kind.name!r} of the portfolio needs a graph that has it"
            raise RefusedValue(rule, " and ".join(kind.needs), "a graph without")
    return [Kind(), *asked]


# What a search may see of the labels --------------------------------------------------------------

WITHHELD = -1


@dataclass(frozen=True)
class Unlabelled:
    """A dataset whose ``y`` is −1 at every node, as models are built on."""

    dataset: Dataset
    num_classes: int

    @property
    def has_features(self) -> bool:
        """Whether nodes have features."""
        x = self.dataset.data.get("x")
        return x is not None and x.numel() > 0

    @property
    def is_directed(self) -> bool:
        """Whether the edges and the reversed edges differ."""
        data = self.dataset.data
        return not is_undirected(data.edge_index, num_nodes=data.num_nodes)


@dataclass(frozen=True)
class Labels:
    """What a seed may see."""

    y: Tensor
    split: Split


def without_labels(dataset: Dataset) -> Unlabelled:
    """The dataset without labels."""
    data = copy.copy(dataset.data)
    data.y = torch.full_like(dataset.data.y, WITHHELD)
    return Unlabelled(replace(dataset, data=data), dataset.num_classes)


def visible_labels(dataset: Dataset, protocol: str, seeds: Sequence[int]) -> dict[int, Labels]:
    """The labels of each seed's training and validation nodes; all others are withheld."""
    found = {}
    for seed in seeds:
        split = make_split(dataset.data, protocol, seed)
        seen = (split.train | split.validation) & ~split.test
        found[seed] = Labels(torch.where(seen, dataset.data.y, WITHHELD), split)
    return found
