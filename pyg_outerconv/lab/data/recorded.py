"""Checksums of files that were downloaded and of which the registry knows none.

They are recorded at the first download, in the cache folder, and compared whenever such a file is
read afterwards.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...errors import RefusedValue, refusal
from ...files import cache_folder, load_json, save_json
from .registry import DataUnavailable, Entry


def record_of(known: Entry, root: Path) -> Path:
    """The record of a dataset below a root."""
    place = hashlib.sha256(str(known.home(root)).encode()).hexdigest()[:16]
    return cache_folder() / "checksums" / f"{known.name}-{place}.json"


def recorded(known: Entry, root: Path) -> dict[str, str]:
    """The sha256 of files as they were downloaded, by their names below the dataset's folder.

    Raises:
        DataUnavailable: the record is damaged.
    """
    try:
        files = load_json(record_of(known, root)).get("files")
    except FileNotFoundError:
        return {}
    except (OSError, RefusedValue) as error:
        raise DataUnavailable(f"checksums of {known.name} cannot be read: {error}") from error
    if not isinstance(files, dict):
        raise DataUnavailable(f"{record_of(known, root)} must hold checksums of files")
    return files


def check_recorded(known: Entry, root: Path, name: str, content: bytes) -> None:
    """Refuse another file than the one that was downloaded first.

    Raises:
        DataUnavailable: naming both checksums, and the record.
    """
    expected = recorded(known, root).get(name)
    got = hashlib.sha256(content).hexdigest()
    if known.files[name] is None and expected not in (None, got):
        path, origin = known.home(root) / name, record_of(known, root)
        rule = f"{path} must be as it was first downloaded, by its sha256 in {origin}"
        raise DataUnavailable(refusal(rule, expected, f"{got}: another, or a damaged one"))


def record(known: Entry, root: Path, contents: dict[str, bytes]) -> Path | None:
    """Record the files whose checksum is not known; None where there are none.

    Raises:
        OSError: the record cannot be written.
    """
    before = recorded(known, root)
    new = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in contents.items()
        if known.files[name] is None and name not in before
    }
    if not new:
        return None
    path = record_of(known, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_json(path, {"dataset": known.name, "folder": str(known.home(root)), "files": before | new})
    return path
