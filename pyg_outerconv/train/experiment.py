"""A training run: every seed of every contender, saved in a run folder after each seed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data import Dataset, entry, load
from ..errors import RefusedValue
from .features import choose_features, settle_features
from .loop import SeedRun, rank, train
from .model import OURS, Contender, backends_used, check_device, on_backend, ours
from .peer import peer
from .progress import Progress, StopOnInterrupt
from .records import is_history
from .results import can_draw, draw_curves, summarise
from .run_data import dataset_of
from .run_folder import RunFolder
from .settings import Settings
from .splits import Split, absent_classes, check_classes, check_protocol, make_split

SNAPSHOT_SECONDS = 20.0


class Interrupted(Exception):  # noqa: N818 - no error, a wish
    """A run was stopped by a signal; its folder has the finished seeds and the epochs done.

    Args:
        message: where it was stopped.
        number: of the signal.
    """

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


class Experiment:
    """A run: settings, data, contenders and a folder.

    Args:
        settings: the whole configuration.
        folder: the run folder.
        root: where data is, see :func:`pyg_outerconv.data.data_root`.
        resume: go on with the run that is in the folder.
        log: takes lines of text.
        show_bar: see :class:`Progress`.
        dataset: the graph, where it was read before; None to read it.

    Raises:
        ValueError, DataUnavailable: the settings do not fit the data, or the folder does not fit
            the run. Nothing is written in that case.
    """

    def __init__(
        self,
        settings: Settings,
        folder: str | Path,
        root: str | Path | None = None,
        resume: bool = False,
        log: Callable[[str], None] = print,
        show_bar: bool | None = None,
        dataset: Dataset | None = None,
    ) -> None:
        self.log = log
        self.progress = Progress(log, show_bar)
        self.folder = RunFolder(folder)
        check_device(settings.device)
        if dataset is None and resume:
            dataset = dataset_of(self.folder, root, log=log)
        elif dataset is None:
            check_protocol(entry(settings.dataset), settings.split)
            dataset = load(settings.dataset, root, settings.split, log)
        self.dataset = dataset
        if resume and settings.features == "auto":  # as it was settled when the run began
            settings = replace(settings, features=self.folder.settings().features)
        self.features = choose_features(self.dataset, settings)
        self.settings = settings = settle_features(self.dataset, settings)
        if resume:
            self.folder.take_up(settings, self.dataset)
        self.contenders = contenders(self.dataset, settings)
        for contender in self.contenders:  # a seed draws before any is trained
            contender.model(self.dataset.num_classes, settings)
        for seed in range(settings.seeds):
            check_classes(self.dataset.data.y, self._split(seed), settings.metric)
        self.backends = backends_used(self.contenders[0], self.dataset.num_classes, settings)
        if not resume:
            self.folder.create(settings, self.dataset)
        self.runs = self.folder.read_runs()
        if any(run["model"] == OURS for run in self.runs):
            self.folder.load_checkpoint()  # of the best of them, which later ones are held against

    def run(self) -> dict[str, Any]:
        """Train every seed that is not finished yet, and return the summary.

        Raises:
            Interrupted: by Ctrl-C or SIGTERM. Finished seeds are kept, and the epochs done.
            ValueError: training diverged, or the folder can no longer be written.
        """
        done = {(run["model"], run["seed"]) for run in self.runs}
        state = self.folder.load_state()
        if state is not None and (state["model"], state["seed"]) in done:
            self.folder.drop_state()  # the process was killed between the two
        with StopOnInterrupt() as stop, on_backend(self.settings):
            for seed in range(self.settings.seeds):
                for contender in self.contenders:
                    if (contender.key, seed) not in done:
                        self._run_seed(contender, seed, stop)
        self._draw()
        return self.summary()

    def summary(self) -> dict[str, Any]:
        """Of the seeds that are finished, and the backends that served our model."""
        names = {contender.key: contender.name for contender in self.contenders}
        return summarise(self.runs, names, self.settings.metric) | {"backends": self.backends}

    def _split(self, seed: int) -> Split:
        return make_split(self.dataset.data, self.settings.split, seed)

    def _run_seed(self, contender: Contender, seed: int, stop: StopOnInterrupt) -> None:
        split = self._split(seed)
        if absent := absent_classes(self.dataset.data.y, split):
            names = ", ".join(map(self.dataset.class_name, absent))
            self.log(f"seed {seed}: no training node has class {names}")
        run = SeedRun(
            contender, self.dataset.data.y, self.dataset.num_classes, split, self.settings, seed
        )
        self._take_up(run)
        self.progress.begin(run)
        saved = time.monotonic()

        def each_epoch(run: SeedRun) -> None:
            nonlocal saved
            self.progress.epoch(run)
            if time.monotonic() - saved > SNAPSHOT_SECONDS:  # in case the process is killed
                self.folder.save_state(run.state())
                saved = time.monotonic()

        try:
            finished = not stop() and train(run, each_epoch, stop)
        finally:
            self.progress.end()
        if not finished:
            self.folder.save_state(run.state())
            raise Interrupted(
                f"stopped in epoch {run.epoch} of {contender.key} seed {seed}; "
                f"{len(self.runs)} finished seeds are kept",
                stop.number,
            )
        self._keep(run, split)

    def _take_up(self, run: SeedRun) -> None:
        state = self.folder.load_state()
        if state is not None and (state["model"], state["seed"]) == (run.contender.key, run.seed):
            self._load(run, state)
            self.log(f"{run.contender.key} seed {run.seed}: goes on after epoch {run.epoch}")

    def _load(self, run: SeedRun, state: dict[str, Any]) -> None:
        try:
            run.load_state(state)
            if run.epoch > self.settings.epochs or not is_history(run.history, run.epoch):
                raise ValueError("other learning curves")
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise RefusedValue(
                f"{self.folder.partial} must be of the seed under way",
                "a state of this model (without the file the seed begins anew)",
                " ".join(f"{type(error).__name__}: {error}".split()),
            ) from error

    def _rank(self, result: dict[str, Any]) -> tuple[float, ...]:
        return rank(self.settings, result["val_loss"], result["val_metric"])

    def _keep(self, run: SeedRun, split: Split) -> None:
        """Save the checkpoint, then the metrics, which hold only seeds compared with the best."""
        result = run.result() | run.test(self.dataset.data.y, split.test)
        place = self._rank(result)
        others = [self._rank(known) for known in self.runs if known["model"] == OURS]
        if run.contender.key == OURS and all(place < other for other in others):
            self.folder.save_checkpoint(
                {
                    "settings": self.settings.as_dict(),
                    "seed": run.seed,
                    "parameters": run.best.parameters,
                    "in_channels": run.contender.in_channels,
                    "num_classes": self.dataset.num_classes,
                    "fingerprint": self.dataset.fingerprint,
                    "test_metric": result["test_metric"],
                    "best_epoch": result["best_epoch"],
                }
            )
        self.runs.append(result)
        self.folder.write_metrics(self.runs, self.summary())
        self.folder.drop_state()
        self.progress.report(result, self.settings.metric)

    def _draw(self) -> None:
        if not can_draw():
            self.log(
                "curves.png is not drawn: matplotlib is not installed "
                "(pip install 'pyg_outerconv[train]')"
            )
            return
        title = f"{self.contenders[0].name} on {self.settings.dataset}, {self.settings.seeds} seeds"
        self.folder.draw(draw_curves(self.runs, title, self.settings.metric))


def contenders(dataset: Dataset, settings: Settings) -> list[Contender]:
    """Our model, and PyG's beside it if asked for."""
    return [ours(dataset, settings), *([peer(dataset, settings)] if settings.peer else [])]
