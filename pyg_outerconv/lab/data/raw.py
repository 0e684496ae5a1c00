"""Raw files of data sets: read within bounds, and held against checksums before a reader gets them.

A file that differs from its checksum, or that could run code (Planetoid's are pickles), never
reaches a reader. Where no checksum is known, kinds are read in which nothing can run; and of files
that were downloaded the checksum is recorded in the cache folder, and compared from then on.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from ...errors import Refused, RefusedValue, refusal
from ...files import cache_folder, data_root, load_json, open_archive, read_bytes, save_json
from .registry import DataUnavailable, Entry, entry

LIMIT = 2**31  # bytes of one raw file, packed or unpacked
TEXT_LIMIT = 2**34  # bytes of one text file, unpacked


def read_one(known: Entry, root: Path, name: str, home: Path | None = None) -> bytes:
    """The content of a raw file of a dataset, if it may be read.

    Args:
        known, root: the dataset, and where it is.
        name: the file's, below :meth:`Entry.home`.
        home: where it is in the place of that, before it is put there.
    """
    path, expected = (home or known.home(root)) / name, known.files[name]
    first = recorded(known, root)
    try:
        content = read_bytes(path, LIMIT)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    got = hashlib.sha256(content).hexdigest()
    if got == expected:
        return content
    if expected is not None and not known.copies_differ:
        rule = f"{path} must be the file that the registry knows of {known.name}, by its sha256"
        raise DataUnavailable(refusal(rule, expected, f"{got}: another, or a damaged one"))
    if expected is None and first.get(name, got) != got:
        rule = f"{path} must be as it was first downloaded, by its sha256 in"
        rule = f"{rule} {record_of(known, root)}"
        raise DataUnavailable(refusal(rule, first[name], f"{got}: another, or a damaged one"))
    try:
        look_into(path, content)
    except Refused as error:
        raise DataUnavailable(f"{path}, whose checksum is not known: {error}") from error
    except Exception as error:  # numpy, zipfile and zlib, each with its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataUnavailable(f"{path} is damaged ({reason})") from error
    return content


def verify(name: str, root: str | Path | None = None) -> dict[str, str]:
    """Compare the raw files of a dataset, those of all its protocols, with their checksums.

    Returns:
        for each file ``'matches'``, ``'differs'``, ``'missing'``, ``'cannot be read'`` or ``'no
        checksum known'``.
    """
    known, folder = entry(name), data_root(root)
    first, states = recorded(known, folder), {}
    for reading in map(known.for_split, known.splits):
        for file, expected in reading.files.items():
            states[file] = _compare(reading.home(folder) / file, expected or first.get(file))
    return states


def _compare(path: Path, expected: str | None) -> str:
    try:
        got = hashlib.sha256(read_bytes(path, LIMIT)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "cannot be read"
    if expected is None:
        return "no checksum known"
    return "matches" if got == expected else "differs"


# Checksums of what was downloaded -----------------------------------------------------------------


def record_of(known: Entry, root: Path) -> Path:
    """The record of a dataset below a root."""
    place = hashlib.sha256(str(known.home(root)).encode()).hexdigest()[:16]
    return cache_folder() / "checksums" / f"{known.name}-{place}.json"


def recorded(known: Entry, root: Path) -> dict[str, str]:
    """The sha256 of files as they were downloaded, by their names below the dataset's folder."""
    try:
        files = load_json(record_of(known, root)).get("files")
    except FileNotFoundError:
        return {}
    except (OSError, RefusedValue) as error:
        raise DataUnavailable(f"checksums of {known.name} cannot be read: {error}") from error
    if not isinstance(files, dict):
        raise DataUnavailable(f"{record_of(known, root)} must hold checksums of files")
    return files


def record(known: Entry, root: Path, contents: dict[str, bytes]) -> Path | None:
    """Record the files whose checksum is not known; None where there are none."""
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


# Files without a checksum -------------------------------------------------------------------------


def look_into(path: Path, content: bytes) -> None:
    """Refuse a file that could run code, is cut off, or has indices beyond its arrays.

    numpy, scipy, zipfile and zlib raise errors of their own for damaged files.
    """
    look = next((look for kind, look in _KINDS.items() if path.name.endswith(kind)), None)
    if look is None:
        rule = "only files of a kind that cannot run code are read without a checksum"
        raise RefusedValue(rule, " or ".join(_KINDS), path.name)
    look(path.name, content)


def _text(name: str, content: bytes) -> None:
    if not content.endswith(b"\n"):
        raise RefusedValue("a text must be whole", "a line break at its end", "none")


def _json(name: str, content: bytes) -> None:
    try:
        json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedValue(f"{name} must be whole", "JSON", error) from error


def _matlab(name: str, content: bytes) -> None:
    """MATLAB's format up to version 7.2, which has numbers and text; 7.3 is another one."""
    if not content.startswith(b"MATLAB 5.0 MAT-file"):
        got = repr(content[:19].decode("latin-1"))
        raise RefusedValue(f"{name} has a readable format", "MATLAB 5.0 MAT-file", got)


def _array(name: str, content: bytes) -> None:
    check_array(name, len(content), BytesIO(content))
    np.load(BytesIO(content), allow_pickle=True)


def _arrays(name: str, content: bytes) -> None:
    with open_archive(content, LIMIT) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                check_array(member.filename, member.file_size, file)
    with np.load(BytesIO(content), allow_pickle=True) as arrays:
        for one in arrays.files:
            arrays[one]  # a damaged one is found here
            if one.endswith("_indptr"):
                _check_sparse(arrays, one.removesuffix("_indptr"))


def _compressed(name: str, content: bytes) -> None:
    """Text: its checksum is found out by unpacking it, and its size."""
    unpacked = 0
    with gzip.open(BytesIO(content)) as file:
        while block := file.read(2**20):
            unpacked += len(block)
            if unpacked > TEXT_LIMIT:
                rule = f"{name} is unpacked within a bound"
                raise RefusedValue(rule, f"<= {TEXT_LIMIT} bytes", "more")


_KINDS: dict[str, Callable[[str, bytes], None]] = {
    ".npz": _arrays,
    ".npy": _array,
    ".json": _json,
    ".mat": _matlab,
    ".csv.gz": _compressed,
    **dict.fromkeys((".txt", ".tsv", ".edgelist"), _text),
}

# What a pickle of numpy's arrays names. Readers load arrays of objects by pickle: one that names
# nothing else makes arrays, numbers, text, lists and dictionaries, and runs nothing.
_HARMLESS = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class _Harmless(pickle.Unpickler):
    """Loads a pickle that names nothing but what makes numpy's arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            rule = "arrays hold numbers, text, lists and dictionaries; other objects could run code"
            raise RefusedValue(rule, "nothing else", f"{module}.{name}")
        return super().find_class(module, name)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_array(
    name: str, size: int, file: IO[bytes], objects: bool = True
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array in a file of a size, if it may be loaded.

    Its shape fits its bytes, so that nothing larger is allocated; its objects, where it may have
    any, are harmless.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise RefusedValue("an array has a readable format", "1.0 or 2.0", version)
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        if not objects:
            raise RefusedValue(f"{name} has no objects, which could run code", "numbers", dtype)
        _Harmless(file, encoding="latin1").load()
    elif math.prod(shape) * dtype.itemsize != (there := size - file.tell()):
        raise RefusedValue(f"{name} must be whole", f"{shape} of {dtype}", f"{there} bytes")
    return shape, dtype


def _check_sparse(arrays: np.lib.npyio.NpzFile, name: str) -> None:
    parts = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    shape = tuple(int(extent) for extent in arrays[f"{name}_shape"])
    if math.prod(shape) * 8 > LIMIT and name == "attr":  # which readers make dense
        raise RefusedValue(f"{name} has a bound", f"<= {LIMIT} bytes", f"shape {shape}")
    sp.csr_matrix(tuple(parts), shape).check_format(full_check=True)
