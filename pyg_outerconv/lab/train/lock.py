"""One process at a time in the folder of a run, or of a table of runs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    absent = [place for place in (folder, *folder.parents) if not os.path.exists(place)]
    descriptor = _locked(folder, log, begin)
    try:
        begin()
        yield
    finally:
        with suppress(OSError):  # the first one that has files, and those above it, stay
            for place in absent:
                place.rmdir()
        if descriptor is not None:
            os.close(descriptor)


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
