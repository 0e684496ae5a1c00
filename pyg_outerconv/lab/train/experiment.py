"""A training run: every seed of every contender, saved in a run folder after each seed."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from tqdm import tqdm

from ...errors import RefusedValue
from ...files import STOPPED, silence
from ...scale.processes import ALONE, Processes, WorkerLost
from ..data import Dataset, entry, load
from ..fields import require_modules
from ..settings import Settings
from .folder import PARTIAL, PICTURE, RunFolder, dataset_of
from .inputs import choose_features, settle_features
from .loop import SeedRun, Stopped, rank, smoothing_on
from .model import OURS, PEER, Contender, backends_used, check_device, on_backend, ours
from .peers import peer
from .results import SMOOTHED, can_draw, draw_curves, summarise
from .sampled import check_mapped, prepare
from .splits import Split, absent_classes, check_classes, check_protocol, make_split

SNAPSHOT_SECONDS = 20.0

Value = TypeVar("Value")


class Interrupted(Exception):  # noqa: N818 - no error, a wish
    """A run was stopped by a signal of a number; its folder has the finished seeds and epochs."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.number = number


class Experiment:
    """A run: settings, data, contenders and a folder.

    Settings that do not fit the data, and a folder that does not fit the run, are refused before
    anything is written.

    Args:
        dataset: the graph, where it was read before; None to read it.
        processes: those that train together; the first one alone writes and prints.
        board: write curves for TensorBoard, see :func:`.experiment.curves_into`.
    """

    def __init__(
        self,
        settings: Settings,
        folder: str | Path,
        root: str | Path | None = None,
        resume: bool = False,
        log: Callable[[str], None] = print,
        dataset: Dataset | None = None,
        processes: Processes = ALONE,
        board: bool = False,
    ) -> None:
        self.processes, leads = processes, processes.leads
        self.log = log = log if leads else (lambda line: None)
        self.folder = RunFolder(folder)
        writes = board and leads
        self.board = curves_into(self.folder.path / "tensorboard") if writes else None
        check_device(settings.device)
        for turn in (leads, not leads):  # the first one downloads, and caches what it read
            if turn and dataset is None and resume:
                dataset = dataset_of(self.folder, root, log=log)
            elif turn and dataset is None:
                check_protocol(entry(settings.dataset), settings.split)
                dataset = load(settings.dataset, root, settings.split, log, settings.undirected)
            processes.shared(None)
        assert dataset is not None
        self.dataset = dataset
        check_mapped(dataset, settings)
        if resume:
            settings = settings.settled_as(self.folder.settings())
        settings = self._share_updates(settings)
        self.features = choose_features(self.dataset, settings)
        self.settings = settings = settle_features(self.dataset, settings)
        if resume:
            self._first(lambda: self.folder.take_up(settings, self.dataset))
        self._first(lambda: prepare(self.dataset, settings, log))
        self.contenders = contenders(self.dataset, settings)
        for contender in self.contenders:  # a seed draws before any is trained
            contender.model(self.dataset.num_classes, settings)
        for seed in range(settings.seeds):
            check_classes(dataset.data.y, self._split(seed), settings.metric, dataset.class_name)
        self.smoothing = smoothing_on(self.dataset.data, settings)
        self.backends = backends_used(self.contenders[0], self.dataset.num_classes, settings)
        if not resume:
            self._first(lambda: self.folder.create(settings, self.dataset))
        self.runs = self._first(self.folder.read_runs)
        if leads and any(run["model"] == OURS for run in self.runs):
            self.folder.load_checkpoint()  # of the best of them, which later ones are held against

    def _first(self, act: Callable[[], Value]) -> Value | Any:
        """What the first process gets of the run folder, in all processes."""
        return self.processes.shared(act() if self.processes.leads else None)

    def _share_updates(self, settings: Settings) -> Settings:
        """The settings with ``accumulate=0`` replaced by the number of processes, and checked."""
        size = self.processes.size
        if size == 1 and settings.batches == "none":
            return settings
        settings = settings.with_values(accumulate=settings.accumulate or size)
        if size == 1:
            return settings
        for rule, fits, expected, got in (
            ("several processes train on samples", settings.batches != "none",
             "--batches random-nodes, clusters or neighbor", settings.batches),
            ("an update has as many samples of each process", settings.accumulate % size == 0,
             f"--accumulate {size}, or a multiple of it", settings.accumulate),
            ("statistics of batches are of one process", settings.layer_norm != "batch",
             "--layer-norm layer or none", "batch"),
        ):  # fmt: skip
            if not fits:
                raise RefusedValue(rule, expected, got)
        return settings

    def run(self) -> dict[str, Any]:
        """Train every seed that is not finished yet, and return the summary.

        Raises:
            Interrupted: by Ctrl-C or SIGTERM. Finished seeds are kept, and the epochs done.
            WorkerLost: another process is gone; the same is kept.
            ValueError: training diverged, or the folder can no longer be written.
        """
        done = {(run["model"], run["seed"]) for run in self.runs}
        state = self._first(lambda: self.folder.read(PARTIAL))
        if state is not None and (state["model"], state["seed"]) in done:
            self._first(self.folder.drop_state)  # the process was killed between the two
        with StopOnInterrupt(self.processes.size > 1) as stop, on_backend(self.settings):
            for seed in range(self.settings.seeds):
                for contender in self.contenders:
                    wanted = seed in self.settings.seeds_of(contender.key == PEER)
                    if wanted and (contender.key, seed) not in done:
                        self._run_seed(contender, seed, stop)
        if self.processes.leads:
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
            contender,
            self.dataset.data.y,
            self.dataset.num_classes,
            split,
            self.settings,
            seed,
            self.processes,
            stop,
            self.smoothing,
        )
        self._take_up(run)
        self._train(run, stop)
        if self.processes.leads:
            self._keep(run, split)
        self.processes.shared(None)

    def _train(self, run: SeedRun, stop: StopOnInterrupt) -> None:
        """Train to the end, or keep the epochs done.

        Of several processes any may be asked to stop, or be gone, in the middle of an epoch. So the
        first one holds the state after each epoch.
        """
        alone, leads = self.processes.size == 1, self.processes.leads
        saved, whole = time.monotonic(), None
        epoch, lost = f"{run.contender.key} seed {run.seed}", None
        bar = tqdm(
            total=run.settings.epochs,
            initial=run.epoch,
            leave=False,
            desc=epoch,
            unit="epoch",
            disable=None if leads else True,  # None: where stderr is no terminal
        )

        def each_epoch(run: SeedRun) -> None:
            nonlocal saved, whole
            if run.evaluated:
                loss, best = run.history["val_loss"][-1], run.best.val_metric
                bar.set_postfix(val_loss=f"{loss:.3f}", best_val=f"{best:.3f}", refresh=False)
            bar.update()
            if self.board is not None:
                self.board(run)
            if not alone and leads:
                whole = deepcopy(run.state())
            if leads and time.monotonic() - saved > SNAPSHOT_SECONDS:  # in case it is killed
                self.folder.write(PARTIAL, run.state())
                saved = time.monotonic()

        try:
            if alone:
                if not stop() and run.train(each_epoch, stop):
                    return
                whole = run.state()
            elif run.train(each_epoch, lambda: False):
                return
        except Stopped:
            pass
        except WorkerLost as error:
            lost = error
        finally:
            bar.close()
        if leads and whole is not None:
            self.folder.write(PARTIAL, whole)
        where = f"in epoch {run.epoch + (not alone)} of {epoch}"
        kept = f"{len(self.runs)} finished seeds are kept"
        if lost is not None and not stop.number:
            raise WorkerLost(f"a process is gone {where}; {kept}") from lost
        raise Interrupted(f"stopped {where}; {kept}", stop.number or signal.SIGTERM)

    def _take_up(self, run: SeedRun) -> None:
        state = self._first(lambda: self.folder.read(PARTIAL))
        if state is not None and (state["model"], state["seed"]) == (run.contender.key, run.seed):
            try:
                run.load_state(state)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:  # of another torch
                expected = "a state of this model (without the file the seed begins anew)"
                rule = f"{self.folder.partial} must be of the seed under way"
                raise RefusedValue(rule, expected, f"{type(error).__name__}: {error}") from error
            self.log(f"{run.contender.key} seed {run.seed}: goes on after epoch {run.epoch}")

    def _rank(self, result: dict[str, Any]) -> tuple[float, ...]:
        return rank(self.settings, result["val_loss"], result["val_metric"])

    def _keep(self, run: SeedRun, split: Split) -> None:
        """Save the checkpoint, then the metrics, which hold only seeds compared with the best."""
        result = run.result() | run.test(self.dataset.data.y, split.test)
        place = self._rank(result)
        others = [
            self._rank(earlier_run) for earlier_run in self.runs if earlier_run["model"] == OURS
        ]
        if run.contender.key == OURS and all(place < other for other in others):
            self.folder.save_checkpoint(
                {
                    "settings": self.settings.as_dict(),
                    "seed": run.seed,
                    "parameters": run.best.parameters,
                    "in_channels": run.contender.in_channels,
                    "num_classes": self.dataset.num_classes,
                    "fingerprint": self.dataset.fingerprint,
                    "test_metric": result.get(SMOOTHED["test_metric"], result["test_metric"]),
                    "best_epoch": result["best_epoch"],
                }
            )
        self.runs.append(result)
        self.folder.write_metrics(self.runs, self.summary())
        self.folder.drop_state()
        smoothed = result.get(SMOOTHED["test_metric"])
        beside = "" if smoothed is None else f" ({100 * smoothed:.2f} % corrected and smoothed)"
        self.log(
            f"{run.contender.key} seed {run.seed}: test {self.settings.metric} "
            f"{100 * result['test_metric']:.2f} %{beside} at epoch {result['best_epoch']} of "
            f"{result['epochs']}, {result['seconds']:.1f} s"
        )

    def _draw(self) -> None:
        if not can_draw():
            self.log(
                "curves.png is not drawn: matplotlib is not installed "
                "(pip install 'pyg_outerconv[train]')"
            )
            return
        title = f"{self.contenders[0].name} on {self.settings.dataset}, {self.settings.seeds} seeds"
        self.folder.put(PICTURE, draw_curves(self.runs, title, self.settings))


def contenders(dataset: Dataset, settings: Settings) -> list[Contender]:
    """Our model, and PyG's beside it if asked for."""
    return [ours(dataset, settings), *([peer(dataset, settings)] if settings.peer else [])]


# What a command says, and how it is asked to stop -------------------------------------------------


class Console:
    """Prints for a command, which goes on when nobody reads it any more."""

    def __init__(self, command: str) -> None:
        self.command = command

    def say(self, line: str) -> None:
        """Print a line; a reader that has left, as after ``| head -1``, ends nothing."""
        try:
            print(line)
        except BrokenPipeError:
            silence(sys.stdout)
            self.complain(f"nobody reads the output any more; {self.command} goes on")

    def complain(self, line: str) -> None:
        """Print a line to stderr."""
        with suppress(BrokenPipeError):
            print(f"outerconv {self.command}: {line}", file=sys.stderr)


def curves_into(folder: Path) -> Callable[[SeedRun], None]:
    """What writes the numbers of an evaluated epoch; ``tensorboard --logdir RUN_DIR`` shows them.

    Each model and seed has a folder. Epochs that a run repeats, after it was killed, take the place
    of those that were written before.
    """
    require_modules("--tensorboard writes by", ("tensorboard",), "'pyg_outerconv[scale]'")
    writers: dict[str, Any] = {}

    def write(run: SeedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not run.evaluated:
            return
        key = f"{run.contender.key}-{run.seed}"
        if key not in writers:
            for last in writers.values():
                last.close()
            writers[key] = SummaryWriter(str(folder / key), purge_step=run.epoch)
        for name, values in run.history.items():
            writers[key].add_scalar(name, values[-1], run.epoch)
        writers[key].flush()

    return write


class StopOnInterrupt:
    """Within the block Ctrl-C or SIGTERM asks to stop after the epoch; a second one stops at once.

    So the state that is kept is that of a whole epoch. Outside the main thread, where signals do
    not arrive, it does nothing.

    Attributes:
        number: of the signal that asked, 0 for none.
    """

    def __init__(self, patient: bool = False) -> None:
        self.number, self.patient = 0, patient
        self._before: dict[int, Any] = {}
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> StopOnInterrupt:
        if self._active:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number and self.patient:
            return
        if self.number and number == signal.SIGTERM:
            raise SystemExit(STOPPED + number)
        if self.number:
            raise KeyboardInterrupt
        self.number = number

    def __call__(self) -> bool:
        """Whether to stop."""
        return bool(self.number)
