"""The figures of a table beside the published ones and PyG's, as JSON and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import RefusedValue
from ...files import load_json
from ..train.model import OURS, PEER
from ..train.results import code, markdown_row, plain
from .table import Cell, Table

KIND, FORMAT = "pyg_outerconv.reproduce", 2


def record(cell: Cell, summary: dict[str, Any]) -> dict[str, Any]:
    """The result of a cell, in percent, with verdicts.

    ``at_peer`` says whether our mean is at or above PyG's within one standard error of the paired
    difference, ``at_published`` whether it is at or above the published figure, both with one
    digit after the point; None where there is none.
    """
    ours, peer, gap = summary[OURS], summary.get(PEER), summary.get("difference")
    published = cell.row.published.get(cell.dataset)
    mean = 100 * ours["test_metric"]["mean"]
    return {
        "dataset": cell.dataset,
        "row": cell.row.name,
        "model": ours["name"],
        "metric": summary["metric"],
        "split": cell.settings.split,
        "seeds": ours["seeds"],
        "mean": mean,
        "std": _percent(ours["test_metric"]["std"]),
        "seconds": ours["seconds"]["mean"],
        "majority": 100 * summary["majority"]["mean"],
        "peer": None if peer is None else _peer(peer, gap),
        "published": None if published is None else vars(published),
        "at_peer": None if gap is None else gap["mean"] >= -(gap["standard_error"] or 0.0),
        "at_published": None if published is None else round(mean, 1) >= published.value,
        "settings": cell.settings.as_dict(),
    }


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _peer(found: dict[str, Any], gap: dict[str, Any] | None) -> dict[str, Any]:
    assert gap is not None  # both were trained on the same seeds
    return {
        "name": found["name"],
        "seeds": found["seeds"],
        "mean": 100 * found["test_metric"]["mean"],
        "std": _percent(found["test_metric"]["std"]),
        "seconds": found["seconds"]["mean"],
        "gap": 100 * gap["mean"],
        "gap_error": _percent(gap["standard_error"]),
    }


def report(
    table: Table, records: Sequence[dict[str, Any]], facts: dict[str, Any]
) -> dict[str, Any]:
    """All results, as plain values for JSON."""
    kind = {"kind": KIND, "format": FORMAT, "table": table.name, "title": table.title}
    return {**kind, **facts, "records": list(records)}


def read_report(path: Path) -> list[dict[str, Any]]:
    """The results in a file of :func:`report`."""
    content = load_json(path)
    found = content.get("kind"), content.get("format")
    if found != (KIND, FORMAT):
        raise RefusedValue(f"{path} must hold the results of a table", (KIND, FORMAT), found)
    records: list[dict[str, Any]] = content["records"]
    return records


def page(table: Table, records: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The results as Markdown: a table for each data set, and what falls short."""
    versions, records = facts["versions"], plain(list(records))
    parts = [
        f"# {plain(table.title)}",
        "",
        *([plain(table.about), ""] if table.about else []),
        "Test metric in percent, mean ± standard deviation over seeds. The difference to PyG's own "
        "layer under the same protocol, features, seeds and splits is paired by seed, with its "
        "standard error; seconds are those of one seed, training and validation.",
        "",
        f"torch {versions['torch']}, torch-geometric {versions['torch_geometric']}, "
        f"{facts['threads']} thread(s) of {facts['machine']}. Written by {code(facts['command'])}.",
    ]
    for dataset in table.data:
        if found := [one for one in records if one["dataset"] == dataset]:
            parts += ["", *_section(dataset, found)]
    if notes := [f"- {plain(f'{row.name}: {row.note}')}" for row in table.rows if row.note]:
        parts += ["", "## Notes", "", *notes]
    sources = [row.published[name].source for row in table.rows for name in row.published]
    if sources:
        parts += ["", "## Sources of the published figures", ""]
        parts += [f"- {plain(source)}" for source in dict.fromkeys(sources)]
    return "\n".join([*parts, ""])


def _section(dataset: str, found: Sequence[dict[str, Any]]) -> list[str]:
    first = found[0]
    lines = [
        f"## {dataset}",
        "",
        f"Split {first['split']}, {first['metric']}; majority class: {first['majority']:.1f}.",
        "",
        "| row | seeds | ours | s/seed | PyG's layer | PyG's | s/seed | ours − PyG's | published |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_line, found),
    ]
    short = [shortfall for one in found for shortfall in _shortfalls(one)]
    best = max(found, key=lambda one: one["mean"])
    said = f"Best: {best['row']}, {_figure(best['mean'], best['std'])}."
    return [*lines, "", said, *[f"- {shortfall}" for shortfall in short]]


def _line(one: dict[str, Any]) -> str:
    peer, seeds = one["peer"], str(one["seeds"])
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
    published = one["published"]
    cells.append("" if published is None else _figure(published["value"], published["std"]))
    return markdown_row(cells)


def _figure(mean: float, std: float | None) -> str:
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
