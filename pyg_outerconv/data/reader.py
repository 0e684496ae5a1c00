"""PyG's own dataset classes, told where to keep what they process."""

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

from ..errors import Refused
from .registry import Entry


class DataUnavailable(Refused):
    """A dataset is known but cannot be read; the message says what to put where."""


def construct(known: Entry, root: Path, processed: Path) -> Data:
    """Call PyG's class, its raw files below ``root``, its processed ones in ``processed``."""
    if known.reader == "Entities" and not any(processed.iterdir()):
        _process_in_child(known, root, processed)
    reader = reader_class(known, processed)
    try:
        with quiet():
            data: Data = reader(str(known.home(root)), **known.arguments)[0]
    except Exception as error:  # the reader's own formats fail in many ways
        raise _damaged(known, root, f"{type(error).__name__}: {error}") from error
    return data


def reader_class(known: Entry, processed: Path, **overridden: Any) -> Any:
    """PyG's class for a dataset, with its processed folder, and maybe its steps, replaced."""
    base = getattr(pyg_datasets, known.reader)
    return type(base.__name__, (base,), {"processed_dir": str(processed), **overridden})


# PyG numbers the nodes, relations and classes of Entities in the order of Python sets, which hold
# hashes of strings and of random blank-node names: another order in every process. A child with
# fixed hashes and counted names makes it one order, so that a seed means the same everywhere.
_CHILD = """
import itertools, json, sys, uuid
names = itertools.count(1)
uuid.uuid4 = lambda: uuid.UUID(int=next(names))
from torch_geometric import datasets
reader, home, arguments, processed = json.loads(sys.argv[1])
base = getattr(datasets, reader)
type(reader, (base,), {"processed_dir": processed})(home, **arguments)
"""


def _process_in_child(known: Entry, root: Path, processed: Path) -> None:
    what = json.dumps([known.reader, str(known.home(root)), known.arguments, str(processed)])
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, what],
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
