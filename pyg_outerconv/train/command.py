"""The command ``outerconv train``."""

from __future__ import annotations

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import data
from ..errors import RefusedValue
from ..files import STOPPED, as_path, silence
from ..kernels import get_backend
from .experiment import Experiment, Interrupted
from .family_options import make_family
from .model import check_device
from .results import table
from .run_folder import RunFolder, next_folder
from .settings import Settings, resolve
from .splits import check_protocol


def train(
    dataset: str | None,
    family: str | None,
    directed: bool,
    root: str | None,
    out: str | None,
    resume: bool,
    **settings: Any,
) -> int:
    """Run ``outerconv train`` and return its exit code.

    Args:
        dataset: a name in the registry, or None for Cora.
        family: a family as text, or None for the default of the dataset.
        directed: wrap the family in ``Directed``.
        root: folder of the data.
        out: run folder.
        resume: go on with the run in ``out``.
        settings: other fields of :class:`Settings`; None where an option was not given.

    Raises:
        ValueError: an option is refused.
    """
    asked = {name: value for name, value in settings.items() if value is not None}
    if asked.get("device"):
        asked["device"] = check_device(asked["device"])
    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])
    if resume:
        chosen, folder, root = _resumed(asked, dataset, family, directed, root, out)
    else:
        chosen = _new_settings(asked, dataset or data.DEFAULT, family, directed)
        stem = f"{chosen.dataset}-{chosen.family.split('(')[0]}".lower()
        folder = as_path(out, "--out") if out else _next_folder(stem)
    experiment = Experiment(chosen, folder, root, resume=resume, log=_say)
    _announce(experiment)
    try:
        summary = experiment.run()
    except Interrupted as interrupted:
        command = ["outerconv", "train", "--resume", "--out", str(folder)]
        _complain(f"{interrupted}; go on by: {shlex.join(command)}")
        return STOPPED + interrupted.number
    _say(f"\n{table(summary)}\n\nrun folder: {folder}")
    _say(f"predicted classes: outerconv predict {shlex.quote(str(folder))}")
    return 0


def _say(line: str) -> None:
    """Print; training goes on when nobody reads what it says, as after ``| head -1``."""
    try:
        print(line)
    except BrokenPipeError:
        silence(sys.stdout)
        _complain("nobody reads the output any more; training goes on")


def _complain(line: str) -> None:
    with suppress(BrokenPipeError):
        print(f"outerconv train: {line}", file=sys.stderr)


def _next_folder(stem: str) -> Path:
    try:
        return next_folder(Path("runs"), stem)
    except OSError as error:
        raise RefusedValue(
            "the folder runs must be readable", "a folder, or --out", error.strerror
        ) from error


def _new_settings(
    asked: dict[str, Any], dataset: str, family: str | None, directed: bool
) -> Settings:
    """The settings of a new run."""
    entry = data.entry(dataset)
    split = check_protocol(entry, asked.get("split") or entry.splits[0])
    entry = entry.for_split(split)
    text = family or entry.defaults.get("family", "gcn")
    made = make_family(text, directed, entry.counts["relations"] or 1)
    named = {"dataset": entry.name, "family": repr(made), "split": split}
    return resolve(entry, {"device": check_device("auto"), **asked, **named})


def _resumed(
    asked: dict[str, Any],
    dataset: str | None,
    family: str | None,
    directed: bool,
    root: str | None,
    out: str | None,
) -> tuple[Settings, Path, str | None]:
    """The settings, the folder and the data root of the run to go on with.

    Raises:
        ValueError: an option differs from the settings of the run.
    """
    if not out:
        raise RefusedValue("--resume needs a run to go on with: expected --out RUN_DIR, got none")
    folder = RunFolder(out)
    began = folder.settings()
    if dataset:
        asked["dataset"] = data.entry(dataset).name
    if family or directed:
        relations = data.entry(asked.get("dataset", began.dataset)).counts["relations"] or 1
        asked["family"] = repr(make_family(family or began.family, directed, relations))
    if asked.get("features") == "auto":  # it was replaced when the run began
        del asked["features"]
    settings = Settings(**(began.as_dict() | asked))
    folder.check_settings(settings)
    return settings, Path(out), root or folder.root()


def _announce(experiment: Experiment) -> None:
    settings, graph = experiment.settings, experiment.dataset.data
    _say(
        f"{settings.dataset}: {graph.num_nodes} nodes, {graph.num_edges} edges, "
        f"{experiment.dataset.num_classes} classes, split {settings.split}"
    )
    if experiment.features is not None:
        _say(str(experiment.features))
    _say(
        f"{settings.family}: {settings.depth} layers, {settings.hidden} hidden, theta "
        f"{settings.theta}, on {settings.device} by {', '.join(experiment.backends) or 'torch'}"
    )
    for contender in experiment.contenders:
        if contender.note:
            _say(f"{contender.name}: {contender.note}")
