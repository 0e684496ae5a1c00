"""The commands ``outerconv train`` and ``outerconv predict``."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue
from ...files import STOPPED, as_path, write_out
from ...kernels import get_backend
from ...scale.processes import Processes, WorkerLost, processes
from .. import data
from ..family_options import make_family
from ..own_code import flags_for, require_imported
from ..settings import Settings, read_settings
from .experiment import Console, Experiment, Interrupted
from .folder import CONFIG, RunFolder, alone_in, next_folder
from .model import check_device, new_settings
from .results import table
from .trained import load_trained

if TYPE_CHECKING:
    from ..cli.commands import Prediction, Run, Training
    from ..cli.options import Place

LOST = 1
"""The exit code of a process that another one has left."""
_console = Console("train")
_say, _complain = _console.say, _console.complain


def train(
    own: dict[str, Any],
    both_ways: dict[str, Any],
    settings: dict[str, Any],
    training: Training,
    run: Run,
    place: Place,
) -> int:
    """Run ``outerconv train``, and return its exit code."""
    asked, source = settings, data.source_of(own, both_ways if own else {})
    asked |= {} if own else both_ways
    dataset, out, root, config = run.dataset, run.out, place.root, training.config
    if dataset and source:
        rule = "a graph is named, or is one's own"
        raise RefusedValue(rule, "a name or files", f"{dataset} and {source.name}")
    if config is not None:
        asked = read_settings(config) | asked
        dataset = dataset or asked.pop("dataset", None)
        require_imported(str(asked.get("imports", "")))  # a run notes all that is imported
        asked = {name: value for name, value in asked.items() if name not in ("dataset", "imports")}
    if source and asked.pop("undirected", False):  # of the file of settings
        source = replace(source, undirected=True)
    if asked.get("device"):
        asked["device"] = check_device(asked["device"])
    if asked.get("backend", "auto") != "auto":
        get_backend(asked["backend"])
    if run.resume:
        if not out:
            raise RefusedValue(
                "--resume needs a run to go on with: expected --out RUN_DIR, got none"
            )
        folder = as_path(out, "--out")
        home = RunFolder(folder)
        graph = home.own_graph(source, _say)
        chosen = _resumed(asked, dataset, training.directed, home, graph)
        root = home.root(root)
    else:
        graph = data.load_own(source, _say) if source else None
        entry = graph.entry if graph else data.entry(dataset or data.DEFAULT)
        chosen = new_settings(entry, asked, training.directed)
        stem = f"{chosen.dataset}-{chosen.family.split('(')[0]}".lower()
        folder = Path("runs", stem) if out is None else as_path(out, "--out")
    together = processes(chosen.device)
    try:
        with ExitStack() as exit_stack:
            if together.leads and out is None:
                folder = next_folder(folder.parent, folder.name, exit_stack)
            board = training.tensorboard
            return _run(chosen, folder, root, run.resume, graph, together, board, exit_stack)
    finally:
        together.end()


def _run(
    chosen: Settings,
    folder: Path,
    root: str | None,
    resume: bool,
    graph: data.Dataset | None,
    together: Processes,
    tensorboard: bool,
    exit_stack: ExitStack,
) -> int:
    try:
        folder = together.shared(folder)
        if together.leads:
            begin = (lambda: None) if resume else RunFolder(folder).make
            exit_stack.enter_context(alone_in(folder, _complain, begin))
        experiment = Experiment(
            chosen,
            folder,
            root,
            resume,
            log=_say,
            dataset=graph,
            processes=together,
            board=tensorboard,
        )
        if together.leads:
            _announce(experiment)
        summary = experiment.run()
    except (Interrupted, WorkerLost) as stopped:
        command = ["outerconv", "train", "--resume", "--out", str(folder)]
        command += flags_for(chosen.imports)
        if together.size > 1:
            start = ["torchrun", "--nproc-per-node", str(together.size), "-m", "pyg_outerconv"]
            command = [*start, *command[1:]]
        if together.leads:
            _complain(f"{stopped}; go on by: {shlex.join(command)}")
        return STOPPED + stopped.number if isinstance(stopped, Interrupted) else LOST
    if not together.leads:
        return 0
    _say(f"\n{table(summary)}\n\nrun folder: {folder}")
    words = ["outerconv", "predict", str(folder), *flags_for(chosen.imports)]
    _say(f"predicted classes: {shlex.join(words)}")
    return 0


def _resumed(
    asked: dict[str, Any],
    dataset: str | None,
    directed: bool,
    folder: RunFolder,
    graph: data.Dataset | None,
) -> Settings:
    """The settings of the run to go on with."""
    began = folder.settings()
    if dataset:
        asked["dataset"] = data.entry(dataset).name
    if "family" in asked or directed:
        entry = graph.entry if graph else data.entry(asked.get("dataset", began.dataset))
        relations = entry.counts["relations"] or 1
        asked["family"] = repr(make_family(asked.get("family", began.family), directed, relations))
    if asked.get("features") == "auto":  # it was replaced when the run began
        del asked["features"]
    settings = Settings(**(began.as_dict() | asked))
    folder.check_settings(settings)
    return settings


def _announce(experiment: Experiment) -> None:
    settings, graph = experiment.settings, experiment.dataset
    task, count = graph.entry.task, graph.data.y.numel()
    graphs = f"{count} graphs, " if task == "graphs" else ""
    _say(
        f"{settings.dataset}: {graphs}{graph.num_nodes} nodes, {graph.num_edges} edges, "
        f"{graph.num_classes} classes, split {settings.split}"
    )
    if experiment.features is not None:
        _say(str(experiment.features))
    ran = ", ".join(experiment.backends)
    _say(
        f"{settings.family}: {settings.depth} layers, {settings.hidden} hidden, theta "
        f"{settings.theta}, on {settings.device}, {f'backends: {ran}' if ran else 'by torch alone'}"
    )
    for contender in experiment.contenders:
        if contender.note:
            _say(f"{contender.name}: {contender.note}")


def predict(own: dict[str, Any], both_ways: dict[str, Any], asked: Prediction) -> int:
    """Run ``outerconv predict`` and return its exit code."""
    run_dir, out = asked.run_dir, asked.out
    path, source = _where_to_write(run_dir, out), data.moved(own, both_ways)
    trained = load_trained(run_dir, asked.root, asked.device, source)
    predictions = trained.predictions()
    summary = (
        f"test {trained.settings.metric} {100 * predictions.test_metric:.2f} % on the split of "
        f"seed {trained.seed} (recorded in training: {100 * trained.recorded:.2f} %)"
    )
    if out == "-":
        predictions.write(sys.stdout)
        print(summary, file=sys.stderr)
        return 0
    text = StringIO()
    predictions.write(text)
    try:
        write_out(path, text.getvalue().encode())
    except OSError as error:
        raise RefusedValue(
            f"--out must be writable: expected a file, got {path} ({error.strerror})"
        ) from error
    print(f"{summary}\nclasses of {predictions.classes.numel()} {predictions.task}: {path}")
    return 0


def _where_to_write(run_dir: str, out: str | None) -> Path:
    """The file for the predictions, which must not be a file of a run."""
    folder = as_path(run_dir, "a run folder")
    if not out or out == "-":
        return folder / "predictions.csv"
    path = as_path(out, "--out").resolve()  # through links, to the file itself
    own = [folder / name for name in RunFolder.names]
    linked = path.exists() and any(file.exists() and path.samefile(file) for file in own)
    if linked or (path.name in RunFolder.names and (path.parent / CONFIG).exists()):
        raise RefusedValue("--out must not be a file of a run", "another file", out)
    return path
