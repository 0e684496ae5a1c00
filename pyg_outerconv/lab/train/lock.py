"""One process at a time in the folder of a run, or of a table of runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from ...errors import RefusedValue

SECONDS = 30.0
"""How long processes without their ``torchrun`` take to notice and to stop, at most."""


@contextmanager
def alone_in(
    folder: Path,
    log: Callable[[str], None] | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """A block in which no other process works in a folder.

    The folder is locked for as long as the process lives, so that a killed one leaves no lock. On
    Windows, where folders have no locks, nothing is locked.

    Args:
        folder: of a run, or of a table.
        log: called with a line if another process works there and is waited for; None to wait for
            nobody.
        begin: makes the folder where it is absent, and refuses one that others use already. It is
            called before each try to lock, and again once the folder is locked, so that of two
            processes that began together one is refused. A folder that it made goes again if the
            block leaves it empty.

    Raises:
        ValueError: another process works there, and does not stop within ``SECONDS``; or the
            folder is none.
    """
    absent = _absent_to(folder)
    descriptor = _locked(folder, log, begin)
    try:
        begin()
        yield
    finally:
        _remove_empty(absent)
        if descriptor is not None:
            os.close(descriptor)


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


def _locked(
    folder: Path, log: Callable[[str], None] | None, begin: Callable[[], None]
) -> int | None:
    """The descriptor of the locked folder, None where folders have no locks."""
    until = time.monotonic() + (0.0 if log is None else SECONDS)
    while True:
        begin()
        if importlib.util.find_spec("fcntl") is None:
            return None
        if (descriptor := _try(folder)) is not None:
            return descriptor
        if time.monotonic() >= until:
            raise RefusedValue(
                f"one process at a time works in {folder}", "no other one", "one that runs"
            )
        if log is not None:
            log(f"{folder}: another process works there; it has {SECONDS:.0f} s to stop")
        log = None
        time.sleep(0.1)


def _try(folder: Path) -> int | None:
    """The descriptor of the folder if it could be locked."""
    fcntl = importlib.import_module("fcntl")
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise RefusedValue("a run has a folder", f"one at {folder}", error.strerror) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):  # locked; or gone, as another process made it
        pass
    os.close(descriptor)
    return None
