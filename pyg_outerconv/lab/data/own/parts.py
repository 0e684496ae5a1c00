"""The parts of a graph as each format gives them, before they are joined."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....errors import RefusedValue, refusal

if TYPE_CHECKING:
    import pyarrow as pa

# Says where a row stands, such as 'edges.csv, line 7'.
Where = Callable[[int], str]
PART_NAMES = ("train", "val", "test")


@dataclass(frozen=True)
class Edges:
    """Edges by the names of their nodes.

    Attributes:
        ends: two columns of names, of sources and of targets.
        where: where an edge stands.
        weights: (E,) numbers; ``types``: a column of text; None where there are none.
        both_ways: the file says itself that edges go both ways, and lists each once.
        first: the number of the first node, where nodes are numbered and not named.
        unread: titles of columns that nothing was made of.
        num_nodes: the number of nodes, where the file of edges says it.
    """

    ends: tuple[pa.Array, pa.Array]
    where: Where
    weights: NDArray[np.float64] | None = None
    types: pa.Array | None = None
    both_ways: bool = False
    first: int = 0
    unread: tuple[str, ...] = ()
    num_nodes: int | None = None


@dataclass(frozen=True)
class Features:
    """A row of features for each node; without names, row by row in the order of the nodes."""

    names: pa.Array | None
    x: NDArray[np.float64]
    where: Where
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Labels:
    """The class of each node as text, empty or −1 without one, and its part of each split."""

    names: pa.Array | None
    classes: pa.Array
    where: Where
    splits: tuple[pa.Array, ...] = ()
    unread: tuple[str, ...] = ()


def refuse(where: str, rule: str, expected: object, got: object) -> RefusedValue:
    """An exception that begins with a file and a line."""
    return RefusedValue(f"{where}: {refusal(rule, expected, got)}")


def arrow() -> Any:
    """The module pyarrow, by which tables are read and names looked up.

    Raises:
        ValueError: it is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise RefusedValue(
            "graphs of one's own are read by pyarrow: expected it to be installed, got none: "
            "pip install 'pyg_outerconv[train]'"
        )
    import pyarrow
    import pyarrow.compute

    return pyarrow


_EXACT = 2.0**53  # below it every integer is a float64


def as_text(column: Any) -> pa.Array:
    """A column as text: integers in decimals, whole numbers without a point, nothing as ''."""
    pa = arrow()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
        column = pa.compute.if_else(pa.compute.is_nan(column), None, column)
        whole = pa.compute.equal(column, pa.compute.floor(column))
        exact = pa.compute.less(pa.compute.abs(column), _EXACT)
        if pa.compute.all(pa.compute.and_(whole, exact), min_count=0).as_py():
            column = column.cast(pa.int64())
    return pa.compute.fill_null(column.cast(pa.string()), "")


def as_numbers(column: Any, where: Where, rule: str) -> NDArray[np.float64]:
    """A column as finite numbers.

    Raises:
        ValueError: a cell is none; the first is named.
    """
    pa = arrow()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    safe = not pa.types.is_integer(column.type)  # of which large ones are rounded
    try:
        numbers = column.cast(pa.float64(), safe=safe)
    except pa.ArrowNotImplementedError:
        raise refuse(where(-1), rule, "a column of numbers", str(column.type)) from None
    except pa.ArrowInvalid:
        cells = column.to_pylist()
        row = next(row for row, cell in enumerate(cells) if not _is_number(cell))
        raise refuse(where(row), rule, "a number", repr(cells[row])) from None
    if numbers.null_count:
        row = pa.compute.index(pa.compute.is_null(numbers), value=True).as_py()
        raise refuse(where(row), rule, "a number", "an empty cell")
    found: NDArray[np.float64] = numbers.to_numpy(zero_copy_only=False).copy()
    return finite(found, where, rule)


def finite(numbers: NDArray[np.float64], where: Where, rule: str) -> NDArray[np.float64]:
    """The numbers (N,) or (N, P), if all are finite.

    Raises:
        ValueError: the first row with another is named.
    """
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(wrong.reshape(len(numbers), -1).any(axis=1).argmax())
        got = numbers[row] if numbers.ndim == 1 else numbers[row][wrong[row]][0]
        raise refuse(where(row), rule, "a finite number", got)
    return numbers


def _is_number(cell: Any) -> bool:
    pa = arrow()
    try:
        pa.array([cell], pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
