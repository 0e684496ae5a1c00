"""PyG's own dataset classes, reading copies of checked files in a folder of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from .registry import DataUnavailable, Entry


def construct(known: Entry, root: Path, place: Path) -> Data:
    """Call PyG's class.

    PyG loads what it finds processed beside raw files, and that can run code. So it reads copies of
    the raw files below ``root``, which are in ``place``, where nothing has been processed before.

    Raises:
        DataUnavailable: the files are not what the class expects.
    """
    if known.reader == "Entities":
        _process_in_child(known, root, place)
    try:
        with quiet():
            data: Data = reader_class(known, download=nothing)(str(place), **known.arguments)[0]
    except Exception as error:  # the reader's own formats fail in many ways
        raise _damaged(known, root, f"{type(error).__name__}: {error}") from error
    return data


def reader_class(known: Entry, **overridden: Any) -> Any:
    """PyG's class for a dataset, with some of its steps replaced."""
    base = getattr(pyg_datasets, known.reader)
    return type(base.__name__, (base,), overridden)


def nothing(*args: Any) -> None:
    """Do nothing, in place of a step of a reader."""


# PyG numbers the nodes, relations and classes of Entities in the order of Python sets, which hold
# hashes of strings and of random blank-node names: another order in every process. A child with
# fixed hashes and counted names makes it one order, so that a seed means the same everywhere.
_CHILD = """
import itertools, json, sys, uuid
names = itertools.count(1)
uuid.uuid4 = lambda: uuid.UUID(int=next(names))
from torch_geometric import datasets
reader, place, arguments = json.loads(sys.argv[1])
getattr(datasets, reader)(place, **arguments)
"""


def _process_in_child(known: Entry, root: Path, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps([known.reader, str(place), known.arguments])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _damaged(known, root, lines[-1])


def _damaged(known: Entry, root: Path, reason: str) -> DataUnavailable:
    reason = " ".join(reason.split())
    return DataUnavailable(
        f"the files of {known.name} in {known.home(root)} cannot be read "
        f"({reason}): compare them by 'outerconv datasets --verify'"
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyG's progress on stderr, and without warnings about its own code."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch_geometric\.")
        yield
