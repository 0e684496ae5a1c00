"""What a search found: rows of tables, figures, and the page of both, in HTML and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import mean, median
from typing import Any

from ..pages import percent, points, render_page
from ..pages.figures import COLOURS, INK, drawing
from ..train.results import difference_of, spread
from .contestants import OURS
from .finals import candidate_of, ranked
from .plan import Plan
from .space import DIRECTIONS, OWN, choice_of, terms_text
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
MODEL = (
    *("depth", "hidden", "skip", "layer_norm", "dropout", "input_dropout"),
    *("lr", "weight_decay", "normalize_features"),
)
TITLES = tuple(name.replace("_", " ") for name in MODEL)


@dataclass(frozen=True)
class Report:
    """The results of a search."""

    plan: Plan
    shown: dict[str, str]
    trials: dict[str, list[Record]]
    winners: dict[str, Record]
    finals: dict[str, Any]
    config: dict[str, Any]

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self.plan.base.metric

    @property
    def facts(self) -> str:
        """A line on the data and the plan."""
        plan, data = self.plan, self.config["data"]
        base = plan.base
        each = (f"{len(trials)} of {self.shown[name]}" for name, trials in self.trials.items())
        length = f"{plan.budget:g} s of training in all; trials: {', '.join(each)}"
        if plan.trials:
            length = f"{plan.trials} trials each"
        own = {"Terms of one's own": plan.terms, "Imported": [base.imports]}
        said = {title: ", ".join(filter(None, parts)) for title, parts in own.items()}
        return (
            f"{base.dataset}: {data['num_nodes']} nodes, {data['num_edges']} edges, "
            f"{data['num_classes']} classes, split {base.split}. {length}, a trial on "
            f"{plan.seeds} seeds of at most {base.epochs} epochs (patience {base.patience}); the "
            f"best {plan.finalists} validated on {plan.test_seeds} seeds; search seed {plan.seed}."
        ) + "".join(f" {title}: {text}." for title, text in said.items() if text)

    @property
    def software(self) -> str:
        """The versions that the search began with."""
        return ", ".join(f"{name} {one}" for name, one in self.config["versions"].items())

    # The winner ---------------------------------------------------------------------------------

    def winner_settings(self) -> dict[str, Any]:
        """The settings of our winner, for ``outerconv train --config``."""
        settings = replace(candidate_of(self.winners[OURS]).settings, seeds=self.plan.test_seeds)
        return {**settings.as_dict(), "family": terms_text(settings.family)}

    def winner_remark(self) -> str:
        """What the winner reached, above its settings."""
        return (
            f"Found by outerconv search on {self.plan.base.dataset}; validation {self.metric} "
            f"{_said(self._results(OURS, 'val_metric'))} %, test "
            f"{_said(self._results(OURS, 'test_metric'))} % over {self.plan.test_seeds} seeds."
        )

    def _results(self, name: str, key: str) -> list[float]:
        return self._by_seed(self.finals["tests"][name], key)

    def _by_seed(self, results: dict[str, Record], key: str) -> list[float]:
        return [results[str(seed)][key] for seed in range(self.plan.test_seeds)]

    # Tables -------------------------------------------------------------------------------------

    def result_rows(self) -> Rows:
        """Validation and test of each winner, and our test minus a peer's, paired by seed."""
        rows: Rows = [("contestant", "validation %", "test %", "ours − it, points", "trials", "s")]
        ours = self._results(OURS, "test_metric")
        for name, shown in self.shown.items():
            trials, tests = self.trials[name], self._results(name, "test_metric")
            apart = "" if name == OURS else _points(ours, tests)
            seconds = f"{sum(trial['wall'] for trial in trials):.0f}"
            reached = _said(self._results(name, "val_metric")), _said(tests)
            rows.append((shown, *reached, apart, str(len(trials)), seconds))
        return rows

    def model_rows(self) -> Rows:
        """What each winner drew."""
        rows: Rows = [("contestant", "family", *TITLES)]
        for name, shown in self.shown.items():
            trial = self.winners[name]
            family = f"{trial['heads']} heads" if name == "gat" else ""
            if name == OURS:
                family = terms_text(trial["settings"]["family"])
            rows.append((shown, family, *_model(trial)))
        return rows

    def best_rows(self) -> Rows:
        """Our best trials."""
        rows: Rows = [("family", "trial", "validation %", *TITLES)]
        for trial in ranked(self.trials[OURS])[:BEST_TRIALS]:
            family, reached = terms_text(trial["settings"]["family"]), f"{100 * trial['value']:.2f}"
            rows.append((family, str(trial["number"]), reached, *_model(trial)))
        return rows

    def marginals(self) -> dict[str, dict[str, list[Record]]]:
        """Our trials by each choice of the basis: ``{choice: {value: trials}}``."""
        found: dict[str, dict[str, list[Record]]] = {}
        own = {choice_of(term): term for term in self.plan.terms}
        for choice, title in (CHOICES | own).items():
            groups: dict[str, list[Record]] = {}
            for trial in self.trials[OURS]:
                groups.setdefault(_chosen(trial["parameters"], choice), []).append(trial)
            if len(groups) > 1:
                found[title] = dict(sorted(groups.items()))
        return found

    def marginal_rows(self) -> Rows:
        """For each choice of the basis: how often it was drawn, stopped early, and its best."""
        rows: Rows = [("choice", "trials", "ended early", "median %", "best %")]
        for title, groups in self.marginals().items():
            for value, trials in groups.items():
                values = _values(trials)
                middle, best = (f"{100 * of(values):.2f}" if values else "" for of in (median, max))
                counts = str(len(trials)), str(len(trials) - len(values))
                rows.append((f"{title}: {value}", *counts, middle, best))
        return rows

    def term_rows(self) -> Rows:
        """The winner trained without each of its terms: validation, paired by seed."""
        rows: Rows = [("without", "validation %", "winner − it, points")]
        whole = self._results(OURS, "val_metric")
        for term, results in self.finals["without"].items():
            values = self._by_seed(results, "val_metric")
            rows.append((term, _said(values), _points(whole, values)))
        return rows

    def label_rows(self) -> Rows:
        """For each layer and label of the winner: its norm, and what is lost without it."""
        rows: Rows = [("layer and label", "norm", "validation, points", "loss")]
        for row in self.finals["labels"]:
            change, loss = f"{100 * row['change']:+.2f}", f"{row['loss_change']:+.3f}"
            label = f"{row['layer']}, {row['label']}: {row['name']}"
            rows.append((label, f"{row['norm']:.3g}", change, loss))
        return rows

    def findings(self) -> list[str]:
        """Sentences on what the choices of the basis were worth, by the best trial of each."""
        said = []
        for title, groups in self.marginals().items():
            best = {value: max(_values(trials), default=None) for value, trials in groups.items()}
            reached = {value: one for value, one in best.items() if one is not None}
            if len(reached) > 1:
                order = sorted(reached, key=lambda value: -reached[value])
                parts = ", ".join(f"{value} {100 * reached[value]:.1f}" for value in order)
                said.append(f"Best validation % by {title}: {parts}.")
        return said


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


def _values(trials: Sequence[Record]) -> list[float]:
    """What trials reached that did not end early."""
    return [trial["value"] for trial in trials if trial["value"] is not None]


def _model(trial: Record) -> list[str]:
    """What a trial drew of its model."""
    drawn = (trial["settings"][name] for name in MODEL)
    return [f"{value:.2g}" if isinstance(value, float) else str(value) for value in drawn]


def _said(values: Sequence[float]) -> str:
    return percent(mean(values), spread(values))


def _points(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """A paired difference: mean ± standard error."""
    found = difference_of([a - b for a, b in zip(ours, theirs, strict=True)])
    return points(found["mean"], found["standard_error"])


# The page -----------------------------------------------------------------------------------------


def make_page(report: Report, form: str = "html") -> str:
    """The whole page; in Markdown it has no figures."""
    figures: dict[str, list[str]] = {"trials": [], "marginals": [], "labels": []}
    if form == "html":
        figures["trials"] = [trials_over_time(report)]
        figures["marginals"] = [marginals(report)] if report.marginals() else []
        figures["labels"] = [contributions(report)] if report.finals["labels"] else []
    return render_page(Path(__file__).with_suffix(".jinja"), form, report=report, pictures=figures)


def trials_over_time(report: Report) -> str:
    """The validation metric of each trial, and the best so far, a colour for each contestant."""
    with drawing("trials", 7.4, 3.6) as made:
        axes = made.figure.add_subplot()
        lowest = 1.0
        for number, (name, shown) in enumerate(report.shown.items()):
            trials = [trial for trial in report.trials[name] if trial["value"] is not None]
            at, values = [trial["number"] + 1 for trial in trials], _values(trials)
            colour = COLOURS[number % len(COLOURS)]
            best = [100 * value for value in accumulate(values, max)]
            axes.plot(at, [100 * value for value in values], ".", color=colour, ms=5, alpha=0.6)
            axes.step(at, best, where="post", color=colour, linewidth=1.4, label=shown)
            lowest = min(lowest, *values)
        early = [trial["number"] + 1 for trial in report.trials[OURS] if trial["value"] is None]
        floor = [100 * lowest - 2] * len(early)
        axes.plot(early, floor, "x", color=COLOURS[0], ms=4, label="ended early")
        axes.set(xlabel="trial", ylabel=f"validation {report.metric}, %")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return made.svg


def marginals(report: Report) -> str:
    """The validation metric of our trials by each choice of the basis, a panel for each."""
    groups = report.marginals()
    tallest = max(map(len, groups.values()), default=1)
    with drawing("marginals", 2.6 * max(1, len(groups)), 1.0 + 0.3 * tallest) as made:
        for place, (title, values) in enumerate(groups.items(), start=1):
            axes = made.figure.add_subplot(1, len(groups), place)
            for row, trials in enumerate(values.values()):
                reached = [100 * value for value in _values(trials)]
                axes.plot(reached, [row] * len(reached), "|", color=COLOURS[0], ms=9, alpha=0.7)
                if reached:
                    axes.plot([max(reached)], [row], "o", color=COLOURS[1], ms=4)
            axes.set_yticks(range(len(values)), list(values))
            axes.set_ylim(-0.6, len(values) - 0.4)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel(f"validation {report.metric}, %")
    return made.svg


def contributions(report: Report) -> str:
    """‖A_kᵀ X Θ_k‖ of each layer and label, and the change of the loss without it."""
    rows = report.finals["labels"][::-1]
    names, at = [f"{row['layer']}: {row['name']}" for row in rows], range(len(rows))
    titles = {"norm": "‖A_kᵀ X Θ_k‖", "loss_change": "validation loss without it, change"}
    with drawing("labels", 9, 0.9 + 0.28 * len(rows)) as made:
        for place, (key, title) in enumerate(titles.items()):
            axes = made.figure.add_subplot(1, 2, place + 1)
            axes.barh(at, [row[key] for row in rows], color=COLOURS[place], height=0.6)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_yticks(at, [""] * len(rows) if place else names)
            axes.set_xlabel(title)
    return made.svg
