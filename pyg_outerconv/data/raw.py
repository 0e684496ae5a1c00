"""Raw files: read whole, compared with their checksums, and looked into where none is known.

What a dataset's reader gets are copies of the bytes that were checked here. So a file that differs,
or that could run code (Planetoid's are pickles), never reaches a reader.
"""

from __future__ import annotations

import hashlib
import math
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np
import scipy.sparse as sp

from ..errors import Refused, RefusedValue, refusal
from ..files import open_archive, read_bytes
from ..places import data_root
from .registry import DataUnavailable, Entry, entry

LIMIT = 2**30  # bytes of one raw file, packed or unpacked
_PLAIN = (".npz", ".txt")  # formats whose readers run nothing that is in them


def read_checked(known: Entry, root: Path) -> dict[str, bytes]:
    """The content of every raw file of a dataset, by its name below :meth:`Entry.home`.

    Raises:
        DataUnavailable: a file cannot be read, has not the checksum of the registry, or, where no
            checksum is known, is of a kind that could run code or is damaged.
    """
    return {name: read_one(known, root, name) for name in known.files}


def read_one(known: Entry, root: Path, name: str) -> bytes:
    """The content of a raw file; see :func:`read_checked`."""
    path = known.home(root) / name
    try:
        content = read_bytes(path, LIMIT)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    expected = known.files[name]
    if expected is not None:
        got = hashlib.sha256(content).hexdigest()
        if got == expected:
            return content
        if not known.copies_differ:
            rule = f"{path} must be the file that the registry knows of {known.name}, by its sha256"
            raise DataUnavailable(refusal(rule, expected, f"{got}: another, or a damaged one"))
    try:
        _look_into(path, content)
    except Refused as error:
        raise DataUnavailable(f"{path}, whose checksum is not known: {error}") from error
    except Exception as error:  # numpy, zipfile and zlib, each with its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataUnavailable(f"{path} is damaged ({reason})") from error
    return content


def _look_into(path: Path, content: bytes) -> None:
    """Refuse a file that could run code, is cut off, or has indices beyond its arrays."""
    if path.suffix not in _PLAIN:
        rule = "only files of a kind that cannot run code are read without a checksum"
        raise RefusedValue(refusal(rule, " or ".join(_PLAIN), path.name))
    if path.suffix == ".txt":
        if not content.endswith(b"\n"):
            raise RefusedValue(refusal("a text must be whole", "a line break at its end", "none"))
        return
    with open_archive(content, LIMIT) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                _check_header(member.filename, member.file_size, file)
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        for name in arrays.files:
            arrays[name]  # a damaged one is found here
            if name.endswith("_indptr"):
                _check_sparse(arrays, name.removesuffix("_indptr"))


def _check_header(name: str, size: int, file: IO[bytes]) -> None:
    """Check before allocation that an array holds numbers and that its size fits its bytes."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise RefusedValue(refusal("an array has a known format", "1.0 or 2.0", version))
    shape, _, dtype = read(file)
    if dtype.hasobject:
        rule = "arrays hold numbers; objects could run code"
        raise RefusedValue(refusal(rule, "a type of numbers", f"{dtype} in {name}"))
    there = size - file.tell()
    if math.prod(shape) * dtype.itemsize != there:
        raise RefusedValue(
            refusal(f"{name} must be whole", f"{shape} of {dtype}", f"{there} bytes")
        )


def _check_sparse(arrays: np.lib.npyio.NpzFile, name: str) -> None:
    parts = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    shape = tuple(int(extent) for extent in arrays[f"{name}_shape"])
    if math.prod(shape) * 8 > LIMIT and name == "attr":  # which readers make dense
        raise RefusedValue(refusal(f"{name} has a bound", f"<= {LIMIT} bytes", f"shape {shape}"))
    matrix = sp.csr_matrix(tuple(parts), shape)
    matrix.check_format(full_check=True)


def verify(name: str, root: str | Path | None = None) -> dict[str, str]:
    """Compare the raw files of a dataset, those of all its protocols, with their checksums.

    Returns:
        for each file ``'matches'``, ``'differs'``, ``'missing'``, ``'cannot be read'`` or ``'no
        checksum known'``.
    """
    known, folder = entry(name), data_root(root)
    found = {}
    for reading in {split: known.for_split(split) for split in known.splits}.values():
        for file, expected in reading.files.items():
            found[file] = _compare(reading.home(folder) / file, expected)
    return found


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
