"""All that a search found, in Optuna's own storage: a study of trials for each kind of model.

What a trial draws depends on the seed of the search, on how many trials of its study are finished,
on these trials, and on what it is told. So a search that was stopped, or killed, draws what the
unbroken one would have drawn: a trial that was under way is marked as failed, is not looked at, and
is drawn anew. What comes after the trials is kept in the attributes of the study.
"""

from __future__ import annotations

import hashlib
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna import Study, Trial
from optuna.exceptions import ExperimentalWarning, StorageInternalError, UpdateFinishedTrialError
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from ...errors import RefusedValue

Record = dict[str, Any]
RANDOM_TRIALS = 5  # before the sampler models what was found
WHOLE = "the file as a search wrote it (or begin anew in another folder)"


class Studies:
    """Reads and writes what a search found.

    Args:
        path: the file of the storage.
        names: of the kinds.
        seed: of what is drawn.
        of: whatever the search is known by, which a storage of another search has not.
        begins: make the studies, in a storage without trials; else they must be there.
    """

    def __init__(
        self, path: Path, names: Iterable[str], seed: int, of: str = "", begins: bool = True
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # nor what is drawn apart
        self.path, self.seed = path, seed
        if not begins and not path.exists():
            raise RefusedValue(f"{path} must hold the trials of the search", WHOLE, "no such file")
        storage = open_storage(path)
        with writing(path):
            if not begins and (lacking := set(names) - set(optuna.get_all_study_names(storage))):
                got = f"none of {', '.join(sorted(lacking))}"
                raise RefusedValue(f"{path} must hold the trials of the search", WHOLE, got)
            self._studies: dict[str, Study] = {
                name: optuna.create_study(
                    storage=storage,
                    study_name=name,
                    direction="maximize",
                    load_if_exists=True,
                )
                for name in names
            }
            for study in self._studies.values():
                if begins and study.get_trials(deepcopy=False):
                    raise RefusedValue("a search begins without trials", "another folder", path)
                if begins:
                    study.set_user_attr("search", of)
                elif study.user_attrs.get("search") != of:
                    raise RefusedValue(f"{path} must be of the search of its folder", "it", "other")

    # Trials -------------------------------------------------------------------------------------

    def finished(self, name: str) -> list[Record]:
        """The finished trials of a kind, in the order in which they began; see `record`."""
        with writing(self.path):
            states = (TrialState.COMPLETE,)
            trials = self._studies[name].get_trials(deepcopy=False, states=states)
        return [record(ordinal, trial) for ordinal, trial in enumerate(trials)]

    def drop_unfinished(self) -> None:
        """Mark the trials that were under way as failed."""
        with writing(self.path):
            for study in self._studies.values():
                for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                    study.tell(trial.number, state=TrialState.FAIL)

    def begin(self, name: str, ordinal: int, told: Record) -> Trial:
        """A new trial of a kind, after ``ordinal`` finished ones; what it is told, it draws.

        The sampler draws what belongs together from one model of it (multivariate TPE, a group for
        each set of parameters that trials have in common).
        """
        study = self._studies[name]
        digest = hashlib.sha256(f"{self.seed} {name} {ordinal}".encode()).digest()
        seed = int.from_bytes(digest[:4], "big")
        with writing(self.path), warnings.catch_warnings():  # interfaces that may change
            warnings.simplefilter("ignore", ExperimentalWarning)
            options: Record = {"multivariate": True, "group": True}
            sampler = TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS, **options)
            study.sampler = PartialFixedSampler(told, sampler)
            return study.ask()

    def end(self, name: str, trial: Trial, results: list[Record], **facts: Any) -> None:
        """Finish a trial, whose value is the mean validation metric of its seeds."""
        with writing(self.path):
            trial.set_user_attr("found", {"seeds": results, **facts})
            mean = sum(result["val_metric"] for result in results) / len(results)
            self._studies[name].tell(trial, mean)

    # What comes after them ----------------------------------------------------------------------

    def kept(self, name: str, what: str, default: Any) -> Any:
        """What :meth:`keep` kept of a kind."""
        with writing(self.path):
            return self._studies[name].user_attrs.get(what, default)

    def keep(self, name: str, what: str, value: Any) -> None:
        """Keep plain values, in the place of those before."""
        with writing(self.path):
            self._studies[name].set_user_attr(what, value)


def record(ordinal: int, trial: FrozenTrial) -> Record:
    """A finished trial as plain values; ``ordinal`` counts the finished trials of its study."""
    trial_attributes = {"number": ordinal, "value": trial.value, "parameters": dict(trial.params)}
    return {**trial_attributes, **trial.user_attrs["found"]}


def open_storage(path: Path) -> RDBStorage:
    """The storage in a file, which is made if it is absent; it is whole after a kill at any moment.

    Optuna's journal file was no alternative: its lock outlives a process that is killed while it
    holds it, and the next one waits 30 seconds for it; the lock of SQLite ends with the process.
    """
    if path.exists():  # what a killed process began is rolled back here
        try:
            with closing(sqlite3.connect(path)) as connection:
                ((quick_check,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
                ((page,),) = connection.execute("PRAGMA page_size").fetchall()
        except sqlite3.Error as error:
            raise RefusedValue(f"{path} must be a whole database", WHOLE, error) from error
        if path.stat().st_size % page:  # of which SQLite says nothing
            quick_check = "a page that is cut"
        if quick_check != "ok":
            raise RefusedValue(f"{path} must be a whole database", WHOLE, quick_check)
    url = URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)
    with writing(path):
        return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 30}})


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
