"""The studies of a search, one for each contestant: what is drawn next, and what was found.

The first trials of a study are given, but for every third one, which is drawn, so that a short
search draws too. What a trial draws depends on the seed of the search, on
how many trials of its study are finished, and on these trials. So a search that was stopped, or
killed, draws what the unbroken one would have drawn: a trial that was under way is marked as
failed, is not looked at, and is drawn anew.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna import Study, Trial
from optuna.exceptions import ExperimentalWarning
from optuna.pruners import MedianPruner
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from .contestants import Candidate
from .storage import open_storage, writing

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
RANDOM_TRIALS = 10  # before the sampler models what was found
COMPARED_TRIALS = 5  # before a trial is stopped for being worse than their median


class Studies:
    """Reads and writes the trials of a search.

    Args:
        path: of the storage.
        names: of the contestants.
        seed: of what is drawn.

    Raises:
        ValueError: the storage is damaged, or cannot be written.
    """

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
        """A new trial of a contestant.

        Args:
            name: of the contestant.
            starts: the parameters of the trials that are given; what such a trial does not draw is
                left out.
        """
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
        """Finish a trial.

        Args:
            name: of the contestant.
            trial: the trial.
            results: the numbers of each seed; None for a trial that was pruned or diverged.
            facts: kept beside.
        """
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
