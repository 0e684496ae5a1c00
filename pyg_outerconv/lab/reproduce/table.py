"""A table of results as a TOML file describes it: rows, data sets, settings, published figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ...errors import Refused, RefusedValue, unknown
from ...files import load_json
from ..data import entry
from ..fields import read_toml, read_values, setting
from ..settings import Settings
from ..train.model import new_settings


@dataclass(frozen=True)
class Published:
    """A figure from a paper: the mean in percent, paper and table, the standard deviation."""

    value: float = setting(at_least=0, at_most=100)
    source: str = setting()
    std: float | None = setting(None, at_least=0, at_most=100)


@dataclass(frozen=True)
class Row:
    """A model of a table."""

    name: str
    settings: dict[str, Any]
    on: dict[str, dict[str, Any]]
    published: dict[str, Published]
    peer: bool = False
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """One row on one data set, with all settings of its run."""

    row: Row
    dataset: str
    settings: Settings

    @property
    def folder(self) -> str:
        """The name of its run folder."""
        words = f"{self.dataset}-{self.row.name}".lower()
        return "".join(sign if sign.isalnum() else "-" for sign in words).strip("-")


@dataclass(frozen=True)
class Table:
    """Rows on data sets under one protocol each.

    ``defaults`` are settings of all cells, ``data`` those of all cells of a data set. Settings of a
    row go before those of its data set, and both before the defaults.
    """

    path: Path
    title: str
    data: dict[str, dict[str, Any]]
    rows: tuple[Row, ...]
    seeds: int = setting(at_least=1)
    about: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the file, without its extension."""
        return self.path.stem

    def cells(self, device: str = "cpu") -> Iterator[Cell]:
        """The runs of the table, data set by data set. A row that is ``on`` some data sets and has
        no settings otherwise runs on these alone.
        """
        for dataset in self.data:
            for row in self.rows:
                if row.settings or not row.on or dataset in row.on:
                    try:
                        settings = self._settings(row, dataset, device)
                    except Refused as error:
                        place = f"{self.path}, row {row.name!r} on {dataset}"
                        raise RefusedValue(f"{place}: {error}") from error
                    yield Cell(row, dataset, settings)

    def _settings(self, row: Row, dataset: str, device: str) -> Settings:
        asked = self.defaults | self.data[dataset] | row.settings | row.on.get(dataset, {})
        of_table = {"seeds": self.seeds, "device": device, "family": "gcn"}
        return new_settings(entry(dataset), of_table | asked | {"peer": row.peer})


def find_table(name: str) -> Path:
    """The file of a table: a path, or the name of one that comes with the package."""
    if Path(name).suffix == ".toml":
        return Path(name)
    paths = {path.stem: path for path in (*shipped_tables(), *shipped_tables("search"))}
    if name not in paths:
        raise RefusedValue(unknown("table", name, paths))
    return paths[name]


def shipped_tables(of: str = "row") -> list[Path]:
    """The tables that come with the package: of rows, or of searches (``'search'``)."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_tables", package.parent / "examples" / "tables"):
        if folder.is_dir():
            return [path for path in sorted(folder.glob("*.toml")) if of in read_toml(path)]
    return []


def read_results(path: Path, kind: str, version: int) -> Any:
    """The records in a file of results that an earlier call wrote."""
    content = load_json(path)
    kind_and_format = content.get("kind"), content.get("format")
    if kind_and_format != (kind, version):
        raise RefusedValue(
            f"{path} must hold the results of a table", (kind, version), kind_and_format
        )
    return content["records"]


def chosen_names(kind: str, asked: Sequence[str], names: Iterable[str]) -> set[str]:
    """The names of a table that are asked for, in whatever case they are written; all for none."""
    by_lower = {name.lower(): name for name in names}
    for name in asked:
        if name.lower() not in by_lower:
            raise RefusedValue(unknown(f"{kind} of the table", name, by_lower.values()))
    return {by_lower[name.lower()] for name in asked} or set(by_lower.values())


_TABLE = {one.name: one for one in fields(Table) if one.name not in ("path", "rows")}
_ROW = {one.name: one for one in fields(Row) if one.name != "settings"}
_SETTINGS = {one.name: one for one in fields(Settings) if one.name not in ("dataset", "peer")}
_PUBLISHED = {one.name: one for one in fields(Published)}


def read_table(path: Path) -> Table:
    """The table of a TOML file."""
    content = read_toml(path)
    row_tables = content.pop("row", None)
    read_values(_TABLE, content, f"{path}", ("title", "seeds", "data"))
    if not isinstance(row_tables, list):
        got = "none" if row_tables is None else "[row]"
        raise RefusedValue(f"{path}: rows are a list", "each under [[row]]", got)
    content["data"] = data = _by_data(content["data"], f"{path}, data")
    for name, options in {"defaults": content.get("defaults", {}), **data}.items():
        read_values(_SETTINGS, options, f"{path}, {name}")
    rows = tuple(
        _row(row, f"{path}, row {number}", data) for number, row in enumerate(row_tables, 1)
    )
    if len({row.name for row in rows}) < len(rows):
        raise RefusedValue(f"{path}: rows have names of their own", "names", "one name twice")
    content["about"] = " ".join(content.get("about", "").split())
    return Table(path, rows=rows, **content)


def _row(row_table: Any, where: str, data: dict[str, Any]) -> Row:
    read_values(_ROW | _SETTINGS, row_table, where, ("name",))
    settings = {key: row_table.pop(key) for key in _SETTINGS if key in row_table}
    on, published = (
        _by_data(row_table.pop(key, {}), f"{where}, {key}") for key in ("on", "published")
    )
    for name in (*on, *published):
        if name not in data:
            raise RefusedValue(f"{where} is on data sets of the table", list(data), name)
    for name, options in on.items():
        read_values(_SETTINGS, options, f"{where}, {name}")
    figures = {}
    for name, figure in published.items():
        place = f"{where}, published, {name}"
        figures[name] = Published(**read_values(_PUBLISHED, figure, place, ("value", "source")))
    return Row(settings=settings, on=on, published=figures, **row_table)


def _by_data(toml_table: Any, where: str) -> dict[str, Any]:
    """What a TOML table has for data sets, by their names in the registry."""
    if not isinstance(toml_table, dict):
        raise RefusedValue(f"{where} is a table", "data sets with values", repr(toml_table))
    try:
        return {entry(name).name: value for name, value in toml_table.items()}
    except Refused as error:
        raise RefusedValue(f"{where}: {error}") from error
