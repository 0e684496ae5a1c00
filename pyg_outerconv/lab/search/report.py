"""What a search found: rows of tables and sentences, and the page of both, in HTML and Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from ...errors import RefusedValue
from ..pages import percent, points, render_page
from ..settings import Settings
from ..train.results import spread
from . import pictures
from .finals import (
    ENSEMBLE,
    Finals,
    Place,
    interval,
    interval_of_nodes,
    interval_of_pairs,
    ranked,
    seeds_so_far,
)
from .pictures import Seen
from .plan import Plan
from .space import DIRECTIONS, OURS, OWN, choice_of, portfolio, terms_text
from .space import MODEL as DRAWN
from .studies import Record

Rows = list[tuple[str, ...]]
BEST_TRIALS = 10
# What a trial of ours draws of its basis, and how tables call it.
CHOICES = {
    "neighbours": "neighbours",
    "steps": "steps",
    "direction": "direction",
    "high_pass": "high-pass",
    "heads": "attention heads",
    "identity": "identity",
}
MODEL = tuple(name for name in DRAWN if name != "deep_skip")  # which is a skip
TITLES = tuple(name.replace("_", " ") for name in MODEL)


@dataclass(frozen=True)
class Report:
    """The results of a search, or what is found so far: then it has no winner.

    Attributes:
        kept: what came after the trials, see :class:`.finals.Finals`.
        finalists: the best first.
        chosen: the model of each kind that was tested.
        stage: how far a search without a winner is, after its trials.
    """

    plan: Plan
    titles: dict[str, str]
    trials: dict[str, list[Record]]
    config: dict[str, Any]
    kept: dict[str, Any]
    winner: Place | None = None
    finalists: Sequence[Place] = ()
    chosen: dict[str, Place] | None = None
    stage: str = ""

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.plan.base.metric

    @property
    def facts(self) -> str:
        """A line on the data and the plan."""
        plan, data = self.plan, self.config["data"]
        base = plan.base
        counts = sorted({len(kind_trials) for kind_trials in self.trials.values()})
        number = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        most = plan.final_rounds * plan.final_seeds
        seeds = " to ".join(map(str, dict.fromkeys((plan.final_seeds, most))))
        own = {"Terms of one's own": plan.terms, "Imported": [base.imports]}
        said = {title: ", ".join(filter(None, parts)) for title, parts in own.items()}
        return (
            f"{base.dataset}: {data['num_nodes']} nodes, {data['num_edges']} edges, "
            f"{data['num_classes']} classes, split {base.split}. {number} trials of each of "
            f"{len(self.trials)} kinds, of at most {base.epochs} epochs (patience "
            f"{base.patience}); {plan.finalists} finalists on {seeds} seeds, the test "
            f"on {plan.test_seeds} others; search seed {plan.seed}."
        ) + "".join(f" {title}: {text}." for title, text in said.items() if text)

    @property
    def software(self) -> str:
        """The versions that the search began with, and its device."""
        versions = [f"{name} {one}" for name, one in self.config["versions"].items()]
        return ", ".join([*versions, f"device {self.plan.base.device}"])

    # The winner ---------------------------------------------------------------------------------

    @property
    def first(self) -> Place:
        """The winner of a search that has ended."""
        if self.winner is None:
            raise RefusedValue("a search has a winner when it has ended", "--resume", "none yet")
        return self.winner

    def settings(self, place: Place) -> Settings:
        """The settings of a model."""
        return Finals.settings(place, self.trials)

    def winner_settings(self) -> dict[str, Any]:
        """The settings of the winner, for ``outerconv train --config``."""
        settings = self.settings(self.first).with_values(seeds=self.plan.test_seeds)
        return {**settings.as_dict(), "family": terms_text(settings.family)}

    def winner_remark(self) -> str:
        """What the winner reached, above its settings."""
        return (
            f"Found by outerconv search on {self.plan.base.dataset}, kind "
            f"{self.first[0]}; validation {self.metric} {_said(self._final(self.first))} %, test "
            f"{_said(self.tests(self.first))} % over {self.plan.test_seeds} seeds."
        )

    def verdict(self) -> list[str]:
        """Sentences on who won, and on who is better in the test."""
        name = self.titles[self.first[0]]
        family = terms_text(self.settings(self.first).family)
        what = "the basis that was drawn" if self.first[0] == OURS else f"{name}, of the portfolio"
        middle, half = interval(self._final(self.first))
        half = _nan_to_none(half) or 0.0
        low, high = (f"{100 * end:.2f}" for end in (middle - half, middle + half))
        said = [f"Winner: {what}: {family}. Validation {low} to {high} % (95 %, final seeds)."]
        differences = self.differences()
        better = [row for row in differences if row[1] + row[2] < 0]
        worse = [title for title, apart, half in differences if apart - half > 0]
        said += [
            f"In the test {title} is {-100 * apart:.2f} ± {100 * half:.2f} points better."
            for title, apart, half in better
        ]
        if failed := self._num_failed():
            said.append(
                f"On {failed} of the {self.plan.test_seeds} seeds of the test its training failed: "
                f"its {self.metric} on their validation nodes is below half of the median."
            )
        if self.plan.test_seeds < 2:
            said.append("A test on one seed has no intervals.")
        elif not better:
            said.append("In the test no other kind is better than it, beyond the 95 % interval.")
        if worse:
            said.append(f"The winner is better, beyond the interval, than {', '.join(worse)}.")
        return said

    def tests(self, place: Place) -> list[float]:
        """The test metric of a model on each seed of the test."""
        return self._tested(Finals.key(place))

    def _tested(self, key: str, number: str = "test_metric") -> list[Any]:
        seeds = map(str, range(self.plan.test_seeds))
        return [self.kept["tests"][seed][key][number] for seed in seeds]

    def _num_failed(self) -> int:
        """The seeds of the test on which the winner is below half of its median in validation."""
        values = self._tested(Finals.key(self.first), "val_metric")
        least = median(values) / 2
        return sum(value < least for value in values)

    def _final(self, place: Place) -> list[float]:
        """The validation metric on the seeds of each round of the final that a model was in."""
        return _by_seed(self.kept["final"][Finals.key(place)])

    def _winner_minus(self, values: list[float]) -> tuple[str, str]:
        """Cells on a model with these values on the first seeds of the final: their number, and
        the winner's minus its own, paired by seed.
        """
        ours = self._final(self.first)[: len(values)]
        gap = interval_of_pairs(ours, values)
        return str(len(values)), points(gap[0], _nan_to_none(gap[1]))

    def differences(self) -> list[tuple[str, float, float]]:
        """Of each other kind: the winner's test minus its own, paired by seed, and half the width
        of the 95 % interval: over seeds, and over test nodes where these are the same for all.
        """
        if self.plan.test_seeds < 2:
            return []
        others = {name: place for name, place in (self.chosen or {}).items() if place != self.first}
        return [(self.titles[name], *self._difference(place)) for name, place in others.items()]

    def _difference(self, place: Place) -> tuple[float, float]:
        if self.has_fixed_test:
            models = (Finals.key(one) for one in (self.first, place))
            return interval_of_nodes(*(self._tested(model, "correct") for model in models))
        return interval_of_pairs(self.tests(self.first), self.tests(place))

    @property
    def has_fixed_test(self) -> bool:
        """Whether the test nodes are the same for all seeds, and it is known which are correct."""
        return "correct" in self.kept["tests"]["0"][Finals.key(self.first)]

    # Tables -------------------------------------------------------------------------------------

    def result_rows(self) -> Rows:
        """Of the best model of each kind: validation, test, the winner's test minus its own."""
        chosen = self.chosen
        if chosen is None:
            return self._so_far()
        rows: Rows = [("kind", "final, validation %", "test %", "winner − it, points", "trials")]
        apart = {title: points(*gap) for title, *gap in self.differences()}
        sums = {name: mean(self.tests(place)) for name, place in chosen.items()}
        for name in sorted(chosen, key=lambda name: (chosen[name] != self.winner, -sums[name])):
            place, title = chosen[name], self.titles[name]
            final = _said(self._final(place)) if place in self.finalists else ""
            gap = apart.get(title, "")
            title += " (winner)" if place == self.winner else ""
            tested = _said(self.tests(place))
            rows.append((title, final, tested, gap, str(len(self.trials[name]))))
        if self.plan.ensemble:
            title = f"mean of {self.plan.ensemble} finalists"
            rows.append((title, "", _said(self._tested(ENSEMBLE)), "", ""))
        return rows

    def _so_far(self) -> Rows:
        """Of each kind the model that came furthest: the best of those on the most seeds."""
        rows: Rows = [("kind", "validation %", "seeds", "trials")]
        furthest: dict[str, list[float]] = {}
        for name, kind_trials in self.trials.items():
            models = (seeds_so_far(trial, self.kept["rungs"][name]) for trial in kind_trials)
            values = [[seed["val_metric"] for seed in model] for model in models]
            furthest[name] = max(values, key=lambda of_model: (len(of_model), mean(of_model)))
        for name in sorted(furthest, key=lambda name: -mean(furthest[name])):
            cells = _said(furthest[name]), len(furthest[name]), len(self.trials[name])
            rows.append((self.titles[name], *map(str, cells)))
        return rows

    def final_rows(self) -> Rows:
        """The finalists: validation, and the winner's minus theirs, paired by seed."""
        rows: Rows = [("model", "family", "validation %", "seeds", "winner − it, points")]
        for place in self.finalists:
            values = self._final(place)
            seeds, gap = self._winner_minus(values)
            key = f"{self.titles[place[0]]}, trial {place[1]}"
            cells = (key, terms_text(self.settings(place).family), _said(values), seeds)
            rows.append((*cells, "" if place == self.winner else gap))
        return rows

    def model_rows(self) -> Rows:
        """What the model of each kind is."""
        rows: Rows = [("kind", "family", *TITLES)]
        for name, place in (self.chosen or {}).items():
            trial = self.trials[name][place[1]]
            rows.append((self.titles[name], _family(trial), *_model(trial)))
        return rows

    def best_rows(self) -> Rows:
        """The best trials of the basis that is drawn."""
        rows: Rows = [("family", "trial", "validation %", *TITLES)]
        for trial in ranked(self.trials[OURS])[:BEST_TRIALS]:
            reached = f"{100 * trial['value']:.2f}"
            rows.append((_family(trial), str(trial["number"]), reached, *_model(trial)))
        return rows

    def marginals(self) -> dict[str, dict[str, list[Record]]]:
        """Trials by each choice of the basis that is drawn: ``{choice: {value: trials}}``."""
        groups_by_title: dict[str, dict[str, list[Record]]] = {}
        own = {choice_of(term): term for term in self.plan.terms}
        for choice, title in (CHOICES | own).items():
            groups: dict[str, list[Record]] = {}
            for trial in self.trials[OURS]:
                groups.setdefault(_chosen(trial["parameters"], choice), []).append(trial)
            if len(groups) > 1:
                groups_by_title[title] = dict(sorted(groups.items()))
        return groups_by_title

    def marginal_rows(self) -> Rows:
        """For each choice of the basis: how often it was drawn, its median and its best."""
        rows: Rows = [("choice", "trials", "median %", "best %")]
        for title, groups in self.marginals().items():
            for value, trials in groups.items():
                values = [trial["value"] for trial in trials]
                middle, best = (f"{100 * of(values):.2f}" for of in (median, max))
                rows.append((f"{title}: {value}", str(len(trials)), middle, best))
        return rows

    def term_rows(self) -> Rows:
        """The winner trained without each of its terms: validation, paired by seed."""
        rows: Rows = [("without", "validation %", "seeds", "winner − it, points")]
        for term, results in self.kept["without"].items():
            values = _by_seed(results)
            rows.append((term, _said(values), *self._winner_minus(values)))
        return rows

    def seen(self) -> Seen:
        """What is seen in the winner's models, as means over seeds."""
        observations = list(self.kept["seen"].values())
        numbers = ("norm", "change", "loss_change")
        rows = []
        for same in zip(*(one["labels"] for one in observations), strict=True):
            means = {number: mean(row[number] for row in same) for number in numbers}
            rows.append({**same[0], **means})
        shares = [
            (same[0][0], mean(share for _, share in same))
            for same in zip(*(one["homophily"] for one in observations), strict=True)
        ]
        response = {}
        for name in observations[0]["response"] if observations else ():
            bands = zip(*(one["response"][name] for one in observations), strict=True)
            response[name] = [None if None in band else mean(band) for band in bands]
        return Seen(rows, shares, response)

    def label_rows(self) -> Rows:
        """For each layer and label of the winner: its norm, and what is lost without it."""
        rows: Rows = [("layer and label", "norm", "validation, points", "loss")]
        for row in self.seen().labels:
            change, loss = f"{100 * row['change']:+.2f}", f"{row['loss_change']:+.3f}"
            label = f"{row['layer']}, {row['label']}: {row['name']}"
            rows.append((label, f"{row['norm']:.3g}", change, loss))
        return rows

    def homophily_rows(self) -> Rows:
        """The share of its own class in what a node gets."""
        rows: Rows = [("from", "of its own class, %")]
        return rows + [(name, f"{100 * share:.1f}") for name, share in self.seen().homophily]

    def findings(self) -> list[str]:
        """Sentences on what the choices of the basis were worth, by the best trial of each."""
        said = []
        for title, groups in self.marginals().items():
            best = {value: max(one["value"] for one in trials) for value, trials in groups.items()}
            order = sorted(best, key=lambda value: -best[value])
            parts = ", ".join(f"{value} {100 * best[value]:.1f}" for value in order)
            said.append(f"Best validation % by {title}: {parts}.")
        return said

    def source_rows(self) -> Rows:
        """Where the first trials of each kind are from."""
        rows: Rows = [("kind", "first trials")]
        for name, title in self.titles.items():
            if kind := portfolio().get(name):
                rows.append((title, "; ".join(one["source"] for one in kind.start)))
        return rows


def _chosen(parameters: dict[str, Any], choice: str) -> str:
    """What a trial drew, as a word; what follows from other choices is said too."""
    drawn = parameters.get(choice, "none")
    if isinstance(drawn, bool):
        return "yes" if drawn else "no"
    if choice == "identity":  # a stack without any other term has it
        return "yes"
    if choice == "direction" and choice not in parameters:
        if parameters["neighbours"] != "none" or parameters["high_pass"] or parameters.get("heads"):
            return DIRECTIONS[0]
        has_own = any(drawn is True for name, drawn in parameters.items() if name.startswith(OWN))
        return "as written" if has_own else "no graph"
    return str(drawn)


def _family(trial: Record) -> str:
    """The family of a trial, and what propagates its logits."""
    propagation = trial["settings"]["propagation"]
    then = f", then {terms_text(propagation)}" if propagation else ""
    return terms_text(trial["settings"]["family"]) + then


def _model(trial: Record) -> list[str]:
    """What a trial drew of its model."""
    drawn = (trial["settings"][name] for name in MODEL)
    return [f"{value:.2g}" if isinstance(value, float) else str(value) for value in drawn]


def _by_seed(results: dict[str, Record]) -> list[float]:
    return [results[seed]["val_metric"] for seed in sorted(results, key=int)]


def _said(values: Sequence[float]) -> str:
    return percent(mean(values), spread(values))


def _nan_to_none(half: float) -> float | None:
    return None if math.isnan(half) else half


# The page -----------------------------------------------------------------------------------------


def make_page(report: Report, form: str = "html") -> str:
    """The whole page; in Markdown it has no figures."""
    names = ("trials", "marginals", "against", "labels", "homophily", "response")
    figures: dict[str, list[str]] = {name: [] for name in names}
    if form == "html":
        figures["trials"] = [pictures.trials_over_time(report)]
        figures["marginals"] = [pictures.marginals(report)] if report.marginals() else []
        if report.winner is not None:
            seen = report.seen()
            figures["against"] = [pictures.against_winner(report)] if report.differences() else []
            figures["labels"] = [pictures.labels(seen.labels)] if seen.labels else []
            figures["homophily"] = [pictures.homophily(seen.homophily)]
            figures["response"] = [pictures.response(seen.response)] if seen.response else []
    return render_page(Path(__file__).with_suffix(".jinja"), form, report=report, pictures=figures)
