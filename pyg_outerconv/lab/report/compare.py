"""The command ``outerconv compare``: several runs in one table, as text, Markdown, JSON, picture.

Means and deviations, and differences paired by seed.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import pandas as pd

from ...errors import RefusedValue, unknown
from ...files import as_path
from ..pages import percent, points, render_page, text_table
from ..train.folder import RunFolder, write_files
from ..train.results import can_draw, paired

if TYPE_CHECKING:
    from ..cli.commands import Comparison

NAME = "compare"
AGAINST = ("first", "best")
_COMMON = ("dataset", "split", "metric", "seeds", "peer")  # said elsewhere, or not of a model
_OF_A_GROUP = ("dataset", "fingerprint", "split", "metric")

Group = dict[str, Any]
Model = dict[str, Any]


def compare(runs: Sequence[str | Path], against: str = "first") -> dict[str, Any]:
    """Compare runs of ``outerconv train``.

    Runs of one graph, split protocol and metric are a group: equal seeds have equal splits there,
    so that differences are paired by seed. Runs of different groups are not compared.

    Args:
        runs: run folders.
        against: the reference of a group: its ``'first'`` model, or that with the ``'best'`` mean
            on validation nodes (of equal ones the first).

    Returns:
        the content of ``compare.json``: ``groups`` in the order of their first runs, and ``notes``
        on runs without a finished seed, and on groups that are apart. A group has ``dataset``,
        ``split``, ``metric``, the ``fingerprint`` of the graph, the ``majority`` class's metric,
        ``models`` and the place of their ``reference``. A model has its ``run``, ``key`` and
        ``name``, the settings ``differing`` in the group, the number of seeds ``wanted``, of
        finished seeds the ``test`` metric by seed, ``validation`` and ``seconds``; ``mean``,
        ``std`` and ``standard_error`` of the test metric; and its ``difference`` to the reference
        over the seeds that both have, None for the reference or without such seeds.

    Raises:
        ValueError: there is no run, a folder is none or is damaged, or comes twice.
    """
    if against not in AGAINST:
        raise RefusedValue(unknown("reference", against, AGAINST))
    folders = [RunFolder(path) for path in runs]
    if not folders:
        raise RefusedValue("a comparison needs runs", "at least one run folder", "none")
    run_summaries = [_read(str(path), folder) for path, folder in zip(runs, folders, strict=True)]
    places = [folder.path.resolve() for folder in folders]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise RefusedValue("a run is compared once", "distinct folders", runs[number])
    notes = [
        f"{run['run']} has no finished seed yet" for run in run_summaries if not run["records"]
    ]
    kinds: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for run in run_summaries:
        if run["records"]:
            values = run["settings"] | run
            kinds.setdefault(tuple(values[key] for key in _OF_A_GROUP), []).append(run)
    groups = [
        _group(dict(zip(_OF_A_GROUP, kind, strict=True)), own, against)
        for kind, own in kinds.items()
    ]
    return {"against": against, "groups": groups, "notes": notes + _apart(groups)}


def _read(path: str, folder: RunFolder) -> dict[str, Any]:
    return {
        "run": path,
        "settings": folder.settings().as_dict(),
        "fingerprint": folder.data()["fingerprint"],
        "records": folder.read_runs(),
        "names": folder.model_names(),
    }


def _group(common: dict[str, str], runs: list[dict[str, Any]], against: str) -> Group:
    settings = [run["settings"] for run in runs]
    names = [
        name
        for name in settings[0]
        if name not in _COMMON and any(one[name] != settings[0][name] for one in settings)
    ]
    models = [_model(run, key, names) for run in runs for key in run["names"]]
    reference = 0
    if against == "best":
        reference = int(pd.Series([mean(model["validation"]) for model in models]).idxmax())
    for place, model in enumerate(models):
        if place != reference:
            model["difference"] = paired(model["test"], models[reference]["test"])
    records = pd.DataFrame([record for run in runs for record in run["records"]])
    majority = float(records.groupby("seed")["majority"].last().mean())
    return {**common, "models": models, "reference": reference, "majority": majority}


def _model(run: dict[str, Any], key: str, names: list[str]) -> Model:
    """A model of a run, compared with nothing yet."""
    own = pd.DataFrame([record for record in run["records"] if record["model"] == key])
    test = own["test_metric"]
    std, error = (None if len(own) < 2 else float(one) for one in (test.std(), test.sem()))
    return {
        "run": run["run"],
        "key": key,
        "name": run["names"][key],
        "differing": {name: run["settings"][name] for name in names},
        "wanted": run["settings"]["seeds"],
        "test": dict(zip(map(str, own["seed"]), test.tolist(), strict=True)),
        "validation": own["val_metric"].tolist(),
        "seconds": own["seconds"].tolist(),
        "difference": None,
        "mean": float(test.mean()),
        "std": std,
        "standard_error": error,
    }


def _title(group: Group) -> str:
    return "{dataset}, split {split}, {metric}".format(**group)


def _apart(groups: list[Group]) -> list[str]:
    """Why groups of one data set are not compared with each other."""
    said = []
    for number, group in enumerate(groups):
        for other in groups[:number]:
            if other["dataset"] == group["dataset"]:
                whats = {"split": "split", "metric": "metric", "fingerprint": "graph of that name"}
                reasons = [
                    f"another {what}" for key, what in whats.items() if other[key] != group[key]
                ]
                apart = f"{_title(group)} is not compared with {_title(other)}"
                said.append(f"{apart}: {', '.join(reasons)}")
    return said


# What is shown ------------------------------------------------------------------------------------


def compare_runs(asked: Comparison) -> int:
    """Run ``outerconv compare``: print the tables, write files, and return the exit code."""
    comparison, out = compare(asked.runs, asked.against), asked.out
    said = [
        f"{_title(group)}\n{text_table(_rows(group))}\n{_end(group)}"
        for group in comparison["groups"]
    ]
    print("\n\n".join([*said, *(["\n".join(comparison["notes"])] if comparison["notes"] else [])]))
    if out is None:
        return 0
    folder = as_path(out, "--out")
    picture = draw(comparison) if can_draw() and comparison["groups"] else None
    files: dict[str, Any] = {} if picture is None else {f"{NAME}.png": picture}
    files |= {
        f"{NAME}.json": comparison,
        f"{NAME}.md": markdown(comparison, picture is not None).encode(),
    }
    write_files(folder, files)
    print("\n" + "\n".join(shlex.quote(str(folder / name)) for name in reversed(files)))
    if not can_draw():
        print(
            f"{NAME}.png is not drawn: matplotlib is not installed "
            "(pip install 'pyg_outerconv[plot]')"
        )
    return 0


def markdown(comparison: dict[str, Any], has_picture: bool) -> str:
    """The tables in Markdown, with the picture ``compare.png`` above if there is one."""
    tables = [(_title(group), _rows(group), _end(group)) for group in comparison["groups"]]
    values = {"tables": tables, "notes": comparison["notes"], "has_picture": has_picture}
    return render_page(Path(__file__).with_suffix(".jinja"), **values)


def draw(comparison: dict[str, Any]) -> bytes:
    """A panel for each group, as PNG."""
    from ...plot.canvas import rendered
    from ...plot.runs import Row, intervals

    panels = []
    for group in comparison["groups"]:
        same = len({model["name"] for model in group["models"]}) == 1
        rows = [
            Row(
                model["run"] if same else f"{model['run']}: {model['name']}",
                list(model["test"].values()),
                place == group["reference"],
            )
            for place, model in enumerate(group["models"])
        ]
        title = f"{group['dataset']}, split {group['split']}"
        panels.append((title, f"test {group['metric']}, %", rows))
    return rendered(intervals(panels))


def _rows(group: Group) -> list[list[str]]:
    """The table of a group below its head; a last column where settings differ."""
    head = ["run", "model", "seeds", f"test {group['metric']} %", "difference", "validation %"]
    rows = [[*head, "s/seed", "settings that differ"]]
    for place, model in enumerate(group["models"]):
        seeds, wanted = len(model["test"]), model["wanted"]
        own = {name: value for name, value in model["differing"].items() if name != "family"}
        rows.append(
            [
                model["run"],
                model["name"],
                f"{seeds} of {wanted}" if seeds < wanted else str(seeds),
                percent(model["mean"], model["std"]),
                "reference" if place == group["reference"] else _difference(model),
                percent(mean(model["validation"])),
                f"{mean(model['seconds']):.1f}",
                ", ".join(f"{name}={value}" for name, value in own.items()),
            ]
        )
    return rows if any(row[-1] for row in rows[1:]) else [row[:-1] for row in rows]


def _end(group: Group) -> str:
    return f"majority class: {percent(group['majority'])} %"


def _difference(model: Model) -> str:
    """The paired difference, with its number of seeds where that is not the model's own."""
    difference = model["difference"]
    if difference is None:
        return "no common seed"
    said = points(difference["mean"], difference["standard_error"])
    return (
        said
        if difference["seeds"] == len(model["test"])
        else f"{said} ({difference['seeds']} seeds)"
    )
