"""The run folder: configuration, metrics, checkpoint and what an interrupted run left."""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch_geometric

from .. import __version__
from ..data import Dataset
from ..errors import RefusedValue, refusal
from .settings import Settings, settings_from

FORMAT = 1
# What the record of a seed has at least.
RECORD = frozenset(
    {
        "model",
        "seed",
        "test_accuracy",
        "val_accuracy",
        "val_loss",
        "best_epoch",
        "epochs",
        "seconds",
        "history",
    }
)

_LIST_OF_NUMBERS = re.compile(r"\[[^\[\]{}\"]+\]")  # on one line, to be read by people


class RunFolder:
    """Reads and writes one run. Every file is replaced as a whole, never half written.

    - ``config.json``: settings, data, versions
    - ``metrics.json``: a record for each model and seed, then a summary
    - ``curves.png``: learning curves
    - ``checkpoint.pt``: the model of the seed with the lowest validation loss
    - ``partial.pt``: the seed under way, gone when it is finished
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser()
        self.config, self.metrics = self.path / "config.json", self.path / "metrics.json"
        self.curves = self.path / "curves.png"
        self.checkpoint, self.partial = self.path / "checkpoint.pt", self.path / "partial.pt"

    # Beginning ----------------------------------------------------------------------------------

    def create(self, settings: Settings, dataset: Dataset) -> None:
        """Begin a run in a new or empty folder.

        Raises:
            ValueError: the folder has something in it, or cannot be written.
        """
        try:
            occupied = self.path.is_dir() and any(self.path.iterdir())
            if not occupied:
                self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error) from error
        if occupied:
            raise RefusedValue(
                refusal(
                    "a run needs a folder of its own",
                    "a new or empty folder, or --resume",
                    f"{self.path}, which has files",
                )
            )
        self._write_json(
            self.config,
            {
                "format": FORMAT,
                "settings": settings.as_dict(),
                "data": _data_facts(dataset),
                "versions": versions(),
            },
        )
        self.write_metrics([], {})

    def check_settings(self, settings: Settings) -> None:
        """Refuse to go on with other settings than the run began with.

        Raises:
            ValueError: naming what differs.
        """
        began = self.settings()
        if differing := began.differing(settings):
            raise RefusedValue(
                refusal(
                    f"--resume goes on with the settings of {self.path}",
                    began.tell(differing),
                    settings.tell(differing),
                )
            )

    def check_resumes(self, settings: Settings, dataset: Dataset) -> None:
        """Refuse to go on with other settings or other data than the run began with.

        Raises:
            ValueError: naming what differs.
        """
        self.check_settings(settings)
        if self._read_config()["data"]["fingerprint"] != dataset.fingerprint:
            raise RefusedValue(
                refusal(
                    f"--resume goes on with the data of {self.path}",
                    f"the {settings.dataset} that it began with",
                    f"another graph of that name in {dataset.root}",
                )
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

    def _read_config(self) -> dict[str, Any]:
        config = self._read_json(self.config)
        data = config.get("data")
        known = (
            isinstance(data, dict)
            and isinstance(data.get("fingerprint"), str)
            and isinstance(data.get("root", 0), str | None)
        )
        if config.get("format") != FORMAT or "settings" not in config or not known:
            raise RefusedValue(
                refusal(
                    f"{self.config} must be the configuration of a run",
                    f"format {FORMAT} with settings, and data with its root and fingerprint",
                    sorted(config),
                )
            )
        return config

    # Metrics ------------------------------------------------------------------------------------

    def write_metrics(self, runs: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        """Replace the metrics."""
        self._write_json(self.metrics, {"format": FORMAT, "runs": runs, "summary": summary})

    def read_runs(self) -> list[dict[str, Any]]:
        """The record of every finished seed.

        Raises:
            ValueError: the file holds something else.
        """
        metrics = self._read_json(self.metrics)
        runs = metrics.get("runs")
        whole = metrics.get("format") == FORMAT and isinstance(runs, list)
        if not whole or not all(isinstance(run, dict) and set(run) >= RECORD for run in runs or ()):
            raise RefusedValue(
                refusal(
                    f"{self.metrics} must be written by outerconv train",
                    f"format {FORMAT} with a record for each seed",
                    "something else",
                )
            )
        return list(runs or ())

    # Tensors ------------------------------------------------------------------------------------

    def save(self, path: Path, content: dict[str, Any]) -> None:
        """Write tensors and plain Python, so that ``torch.load(weights_only=True)`` reads them."""
        self._replace(path, lambda temporary: torch.save(content, temporary))

    def load(self, path: Path, device: str = "cpu") -> dict[str, Any]:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file is missing or is something else.
        """
        try:
            with warnings.catch_warnings():  # torch warns of foreign files that it then refuses
                warnings.simplefilter("ignore")
                content = torch.load(path, map_location=device, weights_only=True)
        except FileNotFoundError as error:
            raise self._no_run(path) from error
        except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            raise RefusedValue(
                refusal(
                    f"{path} must be written by outerconv train",
                    "a checkpoint",
                    f"a file that torch cannot read ({type(error).__name__})",
                )
            ) from error
        if not isinstance(content, dict):
            raise RefusedValue(
                refusal(
                    f"{path} must be written by outerconv train",
                    "a checkpoint",
                    f"a {type(content).__name__}",
                )
            )
        return content

    def draw(self, paint: Callable[[Path], object]) -> None:
        """Replace the picture by what ``paint`` writes to the path it is given."""
        self._replace(self.curves, paint)

    def drop_partial(self) -> None:
        """Forget the seed under way: it is finished."""
        self.partial.unlink(missing_ok=True)

    # Files --------------------------------------------------------------------------------------

    def _write_json(self, path: Path, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        text = _LIST_OF_NUMBERS.sub(lambda found: " ".join(found[0].split()), text)
        self._replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))

    def _read_json(self, path: Path) -> dict[str, Any]:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise self._no_run(path) from error
        except (ValueError, RecursionError) as error:
            raise RefusedValue(
                refusal(
                    f"{path} must be written by outerconv train",
                    "JSON",
                    " ".join(str(error).split()),
                )
            ) from error
        if not isinstance(content, dict):
            raise RefusedValue(
                refusal(
                    f"{path} must be written by outerconv train",
                    "an object",
                    type(content).__name__,
                )
            )
        return content

    def _replace(self, path: Path, write: Callable[[Path], object]) -> None:
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            write(temporary)
            os.replace(temporary, path)
        except OSError as error:
            raise self._unwritable(error) from error
        except RuntimeError as error:  # torch.save reports a full or missing disk so
            if isinstance(error.__cause__, OSError) or not self.path.is_dir():
                raise self._unwritable(error) from error
            raise
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _unwritable(self, error: Exception) -> RefusedValue:
        reason = getattr(error, "strerror", None) or str(error)
        return RefusedValue(
            refusal("the run folder must be writable", f"a folder at {self.path}", reason)
        )

    def _no_run(self, path: Path) -> RefusedValue:
        return RefusedValue(refusal(f"{self.path} is not a run folder", path.name, "no such file"))


def next_folder(base: Path, stem: str) -> Path:
    """The first of ``stem-001``, ``stem-002``, … that is free."""
    number = 1
    while (base / f"{stem}-{number:03d}").exists():
        number += 1
    return base / f"{stem}-{number:03d}"


def versions() -> dict[str, str]:
    """Of everything that numbers depend on."""
    return {
        "pyg_outerconv": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
    }


def _data_facts(dataset: Dataset) -> dict[str, Any]:
    return {
        "root": None if dataset.root is None else str(dataset.root),
        "fingerprint": dataset.fingerprint,
        "num_nodes": dataset.data.num_nodes,
        "num_edges": dataset.data.num_edges,
        "num_classes": dataset.num_classes,
    }
