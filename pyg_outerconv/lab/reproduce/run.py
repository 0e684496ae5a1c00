"""The command ``outerconv reproduce``: runs of a table, and its results as JSON and Markdown."""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import RefusedValue
from ...files import STOPPED, as_path
from ..fields import read_toml
from ..pages import render_page, text_table
from ..settings import Settings, settings_from
from ..train.experiment import Experiment, Interrupted
from ..train.folder import CONFIG, RunFolder, alone_in, versions, write_files
from ..train.model import OURS, PEER, check_device
from .searches import read_search_table, reproduce_searches
from .table import (
    Cell,
    Table,
    chosen_names,
    find_table,
    read_results,
    read_table,
    shipped_tables,
)

if TYPE_CHECKING:
    from ..cli.commands import Reproduction
    from ..cli.options import Place

KIND, FORMAT = "pyg_outerconv.reproduce", 2


def record(cell: Cell, summary: dict[str, Any]) -> dict[str, Any]:
    """The result of a cell, in percent, with verdicts.

    ``at_peer`` says whether our mean is at or above PyG's within one standard error of the paired
    difference, ``at_published`` whether it is at or above the published figure, both with one
    digit after the point; None where there is none.
    """
    gap, published = summary.get("difference"), cell.row.published.get(cell.dataset)
    ours, peer = _numbers(summary[OURS]), None
    if PEER in summary:
        assert gap is not None  # both were trained on the same seeds
        apart = {"gap": 100 * gap["mean"], "gap_error": _percent(gap["standard_error"])}
        peer = {"name": summary[PEER]["name"], **_numbers(summary[PEER]), **apart}
    return {
        "dataset": cell.dataset,
        "row": cell.row.name,
        "model": summary[OURS]["name"],
        "metric": summary["metric"],
        "split": cell.settings.split,
        **ours,
        "majority": 100 * summary["majority"]["mean"],
        "peer": peer,
        "published": None if published is None else vars(published),
        "at_peer": None if gap is None else gap["mean"] >= -(gap["standard_error"] or 0.0),
        "at_published": None if published is None else round(ours["mean"], 1) >= published.value,
        "settings": cell.settings.as_dict(),
    }


def _numbers(model_summary: dict[str, Any]) -> dict[str, Any]:
    """Seeds, mean and deviation in percent, and seconds of a model."""
    test, seconds = model_summary["test_metric"], model_summary["seconds"]["mean"]
    spread = {"mean": 100 * test["mean"], "std": _percent(test["std"])}
    return {"seeds": model_summary["seeds"], **spread, "seconds": seconds}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def read_report(path: Path) -> list[dict[str, Any]]:
    """The results in a file that :func:`reproduce` wrote."""
    records: list[dict[str, Any]] = read_results(path, KIND, FORMAT)
    return records


def page(table: Table, records: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The results as Markdown: a table for each data set, and what falls short."""
    parts = []
    for name in table.data:
        if dataset_records := [one for one in records if one["dataset"] == name]:
            first, best = dataset_records[0], max(dataset_records, key=lambda one: one["mean"])
            said = f"Split {first['split']}, {first['metric']}; majority class: "
            said += f"{first['majority']:.1f}."
            shown = f"Best: {best['row']}, {_figure(best['mean'], best['std'])}."
            short = [line for one in dataset_records for line in _shortfalls(one)]
            parts.append((name, said, [HEAD, *map(_row, dataset_records)], shown, short))
    sources = [row.published[name].source for row in table.rows for name in row.published]
    notes = [f"{row.name}: {row.note}" for row in table.rows if row.note]
    ends = ("Notes", notes), ("Sources of the published figures", list(dict.fromkeys(sources)))
    machine = "torch {torch}, torch-geometric {torch_geometric}, ".format(**facts["versions"])
    machine += f"{facts['threads']} thread(s) of {facts['machine']}."
    values: dict[str, Any] = {"of": table, "machine": machine, "parts": parts, "ends": ends}
    return render_page(Path(__file__).with_suffix(".jinja"), facts=facts, **values)


HEAD = (
    *("row", "seeds", "ours", "s/seed", "PyG's layer", "PyG's", "s/seed"),
    *("ours − PyG's", "published"),
)


def _row(one: dict[str, Any]) -> list[str]:
    peer, published, seeds = one["peer"], one["published"], str(one["seeds"])
    if peer and peer["seeds"] != one["seeds"]:
        seeds += f", PyG's {peer['seeds']}"
    cells = [one["row"], seeds, _figure(one["mean"], one["std"]), f"{one['seconds']:.1f}"]
    if peer:
        gap = f"{peer['gap']:+.2f}".replace("-0.00", "+0.00")
        gap += "" if peer["gap_error"] is None else f" ± {peer['gap_error']:.2f}"
        cells += [peer["name"].removeprefix("PyG "), _figure(peer["mean"], peer["std"])]
        cells += [f"{peer['seconds']:.1f}", gap]
    else:
        cells += [""] * 4
    return [*cells, "" if published is None else _figure(published["value"], published["std"])]


def _figure(mean: float, std: float | None = None) -> str:
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def _shortfalls(one: dict[str, Any]) -> list[str]:
    """Where the row is below PyG's layer by more than a standard error, or below the paper."""
    said = []
    if one["at_peer"] is False:
        said.append(f"{one['row']} is {-one['peer']['gap']:.2f} below PyG's layer.")
    if one["at_published"] is False:
        below = one["published"]["value"] - one["mean"]
        said.append(f"{one['row']} is {below:.1f} below the paper.")
    return said


def reproduce(asked: Reproduction, settings: dict[str, Any], place: Place) -> int:
    """Run ``outerconv reproduce`` and return its exit code.

    Each cell of the table is a run folder, as ``outerconv train`` makes it. Finished runs are read,
    unfinished ones go on; the page and the JSON are written after each. They keep the cells of
    earlier calls that are not asked for in this one.
    """
    if asked.table is None:
        _list()
        return 0
    path, device = find_table(asked.table), settings.get("device")
    command = ["outerconv", "reproduce", asked.table]
    options: dict[str, Any] = {"--data": asked.data, "--row": asked.rows, "--seeds": asked.seeds}
    options |= {"--root": place.root, "--out": asked.out, "--device": device}
    go_on = shlex.join([*command, *_options(options)])
    if "search" in read_toml(path):
        return reproduce_searches(path, asked, settings, place, go_on)
    table = read_table(path)
    cells = list(table.cells(check_device(device or "auto")))
    data = chosen_names("data set", asked.data, [cell.dataset for cell in cells])
    rows = chosen_names("row", asked.rows, [cell.row.name for cell in cells])
    cells = [cell for cell in cells if cell.dataset in data and cell.row.name in rows]
    folder = Path("runs") / "tables" / table.name
    folder = as_path(asked.out, "--out") if asked.out else folder
    with alone_in(folder, begin=lambda: _make(folder)):
        records = _kept(folder, table)
        for number, cell in enumerate(cells, 1):
            print(f"{cell.dataset}, {cell.row.name} ({number} of {len(cells)})", flush=True)
            try:
                one = _run(cell, folder / cell.folder, place.root, asked.seeds)
            except Interrupted as stopped:
                print(f"outerconv reproduce: {stopped}; go on by: {go_on}", file=sys.stderr)
                return STOPPED + stopped.number
            records[cell.dataset, cell.row.name] = one
            _write(folder, table, records, shlex.join(command))
            print(_said(one), flush=True)
    print(f"\n{folder / table.name}.md")
    return 0


def _list() -> None:
    tables = [read_table(path) for path in shipped_tables()]
    rows = [("table", "rows", "data sets", "is")]
    rows += [(one.name, str(len(one.rows)), ", ".join(one.data), one.title) for one in tables]
    for searched in map(read_search_table, shipped_tables("search")):
        names = dict.fromkeys(one.data for one in searched.searches)
        rows.append((searched.name, "kinds", ", ".join(names), searched.title))
    print(text_table(rows))


def _kept(folder: Path, table: Table) -> dict[tuple[str, str], dict[str, Any]]:
    """The results in the folder that are of cells of the table, whatever their number of seeds."""
    path = folder / f"{table.name}.json"
    if not path.is_file():
        return {}
    wanted = {(cell.dataset, cell.row.name): _but_seeds(cell.settings) for cell in table.cells()}
    records_by_cell = {(one["dataset"], one["row"]): one for one in read_report(path)}
    return {
        place: one
        for place, one in records_by_cell.items()
        if place in wanted
        and wanted[place] == _but_seeds(settings_from(one["settings"], str(path)))
    }


def _but_seeds(settings: Settings) -> Settings:
    return settings.with_values(seeds=1, peer_seeds=0, device="cpu")


def _options(options: dict[str, Any]) -> list[str]:
    """Options of a command line, without those that were not given."""
    pairs = [
        (name, value)
        for name, values in options.items()
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
        experiment = Experiment(settings, home, root, resume=begun, log=lambda line: None)
        return record(cell, experiment.run())


def _make(folder: Path) -> None:
    write_files(folder, {}, f"the folder {folder} must be writable")


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
    folder: Path, table: Table, records_by_cell: dict[tuple[str, str], dict[str, Any]], command: str
) -> None:
    cells = [(dataset, row.name) for dataset in table.data for row in table.rows]
    records = [records_by_cell[place] for place in cells if place in records_by_cell]
    facts = {
        "command": command,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "machine": torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else f"a {platform.machine()} CPU",
    }
    kind = {"kind": KIND, "format": FORMAT, "table": table.name, "title": table.title}
    files: dict[str, Any] = {f"{table.name}.json": {**kind, **facts, "records": records}}
    files[f"{table.name}.md"] = page(table, records, facts).encode()
    write_files(folder, files, f"the folder {folder} must be writable")


def _said(one: dict[str, Any]) -> str:
    said = f"  {one['mean']:.2f} ± {one['std'] or 0:.2f}"
    if peer := one["peer"]:
        said += f"; {peer['name']} {peer['mean']:.2f}, ours − PyG {peer['gap']:+.2f}"
    if published := one["published"]:
        said += f"; published {published['value']:.1f}"
    return said
