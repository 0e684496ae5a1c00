"""One run at a time in a run folder."""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import RefusedValue

SECONDS = 30.0
"""How long processes without their ``torchrun`` take to notice and to stop, at most."""


@contextmanager
def alone_in(folder: Path, log: Callable[[str], None] | None = None) -> Iterator[None]:
    """A block in which no other process trains in a run folder.

    The folder is locked for as long as the process lives, so that a killed one leaves no lock. On
    Windows, where folders have no locks, nothing is checked.

    Args:
        folder: the run folder.
        log: called with a line if another process trains there and is waited for.

    Raises:
        ValueError: another process trains there, and does not stop within ``SECONDS``; or the
            folder is none.
    """
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    fcntl = importlib.import_module("fcntl")
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise RefusedValue("a run has a folder", f"one at {folder}", error.strerror) from error
    try:
        _wait_for(fcntl, descriptor, folder, log)
        yield
    finally:
        os.close(descriptor)


def _wait_for(
    fcntl: object, descriptor: int, folder: Path, log: Callable[[str], None] | None
) -> None:
    until = time.monotonic() + SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[attr-defined]
        except BlockingIOError as error:
            if time.monotonic() > until:
                raise RefusedValue(
                    f"one process at a time trains in {folder}", "no other one", "one that runs"
                ) from error
            if log is not None:
                log(f"{folder}: another process trains there; it has {SECONDS:.0f} s to stop")
                log = None
            time.sleep(0.1)
        else:
            return
