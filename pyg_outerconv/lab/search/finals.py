"""The end of a search: rungs of halving, the final, what the winner is made of, the test."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import mean
from typing import Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from ..data import Dataset
from ..settings import Settings, settings_from
from ..train.results import METRICS, difference_of
from .plan import FIRST_FINAL_SEED, FIRST_TRIAL_SEED, Plan
from .space import OURS, stacked, terms_of
from .studies import Record, Studies
from .work import Done, Ended, Labels, Outcome, Task, Workers

THIRD = 3
FEW = 2  # models of a kind that are not thinned out further
SEEN = 3  # seeds in whose models the winner is looked at
STAGES = {"final": "the final", "without": "the winner without a term"}  # as progress is told
Seeds = dict[str, Record]
"""The numbers of each seed of a model."""
Place = tuple[str, int]
"""A model: the name of its kind, the number of its trial."""


@dataclass
class Finals:
    """The stages after the trials; each seed is kept in the storage when it is done.

    The study of a kind has the attribute ``rungs`` (by trial and seed). That of ours also has what
    is of all kinds: ``final`` (by model and seed), ``winner`` (a kind and the number of a trial),
    ``without`` (by term and seed), ``seen`` (by seed) and ``tests`` (by seed and kind).
    """

    studies: Studies
    plan: Plan
    workers: Workers
    labels: Callable[[int], Labels]
    log: Callable[[str], None]
    progress: Callable[[str], None]

    # Validation alone ---------------------------------------------------------------------------

    def halve(self, trials: dict[str, list[Record]]) -> dict[str, list[Place]]:
        """The best models of each kind: a third of its trials on three times as many seeds, again
        and again, until few are left; the best first.
        """
        alive = {name: ranked(kind_trials) for name, kind_trials in trials.items()}
        count, number = self.plan.seeds, max(map(len, alive.values()))
        while number > FEW:
            number = math.ceil(number / THIRD)
            count = min(THIRD * count, FIRST_FINAL_SEED - FIRST_TRIAL_SEED)
            alive = {name: kind_trials[:number] for name, kind_trials in alive.items()}
            stage = f"halving, {number} models of each kind on {count} seeds"
            results = self._rung(stage, alive, range(FIRST_TRIAL_SEED, FIRST_TRIAL_SEED + count))
            for name, kind_trials in alive.items():
                scored = [(_order(results[name, one["number"]], one), one) for one in kind_trials]
                alive[name] = [one for _, one in sorted(scored, key=itemgetter(0))]
            self.log(stage)
        return {
            name: [(name, trial["number"]) for trial in kind_trials]
            for name, kind_trials in alive.items()
        }

    def _rung(
        self, stage: str, alive: dict[str, list[Record]], seeds: Sequence[int]
    ) -> dict[Place, list[Record]]:
        """The validation numbers of models on seeds; those of their trials are not made again."""
        kept: dict[str, dict[str, Seeds]] = {}
        wanted = []
        for name, kind_trials in alive.items():
            kept[name] = self.studies.kept(name, "rungs", {})
            for trial in kind_trials:
                own = kept[name].setdefault(str(trial["number"]), by_seed(trial))
                place, settings = (name, trial["number"]), settings_of(trial)
                new = (seed for seed in seeds if str(seed) not in own)
                wanted += [self._task(place, settings, seed) for seed in new]

        def done(task: Task, outcome: Outcome) -> None:
            name, number = task.key
            kept[name][str(number)][str(task.seed)] = outcome.numbers
            self.studies.keep(name, "rungs", kept[name])

        self._train(stage, wanted, done)
        return {
            (name, trial["number"]): [kept[name][str(trial["number"])][str(seed)] for seed in seeds]
            for name, kind_trials in alive.items()
            for trial in kind_trials
        }

    def choose(
        self, best: dict[str, list[Place]], trials: dict[str, list[Record]]
    ) -> tuple[Place, list[Place]]:
        """The winner, and all finalists, the best first: the best few of all kinds, on fresh seeds.

        All of a round have the same seeds and splits, so that means differ as their paired
        differences do. Those that the best one does not beat beyond the 95 % interval meet again,
        on more seeds.
        """
        contest, beaten = self._finalists(best, trials), list[Place]()
        for number in range(1, self.plan.final_rounds + 1):
            last = FIRST_FINAL_SEED + number * self.plan.final_seeds
            seeds = range(FIRST_FINAL_SEED, last)
            models = {self.key(place): self.settings(place, trials) for place in contest}
            kept = self._validated("final", models, seeds)
            results = {
                place: [kept[self.key(place)][str(seed)] for seed in seeds] for place in contest
            }
            contest.sort(key=lambda place: _order(results[place], trials[place[0]][place[1]]))
            for place in contest:
                value = mean(one["val_metric"] for one in results[place])
                self.log(f"final: {100 * value:.2f} % on {len(seeds)} seeds, {self.key(place)}")
            first = results[contest[0]]
            undecided = [place for place in contest if not _is_beaten(results[place], first)]
            if len(undecided) == 1 or number == self.plan.final_rounds:
                break
            beaten = [place for place in contest if place not in undecided] + beaten
            contest = undecided
        self.studies.keep(OURS, "winner", list(contest[0]))
        return contest[0], contest + beaten

    def _finalists(
        self, best: dict[str, list[Place]], trials: dict[str, list[Record]]
    ) -> list[Place]:
        """The best few of all kinds after halving; no model is among them twice."""
        sent = [place for kind_places in best.values() for place in kind_places[:FEW]]
        reached = {place: self._reached(place, trials) for place in sent}
        # Of equal models the one of the portfolio goes on, under its own name.
        sent.sort(key=lambda place: (-reached[place], place[0] == OURS))
        different = {self.settings(place, trials): place for place in reversed(sent)}
        sent = [place for place in sent if place in different.values()]
        return sent[: self.plan.finalists]

    def ablate(self, settings: Settings) -> None:
        """The validation of the winner trained without each of its terms, on the final's seeds."""
        terms, models = terms_of(settings.family), {}
        for number, term in enumerate(terms):
            others = terms[:number] + terms[number + 1 :]
            if others:
                models[term] = replace(settings, family=stacked(others))
        seeds = range(FIRST_FINAL_SEED, FIRST_FINAL_SEED + self.plan.final_seeds)
        self._validated("without", models, seeds)

    def look(self, settings: Settings) -> None:
        """What is seen in the winner's models of the final."""
        kept = self.studies.kept(OURS, "seen", {})
        last = FIRST_FINAL_SEED + min(SEEN, self.plan.final_seeds)
        wanted = [
            self._task(("seen",), settings, seed, "seen")
            for seed in range(FIRST_FINAL_SEED, last)
            if str(seed) not in kept
        ]

        def done(task: Task, outcome: Outcome) -> None:
            if outcome.seen is not None:
                kept[str(task.seed)] = outcome.seen.as_dict()
                self.studies.keep(OURS, "seen", kept)

        self._train("a look at the winner", wanted, done)

    def _validated(
        self, stage: str, models: dict[str, Settings], seeds: Iterable[int]
    ) -> dict[str, Seeds]:
        """The validation numbers of models on seeds; those that are known are kept."""
        kept: dict[str, Seeds] = self.studies.kept(OURS, stage, {})
        wanted = [
            self._task((key,), settings, seed)
            for key, settings in models.items()
            for seed in seeds
            if str(seed) not in kept.setdefault(key, {})
        ]

        def done(task: Task, outcome: Outcome) -> None:
            kept[task.key[0]][str(task.seed)] = outcome.numbers
            self.studies.keep(OURS, stage, kept)

        self._train(STAGES[stage], wanted, done)
        return kept

    # The test -----------------------------------------------------------------------------------

    def test(
        self, models: dict[str, Settings], ensemble: Sequence[str], dataset: Dataset
    ) -> dict[str, Seeds]:
        """Read the test labels: of each model, on each seed of the test, once.

        Workers predict, and do not have these labels. Those of ``ensemble`` are tested together.
        """
        results: dict[str, Seeds] = self.studies.kept(OURS, "tests", {})
        metric, keeps_nodes = METRICS[self.plan.base.metric], self._has_fixed_test()
        for seed in range(self.plan.test_seeds):
            if str(seed) in results:
                continue
            tasks = [self._task((key,), one, seed, "logits") for key, one in models.items()]
            ended = self._train(f"the test on seed {seed}", tasks)
            outcomes = {task.key[0]: outcome for task, outcome in ended}
            mask = self.labels(seed).split.test
            wanted = dataset.data.y[mask]
            numbers = {}
            for key, outcome in outcomes.items():
                tested = 0.0 if outcome.logits is None else metric(outcome.logits[mask], wanted)
                numbers[key] = {**outcome.numbers, "test_metric": tested}
                if keeps_nodes:
                    numbers[key]["correct"] = _correct(outcome.logits, mask, wanted)
            members = [outcomes[key].logits for key in ensemble]
            shares = [one.softmax(-1) for one in members if one is not None]
            if shares:
                together = torch.stack(shares).mean(0).log()[mask]
                numbers[ENSEMBLE] = {"test_metric": metric(together, wanted)}
            results[str(seed)] = {key: numbers[key] for key in sorted(numbers)}
            self.studies.keep(OURS, "tests", results)
            self.log(f"test: seed {seed}")
        return results

    def _has_fixed_test(self) -> bool:
        """Whether accuracy is tested on the same nodes for every seed."""
        masks = (self.labels(seed).split.test for seed in range(self.plan.test_seeds))
        first = next(masks)
        same = all(torch.equal(first, other) for other in masks)
        return same and self.plan.base.metric == "accuracy"

    # Help ---------------------------------------------------------------------------------------

    @staticmethod
    def key(place: Place) -> str:
        """A model as text."""
        return f"{place[0]} {place[1]}"

    @staticmethod
    def settings(place: Place, trials: dict[str, list[Record]]) -> Settings:
        """The settings of a model."""
        return settings_of(trials[place[0]][place[1]])

    def _reached(self, place: Place, trials: dict[str, list[Record]]) -> float:
        """The mean of a model over all its seeds so far."""
        name, number = place
        results = seeds_so_far(trials[name][number], self.studies.kept(name, "rungs", {}))
        return mean(one["val_metric"] for one in results)

    def _train(
        self, stage: str, tasks: list[Task], done: Done = lambda task, outcome: None
    ) -> list[Ended]:
        """Train all seeds of a stage, and say how many have ended."""
        ended = itertools.count(1)

        def said(task: Task, outcome: Outcome) -> None:
            done(task, outcome)
            self.progress(f"{stage}: {next(ended)} of {len(tasks)} trainings")

        return self.workers.run(tasks, said)

    def _task(self, key: Any, settings: Settings, seed: int, wants: str = "") -> Task:
        return Task(key, settings, seed, self.labels(seed), wants)


ENSEMBLE = "ensemble"


def ranked(trials: Sequence[Record]) -> list[Record]:
    """The trials, the best first."""
    return sorted(trials, key=lambda trial: _order(trial["seeds"], trial))


def settings_of(trial: Record) -> Settings:
    """The settings of a trial."""
    return settings_from(trial["settings"], "a trial")


def seeds_so_far(trial: Record, rungs: dict[str, Seeds]) -> list[Record]:
    """The numbers of a trial on the seeds of halving, or on its own if it was not in it."""
    return list(rungs.get(str(trial["number"]), by_seed(trial)).values())


def by_seed(trial: Record) -> Seeds:
    """The numbers of a trial by seed."""
    return {str(one["seed"]): one for one in trial["seeds"]}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval by Student's t; nan of a single value."""
    difference = difference_of(values)
    error = difference["standard_error"]
    quantile = float(stdtrit(len(values) - 1, 0.975)) if error is not None else math.nan
    return difference["mean"], quantile * (error if error is not None else math.nan)


def _correct(logits: Tensor | None, mask: Tensor, wanted: Tensor) -> str:
    """A digit for each test node, 1 where the class is predicted; no node of a failed training."""
    if logits is None:
        return "0" * wanted.numel()
    return "".join(map(str, (logits[mask].argmax(-1) == wanted).int().tolist()))


def interval_of_pairs(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """The :func:`interval` of the differences of two models on the same seeds."""
    return interval([a - b for a, b in zip(ours, theirs, strict=True)])


def interval_of_nodes(ours: Sequence[str], theirs: Sequence[str]) -> tuple[float, float]:
    """The mean of the differences of two models whose seeds have the same test nodes, and half the
    width of its 95 % interval, over seeds and test nodes.

    The digits of a seed say which nodes are correct. Differences d (S seeds, N nodes) of one seed
    have a training in common, and those of one node what is odd about it. With e = d − mean(d) the
    squared error of the mean is ``(S/(S−1) Σ_s (Σ_i e[s, i])² + N/(N−1) Σ_i (Σ_s e[s, i])² −
    Σ_{s,i} e[s, i]²) / (S N)²``, but not below that over seeds alone, its first sum (Cameron,
    Gelbach and Miller, *Robust Inference With Multiway Clustering*, 2011, section 2); Student's t
    has min(S, N) − 1 degrees of freedom.
    """
    codes = [np.frombuffer("".join(model).encode(), np.uint8) for model in (ours, theirs)]
    difference = np.subtract(*codes, dtype=float).reshape(len(ours), -1)
    error = difference - difference.mean()
    seeds, nodes = error.shape
    of_seeds, of_nodes = (error.sum(axis) ** 2 for axis in (1, 0))
    small = [count / (count - 1) if count > 1 else math.nan for count in (seeds, nodes)]
    over_seeds = small[0] * of_seeds.sum()
    over_both = over_seeds + small[1] * of_nodes.sum() - (error**2).sum()
    deviation = math.sqrt(max(over_seeds, over_both)) / error.size
    return float(difference.mean()), float(stdtrit(min(seeds, nodes) - 1, 0.975)) * deviation


def _order(results: Sequence[Record], trial: Record) -> tuple[float, float, int]:
    """Sorts models of equal seeds: by validation metric, then by loss."""
    reached = mean(one["val_metric"] for one in results)
    return -reached, mean(one["val_loss"] for one in results), trial["number"]


def _is_beaten(results: Sequence[Record], first: Sequence[Record]) -> bool:
    """Whether the best model is better beyond the 95 % interval, on the same seeds."""
    values = ([one["val_metric"] for one in of_model] for of_model in (first, results))
    apart, half = interval_of_pairs(*values)
    return apart - half > 0
