"""The run folder: configuration, metrics, checkpoint, the seed under way, and the graph again."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import RefusedValue, refusal
from ...files import (
    as_path,
    checksum,
    leftovers,
    load_json,
    load_tensors,
    replace,
    save_json,
    save_tensors,
    sweep,
)
from ..data import Dataset, Source, entry, load, load_own, source_from
from .lock import LOCK
from .model import OURS, PEER
from .records import CHECKPOINT, STATE, check_records, facts_of, has_parts, versions
from .settings import Settings, settings_from
from .splits import check_protocol

FORMAT = 3
CONFIG, METRICS, CURVES = "config.json", "metrics.json", "curves.png"
FINAL, PARTIAL = "checkpoint.pt", "partial.pt"
NAMES = (CONFIG, METRICS, CURVES, FINAL, PARTIAL, LOCK)


class RunFolder:
    """Reads and writes one run. Every file is replaced as a whole, never half written.

    - ``config.json``: settings, data, versions. A folder that has it is a run, and can go on.
    - ``metrics.json``: a record for each model and seed, then a summary; from the first seed on
    - ``curves.png``: learning curves
    - ``checkpoint.pt``: the model of the seed with the lowest validation loss
    - ``partial.pt``: the seed under way, gone when it is finished
    - ``lock``: empty, locked by the process that works here

    Metrics, checkpoint and the seed under way say which configuration they are of, and each file
    but the picture has a checksum.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = as_path(path, "a run folder")
        self.config, self.metrics = self.path / CONFIG, self.path / METRICS
        self.curves = self.path / CURVES
        self.checkpoint, self.partial = self.path / FINAL, self.path / PARTIAL

    # Beginning ----------------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folder of a new run; what a killed process left there does not count.

        Raises:
            ValueError: the folder has something in it, or cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            own = {self.path / LOCK, *leftovers(self.path, NAMES)}
            occupied = set(self.path.iterdir()) - own
        except OSError as error:
            raise self._unwritable(error) from error
        if occupied:
            raise RefusedValue(
                "a run needs a folder of its own",
                "a new or empty folder, or --resume",
                f"{self.path}, which has files",
            )

    def create(self, settings: Settings, dataset: Dataset) -> None:
        """Begin a run in a new or empty folder.

        Raises:
            ValueError: as :meth:`make`.
        """
        self.make()
        self._sweep()
        content = {
            "format": FORMAT,
            "settings": settings.as_dict(),
            "data": facts_of(dataset),
            "versions": versions(),
        }
        self._write(save_json, self.config, content)

    def take_up(self, settings: Settings, dataset: Dataset) -> None:
        """Go on with a run; what a killed process left is removed.

        Raises:
            ValueError: the settings or the data are not those that the run began with, naming what
                differs; or a file is damaged, or gone.
        """
        self.check_settings(settings)
        if self._read_config()["data"]["fingerprint"] != dataset.fingerprint:
            raise RefusedValue(
                f"--resume goes on with the data of {self.path}",
                f"the {settings.dataset} that it began with",
                f"another graph of that name in {dataset.place}",
            )
        self._sweep()

    def check_settings(self, settings: Settings) -> None:
        """Refuse to go on with other settings than the run began with.

        Raises:
            ValueError: naming what differs.
        """
        began = self.settings()
        if differing := began.differing(settings):
            raise RefusedValue(
                f"--resume goes on with the settings of {self.path}",
                began.tell(differing),
                settings.tell(differing),
            )

    def settings(self) -> Settings:
        """The settings that the run began with.

        Raises:
            ValueError: this is no run folder.
        """
        return settings_from(self._read_config()["settings"], str(self.config))

    def root(self) -> str | None:
        """Where the run found its data."""
        root: str | None = self._read_config()["data"]["root"]
        return root

    def source(self) -> Source | None:
        """Where the run found a graph of one's own; None for a dataset by name.

        Raises:
            ValueError, TypeError: what the configuration says is no source.
        """
        values = self._read_config()["data"].get("source")
        return None if values is None else source_from(values, str(self.config))

    def fingerprint(self) -> str:
        """The checksum of the data that the run trained on."""
        found: str = self._read_config()["data"]["fingerprint"]
        return found

    @cached_property
    def identity(self) -> str:
        """The checksum of the configuration, which the other files of the run contain."""
        return checksum(self._read_config())

    def _read_config(self) -> dict[str, Any]:
        config = self._read(load_json, self.config)
        data = config.get("data")
        known = (
            isinstance(data, dict)
            and isinstance(data.get("fingerprint"), str)
            and isinstance(data.get("root", 0), str | None)
        )
        if config.get("format") != FORMAT or "settings" not in config or not known:
            rule = f"{self.config} must be the configuration of a run of this version"
            expected = f"format {FORMAT} with settings, and data with its root and fingerprint"
            if isinstance(older := config.get("format"), int) and older < FORMAT:
                said = config.get("versions", {}).get("pyg_outerconv", "that wrote it")
                rule += f" (train anew in another folder, or use pyg_outerconv {said})"
            raise RefusedValue(rule, expected, f"format {config.get('format')}, {sorted(config)}")
        return config

    # Metrics ------------------------------------------------------------------------------------

    def write_metrics(self, runs: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        """Replace the metrics."""
        content = {"format": FORMAT, "config": self.identity, "runs": runs, "summary": summary}
        self._write(save_json, self.metrics, content)

    def read_runs(self) -> list[dict[str, Any]]:
        """The record of every finished seed; none where no seed is finished yet.

        Raises:
            ValueError: the file holds something else, or is of another run.
        """
        if not self.metrics.exists():
            return []
        metrics = self._read(load_json, self.metrics)
        self._require_identity(self.metrics, metrics)
        return check_records(metrics.get("runs"), self.settings(), str(self.metrics))

    def model_names(self) -> dict[str, str]:
        """The name of each model that has finished a seed, by its key in the records.

        Raises:
            ValueError: as :meth:`read_runs`.
        """
        if not self.metrics.exists():
            return {}
        metrics = self._read(load_json, self.metrics)
        self._require_identity(self.metrics, metrics)
        summary = metrics["summary"]
        return {key: summary[key]["name"] for key in (OURS, PEER) if key in summary}

    def _require_identity(self, path: Path, content: dict[str, Any]) -> None:
        if content.get("config") != self.identity:
            raise RefusedValue(
                f"{path} must be of the run of {self.config}", "that run", "another one"
            )

    # Tensors ------------------------------------------------------------------------------------

    def save_state(self, state: dict[str, Any]) -> None:
        """Keep the seed under way."""
        self._write(save_tensors, self.partial, {"config": self.identity, **state})

    def load_state(self) -> dict[str, Any] | None:
        """The state that :meth:`save_state` wrote, or None.

        Raises:
            ValueError: the file is something else, or is of another run.
        """
        if not self.partial.exists():
            return None
        state = self._read(load_tensors, self.partial)
        self._require_identity(self.partial, state)
        if not has_parts(state, STATE):
            raise RefusedValue(
                f"{self.partial} must be of the seed under way (without it, the seed begins anew)",
                ", ".join(STATE),
                ", ".join(sorted(state)),
            )
        return state

    def drop_state(self) -> None:
        """Remove the state of the seed under way, which is finished."""
        try:
            self.partial.unlink(missing_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Keep the best model so far."""
        self._write(save_tensors, self.checkpoint, {"format": FORMAT, **content})

    def load_checkpoint(self) -> dict[str, Any]:
        """The best model so far.

        Raises:
            ValueError: the file is missing, is something else, or is of another configuration.
        """
        checkpoint, settings = self._read(load_tensors, self.checkpoint), self.settings()
        whole = has_parts(checkpoint, CHECKPOINT) and checkpoint["seed"] in range(settings.seeds)
        if not whole or checkpoint["format"] != FORMAT:
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

    def draw(self, picture: bytes) -> None:
        """Replace the picture."""
        self._write(replace, self.curves, picture)

    # Files --------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        try:
            sweep(self.path, NAMES)
        except OSError as error:
            raise self._unwritable(error) from error

    def _write(self, write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
        try:
            write(path, content)
        except OSError as error:
            raise self._unwritable(error) from error

    def _read(self, read: Callable[[Path], dict[str, Any]], path: Path) -> dict[str, Any]:
        try:
            return read(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RefusedValue(self._absent(path)) from error
        except OSError as error:
            raise RefusedValue(f"{path} must be readable", "a file", error.strerror) from error

    def _absent(self, path: Path) -> str:
        if path == self.config:
            return refusal(f"{self.path} is not a run folder", path.name, "no such file")
        rule = f"the run in {self.path} must have its {path.name}"
        return refusal(rule, "a finished seed, and its files", "no such file")

    def _unwritable(self, error: OSError) -> RefusedValue:
        reason = error.strerror or str(error)
        return RefusedValue("the run folder must be writable", f"a folder at {self.path}", reason)


def dataset_of(
    home: RunFolder,
    root: str | Path | None = None,
    source: Source | None = None,
    log: Callable[[str], None] | None = None,
) -> Dataset:
    """The graph that a run is of; whoever asks compares its fingerprint.

    Args:
        home: the run.
        root: folder of the data; None for the folder that the run used.
        source: where a graph of one's own is now; None for where the run found it.
        log: see :func:`pyg_outerconv.lab.data.load`.

    Raises:
        ValueError: the run is of a dataset by name, and a source is given; or its graph comes from
            a function, which is called only where a source names it.
        DataUnavailable: the dataset cannot be read.
    """
    settings, kept = home.settings(), home.source()
    if kept is None:
        if source is not None:
            rule = f"the run in {home.path} is of a dataset by name"
            raise RefusedValue(rule, settings.dataset, "a graph of one's own")
        check_protocol(entry(settings.dataset), settings.split)
        return load(settings.dataset, root or home.root(), settings.split, log, settings.undirected)
    if source is None and kept.is_function:
        rule = "a function is imported and called only where it is named"
        raise RefusedValue(rule, f"--data {kept.data}", "no --data")
    dataset = load_own(source or kept, log)
    check_protocol(dataset.entry, settings.split)
    return dataset
