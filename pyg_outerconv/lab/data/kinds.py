"""Files without a checksum: which kinds are read, because nothing that is in them can run."""

from __future__ import annotations

import gzip
import json
import math
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from ...errors import RefusedValue
from ...files import open_archive

LIMIT = 2**31  # bytes of one raw file, packed or unpacked
TEXT_LIMIT = 2**34  # bytes of one text file, unpacked

# What a pickle of numpy's arrays names. Readers load arrays of objects by pickle: one that names
# nothing else makes arrays, numbers, text, lists and dictionaries, and runs nothing.
_HARMLESS = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


def look_into(path: Path, content: bytes) -> None:
    """Refuse a file that could run code, is cut off, or has indices beyond its arrays.

    Raises:
        RefusedValue: with the rule; numpy, scipy, zipfile and zlib raise errors of their own for
            damaged files.
    """
    look = next((look for kind, look in _KINDS.items() if path.name.endswith(kind)), None)
    if look is None:
        rule = "only files of a kind that cannot run code are read without a checksum"
        raise RefusedValue(rule, " or ".join(_KINDS), path.name)
    look(path, content)


def _text(path: Path, content: bytes) -> None:
    if not content.endswith(b"\n"):
        raise RefusedValue("a text must be whole", "a line break at its end", "none")


def _json(path: Path, content: bytes) -> None:
    try:
        json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedValue(f"{path.name} must be whole", "JSON", error) from error


def _matlab(path: Path, content: bytes) -> None:
    """MATLAB's format up to version 7.2, which has numbers and text; 7.3 is another one."""
    if not content.startswith(b"MATLAB 5.0 MAT-file"):
        rule = f"{path.name} has a known format"
        raise RefusedValue(rule, "MATLAB 5.0 MAT-file", repr(content[:19].decode("latin-1")))


def _array(path: Path, content: bytes) -> None:
    _check_array(path.name, len(content), BytesIO(content))
    np.load(BytesIO(content), allow_pickle=True)


def _arrays(path: Path, content: bytes) -> None:
    with open_archive(content, LIMIT) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                _check_array(member.filename, member.file_size, file)
    with np.load(BytesIO(content), allow_pickle=True) as arrays:
        for name in arrays.files:
            arrays[name]  # a damaged one is found here
            if name.endswith("_indptr"):
                _check_sparse(arrays, name.removesuffix("_indptr"))


def _compressed(path: Path, content: bytes) -> None:
    """Text: its checksum is found out by unpacking it, and its size."""
    unpacked = 0
    with gzip.open(BytesIO(content)) as file:
        while block := file.read(2**20):
            unpacked += len(block)
            if unpacked > TEXT_LIMIT:
                rule = f"{path.name} is unpacked within a bound"
                raise RefusedValue(rule, f"<= {TEXT_LIMIT} bytes", "more")


_KINDS: dict[str, Callable[[Path, bytes], None]] = {
    ".npz": _arrays,
    ".npy": _array,
    ".json": _json,
    ".mat": _matlab,
    ".csv.gz": _compressed,
    **dict.fromkeys((".txt", ".tsv", ".edgelist"), _text),
}


class _Harmless(pickle.Unpickler):
    """Loads a pickle that names nothing but what makes numpy's arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            rule = "arrays hold numbers, text, lists and dictionaries; other objects could run code"
            raise RefusedValue(rule, "nothing else", f"{module}.{name}")
        return super().find_class(module, name)


def _check_array(name: str, size: int, file: IO[bytes]) -> None:
    """Check before allocation that an array is harmless and that its size fits its bytes."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise RefusedValue("an array has a known format", "1.0 or 2.0", version)
    shape, _, dtype = read(file)
    if dtype.hasobject:
        _Harmless(file, encoding="latin1").load()
        return
    there = size - file.tell()
    if math.prod(shape) * dtype.itemsize != there:
        raise RefusedValue(f"{name} must be whole", f"{shape} of {dtype}", f"{there} bytes")


def _check_sparse(arrays: np.lib.npyio.NpzFile, name: str) -> None:
    parts = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    shape = tuple(int(extent) for extent in arrays[f"{name}_shape"])
    if math.prod(shape) * 8 > LIMIT and name == "attr":  # which readers make dense
        raise RefusedValue(f"{name} has a bound", f"<= {LIMIT} bytes", f"shape {shape}")
    matrix = sp.csr_matrix(tuple(parts), shape)
    matrix.check_format(full_check=True)
