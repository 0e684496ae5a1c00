"""Tables with a line for each edge or node: CSV, TSV, text and Parquet, by pyarrow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import RefusedValue
from .files import content_of
from .parts import Edges, Features, Labels, Where, arrow, as_numbers, as_text, refuse

DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": ""}  # '' for that of the first line
EDGE_TITLES = (("source", "target"), ("src", "dst"), ("from", "to"))
NODE_TITLES = ("node", "id", "name")
LABEL_TITLES = ("label", "class", "y")
_MOST_COLUMNS = 100_000


@dataclass(frozen=True)
class Table:
    """Columns with titles, None for a table without; ``where`` says where a row stands.

    Titles that have a meaning may be written in capitals.
    """

    titles: list[str] | None
    columns: list[Any]
    where: Where

    def column(self, title: str | None, default: str) -> int | None:
        """The place of a column that a user named, else of the default where there is one.

        Raises:
            ValueError: the table has no such column.
        """
        if title is None:
            return self.named(default)
        if self.titles is None:
            numbers = [str(number) for number in range(3, len(self.columns) + 1)]
            if title in numbers:
                return numbers.index(title) + 2
            expected = f"the number of a column, 3 to {len(self.columns)}, as there are no titles"
            raise refuse(self.where(0), "a column is one of the table", expected, repr(title))
        if title in self.titles:
            return self.titles.index(title)
        raise refuse(self.where(-1), "a column is one of the table", self.shown(), repr(title))

    def named(self, name: str) -> int | None:
        """The place of the column with this title; None without one.

        Raises:
            ValueError: several columns have it, in small letters and in capitals.
        """
        found = [n for n, title in enumerate(self.titles or []) if title.lower() == name]
        if len(found) > 1:
            rule = f"one column is titled {name}"
            raise refuse(self.where(-1), rule, "one", f"columns {self.shown()}")
        return found[0] if found else None

    def shown(self) -> str:
        """The titles, for a message."""
        return ", ".join(map(repr, self.titles or []))

    def others(self, read: set[int | None]) -> tuple[str, ...]:
        """The titles of the columns that are not read."""
        titles = self.titles or [f"column {number + 1}" for number in range(len(self.columns))]
        return tuple(title for number, title in enumerate(titles) if number not in read)


def edges(path: Path, weight: str | None, edge_type: str | None) -> Edges:
    """Edges ``source,target[,weight][,type]``; without a line of titles, two columns."""
    table = _titled(_read(path), lambda cells: any(set(two) <= set(cells) for two in EDGE_TITLES))
    if len(table.columns) < 2:
        raise refuse(table.where(0), "an edge has two ends", "source and target", "one column")
    ends = _ends(table)
    weights, types = table.column(weight, "weight"), table.column(edge_type, "type")
    unread = table.others({*ends, weights, types})
    if unread and table.titles is None:
        rule = "further columns have titles, or are named by --edge-weight and --edge-type"
        first_row = ", ".join(repr(column[0].as_py()) for column in table.columns[:4])
        raise refuse(table.where(0), rule, "source and target in the first line", first_row)
    first, second = (as_text(table.columns[end]) for end in ends)
    numbers = None
    if weights is not None:
        numbers = as_numbers(table.columns[weights], table.where, "an edge weight is a number")
    kinds = None if types is None else as_text(table.columns[types])
    return Edges((first, second), table.where, numbers, kinds, unread=unread)


def _ends(table: Table) -> tuple[int, int]:
    """The places of the sources and of the targets."""
    if table.titles is None:
        return 0, 1
    for source, target in EDGE_TITLES:
        first, second = table.named(source), table.named(target)
        if first is not None and second is not None:
            return first, second
    expected = "; ".join(" and ".join(two) for two in EDGE_TITLES)
    rule = "the columns of the ends of edges have titles"
    raise refuse(table.where(-1), rule, expected, table.shown())


def features(path: Path) -> Features:
    """Features ``node,…``: titles, then a name and numbers for each node."""
    table = _node_table(path, "node and the features")
    titles = table.titles or []
    x = np.empty((len(table.columns[0]), len(table.columns) - 1))
    for number, column in enumerate(table.columns[1:]):
        rule = f"the feature {titles[number + 1]!r} is a number"
        x[:, number] = as_numbers(column, table.where, rule)
    return Features(as_text(table.columns[0]), x, table.where)


def labels(path: Path) -> Labels:
    """Classes ``node,label[,split]``: titles, then a line for each node."""
    table = _node_table(path, "node,label or node,label,split")
    places = (table.named(title) for title in LABEL_TITLES)
    place, parts = next((one for one in places if one is not None), None), table.named("split")
    if place is None:
        rule = "a table of labels has a column of classes"
        raise refuse(table.where(-1), rule, " or ".join(LABEL_TITLES), table.shown())
    split = () if parts is None else (as_text(table.columns[parts]),)
    unread = table.others({0, place, parts})
    names, classes = as_text(table.columns[0]), as_text(table.columns[place])
    return Labels(names, classes, table.where, split, unread)


def _node_table(path: Path, expected: str) -> Table:
    table = _titled(_read(path), lambda cells: cells[0] in NODE_TITLES)
    rule = f"a table of nodes begins with titles, the first {' or '.join(NODE_TITLES)}"
    if table.titles is None:
        got = ",".join(map(str, (column[0].as_py() for column in table.columns[:3])))
        raise refuse(table.where(0), rule, expected, repr(got))
    if table.titles[0].lower() not in NODE_TITLES:
        raise refuse(table.where(-1), rule, expected, table.shown())
    if not len(table.columns[0]):
        raise refuse(table.where(-1), "a table of nodes has rows", "one for each node", "none")
    return table


def _titled(table: Table, are_titles: Any) -> Table:
    """The table without its first row, where that has titles."""
    if table.titles is not None:  # a Parquet file says them
        return table
    cells = [str(column[0].as_py()) for column in table.columns]
    if not are_titles([cell.lower() for cell in cells]):
        return table
    _require_distinct_titles(cells, table.where(0))
    columns = [column[1:] for column in table.columns]
    return Table(cells, columns, lambda row: table.where(row + 1))


def _require_distinct_titles(titles: list[str], where: str) -> None:
    if len(set(titles)) < len(titles):
        double = next(title for title in titles if titles.count(title) > 1)
        raise refuse(where, "titles differ", "each title once", repr(double))


def _read(path: Path) -> Table:
    return _parquet(path) if path.suffix == ".parquet" else _text(path)


def _parquet(path: Path) -> Table:
    pa = arrow()
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(pa.BufferReader(content_of(path))).read()
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise RefusedValue(f"{path} must be whole", "a Parquet file", reason) from error
    for field in table.schema:
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            raise refuse(str(path), "a column has a value in each row", "numbers or text", field)
    if not table.num_columns:
        raise RefusedValue(f"{path} has columns", "a column for each title", "none")
    _require_distinct_titles(table.column_names, str(path))
    columns = [column.combine_chunks() for column in table.columns]
    return Table(
        table.column_names, columns, lambda row: f"{path}, row {row + 1}" if row >= 0 else str(path)
    )


def _text(path: Path) -> Table:
    """A text with cells between delimiters; lines before the first row may begin with #."""
    pa = arrow()
    import pyarrow.csv

    content = content_of(path)
    skipped = 0
    start = 0
    while content.startswith(b"#", start):
        end = content.find(b"\n", start)
        start, skipped = (len(content), skipped) if end < 0 else (end + 1, skipped + 1)
    content = content[start:]
    if not content.strip():
        raise RefusedValue(f"{path} has no rows", "a line for each edge or node", "none")
    line = content.partition(b"\n")[0].decode(errors="replace")
    delimiter = DELIMITERS[path.suffix] or next((one for one in "\t, " if one in line), ",")
    width = len(line.split(delimiter))
    if width > _MOST_COLUMNS:
        raise RefusedValue(f"{path} has a bound of columns", f"<= {_MOST_COLUMNS}", width)

    def where(row: int) -> str:
        return f"{path}, line {skipped + row + 1}"

    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(content),
            pyarrow.csv.ReadOptions(
                use_threads=False,  # so that an error says its row
                autogenerate_column_names=True,
                block_size=max(2**20, min(len(content) + 1, 2**30)),
            ),
            pyarrow.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=False),
            pyarrow.csv.ConvertOptions(
                column_types={f"f{number}": pa.string() for number in range(width)},
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as error:
        raise _malformed(path, where, str(error).replace("\n", " ")) from error
    columns = [column.combine_chunks() for column in table.columns]
    _require_lines(columns, where)
    return Table(None, columns, where)


def _malformed(path: Path, where: Where, message: str) -> RefusedValue:
    found = re.search(r"Row #(\d+): (.*)", message)
    if not found:
        return RefusedValue(f"{path} must be a table", "rows of the same number of cells", message)
    row = where(int(found[1]) - 1)
    counts = re.match(r"Expected (\d+) columns, got (\d+): ?(.*)", found[2])
    if not counts:
        return refuse(row, "a table is text in UTF-8", "rows of cells", found[2])
    rule = "every row has the cells of the first"
    return refuse(row, rule, counts[1], f"{counts[2]} in {counts[3][:60]!r}")


def _require_lines(columns: list[Any], where: Where) -> None:
    """Refuse empty lines, and cells of several lines, by which lines would be miscounted."""
    pa = arrow()
    compute = pa.compute
    for column in columns:
        broken = compute.index(compute.match_substring(column, "\n"), value=True).as_py()
        if broken >= 0:
            raise refuse(where(broken), "a cell is on one line", "no line break", "one in quotes")
    empty = None
    for column in columns:
        blank = compute.equal(column, "")
        empty = blank if empty is None else compute.and_(empty, blank)
    row = -1 if empty is None else compute.index(empty, value=True).as_py()
    if row >= 0:
        raise refuse(where(row), "a line has cells", f"{len(columns)} cells", "an empty line")
