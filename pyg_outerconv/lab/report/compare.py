"""Several runs in one table: means and deviations, and differences paired by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import sqrt
from pathlib import Path
from statistics import mean
from typing import Any

from ...errors import RefusedValue, unknown
from ..train.results import by_seed, paired, spread
from ..train.run_folder import RunFolder
from ..train.settings import Settings

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
