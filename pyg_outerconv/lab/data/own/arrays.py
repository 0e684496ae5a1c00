"""Arrays of numpy, in npz: numbers and text, no objects, which could run code."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....errors import RefusedValue
from ....files import open_archive
from .files import content_of
from .parts import PART_NAMES, Edges, Features, Labels, Where, arrow, as_text, finite, refuse

EDGE_ARRAYS, FEATURE_ARRAYS = ("edge_index", "edges"), ("x", "features")
LABEL_ARRAYS = ("y", "labels")
NODE_ARRAY = "nodes"


def edges(path: Path, weight: str | None, edge_type: str | None) -> Edges:
    """``edge_index`` (2, E) or ``edges`` (E, 2), and ``edge_weight``, ``edge_type`` (E,)."""
    arrays, where = _Arrays(path), _where(path, "edge")
    name = _one_of(path, arrays, EDGE_ARRAYS)
    pairs = arrays[name]
    index = pairs.T if name == "edges" else pairs
    if index.ndim != 2 or index.shape[0] != 2 or index.dtype.kind not in "iuU":
        expected = f"integers or text {'(2, E)' if name == 'edge_index' else '(E, 2)'}"
        raise refuse(str(path), f"{name} are pairs of nodes", expected, _brief(pairs))
    known = {name, *EDGE_ARRAYS, *FEATURE_ARRAYS, *LABEL_ARRAYS, NODE_ARRAY, "split"}
    numbers, kinds = (
        _optional(path, arrays, given, default, index.shape[1])
        for given, default in ((weight, "edge_weight"), (edge_type, "edge_type"))
    )
    known |= {weight or "edge_weight", edge_type or "edge_type"}
    known |= {f"{part}_mask" for part in PART_NAMES}
    if numbers is not None:
        rule = "an edge weight is a number"
        if numbers.dtype.kind not in "iufb":
            raise refuse(str(path), rule, "numbers", _brief(numbers))
        numbers = finite(numbers.astype(np.float64), where, rule)
    ends = (_text(index[0]), _text(index[1]))
    types = None if kinds is None else _text(kinds)
    unread = tuple(sorted(set(arrays) - known))
    return Edges(ends, where, numbers, types, unread=unread)


def features(path: Path) -> Features:
    """``x`` or ``features`` (N, P), and ``nodes`` (N,), their names."""
    arrays, where = _Arrays(path), _where(path, "node")
    name = _one_of(path, arrays, FEATURE_ARRAYS)
    x = arrays[name]
    if x.ndim != 2 or x.dtype.kind not in "iufb":
        raise refuse(str(path), f"{name} has a row for each node", "numbers (N, P)", _brief(x))
    x = finite(x.astype(np.float64), where, "features are numbers")
    return Features(_names(path, arrays, len(x)), x, where)


def labels(path: Path) -> Labels:
    """``y`` or ``labels`` (N,), ``nodes`` (N,), ``split`` (N,) or the masks ``train_mask``, ….

    Masks are (N,), or (N, S) of S splits.
    """
    arrays, where = _Arrays(path), _where(path, "node")
    name = _one_of(path, arrays, LABEL_ARRAYS)
    y = arrays[name]
    if y.ndim != 1 or y.dtype.kind not in "iufU":
        rule = f"{name} has a class for each node"
        raise refuse(str(path), rule, "integers or text (N,)", _brief(y))
    return Labels(_names(path, arrays, len(y)), _text(y), where, _splits(path, arrays, len(y)))


def _splits(path: Path, arrays: _Arrays, count: int) -> tuple[Any, ...]:
    """The part of each node as text, for each split: a column of the masks, or of ``split``."""
    masks = {part: arrays[f"{part}_mask"] for part in PART_NAMES if f"{part}_mask" in arrays}
    if "split" in arrays:
        if masks:
            rule = "a split is said once"
            raise refuse(str(path), rule, "split or masks", f"split and {', '.join(masks)}")
        return (_text(_optional(path, arrays, "split", "split", count)),)
    columns = max((mask.shape[-1] for mask in masks.values() if mask.ndim == 2), default=1)
    for part, mask in masks.items():
        fits = mask.shape in ((count,), (count, columns)) and mask.size
        if not fits or mask.dtype.kind != "b":
            rule = f"{part}_mask says which nodes are in a part"
            expected = f"booleans ({count},), or ({count}, S) of S splits"
            raise refuse(str(path), rule, expected, _brief(mask))
    whole = {
        part: np.broadcast_to(mask.reshape(count, -1), (count, columns))
        for part, mask in masks.items()
    }
    return tuple(
        _split(path, {part: mask[:, number] for part, mask in whole.items()})
        for number in range(columns if masks else 0)
    )


def _split(path: Path, masks: dict[str, NDArray[Any]]) -> Any:
    """The part of each node in one split, whose masks are (N,)."""
    named = np.full(len(next(iter(masks.values()))), "", dtype="U5")
    for part, mask in masks.items():
        if (named[mask] != "").any():
            row = int(np.flatnonzero(mask)[(named[mask] != "").argmax()])
            rule = "the parts of a split have no node in common"
            raise refuse(_where(path, "node")(row), rule, "one part", f"{named[row]} and {part}")
        named[mask] = part
    return arrow().array(named.tolist(), arrow().string())


class _Arrays(Mapping[str, NDArray[Any]]):
    """The arrays of an npz, each unpacked when it is read.

    Raises:
        ValueError: it is none, says that it unpacks to too much, or an array is not whole.
    """

    def __init__(self, path: Path) -> None:
        self._path, content = path, content_of(path)
        with self._refusing():
            open_archive(content).close()
            self._packed = np.load(BytesIO(content), allow_pickle=False)

    def __getitem__(self, name: str) -> NDArray[Any]:
        with self._refusing():
            array = self._packed[name]
            made: NDArray[Any] = array.astype(array.dtype.newbyteorder("="), copy=False)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._packed.files

    def __iter__(self) -> Iterator[str]:
        return iter(self._packed.files)

    def __len__(self) -> int:
        return len(self._packed.files)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except _BROKEN as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            rule = f"{self._path} must be whole, and hold no objects, which could run code"
            raise RefusedValue(rule, "an npz of numbers and text", reason) from error


_BROKEN: tuple[type[Exception], ...] = (ValueError, OSError, EOFError, AttributeError, TypeError)
_BROKEN += (zipfile.BadZipFile, zlib.error, NotImplementedError)  # the last of another way to pack


def _one_of(path: Path, arrays: _Arrays, names: tuple[str, str]) -> str:
    found = [name for name in names if name in arrays]
    if len(found) != 1:
        got = ", ".join(found or sorted(arrays)) or "no array"
        raise refuse(str(path), "an array is found by its name", " or ".join(names), got)
    return found[0]


def _optional(
    path: Path, arrays: _Arrays, given: str | None, default: str, count: int
) -> NDArray[Any] | None:
    array = arrays.get(given or default)
    if array is None and given is not None:
        expected = ", ".join(sorted(arrays))
        raise refuse(str(path), "an array is found by its name", expected, repr(given))
    if array is not None and array.shape != (count,):
        rule = f"{given or default} has an entry for each row"
        raise refuse(str(path), rule, f"({count},)", _brief(array))
    return array


def _names(path: Path, arrays: _Arrays, count: int) -> Any:
    names = _optional(path, arrays, None, NODE_ARRAY, count)
    return None if names is None else _text(names)


def _text(array: Any) -> Any:
    pa = arrow()
    held = array.tolist() if array.dtype.kind == "U" else np.ascontiguousarray(array)
    return as_text(pa.array(held))


def _brief(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"


def _where(path: Path, kind: str) -> Where:
    return lambda row: f"{path}, {kind} {row}"
