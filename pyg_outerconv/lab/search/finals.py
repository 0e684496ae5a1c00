"""The folder of a search, and its end: finalists on all seeds, the winner, its terms, the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from ..data import Dataset
from ..train import contributions
from ..train.folder import CONFIG, LOCK, Folder
from ..train.inputs import WholeGraph
from ..train.results import METRICS
from ..train.settings import settings_from
from .contestants import OURS, Candidate, Contestant
from .plan import Plan, plan_from
from .space import stacked, terms_of
from .trials import Bench, Diverged, validation

Record = dict[str, Any]
STORAGE, TRIALS, FINALS = "study.db", "trials.json", "finals.json"
WINNER, TABLE, PAGE = "winner.toml", "search.md", "search.html"


class SearchFolder(Folder):
    """Reads and writes one search.

    - ``config.json``: plan, data, versions
    - ``study.db``: Optuna's storage, an SQLite file
    - ``trials.json``: the finished trials of each contestant
    - ``finals.json``: the finalists' validation, the test of the winners, what each term brings
    - ``winner.toml``: for ``outerconv train --config``
    - ``search.md``, ``search.html``: the tables, and the page
    - ``lock``: empty, locked by the process that works here
    """

    of, called, key, format = "a search", "the folder of a search", "plan", 1
    names = (CONFIG, STORAGE, TRIALS, FINALS, WINNER, TABLE, PAGE, LOCK)

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.storage = self.path / STORAGE

    @property
    def plan(self) -> Plan:
        """The plan that the search began with."""
        return plan_from(self.read_config()["plan"], str(self.config))


@dataclass
class Finals:
    """The stages after the trials, each seed kept in ``finals.json`` when it is done."""

    folder: SearchFolder
    plan: Plan
    bench: Bench
    log: Callable[[str], None]

    def __post_init__(self) -> None:
        stages = ("validation", "winners", "without", "labels", "tests")
        self.found: dict[str, Any] = self.folder.read(FINALS) or {stage: {} for stage in stages}

    @property
    def seeds(self) -> range:
        """The seeds of the finals."""
        return range(self.plan.test_seeds)

    # Validation alone ---------------------------------------------------------------------------

    def choose(self, contestant: Contestant, trials: Sequence[Record]) -> Record:
        """The trial with the best validation over all seeds, among the best of the search."""
        complete = [trial for trial in trials if trial["state"] == "complete"]
        best = sorted(complete, key=lambda trial: (-trial["value"], trial["number"]))
        finalists = best[: self.plan.finalists]
        ranks = []
        for place, trial in enumerate(finalists, 1):
            key = f"{contestant.name} {trial['number']}"
            known = {str(result["seed"]): result for result in trial["seeds"]}
            results = self._each_seed("validation", key, contestant, candidate_of(trial), known)
            metric, loss = _means(results)
            self._say(
                f"{contestant.name} trial {trial['number']}, finalist {place} of {len(finalists)}",
                results,
            )
            ranks.append((-metric, loss, trial["number"]))
        (_, _, number) = min(ranks)
        self.found["winners"][contestant.name] = number
        self._save()
        return next(trial for trial in finalists if trial["number"] == number)

    def ablate(self, contestant: Contestant, winner: Record) -> None:
        """The validation of the winner trained without each of its terms."""
        settings = candidate_of(winner).settings
        terms = terms_of(settings.family)
        for number, term in enumerate(terms):
            others = terms[:number] + terms[number + 1 :]
            if term == "identity" and not others:
                continue  # nothing is left, or the same
            changed = Candidate(replace(settings, family=stacked(others)))
            results = self._each_seed("without", term, contestant, changed, {})
            self._say(f"{contestant.name} without {term}", results)

    def weigh_labels(self, contestant: Contestant, winner: Record) -> None:
        """What each label of each layer of the winner brings, on validation nodes."""
        if contestant.name != OURS or self.found["labels"]:
            return
        candidate = candidate_of(winner)
        contender = self.bench.contender(contestant, candidate)
        rows: dict[tuple[str, int, str], list[tuple[float, float, float]]] = {}
        for seed in range(self.plan.seeds):
            run = self.bench.train(contender, candidate, seed)
            run.model.load_state_dict(run.best.parameters)
            inputs = contender.inputs
            assert isinstance(inputs, WholeGraph)  # what `ours` makes
            metric = METRICS[candidate.settings.metric]
            seen = self.bench.labels[seed]
            y, mask = (t.to(candidate.settings.device) for t in (seen.y, seen.split.validation))
            for one in contributions(run.model, inputs.x, inputs.structure, y, mask, metric):
                row = rows.setdefault((one.layer, one.label, one.name), [])
                row.append((one.norm, one.change, one.loss_change))
        self.found["labels"] = [
            {
                "layer": layer,
                "label": label,
                "name": name,
                **{
                    key: mean(values)
                    for key, values in zip(
                        ("norm", "change", "loss_change"), zip(*found, strict=True), strict=True
                    )
                },
            }
            for (layer, label, name), found in rows.items()
        ]
        self._save()

    def _each_seed(
        self,
        stage: str,
        key: str,
        contestant: Contestant,
        candidate: Candidate,
        known: dict[str, Record],
    ) -> list[Record]:
        """The validation numbers of a candidate on every seed; those that are known are kept."""
        results: dict[str, Record] = self.found[stage].setdefault(key, {})
        contender = None
        for seed in self.seeds:
            if str(seed) in results:
                continue
            if str(seed) in known:
                results[str(seed)] = known[str(seed)]
                continue
            contender = contender or self.bench.contender(contestant, candidate)
            try:
                results[str(seed)] = validation(self.bench.train(contender, candidate, seed))
            except Diverged as error:
                worst = {"val_metric": 0.0, "val_loss": float(10**9), "diverged": str(error)}
                results[str(seed)] = worst
            self._save()
        return [results[str(seed)] for seed in self.seeds]

    # The test -----------------------------------------------------------------------------------

    def test(self, contestant: Contestant, winner: Record, dataset: Dataset) -> None:
        """Read the test labels: the winner of a contestant, trained as before, once a seed."""
        results: dict[str, Record] = self.found["tests"].setdefault(contestant.name, {})
        candidate, contender = candidate_of(winner), None
        for seed in self.seeds:
            if str(seed) in results:
                continue
            contender = contender or self.bench.contender(contestant, candidate)
            run = self.bench.train(contender, candidate, seed)
            found = run.test(dataset.data.y, self.bench.labels[seed].split.test)
            results[str(seed)] = {**validation(run), **found}
            self._save()
        reached = mean(result["test_metric"] for result in results.values())
        self.log(f"{contestant.shown}: test {candidate.settings.metric} {100 * reached:.2f} %")

    def _say(self, what: str, results: Sequence[Record]) -> None:
        """A line on a candidate that was validated."""
        metric, _ = _means(results)
        self.log(f"{what}: {100 * metric:.2f} % on {len(results)} seeds")

    def _save(self) -> None:
        self.folder.write(FINALS, self.found)


def candidate_of(trial: Record) -> Candidate:
    """The candidate of a trial."""
    return Candidate(settings_from(trial["settings"], "a trial"), trial["heads"])


def _means(results: Sequence[Record]) -> tuple[float, float]:
    return (
        mean(result["val_metric"] for result in results),
        mean(result["val_loss"] for result in results),
    )
