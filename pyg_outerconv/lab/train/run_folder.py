"""The run folder: configuration, metrics, checkpoint, the seed under way, and the graph again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import RefusedValue
from ...files import load_tensors, replace, save_tensors
from ..data import Dataset, Source, entry, load
from .folder import CONFIG, Folder
from .lock import LOCK
from .model import OURS, PEER
from .records import CHECKPOINT, STATE, check_records, has_parts
from .settings import Settings, settings_from
from .splits import check_protocol

METRICS, CURVES, FINAL, PARTIAL = "metrics.json", "curves.png", "checkpoint.pt", "partial.pt"


class RunFolder(Folder):
    """Reads and writes one run.

    - ``config.json``: settings, data, versions
    - ``metrics.json``: a record for each model and seed, then a summary; from the first seed on
    - ``curves.png``: learning curves
    - ``checkpoint.pt``: the model of the seed with the lowest validation loss
    - ``partial.pt``: the seed under way, gone when it is finished
    - ``lock``: empty, locked by the process that works here
    """

    of, called, key, format = "a run", "a run folder", "settings", 3
    names = (CONFIG, METRICS, CURVES, FINAL, PARTIAL, LOCK)

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self.metrics, self.curves = self.path / METRICS, self.path / CURVES
        self.checkpoint, self.partial = self.path / FINAL, self.path / PARTIAL

    # The configuration --------------------------------------------------------------------------

    def create(self, settings: Settings, dataset: Dataset) -> None:
        """Begin a run in a new or empty folder."""
        self.begin(settings.as_dict(), dataset)

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
        self.write(METRICS, {"format": self.format, "runs": runs, "summary": summary})

    def read_runs(self) -> list[dict[str, Any]]:
        """The record of every finished seed; none where no seed is finished yet."""
        metrics = self.read(METRICS)
        if metrics is None:
            return []
        return check_records(metrics.get("runs"), self.settings(), str(self.metrics))

    def model_names(self) -> dict[str, str]:
        """The name of each model that has finished a seed, by its key in the records."""
        summary = (self.read(METRICS) or {"summary": {}})["summary"]
        return {key: summary[key]["name"] for key in (OURS, PEER) if key in summary}

    # Tensors ------------------------------------------------------------------------------------

    def save_state(self, state: dict[str, Any]) -> None:
        """Keep the seed under way."""
        self.act(lambda: save_tensors(self.partial, {"config": self.identity, **state}))

    def load_state(self) -> dict[str, Any] | None:
        """The state that :meth:`save_state` wrote, or None."""
        state = self.read(PARTIAL, load_tensors)
        if state is not None and not has_parts(state, STATE):
            raise RefusedValue(
                f"{self.partial} must be of the seed under way (without it, the seed begins anew)",
                ", ".join(STATE),
                ", ".join(sorted(state)),
            )
        return state

    def drop_state(self) -> None:
        """Remove the state of the seed under way, which is finished."""
        self.act(lambda: self.partial.unlink(missing_ok=True))

    def save_checkpoint(self, content: dict[str, Any]) -> None:
        """Keep the best model so far."""
        self.act(lambda: save_tensors(self.checkpoint, {"format": self.format, **content}))

    def load_checkpoint(self) -> dict[str, Any]:
        """The best model so far."""
        settings, checkpoint = self.settings(), self.load(load_tensors, self.checkpoint)
        if checkpoint is None:
            rule = f"the run in {self.path} must have its {FINAL}"
            raise RefusedValue(rule, "a finished seed, and its files", "no such file")
        whole = has_parts(checkpoint, CHECKPOINT) and checkpoint["seed"] in range(settings.seeds)
        if not whole or checkpoint["format"] != self.format:
            raise RefusedValue(
                f"{self.checkpoint} must be written by outerconv train",
                f"format {self.format}",
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
        self.act(lambda: replace(self.curves, picture))


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
    return load(settings.dataset, root or home.root(), settings.split, log, settings.undirected)
