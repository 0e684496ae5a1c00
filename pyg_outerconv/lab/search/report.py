"""What a search found, as rows of tables and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from ..pages import render_page
from ..train import Settings
from ..train.results import difference_of, markdown_table, percent, plain, points, spread
from .contestants import OURS
from .finals import candidate_of
from .plan import Plan
from .space import DIRECTIONS, OWN, choice_of, terms_text

Record = dict[str, Any]
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
    "depth",
    "hidden",
    "skip",
    "layer_norm",
    "dropout",
    "input_dropout",
    "lr",
    "weight_decay",
    "normalize_features",
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
        return (
            f"{base.dataset}: {data['num_nodes']} nodes, {data['num_edges']} edges, "
            f"{data['num_classes']} classes, split {base.split}. {length}, a trial on "
            f"{plan.seeds} seeds of at most {base.epochs} epochs (patience {base.patience}); the "
            f"best {plan.finalists} validated on {plan.test_seeds} seeds; search seed {plan.seed}."
            f"{self._own}"
        )

    @property
    def _own(self) -> str:
        """What the user brought."""
        names = {"Terms of one's own": self.plan.terms, "Imported": [self.plan.base.imports]}
        said = {title: ", ".join(filter(None, parts)) for title, parts in names.items()}
        return "".join(f" {title}: {text}." for title, text in said.items() if text)

    # The winner ---------------------------------------------------------------------------------

    def winner_settings(self) -> dict[str, Any]:
        """The settings of our winner, for ``outerconv train --config``."""
        settings: Settings = replace(
            candidate_of(self.winners[OURS]).settings, seeds=self.plan.test_seeds
        )
        return {**settings.as_dict(), "family": terms_text(settings.family)}

    def winner_remark(self) -> str:
        """What the winner reached, above its settings."""
        return (
            f"Found by outerconv search on {self.plan.base.dataset}; validation {self.metric} "
            f"{_said(self._results(OURS, 'val_metric'))} %, test "
            f"{_said(self._results(OURS, 'test_metric'))} % over {self.plan.test_seeds} seeds."
        )

    def _results(self, name: str, key: str) -> list[float]:
        tests = self.finals["tests"][name]
        return [tests[str(seed)][key] for seed in range(self.plan.test_seeds)]

    # Tables -------------------------------------------------------------------------------------

    def result_rows(self) -> Rows:
        """Validation and test of each winner, and our test minus a peer's, paired by seed."""
        rows: Rows = [("contestant", "validation %", "test %", "ours − it, points", "trials", "s")]
        ours = self._results(OURS, "test_metric")
        for name, shown in self.shown.items():
            tests = self._results(name, "test_metric")
            apart = "" if name == OURS else _points(ours, tests)
            seconds = sum(trial["wall"] for trial in self.trials[name])
            rows.append(
                (
                    shown,
                    _said(self._results(name, "val_metric")),
                    _said(tests),
                    apart,
                    str(len(self.trials[name])),
                    f"{seconds:.0f}",
                )
            )
        return rows

    def model_rows(self) -> Rows:
        """What each winner drew."""
        rows: Rows = [("contestant", "family", *TITLES)]
        for name, shown in self.shown.items():
            candidate = candidate_of(self.winners[name])
            settings = candidate.settings.as_dict()
            family = self._family(name, settings["family"], candidate.heads)
            rows.append((shown, family, *(_brief(settings[key]) for key in MODEL)))
        return rows

    @staticmethod
    def _family(name: str, family: str, heads: int) -> str:
        if name == OURS:
            return terms_text(family)
        return f"{heads} heads" if name == "gat" else ""

    def best_rows(self) -> Rows:
        """Our best trials."""
        rows: Rows = [("family", "trial", "validation %", *TITLES)]
        complete = [trial for trial in self.trials[OURS] if trial["value"] is not None]
        ranked = sorted(complete, key=lambda trial: (-trial["value"], trial["number"]))
        for trial in ranked[:BEST_TRIALS]:
            settings = trial["settings"]
            said = (terms_text(settings["family"]), str(trial["number"]))
            reached = f"{100 * trial['value']:.2f}"
            rows.append((*said, reached, *(_brief(settings[key]) for key in MODEL)))
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
                values = [trial["value"] for trial in trials if trial["value"] is not None]
                rows.append(
                    (
                        f"{title}: {value}",
                        str(len(trials)),
                        str(len(trials) - len(values)),
                        f"{100 * median(values):.2f}" if values else "",
                        f"{100 * max(values):.2f}" if values else "",
                    )
                )
        return rows

    def term_rows(self) -> Rows:
        """The winner trained without each of its terms: validation, paired by seed."""
        rows: Rows = [("without", "validation %", "winner − it, points")]
        whole = self._results(OURS, "val_metric")
        for term, results in self.finals["without"].items():
            values = [results[str(seed)]["val_metric"] for seed in range(self.plan.test_seeds)]
            rows.append((term, _said(values), _points(whole, values)))
        return rows

    def label_rows(self) -> Rows:
        """For each layer and label of the winner: its norm, and what is lost without it."""
        rows: Rows = [("layer and label", "norm", "validation, points", "loss")]
        for row in self.finals["labels"]:
            rows.append(
                (
                    f"{row['layer']}, {row['label']}: {row['name']}",
                    f"{row['norm']:.3g}",
                    f"{100 * row['change']:+.2f}",
                    f"{row['loss_change']:+.3f}",
                )
            )
        return rows

    def findings(self) -> list[str]:
        """Sentences on what the choices of the basis were worth, by the best trial of each."""
        said = []
        for title, groups in self.marginals().items():
            best = {
                value: max(values)
                for value, trials in groups.items()
                if (values := [t["value"] for t in trials if t["value"] is not None])
            }
            if len(best) > 1:
                ranked = sorted(best, key=lambda value: -best[value])
                parts = ", ".join(f"{value} {100 * best[value]:.1f}" for value in ranked)
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


def _said(values: Sequence[float]) -> str:
    return percent(mean(values), spread(values))


def _points(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """A paired difference: mean ± standard error."""
    found = difference_of([a - b for a, b in zip(ours, theirs, strict=True)])
    return points(found["mean"], found["standard_error"])


def _brief(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2g}" if math.isfinite(value) else str(value)
    return str(value)


def markdown(report: Report) -> str:
    """The tables as Markdown."""
    filters = {"plain": plain, "table": lambda rows: markdown_table(plain(rows), others="---")}
    return render_page(Path(__file__).with_suffix(".md.jinja"), filters, report=report)
