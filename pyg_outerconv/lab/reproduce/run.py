"""The command ``outerconv reproduce``."""

from __future__ import annotations

import platform
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from ...errors import RefusedValue, unknown
from ...files import STOPPED, as_path, replace, save_json
from ..train.experiment import Experiment, Interrupted
from ..train.lock import alone_in
from ..train.model import check_device
from ..train.records import versions
from ..train.results import text_table
from ..train.run_folder import CONFIG, RunFolder
from ..train.settings import Settings, settings_from
from .results import page, read_report, record, report
from .table import Cell, Table, find_table, read_table, shipped_tables


def reproduce(
    table: str | None,
    root: str | None,
    out: str | None,
    data: tuple[str, ...],
    rows: tuple[str, ...],
    seeds: int | None,
    device: str | None,
) -> int:
    """Run ``outerconv reproduce`` and return its exit code.

    Each cell of the table is a run folder, as ``outerconv train`` makes it. Finished runs are read,
    unfinished ones go on; the page and the JSON are written after each. They keep the cells of
    earlier calls that are not asked for in this one.
    """
    if table is None:
        _list()
        return 0
    found = read_table(find_table(table))
    cells = _chosen(list(found.cells(check_device(device or "auto"))), data, rows)
    folder = as_path(out, "--out") if out else Path("runs") / "tables" / found.name
    command = ["outerconv", "reproduce", table]
    with alone_in(folder, begin=lambda: _make(folder)):
        records = _kept(folder, found)
        for number, cell in enumerate(cells, 1):
            print(f"{cell.dataset}, {cell.row.name} ({number} of {len(cells)})", flush=True)
            try:
                one = _run(cell, folder / cell.folder, root, seeds)
            except Interrupted as stopped:
                given: dict[str, Any] = {"--data": data, "--row": rows, "--seeds": seeds}
                given |= {"--root": root, "--out": out}
                words = shlex.join([*command, *_options(given | {"--device": device})])
                print(f"outerconv reproduce: {stopped}; go on by: {words}", file=sys.stderr)
                return STOPPED + stopped.number
            records[cell.dataset, cell.row.name] = one
            _write(folder, found, records, shlex.join(command))
            print(_said(one), flush=True)
    print(f"\n{folder / found.name}.md")
    return 0


def _list() -> None:
    tables = [read_table(path) for path in shipped_tables()]
    rows = [("table", "rows", "data sets", "is")]
    rows += [(one.name, str(len(one.rows)), ", ".join(one.data), one.title) for one in tables]
    print(text_table(rows))


def _chosen(cells: list[Cell], data: tuple[str, ...], rows: tuple[str, ...]) -> list[Cell]:
    for kind, asked, known in (
        ("data set of the table", data, {cell.dataset.lower(): cell.dataset for cell in cells}),
        ("row of the table", rows, {cell.row.name.lower(): cell.row.name for cell in cells}),
    ):
        for name in asked:
            if name.lower() not in known:
                raise RefusedValue(unknown(kind, name, known.values()))
    kept_data, kept_rows = [{name.lower() for name in asked} for asked in (data, rows)]
    return [
        cell
        for cell in cells
        if (not data or cell.dataset.lower() in kept_data)
        and (not rows or cell.row.name.lower() in kept_rows)
    ]


def _kept(folder: Path, table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """The results in the folder that are of cells of the table, whatever their number of seeds."""
    path = folder / f"{table.name}.json"
    if not path.is_file():
        return {}
    wanted = {(cell.dataset, cell.row.name): _but_seeds(cell.settings) for cell in table.cells()}
    known = {(one["dataset"], one["row"]): one for one in read_report(path)}
    return {
        place: one
        for place, one in known.items()
        if place in wanted
        and wanted[place] == _but_seeds(settings_from(one["settings"], str(path)))
    }


def _but_seeds(settings: Settings) -> Settings:
    return settings.with_values(seeds=1, peer_seeds=0, device="cpu")


def _options(given: dict[str, Any]) -> list[str]:
    """Options of a command line, without those that were not given."""
    pairs = [
        (name, value)
        for name, values in given.items()
        for value in (values if isinstance(values, tuple) else (values,))
        if value is not None
    ]
    return [str(word) for pair in pairs for word in pair]


def _run(cell: Cell, home: Path, root: str | None, seeds: int | None) -> dict[str, Any]:
    """Begin the run of a cell in its folder, or go on with it, and return its record."""
    settings = cell.settings
    if seeds is not None:
        of_peer = min(settings.peer_seeds, seeds)
        settings = settings.with_values(seeds=seeds, peer_seeds=of_peer)
    with alone_in(home, begin=lambda: _make(home)):
        begun = (home / CONFIG).is_file()
        if begun:
            _check_same(home, settings)
        made = Experiment(settings, home, root, resume=begun, log=lambda line: None)
        return record(cell, made.run())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _check_same(home: Path, settings: Settings) -> None:
    """Raise ValueError if the run folder of a cell is of other settings."""
    kept = RunFolder(home).settings()
    if odd := settings.settled_as(kept).differing(kept):
        raise RefusedValue(
            f"{home} holds this cell with other settings (give another --out, or remove it)",
            settings.tell(odd),
            kept.tell(odd),
        )


def _write(
    folder: Path, table: Table, found: dict[tuple[str, str], dict[str, Any]], command: str
) -> None:
    cells = [(dataset, row.name) for dataset in table.data for row in table.rows]
    records = [found[place] for place in cells if place in found]
    facts = {
        "command": command,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "machine": f"{torch.cuda.get_device_name()}" if torch.cuda.is_available() else _cpu(),
    }
    try:
        save_json(folder / f"{table.name}.json", report(table, records, facts))
        replace(folder / f"{table.name}.md", page(table, records, facts).encode())
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> RefusedValue:
    return RefusedValue(f"the folder {folder} must be writable", "a folder", error.strerror)


def _cpu() -> str:
    return f"a {platform.machine()} CPU"


def _said(one: dict[str, Any]) -> str:
    said = f"  {one['mean']:.2f} ± {one['std'] or 0:.2f}"
    if peer := one["peer"]:
        said += f"; {peer['name']} {peer['mean']:.2f}, ours − PyG {peer['gap']:+.2f}"
    if published := one["published"]:
        said += f"; published {published['value']:.1f}"
    return said
