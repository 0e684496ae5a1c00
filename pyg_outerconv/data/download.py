"""Downloads by PyG, and what to do by hand where there is none."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import Any

from ..places import ROOT_VARIABLE
from .reader import DataUnavailable, quiet, reader_class
from .registry import Entry

_CONNECT_SECONDS = 30.0


def download(known: Entry, root: Path) -> None:
    """Let PyG download, and say what to do where it cannot."""
    absent = known.missing(root)
    before, reason = socket.getdefaulttimeout(), ""
    try:
        socket.setdefaulttimeout(_CONNECT_SECONDS)
        with quiet(), tempfile.TemporaryDirectory() as nowhere:
            reader = reader_class(known, Path(nowhere), process=_nothing, load=_nothing)
            instance = reader(str(known.home(root)), **known.arguments)
            if known.missing(root):  # PyG looks for fewer files than it reads
                instance.download()
    except Exception as error:  # urllib, aiohttp, tarfile, the disk: each has its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        for path in absent:  # the file that broke off must not pass for a whole one
            if path.is_file():
                path.unlink()
    finally:
        socket.setdefaulttimeout(before)
    if reason or known.missing(root):
        raise _absent(known, absent, reason or "the source no longer has every file")


def _nothing(*args: Any) -> None:
    """In the place of a reader's steps that are not wanted."""


def _absent(known: Entry, paths: list[Path], reason: str) -> DataUnavailable:
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    where = "; ".join(f"{', '.join(names)} into {folder}" for folder, names in folders.items())
    return DataUnavailable(
        f"{known.name} is not here and cannot be downloaded ({reason}): put "
        f"{where}; or name another root by --root or {ROOT_VARIABLE}"
    )
