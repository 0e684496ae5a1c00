"""What runs have left in their folders, and runs that are asked to stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from pyg_outerconv import files
from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import Interrupted, Settings, experiment, make_split
from pyg_outerconv.lab.train.folder import LOCK, RunFolder
from pyg_outerconv.lab.train.loop import SeedRun
from pyg_outerconv.lab.train.model import ours


def seed_run(settings: Settings, seed: int = 0, **options: Any) -> SeedRun:
    """One model under training, on the data set that its settings name."""
    dataset = data.load(settings.dataset)
    split, contender = make_split(dataset.data, settings.split, seed), ours(dataset, settings)
    y, count = dataset.data.y, dataset.num_classes
    return SeedRun(contender, y, count, split, settings, seed, **options)


def results(folder: Path) -> list[dict[str, Any]]:
    runs = files.load_json(folder / "metrics.json")["runs"]
    return [{key: value for key, value in run.items() if key != "seconds"} for run in runs]


def read_all(folder: Path) -> None:
    """Every file that stands under its name is whole."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".json" and path.name in RunFolder.names:
            files.load_json(path)
        elif path.name in RunFolder.names and path.suffix == ".pt":
            files.load_tensors(path)
            torch.load(path, weights_only=True)
        elif path.name == "curves.png":
            assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
        else:
            assert path.name == LOCK or path.name.startswith("."), f"{path} is no file of a run"


def assert_same_end(folder: Path, whole: Path) -> None:
    """A run ended as another one did, to the bit, and left nothing beside its files."""
    assert results(folder) == results(whole)
    assert {path.name for path in folder.iterdir()} <= set(RunFolder.names) - {"partial.pt"}
    ours, other = (files.load_tensors(path / "checkpoint.pt") for path in (folder, whole))
    wanted = other.pop("parameters")
    assert all(torch.equal(value, wanted[name]) for name, value in ours.pop("parameters").items())
    assert ours == other


@contextmanager
def stopping(monkeypatch: pytest.MonkeyPatch, epochs: int) -> Iterator[None]:
    """A block whose run is asked to stop after so many epochs, and does."""
    done, step = 0, SeedRun.step

    def counted(self: SeedRun) -> None:
        nonlocal done
        step(self)
        done += 1

    class Soon(experiment.StopOnInterrupt):
        def __call__(self) -> bool:
            return done >= epochs

    with monkeypatch.context() as patched:
        patched.setattr(experiment, "StopOnInterrupt", Soon)
        patched.setattr(SeedRun, "step", counted)
        with pytest.raises(Interrupted, match="stopped in epoch"):
            yield
    assert done == epochs
