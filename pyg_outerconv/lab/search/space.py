"""What a search draws: a basis, as a stack of a few terms; a model; its training.

And who takes part in it: that basis, and the portfolio of kinds of model in ``portfolio.toml``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna import Trial

from ...errors import RefusedValue, unknown
from ...families import Stack, parse_family
from ..data import Dataset
from ..family_options import make_family, short_name
from ..fields import read_toml
from ..train import Settings
from ..train.model import backends_used, ours

if TYPE_CHECKING:
    from .work import Unlabelled

FORWARD, REVERSE, BOTH = "forward", "reverse", "both"
DIRECTIONS = (FORWARD, REVERSE, BOTH)
NONE = "none"
MOST_STEPS = 3
HEADS = (0, 4, 8)


def _walk(steps: int, norm: str | None, loops: bool = False) -> str:
    """The powers 1 … L of a transition matrix, without the identity."""
    powers = tuple(range(1, steps + 1))
    return f"walk({steps}, norm={norm!r}, powers={powers}, add_self_loops={loops})"


# What a node may see of its neighbours, up to some steps away; each without the node itself.
NEIGHBOURS: dict[str, Callable[[int], str]] = {
    "gcn": lambda steps: "gcn" if steps == 1 else _walk(steps, "sym", loops=True),
    "mean": lambda steps: _walk(steps, "target"),
    "walk": lambda steps: _walk(steps, "source"),
    "sum": lambda steps: _walk(steps, None),
    "chebyshev": lambda steps: f"select(chebyshev({steps + 1}), keep={tuple(range(1, steps + 1))})",
}
RELATION = "relation"


@dataclass(frozen=True)
class Mix:
    """A stack of terms.

    Attributes:
        neighbours: a key of ``NEIGHBOURS``, ``'relation'``, or ``'none'``.
        steps: L; the term has the powers 1 … L.
        direction: along the edges (``'forward'``), against them (``'reverse'``), or both, each with
            a Θ of its own.
        high_pass: whether the stack has I − Â, in the same direction.
        heads: of graph attention, in the same direction; 0 for none.
        identity: whether the stack has I. Without any other term it has.
        num_relations: R of ``'relation'``.
        own: terms that the user gave, as text, each as it is written whatever the direction.
    """

    neighbours: str = NONE
    steps: int = 1
    direction: str = FORWARD
    high_pass: bool = False
    heads: int = 0
    identity: bool = True
    num_relations: int = 1
    own: tuple[str, ...] = ()

    @property
    def terms(self) -> dict[str, str]:
        """The text of each term by its name: identity, neighbours, high-pass, attention, own."""
        terms = {}
        if self.neighbours == RELATION:
            terms[RELATION] = self._turned(f"relation({self.num_relations})")
        elif self.neighbours != NONE:
            terms[self.neighbours] = self._turned(NEIGHBOURS[self.neighbours](self.steps))
        if self.high_pass:
            terms["high_pass"] = self._turned("high_pass")
        if self.heads:
            terms["attention"] = self._turned(f"gat({self.heads})")
        terms |= {text: text for text in self.own}
        if self.identity or not terms:
            terms = {"identity": "identity", **terms}
        return terms

    def _turned(self, text: str) -> str:
        return {FORWARD: text, REVERSE: f"reverse({text})", BOTH: f"directed({text})"}[
            self.direction
        ]

    @property
    def text(self) -> str:
        """The family as text, as ``outerconv train --family`` takes it."""
        return stacked(list(self.terms.values()))


def stacked(terms: list[str]) -> str:
    """The text of a family that has these terms; the identity where there is none."""
    if len(terms) < 2:
        return terms[0] if terms else "identity"
    return f"stack({', '.join(terms)})"


def terms_of(family: str) -> list[str]:
    """The texts of the terms of a family, which is one itself if it is no stack."""
    parsed_family = parse_family(family)
    return [
        short_name(term)
        for term in (
            parsed_family.families if isinstance(parsed_family, Stack) else (parsed_family,)
        )
    ]


def terms_text(family: str) -> str:
    """A family as short text."""
    return short_name(parse_family(family))


def neighbours_for(dataset: Dataset) -> tuple[str, ...]:
    """The neighbours' terms that fit a graph: those of relations where its edges have types."""
    if dataset.num_relations > 1:
        return (NONE, RELATION, "gcn", "mean")
    return (NONE, *NEIGHBOURS)


# What a trial draws ------------------------------------------------------------------------------

SMALLEST_WIDTH = 16
START_WIDTH = 64
OWN = "term "


@dataclass(frozen=True)
class Bounds:
    """Bounds of the search space, and facts of the graph that shape it."""

    fixed: dict[str, Any]
    neighbours: tuple[str, ...]
    has_features: bool = True
    is_directed: bool = False
    num_relations: int = 1
    max_depth: int = 4
    max_hidden: int = 64
    terms: tuple[str, ...] = ()

    @property
    def widths(self) -> list[int]:
        """The widths that are tried."""
        widths = [min(SMALLEST_WIDTH, self.max_hidden)]
        while 2 * widths[-1] <= self.max_hidden:
            widths.append(2 * widths[-1])
        return widths

    @property
    def heads(self) -> tuple[int, ...]:
        """The numbers of attention heads that are tried, which share every width evenly."""
        most = HEADS if self.has_features else HEADS[:1]
        return tuple(n for n in most if not n or self.is_shared(n))

    def is_shared(self, heads: int) -> bool:
        """Whether so many heads share every width evenly."""
        return all(width % heads == 0 for width in self.widths)

    def cut(self, model: dict[str, Any]) -> dict[str, Any]:
        """Published settings of a model, with depth and width within the bounds."""
        depth = min(model.get("depth", 1), self.max_depth)
        width = max(min(model.get("hidden", START_WIDTH), self.widths[-1]), self.widths[0])
        cut = {**model, "depth": depth, "hidden": [one for one in self.widths if one <= width][-1]}
        return cut if depth > 2 or cut.get("skip") != "residual" else {**cut, "skip": "none"}


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
    """The model that bases are tried in first: two layers, with usual settings."""
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
    bases = [alone, *own, *({**basis, "direction": FORWARD} for basis in (gcn, *beside))]
    if bounds.is_directed:
        bases += [{**basis, "direction": way} for way in (REVERSE, BOTH) for basis in beside]
    return [{**basis, **start_model(bounds)} for basis in bases]


LEAST_RATE, MOST_RATE = 1e-3, 0.2
LEAST_DECAY, MOST_DECAY = 1e-6, 2e-2
MOST_DROPOUT = 0.8


def draw_model(
    trial: Trial, bounds: Bounds, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Depth, width, skips, norms, dropout, learning rate, decay: as all kinds draw them.

    The depth may be among the ``settings`` that are what a kind is, and other linear layers.
    """
    kind_settings = settings or {}
    depth = kind_settings.get("depth") or trial.suggest_int("depth", 1, bounds.max_depth)
    values: dict[str, Any] = {"depth": depth}
    if depth > 1 or "input_layer" in kind_settings or "architecture" in kind_settings:
        values["hidden"] = trial.suggest_categorical("hidden", bounds.widths)
        values["layer_norm"] = trial.suggest_categorical("layer_norm", ("none", "batch", "layer"))
        values["dropout"] = _share(trial, "dropout")
    if depth > 1 and "skip" not in kind_settings:
        name, deep = ("deep_skip", ("residual",)) if depth > 2 else ("skip", ())
        values["skip"] = trial.suggest_categorical(name, ("none", "concat", "last", "max", *deep))
    values["input_dropout"] = _share(trial, "input_dropout")
    values["normalize_features"] = trial.suggest_categorical("normalize_features", (False, True))
    values["lr"] = trial.suggest_float("lr", LEAST_RATE, MOST_RATE, log=True)
    values["weight_decay"] = trial.suggest_float("weight_decay", LEAST_DECAY, MOST_DECAY, log=True)
    return values


def as_drawn(model: dict[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Settings of a model as a trial draws them: the nearest that can be drawn.

    What a sampler is told of a published model, or of the best model of another kind.
    """
    drawn_model = {
        "layer_norm": "none",
        "skip": "none",
        "dropout": 0.0,
        "input_dropout": 0.0,
        **model,
    }
    drawn_model = bounds.cut({"normalize_features": False, **drawn_model})
    drawn_model["deep_skip"] = drawn_model["skip"]
    for name in ("dropout", "input_dropout"):
        drawn_model[name] = round(min(drawn_model[name], MOST_DROPOUT), 1)
    drawn_model["lr"] = min(max(drawn_model["lr"], LEAST_RATE), MOST_RATE)
    drawn_model["weight_decay"] = min(max(drawn_model["weight_decay"], LEAST_DECAY), MOST_DECAY)
    return {name: drawn_model[name] for name in MODEL}


MODEL = (
    *("depth", "hidden", "skip", "deep_skip", "layer_norm", "dropout", "input_dropout"),
    *("lr", "weight_decay", "normalize_features"),
)
"""What a trial draws of its model."""


def _share(trial: Trial, name: str) -> float:
    """0, 0.1, …, 0.8, as one writes them."""
    return round(trial.suggest_float(name, 0.0, MOST_DROPOUT, step=0.1), 1)


# Terms of one's own -------------------------------------------------------------------------------


def read_terms(texts: Sequence[str], num_relations: int) -> tuple[str, ...]:
    """The short texts of families, as ``--family`` takes them."""
    terms = []
    for text in texts:
        family = make_family(text, num_relations=num_relations)
        if isinstance(family, Stack):
            wanted = " ".join(f'--term "{short_name(part)}"' for part in family.families)
            raise RefusedValue("a search stacks terms itself, each a --term", wanted, repr(text))
        terms.append(short_name(family))
    return tuple(terms)


def check_terms(terms: Sequence[str], bounds: Bounds, graph: Unlabelled) -> None:
    """Try each term, in models of every width that is drawn, on the graph."""
    families = {repr(parse_family(text)) for text in drawn_terms(bounds)} if terms else set()
    for term in terms:
        family = repr(parse_family(term))
        if family in families:
            rule = "each --term adds a family to what is drawn"
            raise RefusedValue(rule, "one that is not drawn already", term)
        families.add(family)
        try:
            for width in bounds.widths:
                _try(term, width, bounds, graph)
        except (ValueError, TypeError) as error:
            rule = "a --term is a family that takes the graph, in models of every width"
            raise RefusedValue(rule, "another one", f"{term!r}: {error}") from error


def drawn_terms(bounds: Bounds) -> set[str]:
    """The texts of all terms that are drawn without any of the user's own."""
    choices = product(
        bounds.neighbours,
        range(1, MOST_STEPS + 1),
        DIRECTIONS if bounds.is_directed else (FORWARD,),
        bounds.heads,
    )
    return {
        text
        for neighbours, steps, way, heads in choices
        for text in Mix(
            neighbours, steps, way, True, heads, num_relations=bounds.num_relations
        ).terms.values()
    }


def _try(term: str, width: int, bounds: Bounds, graph: Unlabelled) -> None:
    """Predict by a model that was not trained, whose basis has the term beside the identity."""
    family = repr(parse_family(stacked(["identity", term])))
    model = {**start_model(bounds), "hidden": width}
    settings = Settings(**{**bounds.fixed, **model, "family": family})
    backends_used(ours(graph.dataset, settings), graph.num_classes, settings)


# Kinds of model ----------------------------------------------------------------------------------

OURS = "outerconv"
ALL = "all"
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

    def start_settings(self, start: dict[str, Any], settings: Settings, bounds: Bounds) -> Settings:
        """The settings of a first trial: those that were drawn, with what its start says."""
        return settings


@dataclass(frozen=True)
class PortfolioKind(Kind):
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
        return self._settings_with(
            chosen, draw_model(trial, bounds, {**self.settings, **chosen}), bounds
        )

    def starts(self, bounds: Bounds) -> list[dict[str, Any]]:
        first_trials = []
        for one in self.start:
            start = {**start_model(bounds), **one["settings"]}
            for name in self.choices:
                values = self._values(name, bounds)
                start[name] = start[name] if start[name] in values else values[0]
            first_trials.append(start)
        return first_trials

    def start_settings(self, start: dict[str, Any], settings: Settings, bounds: Bounds) -> Settings:
        """As published, also in depth; but the width, by which time and memory grow, is bounded."""
        chosen = {name: start[name] for name in self.choices}
        model = {name: value for name, value in start.items() if name not in self.choices}
        model["hidden"] = bounds.cut(model)["hidden"]
        return self._settings_with(chosen, model, bounds)

    def _values(self, name: str, bounds: Bounds) -> tuple[Any, ...]:
        """The values of a choice; heads share every width evenly, and depths are bounded."""
        values = self.choices[name]
        if name == "heads":
            return tuple(one for one in values if bounds.is_shared(one))
        if name == "depth":
            return tuple(dict.fromkeys(min(one, DEEPER * bounds.max_depth) for one in values))
        return values

    def _settings_with(
        self, chosen: dict[str, Any], model: dict[str, Any], bounds: Bounds
    ) -> Settings:
        texts = {"family": self.family, **self.settings}
        said = {
            name: text.format(**chosen) if isinstance(text, str) else text
            for name, text in texts.items()
        }
        said["family"] = repr(parse_family(said["family"]))
        own = {name: value for name, value in chosen.items() if name in bounds.fixed}
        return Settings(**{**bounds.fixed, **model, **own, **said})


@cache
def portfolio() -> dict[str, PortfolioKind]:
    """The kinds of ``portfolio.toml`` by name."""
    kinds = {}
    for one in read_toml(Path(__file__).with_name("portfolio.toml"))["kind"]:
        choices = {name: tuple(values) for name, values in one.pop("choices", {}).items()}
        lists: dict[str, Any] = {name: tuple(one.pop(name, ())) for name in ("needs", "start")}
        kinds[one["name"]] = PortfolioKind(**one, choices=choices, **lists)
    return kinds


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
    kinds = portfolio()
    if names == ALL:
        return [Kind(), *(kind for kind in kinds.values() if kind.fits(bounds))]
    asked = [] if names == NONE else [kinds[name.strip()] for name in names.split(",")]
    for kind in asked:
        if not kind.fits(bounds):
            rule = f"kind {kind.name!r} of the portfolio needs a graph that has it"
            raise RefusedValue(rule, " and ".join(kind.needs), "a graph without")
    return [Kind(), *asked]
