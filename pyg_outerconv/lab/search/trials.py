"""The trials of a search: a study for each contestant, its storage, and how one trial runs.

The first trials of a study are given, but for every third one, which is drawn, so that a short
search draws too. What a trial draws depends on the seed of the search, on
how many trials of its study are finished, and on these trials. So a search that was stopped, or
killed, draws what the unbroken one would have drawn: a trial that was under way is marked as
failed, is not looked at, and is drawn anew.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
from optuna import Study, Trial, TrialPruned
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.pruners import MedianPruner
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from ...errors import RefusedValue
from ..train.loop import SeedRun, train
from ..train.model import Contender, on_backend
from .contestants import Candidate, Contestant, Labels, Unlabelled

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
RANDOM_TRIALS = 10  # before the sampler models what was found
COMPARED_TRIALS = 5  # before a trial is stopped for being worse than their median


class Studies:
    """Reads and writes the trials of a search."""

    def __init__(self, path: Path, names: Iterable[str], seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.path, self.seed = path, seed
        storage = open_storage(path)
        with writing(path):
            self._studies: dict[str, Study] = {
                name: optuna.create_study(
                    storage=storage,
                    study_name=name,
                    direction="maximize",
                    load_if_exists=True,
                    pruner=MedianPruner(COMPARED_TRIALS, n_min_trials=COMPARED_TRIALS),
                )
                for name in names
            }

    def finished(self, name: str) -> list[dict[str, Any]]:
        """The finished trials of a contestant, in the order in which they began; see `record`."""
        with writing(self.path):
            found = self._studies[name].get_trials(deepcopy=False, states=FINISHED)
        return [record(ordinal, trial) for ordinal, trial in enumerate(found)]

    def drop_unfinished(self) -> int:
        """Mark the trials that were under way as failed, and return how many there were."""
        number = 0
        with writing(self.path):
            for study in self._studies.values():
                for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                    study.tell(trial.number, state=TrialState.FAIL)
                    number += 1
        return number

    def begin(self, name: str, starts: Sequence[dict[str, Any]] = ()) -> Trial:
        """A new trial of a contestant."""
        study = self._studies[name]
        ordinal = len(self.finished(name))
        digest = hashlib.sha256(f"{self.seed} {name} {ordinal}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        with writing(self.path):
            study.sampler = TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
            turn, place = divmod(ordinal, 3)
            if (start := 2 * turn + place) < len(starts) and place < 2:
                with warnings.catch_warnings():  # its interface may change
                    warnings.simplefilter("ignore", ExperimentalWarning)
                    study.sampler = PartialFixedSampler(starts[start], study.sampler)
            return study.ask()

    def note(self, trial: Trial, candidate: Candidate) -> None:
        """Keep what a trial drew, as settings."""
        with writing(self.path):
            drawn = {"settings": candidate.settings.as_dict(), "heads": candidate.heads}
            trial.set_user_attr("drawn", drawn)

    def end(
        self, name: str, trial: Trial, results: list[dict[str, Any]] | None, **facts: Any
    ) -> None:
        """Finish a trial."""
        with writing(self.path):
            trial.set_user_attr("found", {"seeds": results or [], **facts})
            if results is None:
                self._studies[name].tell(trial, state=TrialState.PRUNED)
                return
            mean = sum(result["val_metric"] for result in results) / len(results)
            self._studies[name].tell(trial, mean)


def record(ordinal: int, trial: FrozenTrial) -> dict[str, Any]:
    """A finished trial as plain values; ``ordinal`` counts the finished trials of its study."""
    drawn, found = trial.user_attrs["drawn"], trial.user_attrs["found"]
    complete = trial.state == TrialState.COMPLETE
    return {
        "number": ordinal,
        "state": "diverged" if "diverged" in found else trial.state.name.lower(),
        "value": trial.value if complete else None,
        "parameters": dict(trial.params),
        "settings": drawn["settings"],
        "heads": drawn["heads"],
        "seeds": found["seeds"],
        "wall": found["wall"],
    }


# Their storage -----------------------------------------------------------------------------------


def open_storage(path: Path) -> RDBStorage:
    """The storage in a file, which is made if it is absent; it is whole after a kill at any moment.

    Optuna's journal file was no alternative: its lock outlives a process that is killed while it
    holds it, and the next one waits 30 seconds for it; the lock of SQLite ends with the process.
    """
    _check(path)
    url = URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    with writing(path):
        return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 30}})


def _check(path: Path) -> None:
    """Refuse a file that is no whole database; what a killed process began is rolled back here."""
    if not path.exists():
        return
    wanted = "the file as a search wrote it (or a new folder)"
    try:
        with closing(sqlite3.connect(path)) as connection:
            ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
    except sqlite3.Error as error:
        raise RefusedValue(f"{path} must be a whole database", wanted, error) from error
    if found != "ok":
        brief = " ".join(str(found).split())
        raise RefusedValue(f"{path} must be a whole database", wanted, brief)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A block that reads and writes the storage."""
    try:
        yield
    except UpdateFinishedTrialError:
        raise
    except (StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
        reason: BaseException = error
        while reason.__cause__ is not None:
            reason = reason.__cause__
        raise RefusedValue(
            f"{path} must take the trials of a search",
            "a file that can be written, and space on its disk",
            " ".join(str(reason).split()),
        ) from error


# One trial ---------------------------------------------------------------------------------------

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
