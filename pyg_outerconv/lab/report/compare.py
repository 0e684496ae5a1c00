"""The command ``outerconv compare``: several runs in one table, as text, Markdown, JSON, picture.

Means and deviations, and differences paired by seed.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from ...errors import RefusedValue, unknown
from ...files import as_path, replace, save_json
from ..pages.pages import render_page
from ..train.results import (
    by_seed,
    can_draw,
    paired,
    percent,
    plain,
    points,
    spread,
    text_table,
)
from ..train.run_folder import RunFolder
from ..train.settings import Settings
from .show_run import as_table

NAME = "compare"
AGAINST = ("first", "best")
_COMMON = ("dataset", "split", "metric", "seeds", "peer")  # said elsewhere, or not of a model


@dataclass(frozen=True)
class Model:
    """A model of a run, with the seeds that it has finished.

    Attributes:
        run: the run folder.
        key: ``'outerconv'`` or ``'peer'``.
        name: as the run calls it.
        differing: the settings in which runs of the group differ.
        wanted: the number of seeds that the run was to have.
        test: the test metric by seed.
        validation, seconds: the validation metric and the time of each of these seeds.
        difference: its test metric minus that of the reference, over the seeds that both have:
            ``seeds``, ``mean``, ``standard_error``; None for the reference, or without such seeds.
    """

    run: str
    key: str
    name: str
    differing: dict[str, Any]
    wanted: int
    test: dict[int, float]
    validation: list[float]
    seconds: list[float]
    difference: dict[str, Any] | None = None

    @property
    def mean(self) -> float:
        """The mean test metric."""
        return mean(self.test.values())

    @property
    def std(self) -> float | None:
        """The sample standard deviation of the test metric; None of a single seed."""
        return spread(list(self.test.values()))

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean; None of a single seed."""
        return None if self.std is None else self.std / sqrt(len(self.test))

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        numbers = {"mean": self.mean, "std": self.std, "standard_error": self.standard_error}
        test = {str(seed): value for seed, value in self.test.items()}
        return asdict(self) | {"test": test} | numbers


@dataclass(frozen=True)
class Group:
    """Runs on one graph with one split and one metric: those that can be compared.

    Attributes:
        dataset, split, metric: what they have in common.
        fingerprint: the checksum of the graph.
        models: in the order of the runs.
        reference: the place of the model that others are compared with.
        majority: the metric of a model that answers the most frequent class of the training nodes,
            averaged over the seeds of the group.
    """

    dataset: str
    split: str
    metric: str
    fingerprint: str
    models: list[Model]
    reference: int
    majority: float

    @property
    def title(self) -> str:
        """The group in words."""
        return f"{self.dataset}, split {self.split}, {self.metric}"


@dataclass(frozen=True)
class Comparison:
    """Groups of comparable runs, and what is to be said of the others.

    Attributes:
        against: ``'first'`` or ``'best'``, which model of a group is the reference.
        groups: in the order of their first runs.
        notes: runs without a finished seed, and groups that are no one's equals, in sentences.
    """

    against: str
    groups: list[Group]
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        groups = [
            {**vars(group), "models": [model.as_dict() for model in group.models]}
            for group in self.groups
        ]
        return {"against": self.against, "groups": groups, "notes": self.notes}


@dataclass(frozen=True)
class _Run:
    path: str
    folder: RunFolder
    settings: Settings
    fingerprint: str
    records: list[dict[str, Any]]


def compare(runs: Sequence[str | Path], against: str = "first") -> Comparison:
    """Compare runs of ``outerconv train``.

    Runs of one graph, split protocol and metric are a group: equal seeds have equal splits there,
    so that differences are paired by seed. Runs of different groups are not compared.

    Args:
        runs: run folders.
        against: the reference of a group: its ``'first'`` model, or that with the ``'best'`` mean
            on validation nodes (of equal ones the first).

    Raises:
        ValueError: there is no run, a folder is none or is damaged, or comes twice.
    """
    if against not in AGAINST:
        raise RefusedValue(unknown("reference", against, AGAINST))
    found = [_read(str(path)) for path in runs]
    if not found:
        raise RefusedValue("a comparison needs runs", "at least one run folder", "none")
    places = [run.folder.path.resolve() for run in found]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise RefusedValue("a run is compared once", "distinct folders", found[number].path)
    notes = [f"{run.path} has no finished seed yet" for run in found if not run.records]
    kinds: dict[tuple[str, ...], list[_Run]] = {}
    for run in found:
        if run.records:
            settings = run.settings
            kind = settings.dataset, run.fingerprint, settings.split, settings.metric
            kinds.setdefault(kind, []).append(run)
    groups = [_group(own, against) for own in kinds.values()]
    return Comparison(against, groups, notes + _apart(groups))


def _read(path: str) -> _Run:
    folder = RunFolder(path)
    settings = folder.settings()
    return _Run(path, folder, settings, folder.fingerprint(), folder.read_runs())


def _group(runs: list[_Run], against: str) -> Group:
    plain = [run.settings.as_dict() for run in runs]
    names = [
        name
        for name in plain[0]
        if name not in _COMMON and any(values[name] != plain[0][name] for values in plain)
    ]
    models = []
    for run, values in zip(runs, plain, strict=True):
        differing = {name: values[name] for name in names}
        for key, name in run.folder.model_names().items():
            own = [record for record in run.records if record["model"] == key]
            models.append(
                Model(
                    run.path,
                    key,
                    name,
                    differing,
                    run.settings.seeds,
                    by_seed(own, key),
                    [record["val_metric"] for record in own],
                    [record["seconds"] for record in own],
                )
            )
    reference = 0
    if against == "best":
        means = [mean(model.validation) for model in models]
        reference = means.index(max(means))
    models = [
        model
        if place == reference
        else Model(**{**vars(model), "difference": paired(model.test, models[reference].test)})
        for place, model in enumerate(models)
    ]
    settings = runs[0].settings
    by_split = {record["seed"]: record["majority"] for run in runs for record in run.records}
    return Group(
        settings.dataset,
        settings.split,
        settings.metric,
        runs[0].fingerprint,
        models,
        reference,
        mean(by_split.values()),
    )


def _apart(groups: list[Group]) -> list[str]:
    """Why groups of one data set are not compared with each other."""
    said = []
    for number, group in enumerate(groups):
        for other in groups[:number]:
            if other.dataset != group.dataset:
                continue
            reasons = [
                f"another {what}"
                for what in ("split", "metric")
                if getattr(other, what) != getattr(group, what)
            ]
            if other.fingerprint != group.fingerprint:
                reasons.append("another graph of that name")
            said.append(f"{group.title} is not compared with {other.title}: {', '.join(reasons)}")
    return said


# What is shown -----------------------------------------------------------------------------------


def compare_runs(runs: Sequence[str], out: str | None = None, against: str = "first") -> int:
    """Run ``outerconv compare``: print the tables, write files, and return the exit code.

    Args:
        runs: run folders.
        out: the folder of ``compare.md``, ``compare.json`` and ``compare.png``; None to print only.
        against: see :func:`.compare`.

    Raises:
        ValueError: a folder is no run, or is damaged; or files cannot be written.
    """
    found = compare(runs, against)
    print(text(found))
    if out is None:
        return 0
    folder = as_path(out, "--out")
    picture = draw(found) if can_draw() and found.groups else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if picture is not None:
            replace(folder / f"{NAME}.png", picture)
        save_json(folder / f"{NAME}.json", found.as_dict())
        replace(folder / f"{NAME}.md", markdown(found, picture is not None).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedValue("--out must be a folder that can be written", folder, reason) from error
    endings = ["md", "json", *(["png"] if picture is not None else [])]
    print("\n" + "\n".join(shlex.quote(str(folder / f"{NAME}.{ending}")) for ending in endings))
    if not can_draw():
        print(
            f"{NAME}.png is not drawn: matplotlib is not installed "
            "(pip install 'pyg_outerconv[plot]')"
        )
    return 0


def text(found: Comparison) -> str:
    """The tables for a terminal."""
    parts = [
        f"{group.title}\n{text_table([_head(group), *_rows(group)])}\n{_majority(group)}"
        for group in found.groups
    ]
    return "\n\n".join([*parts, *(["\n".join(found.notes)] if found.notes else [])])


def markdown(found: Comparison, has_picture: bool) -> str:
    """The tables in Markdown, with the picture ``compare.png`` above if there is one."""
    groups = [
        {"title": group.title, "head": _head(group), "rows": _rows(group)}
        | {"majority": _majority(group)}
        for group in found.groups
    ]
    values = {"groups": plain(groups), "notes": plain(found.notes), "has_picture": has_picture}
    template = Path(__file__).with_suffix(".md.jinja")
    return render_page(template, {"table": as_table}, **values)


def draw(found: Comparison) -> bytes:
    """A panel for each group, as PNG."""
    from ...plot.canvas import rendered
    from ...plot.intervals import Row, intervals

    panels = []
    for group in found.groups:
        rows = [
            Row(_name(group, model), list(model.test.values()), place == group.reference)
            for place, model in enumerate(group.models)
        ]
        panels.append((f"{group.dataset}, split {group.split}", f"test {group.metric}, %", rows))
    return rendered(intervals(panels))


def _majority(group: Group) -> str:
    return f"majority class: {percent(group.majority)} %"


def _name(group: Group, model: Model) -> str:
    """A model in a picture: its run, and its name unless all are called so."""
    same = len({other.name for other in group.models}) == 1
    return model.run if same else f"{model.run}: {model.name}"


def _head(group: Group) -> tuple[str, ...]:
    head = [
        "run",
        "model",
        "seeds",
        f"test {group.metric} %",
        "difference",
        "validation %",
        "s/seed",
    ]
    return (*head, "settings that differ") if _differ(group) else tuple(head)


def _differ(group: Group) -> bool:
    return any(_settings(model) for model in group.models)


def _settings(model: Model) -> str:
    """The settings that differ, but for the family, which is in the model's name."""
    own = {name: value for name, value in model.differing.items() if name != "family"}
    return ", ".join(f"{name}={value}" for name, value in own.items())


def _rows(group: Group) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for place, model in enumerate(group.models):
        seeds = str(len(model.test))
        seeds += f" of {model.wanted}" if len(model.test) < model.wanted else ""
        row: tuple[str, ...] = (
            model.run,
            model.name,
            seeds,
            percent(model.mean, model.std),
            "reference" if place == group.reference else _difference(model),
            percent(mean(model.validation)),
            f"{mean(model.seconds):.1f}",
        )
        rows.append((*row, _settings(model)) if _differ(group) else row)
    return rows


def _difference(model: Model) -> str:
    """The paired difference, with its number of seeds where that is not the model's own."""
    found = model.difference
    if found is None:
        return "no common seed"
    said = points(found["mean"], found["standard_error"])
    return said if found["seeds"] == len(model.test) else f"{said} ({found['seeds']} seeds)"
