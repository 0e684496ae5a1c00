"""Processes that work for one, and end with it; they import no more than what they run."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def spawned(jobs: int, begin: Callable[..., None] | None = None, *args: Any) -> ProcessPoolExecutor:
    """New processes, each begun by a function, which end when this one is gone, in whatever way."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, _begin, (begin, *args))


def _begin(begin: Callable[..., None] | None, *args: Any) -> None:
    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None  # as multiprocessing began this one
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*args)
