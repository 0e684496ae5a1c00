"""The end of a search: finalists on all seeds, the winner, what its terms bring, the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from ..data import Dataset
from ..settings import settings_from
from ..train import contributions
from ..train.inputs import WholeGraph
from ..train.results import METRICS
from .contestants import OURS, Candidate, Contestant
from .plan import Plan
from .space import stacked, terms_of
from .studies import Record, Studies
from .trials import Bench, Diverged, validation

Seeds = dict[str, Record]
"""The numbers of each seed of a candidate."""


@dataclass
class Finals:
    """The stages after the trials; each seed is kept in the storage when it is done.

    A study has the attributes ``validation`` (by finalist and seed), ``winner`` (a trial's number),
    ``without`` (by term and seed), ``labels`` and ``tests`` (by seed).
    """

    studies: Studies
    plan: Plan
    bench: Bench
    log: Callable[[str], None]

    # Validation alone ---------------------------------------------------------------------------

    def choose(self, contestant: Contestant, trials: Sequence[Record]) -> Record:
        """The trial with the best validation over all seeds, among the best of the search."""
        finalists = ranked(trials)[: self.plan.finalists]
        ranks = []
        for place, trial in enumerate(finalists, 1):
            known = {str(result["seed"]): result for result in trial["seeds"]}
            number, candidate = trial["number"], candidate_of(trial)
            results = self._validated("validation", str(number), contestant, candidate, known)
            title = f"{contestant.name} trial {number}, finalist {place} of {len(finalists)}"
            self._say(title, results)
            loss = mean(one["val_loss"] for one in results.values())
            ranks.append((-_reached(results), loss, number))
        (_, _, number) = min(ranks)
        self.studies.keep(contestant.name, "winner", number)
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
            results = self._validated("without", term, contestant, changed, {})
            self._say(f"{contestant.name} without {term}", results)

    def weigh_labels(self, contestant: Contestant, winner: Record) -> None:
        """What each label of each layer of the winner brings, on validation nodes."""
        if self.studies.kept(contestant.name, "labels", []):
            return
        candidate = candidate_of(winner)
        contender = self.bench.contender(contestant, candidate)
        inputs, metric = contender.inputs, METRICS[candidate.settings.metric]
        assert isinstance(inputs, WholeGraph)  # what `ours` makes
        rows: dict[tuple[str, int, str], list[tuple[float, float, float]]] = {}
        for seed in range(self.plan.seeds):
            run = self.bench.train(contender, candidate, seed)
            run.model.load_state_dict(run.best.parameters)
            seen = self.bench.labels[seed]
            y, mask = (t.to(candidate.settings.device) for t in (seen.y, seen.split.validation))
            for one in contributions(run.model, inputs.x, inputs.structure, y, mask, metric):
                row = rows.setdefault((one.layer, one.label, one.name), [])
                row.append((one.norm, one.change, one.loss_change))
        found = []
        for (layer, label, name), numbers in rows.items():
            norm, change, loss = map(mean, zip(*numbers, strict=True))
            place = {"layer": layer, "label": label, "name": name}
            found.append({**place, "norm": norm, "change": change, "loss_change": loss})
        self.studies.keep(contestant.name, "labels", found)

    def _validated(
        self, stage: str, key: str, contestant: Contestant, candidate: Candidate, known: Seeds
    ) -> Seeds:
        """The validation numbers of a candidate on every seed; those that are known are kept."""
        kept = self.studies.kept(contestant.name, stage, {})
        results: Seeds = kept.setdefault(key, {})
        contender = None
        for seed in map(str, range(self.plan.test_seeds)):
            if seed in results:
                continue
            if seed in known:
                results[seed] = known[seed]
                continue
            contender = contender or self.bench.contender(contestant, candidate)
            try:
                results[seed] = validation(self.bench.train(contender, candidate, int(seed)))
            except Diverged as error:
                worst = {"val_metric": 0.0, "val_loss": float(10**9), "diverged": str(error)}
                results[seed] = worst
            self.studies.keep(contestant.name, stage, kept)
        return results

    # The test -----------------------------------------------------------------------------------

    def test(self, contestant: Contestant, winner: Record, dataset: Dataset) -> None:
        """Read the test labels: the winner of a contestant, trained as before, once a seed."""
        results: Seeds = self.studies.kept(contestant.name, "tests", {})
        candidate, contender = candidate_of(winner), None
        for seed in range(self.plan.test_seeds):
            if str(seed) in results:
                continue
            contender = contender or self.bench.contender(contestant, candidate)
            run = self.bench.train(contender, candidate, seed)
            found = run.test(dataset.data.y, self.bench.labels[seed].split.test)
            results[str(seed)] = {**validation(run), **found}
            self.studies.keep(contestant.name, "tests", results)
        reached = mean(result["test_metric"] for result in results.values())
        self.log(f"{contestant.shown}: test {candidate.settings.metric} {100 * reached:.2f} %")

    # What was found -----------------------------------------------------------------------------

    def found(self, names: Sequence[str]) -> dict[str, Any]:
        """The tests of each contestant, and the labels and terms of our winner, for a report."""
        return {
            "tests": {name: self.studies.kept(name, "tests", {}) for name in names},
            "labels": self.studies.kept(OURS, "labels", []),
            "without": self.studies.kept(OURS, "without", {}),
        }

    def _say(self, what: str, results: Seeds) -> None:
        """A line on a candidate that was validated."""
        self.log(f"{what}: {100 * _reached(results):.2f} % on {len(results)} seeds")


def ranked(trials: Sequence[Record]) -> list[Record]:
    """The complete trials, the best first."""
    complete = [trial for trial in trials if trial["value"] is not None]
    return sorted(complete, key=lambda trial: (-trial["value"], trial["number"]))


def candidate_of(trial: Record) -> Candidate:
    """The candidate of a trial."""
    return Candidate(settings_from(trial["settings"], "a trial"), trial["heads"])


def _reached(results: Seeds) -> float:
    return mean(result["val_metric"] for result in results.values())
