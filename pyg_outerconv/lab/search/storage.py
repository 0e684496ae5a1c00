"""Optuna's storage of a search: an SQLite file that is whole after a kill at any moment.

Optuna's journal file was no alternative: its lock outlives a process that is killed while it
holds it, and the next one waits 30 seconds for it; the lock of SQLite ends with the process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from ...errors import RefusedValue


def open_storage(path: Path) -> RDBStorage:
    """The storage in a file, which is made if it is absent."""
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
