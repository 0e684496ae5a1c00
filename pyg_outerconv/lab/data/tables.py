"""Files of a graph of one's own, in every format: tables of edges, features and labels.

Text and Parquet are read by pyarrow, npz by numpy, MatrixMarket by scipy, GraphML by networkx. What
is read is bounded, and nothing in it is run.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.io import mminfo, mmread
from scipy.sparse import coo_array, issparse
from torch import Tensor

from ...errors import RefusedValue, refusal, unknown
from ...files import UNPACKED_LIMIT, open_archive, read_bytes
from ..fields import require_modules
from .graph import MASKS
from .raw import check_array

Where = Callable[[int], str]  # where a row stands, such as 'edges.csv, line 7'; of −1, the titles
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ""}  # '' for that of the first line
GRAPHML = ".graphml"
EDGE_TITLES = (("source", "target"), ("src", "dst"), ("from", "to"))
NODE_TITLES = ("node", "id", "name")
_MOST_COLUMNS = 100_000


@dataclass
class Table:
    """What a file says of edges, or of nodes: who they are, and columns with a row for each.

    Attributes:
        columns: arrays of pyarrow by their titles, or by their numbers from 1.
        ids: the names of the sources and of the targets, or of the nodes; none where nodes are
            numbered from ``first``.
        x: features (N, P) of a format that has them as a matrix.
        masks: those of the parts of a format that has them, (N,), or (N, S) of S splits.
        beside: the titles that weights and types have if nobody names others.
        titled: whether the file says titles.
        both_ways: the file says itself that edges go both ways, and lists each once.
        num_nodes: the number of nodes, where a file of edges says it.
        unread: what else is in the file.
    """

    where: Where
    columns: dict[str, Any]
    ids: tuple[Any, ...] = ()
    x: NDArray[Any] | None = None
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    beside: tuple[str, str] = ("weight", "type")
    titled: bool = True
    both_ways: bool = False
    first: int = 0
    num_nodes: int | None = None
    unread: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len([*self.ids, *self.columns.values()][0] if self.x is None else self.x)

    def title(self, name: str) -> str | None:
        """The title of the column of this name, in any case; None without one."""
        among = [title for title in self.columns if title.lower() == name] if self.titled else []
        if len(among) > 1:
            raise refuse(self.where(-1), f"one column is titled {name}", "one", self.shown())
        return among[0] if among else None

    def named(self, title: str | None, default: str) -> str | None:
        """The title of the column that a user named, else of the default where there is one."""
        if title is None:
            return self.title(default)
        if title not in self.columns:
            what = "titles" if self.titled else "numbers, as there are no titles"
            expected = f"one of the {what} {self.shown()}"
            raise refuse(self.where(-1), "a column is one of the table", expected, repr(title))
        return title

    def shown(self) -> str:
        """The titles, for a message."""
        return ", ".join(map(repr, self.columns)) or "none"


def refuse(where: str, rule: str, expected: object, got: object) -> RefusedValue:
    """An exception that begins with a file and a line."""
    return RefusedValue(f"{where}: {refusal(rule, expected, got)}")


def _broken(path: Path, expected: str, error: Exception) -> RefusedValue:
    """An exception for what a library cannot read, with its words."""
    reason = " ".join(str(error).split()) or type(error).__name__
    return RefusedValue(f"{path} must be whole", expected, reason)


def _require_bound(path: Path, size: int) -> None:
    """Refuse what would take more bytes than the limit, before they are taken."""
    if size > UNPACKED_LIMIT:
        rule = f"{path} is unpacked within a bound"
        raise RefusedValue(rule, f"<= {UNPACKED_LIMIT} bytes", size)


def arrow() -> Any:
    """The module pyarrow, by which tables are read and names looked up, if it is installed."""
    require_modules("graphs of one's own are read by", ("pyarrow",), "'pyg_outerconv[train]'")
    import pyarrow
    import pyarrow.compute

    return pyarrow


def content_of(path: Path) -> bytes:
    """The content of a file that a user named, if it has any."""
    try:
        content = read_bytes(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedValue(f"{path} must be readable", "a file", reason) from error
    if not content:
        raise RefusedValue(f"{path} must have content", "a table or arrays", "an empty file")
    return content


def read_table(path: Path, kind: str, *named: str | None) -> Table:
    """The table of ``'edges'``, ``'features'`` or ``'labels'`` in a file.

    ``named`` are the columns of weights and of types of edges that a user named.
    """
    formats = (*DELIMITERS, ".parquet", ".npz", ".mtx", *((GRAPHML,) if kind == "edges" else ()))
    if path.suffix not in formats:
        raise RefusedValue(f"{path}: " + unknown(f"format of {kind}", path.suffix, formats))
    if path.suffix == ".npz":
        return _npz(path, kind, *named)
    if path.suffix == ".mtx":
        return _matrix_market(path, kind, *named)
    table = _parquet(path) if path.suffix == ".parquet" else _text(path, kind)
    return _of_edges(table) if kind == "edges" else _of_nodes(table, kind)


# Text and Parquet ---------------------------------------------------------------------------------


def _of_edges(table: Table) -> Table:
    """The table with the ends of its edges taken out of its columns."""
    columns = table.columns
    if len(columns) < 2:
        raise refuse(table.where(0), "an edge has two ends", "source and target", "one column")
    pairs: list[Any] = [tuple(map(table.title, two)) for two in EDGE_TITLES]
    pairs = [two for two in pairs if None not in two] if table.titled else [list(columns)[:2]]
    if not pairs:
        expected = "; ".join(map(" and ".join, EDGE_TITLES))
        rule = "the columns of the ends of edges have titles"
        raise refuse(table.where(-1), rule, expected, table.shown())
    return replace(table, ids=tuple(as_text(columns.pop(title)) for title in pairs[0]))


def _of_nodes(table: Table, kind: str) -> Table:
    """The table with the names of its nodes taken out of its columns."""
    first = next(iter(table.columns))
    if not table.titled or first.lower() not in NODE_TITLES:
        rule = f"a table of nodes begins with titles, the first {' or '.join(NODE_TITLES)}"
        expected = f"node and {'features' if kind == 'features' else 'label, or label and split'}"
        cells = repr(",".join(str(column[0]) for column in list(table.columns.values())[:3]))
        got = table.shown() if table.titled else cells
        raise refuse(table.where(-table.titled), rule, expected, got)
    if not len(table):
        raise refuse(table.where(-1), "a table of nodes has rows", "one for each node", "none")
    return replace(table, ids=(as_text(table.columns.pop(first)),))


def _text(path: Path, kind: str) -> Table:
    """A text with cells between delimiters; lines before the first row may begin with #."""
    pa, content = arrow(), content_of(path)
    import pyarrow.csv as csv

    comments = re.match(rb"(?:#[^\n]*(?:\n|$))*", content)
    assert comments is not None
    skipped, content = comments[0].count(b"\n"), content[comments.end() :]
    if not content.strip():
        raise RefusedValue(f"{path} has no rows", "a line for each edge or node", "none")
    line = content.partition(b"\n")[0].decode(errors="replace")
    delimiter = DELIMITERS[path.suffix] or next((one for one in "\t, " if one in line), ",")
    width = len(line.split(delimiter))
    if width > _MOST_COLUMNS:
        raise RefusedValue(f"{path} has a bound of columns", f"<= {_MOST_COLUMNS}", width)

    def where(row: int) -> str:
        return f"{path}, line {skipped + row + 1}"

    kinds = {f"f{number}": pa.string() for number in range(width)}
    size = max(2**20, min(len(content) + 1, 2**30))
    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            # With threads, an error would not say its row.
            csv.ReadOptions(use_threads=False, autogenerate_column_names=True, block_size=size),
            csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=kinds, strings_can_be_null=False),
        )
    except pa.ArrowException as error:
        raise _malformed(path, where, error) from error
    columns = [column.combine_chunks() for column in table.columns]
    _require_lines(columns, where)
    cells = [column[0].as_py() for column in columns]
    small = [cell.lower() for cell in cells]
    of_edges = any(set(two) <= set(small) for two in EDGE_TITLES)
    if of_edges if kind == "edges" else small[0] in NODE_TITLES:
        _require_distinct_titles(cells, where(0))
        rows = {title: column[1:] for title, column in zip(cells, columns, strict=True)}
        return Table(lambda row: where(row + 1), rows)
    numbered = {str(number): column for number, column in enumerate(columns, 1)}
    return Table(where, numbered, titled=False)


def _malformed(path: Path, where: Where, error: Exception) -> RefusedValue:
    row = re.search(r"Row #(\d+): (.*)", " ".join(str(error).split()))
    if not row:
        return _broken(path, "rows of the same number of cells", error)
    place, reason = where(int(row[1]) - 1), row[2]
    counts = re.match(r"Expected (\d+) columns, got (\d+): ?(.*)", reason)
    if not counts:
        return refuse(place, "a table is text in UTF-8", "rows of cells", reason)
    rule = "every row has the cells of the first"
    return refuse(place, rule, counts[1], f"{counts[2]} in {counts[3][:60]!r}")


def _require_lines(columns: list[Any], where: Where) -> None:
    """Refuse empty lines, and cells of several lines, by which lines would be miscounted."""
    compute, empty = arrow().compute, True
    for column in columns:
        broken = compute.index(compute.match_substring(column, "\n"), value=True).as_py()
        if broken >= 0:
            raise refuse(where(broken), "a cell is on one line", "no line break", "one in quotes")
        empty = compute.and_(compute.equal(column, ""), empty)
    row = compute.index(empty, value=True).as_py()
    if row >= 0:
        raise refuse(where(row), "a line has cells", f"{len(columns)} cells", "an empty line")


def _require_distinct_titles(titles: list[str], where: str) -> None:
    if len(set(titles)) < len(titles):
        double = next(title for title in titles if titles.count(title) > 1)
        raise refuse(where, "titles differ", "each title once", repr(double))


def _parquet(path: Path) -> Table:
    pa, content = arrow(), content_of(path)
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(pa.BufferReader(content))
        titles, about = file.schema_arrow.names, file.metadata
        for column in file.schema_arrow:
            if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
                rule = "a column has a value in each row"
                raise refuse(str(path), rule, "numbers or text", column)
        if not titles:
            raise RefusedValue(f"{path} has columns", "a column for each title", "none")
        _require_distinct_titles(titles, str(path))
        groups = (about.row_group(number).total_byte_size for number in range(about.num_row_groups))
        _require_bound(path, sum(groups))
        # Text stays in the dictionaries of the file until it is known how long it is.
        text = [
            title
            for title, kind in zip(titles, file.schema_arrow.types, strict=True)
            if pa.types.is_string(kind) or pa.types.is_large_string(kind)
        ]
        file = ParquetFile(pa.BufferReader(content), read_dictionary=text)
        batches, size = [], 0
        for batch in file.iter_batches():
            batches.append(batch)
            size += sum(map(_unpacked, batch.columns))
            _require_bound(path, size)
        table = pa.Table.from_batches(batches, file.schema_arrow).unify_dictionaries()
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, "a Parquet file", error) from error
    columns = {title: _whole(column) for title, column in zip(titles, table.columns, strict=True)}
    return Table(lambda row: f"{path}, row {row + 1}" if row >= 0 else str(path), columns)


def _unpacked(column: Any) -> int:
    """The bytes of a column, its text in no dictionary."""
    pa = arrow()
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pa.compute.binary_length(column.dictionary.cast(pa.string()))
    return 4 * len(column) + (pa.compute.sum(lengths.take(column.indices)).as_py() or 0)


# Arrays -------------------------------------------------------------------------------------------

# The arrays of an npz: the kinds of numpy's types that are read, and the axes, of which R is rows.
_TEXT, _REAL = "iufbUSM", "iufb"
_ARRAYS = {"edge_index": ("iuU", "2R"), "edges": ("iuU", "R2")}
_ARRAYS |= dict.fromkeys(("x", "features"), (_REAL, "RP"))
_ARRAYS |= dict.fromkeys(("y", "labels"), ("iufU", "R"))
_ARRAYS |= dict.fromkeys(("nodes", "split"), (_TEXT, "R"))
_ARRAYS |= dict.fromkeys(MASKS, ("b", "R"))  # and an axis of splits, or none
_AS_TEXT = 16  # bytes that a number takes as text, and as a place in a table
# What zipfile, zlib and numpy raise; RuntimeError of a way to pack that zipfile has not.
_UNREADABLE: tuple[type[Exception], ...] = (ValueError, OSError, EOFError, TypeError, RuntimeError)
_UNREADABLE += (AttributeError, zipfile.BadZipFile, zlib.error)


def _npz(path: Path, kind: str, weight: str | None = None, edge_type: str | None = None) -> Table:
    """Arrays of numpy by their names: numbers and text, no objects, which could run code."""
    arrays = _Npz(path)
    if kind == "edges":
        name = arrays.one_of("edge_index", "edges")
        pairs = arrays.get(name)
        ends = pairs if name == "edge_index" else pairs.T
        beside = weight or "edge_weight", edge_type or "edge_type"
        columns = {
            title: _column(arrays.get(title, len(ends[0]), kinds))
            for title, kinds in zip(beside, (_REAL, _TEXT), strict=True)
            if title in arrays.members
        }
        unread = tuple(sorted(arrays.members.keys() - {*_ARRAYS, *columns}))
        ids = tuple(as_text(_column(end)) for end in ends)
        return Table(arrays.where("edge"), columns, ids, beside=beside, unread=unread)
    rows = arrays.get(arrays.one_of("x" if kind == "features" else "y", kind))
    names = [arrays.get(name, len(rows)) for name in ("nodes",) if name in arrays.members]
    table = Table(arrays.where("node"), {}, tuple(as_text(_column(one)) for one in names))
    if kind == "features":
        return replace(table, x=rows)
    table.columns["label"] = _column(rows)
    table.masks = {name: arrays.get(name, len(rows)) for name in MASKS if name in arrays.members}
    if "split" in arrays.members:
        if table.masks:
            got = f"split and {', '.join(table.masks)}"
            raise refuse(str(path), "a split is said once", "split or masks", got)
        table.columns["split"] = _column(arrays.get("split", len(rows)))
    return table


class _Npz:
    """The arrays of an npz, each unpacked when it is read."""

    def __init__(self, path: Path) -> None:
        self.path, content = path, content_of(path)
        with self._refusing():
            self._archive = open_archive(content)
        listed = {one.filename.removesuffix(".npy"): one for one in self._archive.infolist()}
        self.members = {name: one for name, one in listed.items() if name != one.filename}

    def get(self, name: str, rows: int | None = None, kinds: str = "") -> NDArray[Any]:
        """An array of the kind and shape of its name, and of a size within the bound."""
        member, (own, axes) = self.members[name], _ARRAYS.get(name, ("", "R"))
        kinds = kinds or own
        with self._refusing(), self._archive.open(member) as file:
            shape, dtype = check_array(name, member.file_size, file, objects=False)
        if kinds == "b" and len(shape) == 2:
            axes = "RS"
        wanted = [{"R": rows, "2": 2}.get(axis) for axis in axes]
        fits = [one in (None, extent) for one, extent in zip(wanted, shape, strict=False)]
        if dtype.kind not in kinds or len(shape) != len(axes) or not all(fits):
            what = {"b": "booleans", _REAL: "numbers", "iuU": "integers or text"}
            shown = ", ".join(str(one or axis) for one, axis in zip(wanted, axes, strict=True))
            expected, got = f"{what.get(kinds, 'numbers or text')} ({shown})", f"{dtype} {shape}"
            raise refuse(f"{self.path}, {name}", "an array is of its kind and shape", expected, got)
        each = (4 if np.can_cast(dtype, np.float32) else 8) if axes in ("RP", "RS") else _AS_TEXT
        _require_bound(self.path, math.prod(shape) * max(each, dtype.itemsize))
        with self._refusing(), self._archive.open(member) as file:
            array = np.lib.format.read_array(file, allow_pickle=False)
        return array.astype(dtype.newbyteorder("="), copy=False)

    def one_of(self, *names: str) -> str:
        """The only one of these names that an array has."""
        there = [name for name in names if name in self.members]
        if len(there) != 1:
            got = ", ".join(there or sorted(self.members)) or "no array"
            raise refuse(str(self.path), "an array is found by its name", " or ".join(names), got)
        return there[0]

    def where(self, kind: str) -> Where:
        """Says where a row stands."""
        return lambda row: f"{self.path}, {kind} {row}" if row >= 0 else str(self.path)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            expected = "an npz of numbers and text, and no objects, which could run code"
            raise _broken(self.path, expected, error) from error


# Matrices -----------------------------------------------------------------------------------------


def _matrix_market(path: Path, kind: str, *named: str | None) -> Table:
    """MatrixMarket: entry (m, n) is the edge m → n, and rows of features or labels are nodes.

    Its values are weights of edges, unless it is a pattern. Nodes are called as the format numbers
    them, from 1.
    """
    for name in filter(None, named):
        raise refuse(str(path), "a matrix has no columns with names", "none named", repr(name))
    matrix, is_pattern = _read_matrix(path, kind)
    if kind != "edges":
        x = matrix.toarray() if issparse(matrix) else matrix
        if kind == "labels" and x.shape[1] != 1:
            raise refuse(str(path), "labels are one column", "(N, 1)", x.shape)
        columns = {"label": _column(x[:, 0])} if kind == "labels" else {}
        return Table(lambda row: f"{path}, row {row + 1}", columns, x=x)
    if not issparse(matrix) or matrix.shape[0] != matrix.shape[1]:
        rule = "edges are a sparse matrix with a row and a column for each node"
        got = f"{'a sparse matrix' if issparse(matrix) else 'an array'} {matrix.shape}"
        raise refuse(str(path), rule, "coordinates, N × N", got)
    matrix = coo_array(matrix)
    ends = [end.astype(np.int64) + 1 for end in matrix.coords]

    def where(row: int) -> str:
        return f"{path}, entry ({ends[0][row]}, {ends[1][row]})" if row >= 0 else str(path)

    weights = {} if is_pattern else {"weight": _column(matrix.data)}
    ids = tuple(as_text(_column(end)) for end in ends)
    return Table(where, weights, ids, first=1, num_nodes=matrix.shape[0])


def _read_matrix(path: Path, kind: str) -> tuple[Any, bool]:
    """A matrix of real numbers, and whether it is a pattern without values."""
    content = content_of(path)
    try:
        rows, columns, entries, layout, values, _ = mminfo(BytesIO(content))
        if not rows or not columns:  # by which scipy's reader divides
            got = f"{rows} × {columns}"
            raise refuse(str(path), "a matrix has rows and columns", "at least 1 × 1", got)
        if values == "complex":
            raise RefusedValue(f"{path} holds numbers", "real or integer", values)
        dense = kind != "edges" or layout == "array"
        _require_bound(path, 8 * rows * columns if dense else 16 * entries)
        return mmread(BytesIO(content)), values == "pattern"
    except RefusedValue:
        raise
    except Exception as error:  # the reader and its stream fail in many ways
        place = re.match(r"Line (\d+): (.*)", str(error))
        where, reason = (f"{path}, line {place[1]}", place[2]) if place else (str(path), str(error))
        reason = reason or type(error).__name__
        raise refuse(where, "a MatrixMarket file is whole", "rows of its header", reason) from error


# GraphML ------------------------------------------------------------------------------------------


def read_graphml(path: Path, weight: str | None, edge_type: str | None) -> dict[str, Table]:
    """The tables of edges and, if there are any, of features and labels of a GraphML file.

    Every numeric attribute of nodes but ``label`` and ``split`` is a feature.
    """
    import networkx as nx

    pa, content = arrow(), content_of(path)
    _require_one_graph(path, content)
    try:
        graph: Any = nx.read_graphml(BytesIO(content), force_multigraph=True)
        edges, nodes = list(graph.edges(data=True)), list(graph.nodes(data=True))
        of_edges = _attributes([attributes for *_, attributes in edges])
        of_nodes = _attributes([attributes for _, attributes in nodes])
        of_edges.pop("id", None)
    except (SyntaxError, nx.NetworkXError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise _broken(path, "GraphML", error) from error

    def at_edge(row: int) -> str:
        return f"{path}, edge {edges[row][0]!r} to {edges[row][1]!r}" if row >= 0 else str(path)

    def at_node(row: int) -> str:
        return f"{path}, node {nodes[row][0]!r}" if row >= 0 else str(path)

    beside = weight or "weight", edge_type or "type"
    if beside[0] in of_edges and pa.types.is_string(of_edges[beside[0]].type):
        got = repr(of_edges[beside[0]][0].as_py())
        raise refuse(at_edge(0), "an edge weight is a number", "a number", got)
    ends = tuple(pa.array([str(edge[end]) for edge in edges], pa.string()) for end in (0, 1))
    both_ways, names = not graph.is_directed(), pa.array([name for name, _ in nodes], pa.string())
    tables = {"edges": Table(at_edge, of_edges, ends, beside=beside, both_ways=both_ways)}
    labels: dict[str, Any] = {
        title: of_nodes.pop(title) for title in ("label", "split") if title in of_nodes
    }
    if "label" in labels:
        tables["labels"] = Table(at_node, labels, (names,))
    text = tuple(title for title, column in of_nodes.items() if pa.types.is_string(column.type))
    if numbers := {title: column for title, column in of_nodes.items() if title not in text}:
        tables["features"] = Table(at_node, numbers, (names,), unread=text)
    return tables


def _attributes(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A column for each attribute that one of some edges or nodes has, of text if one is text."""
    columns = {}
    for title in sorted({title for row in rows for title in row}):
        values = [row.get(title) for row in rows]
        if any(isinstance(value, str) for value in values):
            values = [None if value is None else str(value) for value in values]
        columns[title] = arrow().array(values)
    return columns


def _require_one_graph(path: Path, content: bytes) -> None:
    """Refuse what networkx's reader drops or makes up: a second graph, a node twice, or nowhere.

    And entities, of which a few lines can make a text of any length.
    """
    nodes, ends, graphs = set[str | None](), list[str | None](), list[str]()

    def start(tag: str, said: dict[str, str]) -> None:
        kind, name = tag.rpartition("}")[2], said.get("id")
        if kind == "node":
            if name in nodes:
                raise refuse(str(path), "a node is described once", "each id once", repr(name))
            nodes.add(name)
        elif kind == "edge":
            ends.extend((said.get("source"), said.get("target")))
        elif kind == "graph":
            graphs.append(tag)

    def entity(name: str, *declared: Any) -> None:
        raise refuse(str(path), "GraphML declares no entities", "none", repr(name))

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler, parser.EntityDeclHandler = start, entity
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise _broken(path, "GraphML", error) from error
    if len(graphs) != 1:
        rule = "a file has one graph, and no graph in a node"
        raise refuse(str(path), rule, "1", len(graphs))
    if strange := next((end for end in ends if end not in nodes), None):
        rule = "an edge joins nodes of the graph"
        raise refuse(str(path), rule, "the id of a node", repr(strange))


# Columns ------------------------------------------------------------------------------------------

_EXACT = 2.0**53  # below it every integer is a float64


def _column(array: NDArray[Any]) -> Any:
    """An array of numpy's (R,) as one of pyarrow."""
    return arrow().array(array.tolist() if array.dtype.kind == "U" else np.ascontiguousarray(array))


def _whole(column: Any) -> Any:
    """A column in one piece, its text in no dictionary."""
    pa = arrow()
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def as_text(column: Any) -> Any:
    """A column as text: integers in decimals, whole numbers without a point, nothing as ''."""
    pa = arrow()
    if pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
        column = pa.compute.if_else(pa.compute.is_nan(column), None, column)
        whole = pa.compute.equal(column, pa.compute.floor(column))
        exact = pa.compute.less(pa.compute.abs(column), _EXACT)
        if pa.compute.all(pa.compute.and_(whole, exact), min_count=0).as_py():
            column = column.cast(pa.int64())
    return pa.compute.fill_null(column.cast(pa.string()), "")


def as_numbers(column: Any, where: Where, rule: str) -> Tensor:
    """A column as numbers (R,) in float32; the first cell that is none is refused."""
    pa = arrow()
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
        row = pa.compute.index(numbers.is_null(), value=True).as_py()
        raise refuse(where(row), rule, "a number", "an empty cell")
    return as_float32(numbers.to_numpy(zero_copy_only=False), where, rule)


def as_float32(numbers: NDArray[Any], where: Where, rule: str) -> Tensor:
    """Numbers (R,) or (R, P) in float32; the first row with one that is not finite is refused."""
    with np.errstate(over="ignore"):
        single = numbers.astype(np.float32)
    wrong = ~np.isfinite(single)
    if wrong.any():
        row = int(wrong.reshape(len(numbers), -1).any(axis=1).argmax())
        got = np.atleast_1d(numbers[row])[np.atleast_1d(wrong[row])][0]
        raise refuse(where(row), rule, "a finite number, which fits float32", f"{got:g}")
    return torch.from_numpy(single)


def _is_number(cell: Any) -> bool:
    pa = arrow()
    try:
        pa.array([cell], pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True
