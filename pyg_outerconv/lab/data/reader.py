"""PyG's dataset classes, and ogb's readers: reading files that were checked, and downloads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ...files import ROOT_VARIABLE, sweep, temporary_name
from .checks import read_one
from .ogb import READER, download_ogb, read_ogb
from .recorded import check_recorded, record
from .registry import DataUnavailable, Entry
from .unions import union_of


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
            if known.reader == READER:
                return read_ogb(known, place)
            read = reader_class(known, download=nothing)(str(place), **known.arguments)
            data: Data = union_of(read) if known.task == "graphs" else read[0]
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


_CONNECT_SECONDS = 30.0


def download(known: Entry, root: Path) -> Path | None:
    """Let PyG download absent files, which are moved to their places when all are checked.

    Returns:
        the record of those whose checksum the registry does not know; None where it knows all.

    Raises:
        DataUnavailable: PyG cannot, and what to do; or what it gets is not what the registry knows.
    """
    absent = known.missing(root)
    names = [name for name in known.files if known.home(root) / name in absent]
    before = socket.getdefaulttimeout()
    staging = root / temporary_name("download")  # so that an incomplete download is never read
    try:
        root.mkdir(parents=True, exist_ok=True)
        sweep(root, ["download"])
        socket.setdefaulttimeout(_CONNECT_SECONDS)
        with quiet():
            # TUDataset reads what it has processed; its raw files are texts, which run nothing.
            skipped = {} if known.reader == "TUDataset" else {"process": nothing, "load": nothing}
            if known.reader == READER:
                download_ogb(known, known.home(staging))
            else:
                reader = reader_class(known, **skipped)
                reader(str(known.home(staging)), **known.arguments)
        if gone := [name for name in names if not (known.home(staging) / name).is_file()]:
            raise FileNotFoundError(f"the source no longer has {', '.join(gone)}")
        contents = {name: read_one(known, staging, name) for name in names}
        for name, content in contents.items():
            check_recorded(known, root, name, content)
        kept = record(known, root, contents)
        for name in names:
            (known.home(root) / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(known.home(staging) / name, known.home(root) / name)
        return kept
    except DataUnavailable as error:  # of a file in the staging folder, which is about to go
        raise DataUnavailable(f"what was downloaded is not used: {error}") from error
    except Exception as error:  # urllib, aiohttp, tarfile, the disk: each has its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise _absent(known, absent, reason) from error
    finally:
        socket.setdefaulttimeout(before)
        shutil.rmtree(staging, ignore_errors=True)


def _absent(known: Entry, paths: list[Path], reason: str) -> DataUnavailable:
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    where = "; ".join(f"{', '.join(names)} into {folder}" for folder, names in folders.items())
    return DataUnavailable(
        f"{known.name} is not here and cannot be downloaded ({reason}): put "
        f"{where}; or name another root by --root or {ROOT_VARIABLE}"
    )
