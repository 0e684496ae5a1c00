"""One process at a time in the folder of a run, or of a table of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from ...errors import RefusedValue

LOCK = "lock"
"""The file of a folder that a process locks for as long as it works there, and lives."""
SECONDS = 30.0
"""How long processes without their ``torchrun`` take to notice and to stop, at most."""


@contextmanager
def alone_in(
    folder: Path,
    log: Callable[[str], None] | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """A block in which no other process works in a folder.

    Args:
        folder: of a run, or of a table.
        log: called with a line if another process works there and is waited for; None to wait for
            nobody.
        begin: makes the folder where it is absent, and refuses one that others use already. It is
            called before each try to lock, and again once the folder is locked, so that of two
            processes that began together one is refused. A folder that it made goes again if the
            block leaves it empty.
    """
    absent = _absent_to(folder)
    lock = FileLock(folder / LOCK)
    until = time.monotonic() + (0.0 if log is None else SECONDS)
    while not _locked(lock, folder, begin):
        if time.monotonic() >= until:
            rule = f"one process at a time works in {folder}"
            raise RefusedValue(rule, "no other one", "one that runs")
        if log is not None:
            log(f"{folder}: another process works there; it has {SECONDS:.0f} s to stop")
        log = None
        time.sleep(0.1)
    try:
        begin()
        yield
    finally:
        with suppress(OSError):
            if os.listdir(folder) == [LOCK]:
                os.unlink(folder / LOCK)
        _remove_empty(absent)
        lock.release()


def _locked(lock: FileLock, folder: Path, begin: Callable[[], None]) -> bool:
    """Whether a folder could be locked, which ``begin`` makes."""
    begin()
    if not folder.is_dir():
        raise RefusedValue("a run has a folder", f"one at {folder}", "none")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return False
    except OSError as error:
        rule = "a process locks the folder that it works in"
        raise RefusedValue(rule, f"a writable one at {folder}", error.strerror) from error
    return True


def next_folder(base: Path, stem: str, until: ExitStack | None = None) -> Path:
    """The first of ``stem-001``, ``stem-002``, … that is absent, and is made by this call.

    Processes that begin together get one each.

    Args:
        base: the folder that has them.
        stem: their name.
        until: at whose end the folder goes again if nothing was put in.

    Raises:
        ValueError: it cannot be made.
    """
    above = _absent_to(base)
    for number in count(1):
        folder = base / f"{stem}-{number:03d}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            rule = f"the folder {base} must be writable"
            raise RefusedValue(rule, "a folder, or --out", error.strerror) from error
    if until is not None:
        until.callback(_remove_empty, [folder, *above])
    return folder


def _absent_to(folder: Path) -> list[Path]:
    """The folder and those above it, as far as they are absent."""
    return [place for place in (folder, *folder.parents) if not os.path.exists(place)]


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, each within the next, up to the first that has files."""
    with suppress(OSError):
        for place in folders:
            place.rmdir()
