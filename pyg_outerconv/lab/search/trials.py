"""One trial of a search: a candidate trained on some seeds, and compared with the trials before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from optuna import Trial, TrialPruned

from ...errors import RefusedValue
from ..train.loop import SeedRun, train
from ..train.model import Contender, on_backend
from .contestants import Candidate, Contestant, Labels, Unlabelled

# After these epochs of a seed, and at its end, a trial is compared with the trials before.
LOOKS = (50, 100, 200)


class Stopped(Exception):  # noqa: N818 - no error, a wish
    """Training was asked to stop."""


class Diverged(Exception):  # noqa: N818 - of a candidate, not of the program
    """The loss of a candidate is no longer a number."""


@dataclass
class Bench:
    """What trials are trained on."""

    graph: Unlabelled
    labels: dict[int, Labels]
    stop: Callable[[], bool] = field(default=lambda: False)

    def contender(self, contestant: Contestant, candidate: Candidate) -> Contender:
        """The contender of a candidate, on the graph without labels."""
        return contestant.make(self.graph, candidate)

    def train(
        self,
        contender: Contender,
        candidate: Candidate,
        seed: int,
        each_epoch: Callable[[SeedRun], None] = lambda run: None,
    ) -> SeedRun:
        """Train one seed to the end, on the labels that it may see."""
        seen, settings = self.labels[seed], candidate.settings
        if self.stop():
            raise Stopped
        with on_backend(settings):
            run = SeedRun(contender, seen.y, self.graph.num_classes, seen.split, settings, seed)
            try:
                finished = train(run, each_epoch, self.stop)
            except RefusedValue as error:  # which training raises of a loss that is no number
                raise Diverged(str(error)) from error
        if not finished:
            raise Stopped
        return run


def validation(run: SeedRun) -> dict[str, Any]:
    """The numbers of a finished seed that a search goes by."""
    result = run.result()
    names = ("val_metric", "val_loss", "best_epoch", "epochs", "seconds")
    return {name: result[name] for name in names}


def run_trial(
    trial: Trial, bench: Bench, contestant: Contestant, candidate: Candidate, seeds: range
) -> list[dict[str, Any]]:
    """Train a candidate on some seeds, and return the validation numbers of each.

    It is compared by the sum of the metric over the seeds, of the one under way that of its best
    epoch so far: a number that only grows, so that the largest reported one is the latest.
    """
    contender = bench.contender(contestant, candidate)
    results: list[dict[str, Any]] = []

    def look(step: int, current: float) -> None:
        reached = sum(result["val_metric"] for result in results)
        trial.report(reached + current, len(results) * (len(LOOKS) + 1) + step)
        if trial.should_prune():
            raise TrialPruned

    def each_epoch(run: SeedRun) -> None:
        if run.epoch in LOOKS and not run.finished:
            look(LOOKS.index(run.epoch), run.best.val_metric)

    for seed in seeds:
        started = time.perf_counter()
        run = bench.train(contender, candidate, seed, each_epoch)
        found = validation(run) | {"seed": seed, "wall": time.perf_counter() - started}
        if seed != seeds[-1]:
            look(len(LOOKS), found["val_metric"])
        results.append(found)
    return results
