"""A table of results as a TOML file describes it: rows, data sets, settings, published figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from ...errors import Refused, RefusedValue, unknown
from ...signatures import is_integer
from ..data import entry
from ..train.family_options import make_family
from ..train.settings import Settings, check_value, read_toml, resolve
from ..train.splits import check_protocol

_Kinds = dict[str, Any]  # the type of each key, or the setting that it is
_TABLE: _Kinds = {"title": str, "about": str, "seeds": object, "defaults": dict}
_TABLE |= {"data": object, "row": object}
_ROW: _Kinds = {"name": str, "peer": bool, "on": dict, "published": dict, "note": str}
_PUBLISHED: _Kinds = dict.fromkeys(("value", "std", "source"), object)
_SETTINGS: _Kinds = {
    one.name: one for one in fields(Settings) if one.name not in ("dataset", "peer")
}


@dataclass(frozen=True)
class Published:
    """A figure from a paper.

    Attributes:
        value: the mean, in percent.
        std: its standard deviation, in percent points; None where the paper has none.
        source: paper and table.
    """

    value: float
    std: float | None
    source: str


@dataclass(frozen=True)
class Row:
    """A model of a table.

    Attributes:
        name: in the first column.
        settings: of training, whatever the data set.
        on: settings for single data sets.
        peer: whether PyG's own layer is trained beside.
        published: figures by data set.
        note: a remark below the table, or empty.
    """

    name: str
    settings: dict[str, Any]
    on: dict[str, dict[str, Any]]
    peer: bool
    published: dict[str, Published]
    note: str


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

    Attributes:
        path: the file.
        title, about: the head of the page.
        seeds: of every cell.
        defaults: settings of all cells; ``data``: settings of all cells of a data set. Settings of
            a row go before those of its data set, and both before the defaults.
        rows: the models.
    """

    path: Path
    title: str
    about: str
    seeds: int
    defaults: dict[str, Any]
    data: dict[str, dict[str, Any]]
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """The name of the file, without its extension."""
        return self.path.stem

    def cells(self, device: str = "cpu") -> Iterator[Cell]:
        """The runs of the table, data set by data set. A row that is ``on`` some data sets and has
        no settings otherwise runs on these alone.

        Raises:
            ValueError: settings that training refuses.
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
        known = entry(dataset)
        split = check_protocol(known, asked.get("split", known.splits[0]))
        text = asked.get("family", "gcn")
        family = make_family(text, False, known.counts["relations"] or 1)
        named = {"dataset": known.name, "family": repr(family), "split": split, "peer": row.peer}
        return resolve(
            known.for_split(split), {"seeds": self.seeds, "device": device} | asked | named
        )


def find_table(name: str) -> Path:
    """The file of a table: a path, or the name of one that comes with the package.

    Raises:
        ValueError: there is no such table.
    """
    if Path(name).suffix == ".toml":
        return Path(name)
    known = {path.stem: path for path in shipped_tables()}
    if name not in known:
        raise RefusedValue(unknown("table", name, known))
    return known[name]


def shipped_tables() -> list[Path]:
    """The tables that come with the package."""
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "_tables", package.parent / "examples" / "tables"):
        if folder.is_dir():
            return sorted(folder.glob("*.toml"))
    return []


def read_table(path: Path) -> Table:
    """The table of a TOML file.

    Raises:
        ValueError: it is no TOML, has keys that no table has, or names a data set that is unknown.
    """
    content = read_toml(path)
    _check_keys(path, "a table", content, _TABLE)
    for key in ("title", "seeds", "data", "row"):
        if key not in content:
            raise RefusedValue(f"{path}: a table has {key}", f"the key {key}", "none")
    seeds = content["seeds"]
    if not is_integer(seeds) or seeds < 1:
        raise RefusedValue(f"{path}: a table says how many seeds", "seeds >= 1", repr(seeds))
    data = _by_data(path, "data", content["data"])
    if not isinstance(content["row"], list):
        raise RefusedValue(f"{path}: rows are a list", "each under [[row]]", "[row]")
    for name, options in {"defaults": content.get("defaults", {}), **data}.items():
        _check_keys(path, name, options, _SETTINGS)
    rows = tuple(_row(path, number, row, data) for number, row in enumerate(content["row"], 1))
    if len({row.name for row in rows}) < len(rows):
        raise RefusedValue(f"{path}: rows have names of their own", "names", "one name twice")
    return Table(
        path,
        content["title"],
        " ".join(content.get("about", "").split()),
        content["seeds"],
        content.get("defaults", {}),
        data,
        rows,
    )


def _row(path: Path, number: int, row: dict[str, Any], data: dict[str, Any]) -> Row:
    place = f"row {number}"
    _check_keys(path, place, row, _ROW | _SETTINGS)
    if not row.get("name"):
        raise RefusedValue(f"{path}: {place} has a name", "name = '…'", "none")
    on = _by_data(path, f"{place}, on", row.get("on", {}))
    published = _by_data(path, f"{place}, published", row.get("published", {}))
    for name, options in on.items():
        _check_keys(path, f"{place}, {name}", options, _SETTINGS)
    for name in (*on, *published):
        if name not in data:
            raise RefusedValue(f"{path}: {place} is on data sets of the table", list(data), name)
    for name, found in published.items():
        _check_published(path, f"{place}, published, {name}", found)
    figures = {
        name: Published(found["value"], found.get("std"), found["source"])
        for name, found in published.items()
    }
    settings = {key: value for key, value in row.items() if key in _SETTINGS}
    return Row(row["name"], settings, on, row.get("peer", False), figures, row.get("note", ""))


def _by_data(path: Path, place: str, found: Any) -> dict[str, Any]:
    """What a TOML table has for data sets, by their names in the registry."""
    if not isinstance(found, dict):
        raise RefusedValue(f"{path}: {place} is a table", "data sets with values", repr(found))
    try:
        return {entry(name).name: value for name, value in found.items()}
    except Refused as error:
        raise RefusedValue(f"{path}, {place}: {error}") from error


def _check_published(path: Path, place: str, found: Any) -> None:
    _check_keys(path, place, found, _PUBLISHED)
    value, std, source = (found.get(key) for key in ("value", "std", "source"))
    for key, given, wanted, fits in (
        ("value", value, "a number in percent, 0 to 100", _is_number(value)),
        ("std", std, "a number in percent points, or none", std is None or _is_number(std)),
        ("source", source, "paper and table, as text", isinstance(source, str) and source),
    ):
        if not fits:
            raise RefusedValue(f"{path}, {place}: {key} is", wanted, repr(given))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100


def _check_keys(path: Path, place: str, found: Any, known: _Kinds) -> None:
    """Refuse what is no table, has other keys, or a value of another type."""
    if not isinstance(found, dict):
        raise RefusedValue(f"{path}: {place} is a table", "keys with values", repr(found))
    for key, value in found.items():
        if key not in known:
            raise RefusedValue(f"{path}, {place}: {unknown('key', key, known)}")
        if isinstance(known[key], Field):
            check_value(known[key], value, f"{path}, {place}: ")
        elif not isinstance(value, known[key]):
            rule = f"{path}, {place}: {key} has a type"
            raise RefusedValue(rule, known[key].__name__, type(value).__name__)
