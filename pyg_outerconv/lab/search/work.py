"""The trainings of a search, one seed of one model each, in this process or in several.

A worker gets the graph without labels once, and with each task the labels that its seed may see, so
that no worker has the label of a test node. It trains in as many threads as this process does, so
that numbers do not depend on who trained.
"""

from __future__ import annotations

import copy
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import is_undirected

from ...errors import RefusedValue
from ..data import Dataset
from ..own_code import import_own
from ..settings import Settings
from ..spawned import spawned
from ..train.loop import Diverged, SeedRun, Stopped
from ..train.model import Contender, on_backend, ours
from ..train.splits import Split, make_split
from .pictures import Seen, look_at

ALONE = 10.0  # seconds of training before other processes are begun, which takes some itself


# What a search may see of the labels --------------------------------------------------------------

WITHHELD = -1


@dataclass(frozen=True)
class Unlabelled:
    """A dataset whose ``y`` is −1 at every node, as models are built on."""

    dataset: Dataset
    num_classes: int

    @property
    def has_features(self) -> bool:
        """Whether nodes have features."""
        x = self.dataset.data.get("x")
        return x is not None and x.numel() > 0

    @property
    def is_directed(self) -> bool:
        """Whether the edges and the reversed edges differ."""
        data = self.dataset.data
        return not is_undirected(data.edge_index, num_nodes=data.num_nodes)


@dataclass(frozen=True)
class Labels:
    """What a seed may see."""

    y: Tensor
    split: Split


def without_labels(dataset: Dataset) -> Unlabelled:
    """The dataset without labels."""
    data = copy.copy(dataset.data)
    data.y = torch.full_like(dataset.data.y, WITHHELD)
    return Unlabelled(replace(dataset, data=data), dataset.num_classes)


def visible_labels(dataset: Dataset, protocol: str, seed: int) -> Labels:
    """The labels of a seed's training and validation nodes; all others are withheld."""
    split = make_split(dataset.data, protocol, seed)
    seen = (split.train | split.validation) & ~split.test
    return Labels(torch.where(seen, dataset.data.y, WITHHELD), split)


# Training -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A seed of a model to train; ``key`` is of whoever asks.

    It ``wants`` the numbers alone, or beside them ``'logits'`` of all nodes, or what is ``'seen'``.
    """

    key: tuple[Any, ...]
    settings: Settings
    seed: int
    labels: Labels
    wants: str = ""


@dataclass(frozen=True)
class Outcome:
    """What training gave: the numbers of the seed, and what the task wanted."""

    numbers: dict[str, Any]
    logits: Tensor | None = None
    seen: Seen | None = None


Ended = tuple[Task, Outcome]
Done = Callable[[Task, Outcome], None]


@dataclass
class Bench:
    """Trains in this process."""

    graph: Unlabelled
    stop: Callable[[], bool] = field(default=lambda: False)
    _last: tuple[Settings, Contender] | None = None

    def contender(self, settings: Settings) -> Contender:
        """The contender of a model, on the graph without labels."""
        if self._last is None or self._last[0] != settings:
            self._last = settings, ours(self.graph.dataset, settings)
        return self._last[1]

    def train(self, task: Task) -> Outcome:
        """Train one seed to the end, on the labels that it may see.

        A model whose loss is no longer a number has the worst numbers.
        """
        began = time.perf_counter()
        if self.stop():
            raise Stopped
        settings, labels = task.settings, task.labels
        with on_backend(settings):
            contender, classes = self.contender(settings), self.graph.num_classes
            run = SeedRun(contender, labels.y, classes, labels.split, settings, task.seed)
            try:
                finished = run.train(lambda run: None, self.stop)
            except Diverged as error:
                return Outcome({"val_metric": 0.0, "val_loss": float(10**9), "said": str(error)})
            if not finished:
                raise Stopped
            seed_numbers = run.result()
            names = ("val_metric", "val_loss", "best_epoch", "epochs", "seconds")
            numbers = {name: seed_numbers[name] for name in names}
            run.model.load_state_dict(run.best.parameters)
            logits = seen = None
            if task.wants == "logits":
                logits = contender.inputs.predicted(run.model).cpu()
            elif task.wants == "seen":
                seen = look_at(run, labels, self.graph.dataset)
        return Outcome({**numbers, "wall": time.perf_counter() - began}, logits, seen)


class Workers:
    """Runs tasks, in this process at first, and in ``jobs`` of them once that has taken a while."""

    def __init__(self, graph: Unlabelled, jobs: int, imports: str = "") -> None:
        self.graph, self.jobs, self.imports = graph, jobs, imports
        self.bench, self.seconds = Bench(graph), 0.0
        self._pool: ProcessPoolExecutor | None = None
        self._stopped: Any = None

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return max(1, torch.get_num_threads() // self.jobs)

    @contextmanager
    def working(self, stop: Callable[[], bool]) -> Iterator[None]:
        """A block in which tasks run until ``stop`` says so; processes end with it."""
        before = torch.get_num_threads()
        self.bench.stop, threads = stop, self.threads
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            if self._pool is not None:
                self._stopped.set()
                self._pool.shutdown(cancel_futures=True)
                self._pool = None
            torch.set_num_threads(before)

    def run(self, tasks: Iterable[Task], done: Done) -> list[Ended]:
        """Run tasks, and tell each as it ends; the order in which they end is left open."""
        ended = []
        for task, outcome in self._outcomes(list(tasks)):
            done(task, outcome)
            ended.append((task, outcome))
        return ended

    def _outcomes(self, left: list[Task]) -> Iterator[Ended]:
        while left and (self.jobs == 1 or self.seconds < ALONE or len(left) == 1):
            task = left.pop(0)
            began = time.perf_counter()
            outcome = self.bench.train(task)
            self.seconds += time.perf_counter() - began
            yield task, outcome
        if not left:
            return
        pool = self._pool or self._begin()
        waiting: dict[Future[Outcome], Task] = {pool.submit(_train, task): task for task in left}
        while waiting:
            ended, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
            for future in ended:
                try:
                    yield waiting.pop(future), future.result()
                except BrokenProcessPool as error:
                    rule = "each process of a search trains until the search ends"
                    raise RefusedValue(rule, "enough memory, or fewer --jobs", error) from error
            if self.bench.stop():
                raise Stopped

    def _begin(self) -> ProcessPoolExecutor:
        self._stopped = multiprocessing.get_context("spawn").Event()
        args = self.graph, self.imports, torch.get_num_threads(), self._stopped
        self._pool = spawned(self.jobs, _begin_worker, *args)
        return self._pool


# In a worker --------------------------------------------------------------------------------------

_bench: Bench | None = None


def _begin_worker(graph: Unlabelled, imports: str, threads: int, stopped: Any) -> None:
    global _bench
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the search itself takes, and tells
    torch.set_num_threads(threads)
    import_own([name for name in imports.split(",") if name])
    _bench = Bench(graph, stopped.is_set)


def _train(task: Task) -> Outcome:
    assert _bench is not None  # as workers begin
    return _bench.train(task)
