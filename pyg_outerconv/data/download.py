"""Downloads by PyG; without a network the error tells what to do by hand."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path

from ..files import sweep, temporary_name
from ..places import ROOT_VARIABLE
from .raw import read_one
from .reader import nothing, quiet, reader_class
from .registry import DataUnavailable, Entry

_CONNECT_SECONDS = 30.0


def download(known: Entry, root: Path) -> None:
    """Let PyG download absent files, which are moved to their places when all are checked.

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
            reader = reader_class(known, process=nothing, load=nothing)
            reader(str(known.home(staging)), **known.arguments)
        if gone := [name for name in names if not (known.home(staging) / name).is_file()]:
            raise FileNotFoundError(f"the source no longer has {', '.join(gone)}")
        for name in names:
            read_one(known, staging, name)
        for name in names:
            (known.home(root) / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(known.home(staging) / name, known.home(root) / name)
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
