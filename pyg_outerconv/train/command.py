"""The command ``outerconv train``."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from .. import data
from ..errors import RefusedValue, refusal
from ..files import as_path, silence
from ..kernels import get_backend
from . import family_options
from .contender import check_device
from .experiment import Experiment, Interrupted
from .results import table
from .run_folder import RunFolder, next_folder
from .settings import DECAYS, FEATURES, NORMS, SKIPS, Settings, resolve
from .splits import check_protocol

STOPPED = 128  # and the number of the signal: 130 after Ctrl-C, 143 after SIGTERM


class Train:
    """Train node classifiers on a dataset and report mean ± standard deviation over seeds.

    Without a dataset: Cora if it is here, else the embedded karate club.
    """

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags of this command; those not given are None."""
        add = parser.add_argument
        add("dataset", nargs="?", help="a name that 'outerconv datasets' lists")
        add("--family", help='a family\'s name, or text such as "stack(gcn, identity)"')
        add("--directed", action="store_true", help="the family on edges and on reversed edges")
        model = parser.add_argument_group("model")
        model.add_argument(
            "--theta",
            help="full, basis-decomposed:30, block-diagonal:4, "
            "low-rank:8, grouped:4, depthwise, shared or identity",
        )
        for name, kind, text in (
            ("aggr", str, "reduction over the inputs of a label: sum, mean, max or min"),
            ("label_aggr", str, "reduction over labels: sum, mean, max or min"),
            ("depth", int, "number of convolutions"),
            ("hidden", int, "channels between them"),
            ("dropout", float, "on hidden features"),
            ("input_dropout", float, "on features"),
            ("layer_norm", str, ", ".join(NORMS)),
            ("skip", str, ", ".join(SKIPS)),
        ):
            _add_setting(model, name, kind, text)
        _add_switch(model, "root_weight", "add transformed features of the node itself")
        training = parser.add_argument_group("training")
        for name, kind, text in (
            ("lr", float, "learning rate of Adam"),
            ("weight_decay", float, "of Adam"),
            ("decay", str, f"which parameters decay: {' or '.join(DECAYS)}"),
            ("epochs", int, "at most"),
            ("patience", int, "epochs of early stopping, after half of all; 0 for none"),
            ("seeds", int, "how many"),
            ("features", str, f"of our model: {', '.join(FEATURES)}"),
            ("split", str, "public, geom-gcn, random or such as random-60-20-20"),
            ("device", str, "auto, cpu, cuda, cuda:1, mps"),
            ("backend", str, "kernel backend"),
        ):
            _add_setting(training, name, kind, text)
        _add_switch(training, "normalize_features", "rows of features sum to one")
        training.add_argument(
            "--peer",
            action="store_true",
            default=None,
            help="train PyG's own layer too, on the same seeds and splits",
        )
        add("--root", help=f"folder of the data; else {data.ROOT_VARIABLE}, else a cache folder")
        add("--out", help="run folder; default runs/<dataset>-<family>-<number>")
        add("--resume", action="store_true", help="go on with the run in --out")
        family_options.add_flags(parser)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Train, and print the table."""
        root = arguments.root
        advice = ""
        if arguments.resume:
            settings, out, root = _resumed(arguments)
        else:
            advice = _choose_dataset(arguments)
            settings = _settings(arguments)
            stem = f"{settings.dataset}-{settings.family.split('(')[0]}".lower()
            out = as_path(arguments.out, "--out") if arguments.out else _next_folder(stem)
        experiment = Experiment(settings, out, root, resume=arguments.resume, log=_say)
        _announce(experiment)
        try:
            summary = experiment.run()
        except Interrupted as interrupted:
            command = ["outerconv", "train", "--resume", "--out", str(out)]
            _complain(f"{interrupted}; go on by: {shlex.join(command)}")
            return STOPPED + interrupted.number
        _say(f"\n{table(summary)}\n\nrun folder: {out}")
        _say(f"predicted classes: outerconv predict {shlex.quote(str(out))}{advice}")
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
            refusal("the folder runs must be readable", "a folder, or --out", error.strerror)
        ) from error


def _add_setting(group: Any, name: str, kind: Callable[[str], Any], text: str) -> None:
    group.add_argument(
        family_options.flag(name), dest=name, type=kind, help=text, metavar=name.upper()
    )


def _add_switch(group: Any, name: str, text: str) -> None:
    group.add_argument(
        family_options.flag(name),
        dest=name,
        help=text,
        default=None,
        action=argparse.BooleanOptionalAction,
    )


def _choose_dataset(arguments: argparse.Namespace) -> str:
    """Settle on a dataset where none is named, and return what to say about it at the end."""
    if arguments.dataset:
        return ""
    root = data.data_root(arguments.root)
    if data.is_here("Cora", root):
        arguments.dataset = "Cora"
        _say(f"no dataset named: Cora, whose files are below {root}")
        return ""
    arguments.dataset = data.EMBEDDED
    _say(
        f"no dataset named, and Cora is not below {root}: {data.EMBEDDED}, the real graph that "
        "comes inside torch-geometric"
    )
    return (
        "\nCora: outerconv train Cora (PyG downloads it; without a network, put its files "
        f"below a folder and name that by --root or {data.ROOT_VARIABLE})"
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    entry = data.entry(arguments.dataset)
    split = check_protocol(entry, arguments.split or entry.splits[0])
    entry = entry.for_split(split)
    text = arguments.family or entry.defaults.get("family", "gcn")
    family = family_options.make_family(
        text, family_options.given(arguments), arguments.directed, entry.counts["relations"] or 1
    )
    asked = _asked(arguments) | {
        "dataset": entry.name,
        "family": repr(family),
        "split": split,
        "device": check_device(arguments.device or "auto"),
    }
    _check_backend(asked)
    return resolve(entry, asked)


def _resumed(arguments: argparse.Namespace) -> tuple[Settings, Path, str | None]:
    """The settings of the run that is to go on, changed by what was asked for."""
    if not arguments.out:
        raise RefusedValue("--resume needs a run to go on with: expected --out RUN_DIR, got none")
    folder = RunFolder(arguments.out)
    began = folder.settings()
    asked = _asked(arguments)
    options = family_options.given(arguments)
    if arguments.dataset:
        asked["dataset"] = data.entry(arguments.dataset).name
    if arguments.device:
        asked["device"] = check_device(arguments.device)
    if arguments.family or options or arguments.directed:
        relations = data.entry(asked.get("dataset", began.dataset)).counts["relations"] or 1
        asked["family"] = repr(
            family_options.make_family(
                arguments.family or began.family, options, arguments.directed, relations
            )
        )
    if asked.get("features") == "auto":  # which it was settled when the run began
        del asked["features"]
    _check_backend(asked)
    settings = Settings(**(began.as_dict() | asked))
    folder.check_settings(settings)
    return settings, Path(arguments.out), arguments.root or folder.root()


def _asked(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings whose flags were used."""
    names = {setting.name for setting in fields(Settings)} - {"dataset", "family"}
    return {
        name: value
        for name, value in vars(arguments).items()
        if name in names and value is not None
    }


def _check_backend(asked: dict[str, Any]) -> None:
    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])


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
