"""The folder of a run or of a search: begun once, gone on with, read again."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
import torch_geometric
from filelock import FileLock, Timeout

from ... import __version__, files
from ...errors import RefusedValue
from ..data import Dataset, Source, entry, load, load_own, source_from
from ..settings import Settings, settings_from
from .model import OURS, PEER
from .splits import check_protocol

CONFIG = "config.json"
LOCK = "lock"
"""The file of a folder that a process locks for as long as it works there, and lives."""
METRICS, PICTURE, FINAL, PARTIAL = "metrics.json", "curves.png", "checkpoint.pt", "partial.pt"
FORMAT = 3
"""The version of the folders of runs and of searches."""
Value = TypeVar("Value")


class Folder:
    """Reads and writes files of a run or of a search. Each is replaced as a whole, never half
    written, and has a checksum if it is JSON or holds tensors.

    ``config.json`` holds what was begun, the data and the versions. A folder that has it can go on,
    and other files say which configuration they are of.

    Attributes:
        of: what it is the folder of, as messages say it.
        called: what it is called itself.
        key: what its configuration has besides data and versions.
        names: of its files; ``begun`` of those that are there before a configuration is.
    """

    of: ClassVar[str]
    called: ClassVar[str]
    key: ClassVar[str]
    names: ClassVar[tuple[str, ...]]
    begun: ClassVar[tuple[str, ...]] = ()

    def __init__(self, path: str | Path) -> None:
        self.path = files.as_path(path, self.called)
        self.config = self.path / CONFIG

    # Beginning and going on ---------------------------------------------------------------------

    def make(self) -> None:
        """Make a new folder; a lock, and what a killed process left there, do not count."""
        self.act(lambda: self.path.mkdir(parents=True, exist_ok=True))
        own = {self.path / name for name in (LOCK, *self.begun)}
        own.update(self.act(lambda: files.leftovers(self.path, self.names)))
        there = self.act(lambda: set(self.path.iterdir()))
        if there - own:
            raise RefusedValue(
                f"{self.of} needs a folder of its own",
                "a new or empty folder, or --resume",
                f"{self.path}, which has files",
            )

    def configuration(self, begun: dict[str, Any], dataset: Dataset) -> dict[str, Any]:
        """What a folder begins with: settings or a plan, the data, the versions."""
        facts = {
            "root": None if dataset.root is None else str(dataset.root),
            "source": None if dataset.source is None else dataset.source.as_dict(),
            "fingerprint": dataset.fingerprint,
            "num_nodes": dataset.num_nodes,
            "num_edges": dataset.num_edges,
            "num_classes": dataset.num_classes,
        }
        return {"format": FORMAT, self.key: begun, "data": facts, "versions": versions()}

    def begin(self, configuration: dict[str, Any]) -> None:
        """Write the configuration into a new or empty folder."""
        self.make()
        self.sweep()
        self.act(lambda: files.save_json(self.config, configuration))

    def check_data(self, dataset: Dataset) -> None:
        """Refuse to go on with other data."""
        if self.data()["fingerprint"] != dataset.fingerprint:
            raise RefusedValue(
                f"--resume goes on with the data of {self.path}",
                f"the {dataset.entry.name} that it began with",
                f"another graph of that name in {dataset.place}",
            )

    def sweep(self) -> None:
        """Remove what killed processes left."""
        self.act(lambda: files.sweep(self.path, self.names))

    # The configuration --------------------------------------------------------------------------

    def read_config(self) -> dict[str, Any]:
        """The content of ``config.json``."""
        config = self.load(files.load_json, self.config)
        if config is None:
            raise RefusedValue(f"{self.path} is not {self.called}", CONFIG, "no such file")
        config_format = config.get("format")
        if config_format != FORMAT or self.key not in config:
            rule = f"{self.config} must be the configuration of {self.of} of this version"
            expected = f"format {FORMAT} with {self.key}"
            if isinstance(config_format, int) and config_format < FORMAT:
                said = config.get("versions", {}).get("pyg_outerconv", "that wrote it")
                rule += f" (begin anew in another folder, or use pyg_outerconv {said})"
            raise RefusedValue(rule, expected, f"format {config_format}, {sorted(config)}")
        return config

    def data(self) -> dict[str, Any]:
        """What the configuration says of the data."""
        data_config: dict[str, Any] = self.read_config()["data"]
        return data_config

    def root(self, asked: str | Path | None = None) -> str | None:
        """Where the data is: as asked, else where it was; None if it is no longer there."""
        if asked:
            return str(asked)
        before: str | None = self.data()["root"]
        return before if before and Path(before).exists() else None

    def source(self) -> Source | None:
        """Where a graph of one's own was found; None for a dataset by name."""
        values = self.data().get("source")
        return None if values is None else source_from(values, str(self.config))

    def own_graph(
        self, source: Source | None = None, log: Callable[[str], None] | None = None
    ) -> Dataset | None:
        """The graph of one's own, read again; None for a dataset by name."""
        kept = self.source()
        if kept is None and source is not None:
            rule = f"{self.path} is of a dataset by name"
            raise RefusedValue(rule, "no other data", "a graph of one's own")
        if kept is not None and kept.is_function and source is None:
            rule = "a function is imported and called only where it is named"
            raise RefusedValue(rule, f"--data {kept.data}", "no --data")
        if kept is None:
            return None
        return load_own(kept if source is None else source.instead_of(kept), log)

    @cached_property
    def identity(self) -> str:
        """The checksum of the configuration, which other files contain."""
        return self.identity_of(self.read_config())

    @staticmethod
    def identity_of(configuration: dict[str, Any]) -> str:
        """The checksum of a configuration."""
        return files.checksum(configuration)

    # Files --------------------------------------------------------------------------------------

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replace a file by JSON or, by its name, tensors, with the configuration's checksum."""
        content = {"config": self.identity, **content}
        save = files.save_tensors if name.endswith(".pt") else files.save_json
        self.act(lambda: save(self.path / name, content))

    def read(self, name: str) -> dict[str, Any] | None:
        """The content of a file, beside the checksum of the configuration; None if it is absent."""
        path = self.path / name
        content = self.load(files.load_tensors if name.endswith(".pt") else files.load_json, path)
        if content is not None and content.pop("config", None) != self.identity:
            rule = f"{path} must be of {self.of.replace('a ', 'the ')} of {self.config}"
            raise RefusedValue(rule, "it", "another one")
        return content

    def put(self, name: str, content: bytes) -> None:
        """Replace a file by text or a picture."""
        self.act(lambda: files.replace(self.path / name, content))

    def load(self, load: Callable[[Path], Value], path: Path) -> Value | None:
        """What a file holds; None if it is absent."""
        try:
            return load(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise RefusedValue(f"{path} must be readable", "a file", error.strerror) from error

    def act(self, act: Callable[[], Value]) -> Value:
        """Do what writes into the folder."""
        try:
            return act()
        except OSError as error:
            rule, reason = f"{self.called} must be writable", error.strerror or str(error)
            raise RefusedValue(rule, f"a folder at {self.path}", reason) from error


def write_files(
    folder: Path,
    contents: dict[str, bytes | dict[str, Any]],
    rule: str = "--out must be a folder that can be written",
) -> None:
    """Replace files of a folder, each as a whole, in their order; a dictionary is JSON."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            if isinstance(content, bytes):
                files.replace(folder / name, content)
            else:
                files.save_json(folder / name, content)
    except OSError as error:
        raise RefusedValue(rule, folder, error.strerror or str(error)) from error


# The folder of a run ------------------------------------------------------------------------------


class RunFolder(Folder):
    """Reads and writes one run.

    - ``config.json``: settings, data, versions
    - ``metrics.json``: a record for each model and seed, then a summary; from the first seed on
    - ``curves.png``: learning curves
    - ``checkpoint.pt``: the model of the seed with the lowest validation loss
    - ``partial.pt``: the seed under way, gone when it is finished
    - ``lock``: empty, locked by the process that works here
    """

    of, called, key = "a run", "a run folder", "settings"
    names = (CONFIG, METRICS, PICTURE, FINAL, PARTIAL, LOCK)

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.checkpoint, self.partial = self.path / FINAL, self.path / PARTIAL

    # The configuration --------------------------------------------------------------------------

    def create(self, settings: Settings, dataset: Dataset) -> None:
        """Begin a run in a new or empty folder."""
        self.begin(self.configuration(settings.as_dict(), dataset))

    def take_up(self, settings: Settings, dataset: Dataset) -> None:
        """Go on with a run; what a killed process left is removed."""
        self.check_settings(settings)
        self.check_data(dataset)
        self.sweep()

    def check_settings(self, settings: Settings) -> None:
        """Refuse to go on with other settings than the run began with."""
        began = self.settings()
        if differing := began.differing(settings):
            raise RefusedValue(
                f"--resume goes on with the settings of {self.path}",
                began.tell(differing),
                settings.tell(differing),
            )

    def settings(self) -> Settings:
        """The settings that the run began with."""
        return settings_from(self.read_config()["settings"], str(self.config))

    # Metrics ------------------------------------------------------------------------------------

    def write_metrics(self, runs: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        """Replace the metrics."""
        self.write(METRICS, {"format": FORMAT, "runs": runs, "summary": summary})

    def read_runs(self) -> list[dict[str, Any]]:
        """The record of every finished seed; none where no seed is finished yet."""
        runs: list[dict[str, Any]] = (self.read(METRICS) or {"runs": []})["runs"]
        return runs

    def model_names(self) -> dict[str, str]:
        """The name of each model that has finished a seed, by its key in the records."""
        summary = (self.read(METRICS) or {"summary": {}})["summary"]
        return {key: summary[key]["name"] for key in (OURS, PEER) if key in summary}

    # Tensors ------------------------------------------------------------------------------------

    def drop_state(self) -> None:
        """Remove the state of the seed under way, which is finished."""
        self.act(lambda: self.partial.unlink(missing_ok=True))

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Keep the best model so far."""
        self.act(lambda: files.save_tensors(self.checkpoint, {"format": FORMAT, **content}))

    def load_checkpoint(self) -> dict[str, Any]:
        """The best model so far."""
        settings, checkpoint = self.settings(), self.load(files.load_tensors, self.checkpoint)
        if checkpoint is None:
            rule = f"the run in {self.path} must have its {FINAL}"
            raise RefusedValue(rule, "a finished seed, and its files", "no such file")
        if checkpoint.get("format") != FORMAT:
            raise RefusedValue(
                f"{self.checkpoint} must be written by outerconv train",
                f"format {FORMAT}",
                f"another, with {sorted(checkpoint)}",
            )
        other = settings_from(checkpoint["settings"], str(self.checkpoint))
        if differing := settings.differing(other):
            raise RefusedValue(
                f"the checkpoint must be of the configuration in {self.config}",
                settings.tell(differing),
                other.tell(differing),
            )
        return checkpoint


def dataset_of(
    home: RunFolder,
    root: str | Path | None = None,
    source: Source | None = None,
    log: Callable[[str], None] | None = None,
) -> Dataset:
    """The graph that a run is of; whoever asks compares its fingerprint."""
    settings, own = home.settings(), home.own_graph(source, log)
    check_protocol(own.entry if own else entry(settings.dataset), settings.split)
    if own is not None:
        return own
    return load(settings.dataset, home.root(root), settings.split, log, settings.undirected)


# What the configuration says beside settings -----------------------------------------------------


def versions() -> dict[str, str]:
    """Versions of the package, torch, PyG and Python."""
    return {
        "pyg_outerconv": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


# One process at a time ----------------------------------------------------------------------------


SECONDS = 30.0
"""How long processes without their ``torchrun`` take to notice and to stop, at most."""


@contextmanager
def alone_in(
    folder: Path,
    log: Callable[[str], None] | None = None,
    begin: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """A block in which no other process works in a folder.

    Args:
        folder: of a run, or of a table.
        log: called with a line if another process works there and is waited for; None to wait for
            nobody.
        begin: makes the folder where it is absent, and refuses one that others use already. It is
            called again once the folder is locked, so that of two processes that began together one
            is refused. A folder that it made goes again if the block leaves it empty.
    """
    absent, lock = _absent_to(folder), FileLock(folder / LOCK)
    begin()
    if not folder.is_dir():
        raise RefusedValue("a run has a folder", f"one at {folder}", "none")
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if log is None:
                raise
            log(f"{folder}: another process works there; it has {SECONDS:.0f} s to stop")
            lock.acquire(timeout=SECONDS)
    except Timeout as error:
        rule = f"one process at a time works in {folder}"
        raise RefusedValue(rule, "no other one", "one that runs") from error
    except OSError as error:
        rule = "a process locks the folder that it works in"
        raise RefusedValue(rule, f"a writable one at {folder}", error.strerror) from error
    try:
        begin()
        yield
    finally:
        with suppress(OSError):
            if os.listdir(folder) == [LOCK]:
                os.unlink(folder / LOCK)
        _remove_empty(absent)
        lock.release()


def next_folder(base: Path, stem: str, until: ExitStack | None = None) -> Path:
    """The first of ``stem-001``, ``stem-002``, … that is absent, and is made by this call.

    Processes that begin together get one each.
    """
    above = _absent_to(base)
    for number in count(1):
        folder = base / f"{stem}-{number:03d}"
        try:
            folder.mkdir(parents=True)
            break
        except FileExistsError:
            continue
        except OSError as error:
            rule = f"the folder {base} must be writable"
            raise RefusedValue(rule, "a folder, or --out", error.strerror) from error
    if until is not None:
        until.callback(_remove_empty, [folder, *above])
    return folder


def _absent_to(folder: Path) -> list[Path]:
    """The folder and those above it, as far as they are absent."""
    return [place for place in (folder, *folder.parents) if not os.path.exists(place)]


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, each within the next, up to the first that has files."""
    with suppress(OSError):
        for place in folders:
            place.rmdir()
