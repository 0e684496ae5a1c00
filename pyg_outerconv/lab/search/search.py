"""A search in its folder: generations of trials, halving, the final, the test, the page."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from optuna import Trial

from ...errors import RefusedValue
from ..data import Dataset, load
from ..fields import write_toml
from ..own_code import require_imported
from ..settings import Settings
from ..train import Interrupted
from ..train.experiment import StopOnInterrupt
from ..train.folder import CONFIG, LOCK, Folder, alone_in
from ..train.loop import Stopped
from ..train.splits import check_classes
from . import space
from .finals import Finals
from .plan import FIRST_TRIAL_SEED, Plan, plan_from
from .report import Report, make_page
from .studies import Record, Studies, writing
from .work import Labels, Outcome, Task, Workers, visible_labels, without_labels

STORAGE, WINNER, TABLE, PAGE = "study.db", "winner.toml", "search.md", "search.html"
PAGE_SECONDS = 60.0  # between pages that are written while a search goes on
BORROWED = 3  # every so many trials of a kind begin with the best model of the other kinds


class SearchFolder(Folder):
    """Reads and writes one search.

    - ``config.json``: plan, data, versions
    - ``study.db``: Optuna's storage, an SQLite file, with all numbers
    - ``winner.toml``: for ``outerconv train --config``
    - ``search.md``, ``search.html``: the tables, and the page
    - ``lock``: empty, locked by the process that works here
    """

    of, called, key = "a search", "the folder of a search", "plan"
    names = (CONFIG, STORAGE, WINNER, TABLE, PAGE, LOCK)
    begun = (STORAGE, f"{STORAGE}-journal")

    @property
    def plan(self) -> Plan:
        """The plan that the search began with."""
        return plan_from(self.read_config()["plan"], str(self.config))

    def studies(self, plan: Plan, names: list[str], begun: dict[str, Any] | None = None) -> Studies:
        """What was found here; ``begun`` is the configuration of a search that begins."""
        of = self.identity_of(begun or self.read_config())
        return Studies(self.path / STORAGE, names, plan.seed, of, begun is not None)


class Search:
    """A search in a folder.

    Args:
        plan: what is searched; None to go on with the search in the folder.
        dataset: a graph that was read; None to read that of the plan.
        jobs: processes that train; 0 for one a core, and one on a GPU.
    """

    def __init__(
        self,
        plan: Plan | None,
        folder: str | Path,
        root: str | Path | None = None,
        log: Callable[[str], None] = print,
        dataset: Dataset | None = None,
        jobs: int = 0,
    ) -> None:
        self.log, self.folder = log, SearchFolder(folder)
        resume = plan is None
        if plan is None:
            plan, root = self.folder.plan, self.folder.root(root)
            require_imported(plan.base.imports)
        self.plan, base = plan, plan.base
        self.dataset = dataset or load(base.dataset, root, base.split, log, base.undirected)
        self.dataset.require_memory("a search", "a graph in other files, or outerconv train")
        self._prepare(jobs)
        names = [kind.name for kind in self.kinds]
        begin = (lambda: None) if resume else self.folder.make
        with ExitStack() as exit_stack:  # which lets go of the folder if it is refused
            exit_stack.enter_context(alone_in(self.folder.path, begin=begin))
            if resume:
                self.folder.check_data(self.dataset)
                self.studies = self.folder.studies(plan, names)
            else:  # a folder with a configuration has a storage
                begun = self.folder.configuration(plan.as_dict(), self.dataset)
                self.studies = self.folder.studies(plan, names, begun)
                self.folder.begin(begun)
            self.folder.sweep()
            self.studies.drop_unfinished()
            self.trials = {name: self.studies.finished(name) for name in names}
            self.finals = Finals(self.studies, plan, self.workers, self.labels, log, self._progress)
            self._written = time.monotonic() - PAGE_SECONDS
            self._exit_stack = exit_stack.pop_all()

    def _prepare(self, jobs: int) -> None:
        """What trials are trained on, what they draw from, and who trains them."""
        plan, graph = self.plan, without_labels(self.dataset)
        for seed in range(plan.test_seeds):
            check_classes(self.dataset.data.y, self.labels(seed).split, plan.base.metric)
        self.bounds = space.Bounds(
            plan.base.as_dict(),
            space.neighbours_for(self.dataset),
            graph.has_features,
            graph.is_directed,
            self.dataset.num_relations,
            plan.max_depth,
            plan.max_hidden,
            plan.terms,
        )
        self.kinds = space.kinds_for(plan.portfolio, self.bounds)
        space.check_terms(plan.terms, self.bounds, graph)
        on_gpu = torch.device(plan.base.device).type != "cpu"
        self.workers = Workers(graph, jobs or (1 if on_gpu else cores()), plan.base.imports)

    @lru_cache(maxsize=64)  # noqa: B019 - for as long as the search lives
    def labels(self, seed: int) -> Labels:
        """The labels that a seed may see."""
        return visible_labels(self.dataset, self.plan.base.split, seed)

    def close(self) -> None:
        """Let other processes go on with the search."""
        self._exit_stack.close()

    def run(self) -> Report:
        """Search, choose on validation nodes, test once, and write all files."""
        with StopOnInterrupt() as stop, writing(self.studies.path), self.workers.working(stop):
            try:
                self._search()
                report = self._finish()
            except Stopped:
                done = sum(map(len, self.trials.values()))
                number = stop.number or signal.SIGINT
                raise Interrupted(f"stopped; {done} finished trials are kept", number) from None
        self._write(report)
        return report

    # Trials -------------------------------------------------------------------------------------

    def _search(self) -> None:
        """Generations of trials, one of each kind, until all have as many as the plan says.

        What a generation draws depends on those before it alone, so that its trials can be trained
        at once, in any order.
        """
        generation = min(map(len, self.trials.values()))
        while not self._is_enough(generation):
            self._generate(generation)
            generation += 1
            if not self._is_enough(generation):
                self._progress()

    def _is_enough(self, generation: int) -> bool:
        if self.plan.trials or self.studies.kept(space.OURS, "winner", None) is not None:
            return generation >= (self.plan.trials or min(map(len, self.trials.values())))
        past = (
            trial["wall"]
            for kind_trials in self.trials.values()
            for trial in kind_trials[:generation]
        )
        return generation > 0 and sum(past) >= self.plan.budget

    def _generate(self, generation: int) -> None:
        """Draw and train a trial of each kind that has none in this generation."""
        begun: dict[str, tuple[Trial, Settings, dict[int, Record]]] = {}
        tasks = []
        for kind in self.kinds:
            if len(self.trials[kind.name]) > generation:
                continue
            trial, settings = self._draw(kind, generation)
            begun[kind.name] = trial, settings, {}
            for seed in range(FIRST_TRIAL_SEED, FIRST_TRIAL_SEED + self.plan.seeds):
                tasks.append(Task((kind.name,), settings, seed, self.labels(seed)))

        def done(task: Task, outcome: Outcome) -> None:
            (name,) = task.key
            trial, settings, results = begun[name]
            results[task.seed] = {**outcome.numbers, "seed": task.seed}
            if len(results) == self.plan.seeds:
                sorted_results = [results[seed] for seed in sorted(results)]
                wall = sum(one.get("wall", 0.0) for one in sorted_results)
                self.studies.end(
                    name, trial, sorted_results, settings=settings.as_dict(), wall=wall
                )
                self.trials[name] = self.studies.finished(name)
                self._say(name)

        self.workers.run(tasks, done)

    def _draw(self, kind: space.Kind, generation: int) -> tuple[Trial, Settings]:
        """What a kind tries in a generation.

        Of every three trials two begin with what is published of this kind, as long as there is
        something left, and the third with the best model of the other kinds; all others are drawn.
        """
        turn, place = divmod(generation, BORROWED)
        starts, start, told = kind.starts(self.bounds), None, {}
        if place < BORROWED - 1 and (at := (BORROWED - 1) * turn + place) < len(starts):
            start = starts[at]
            told = kind.told(start, self.bounds)
        elif place == BORROWED - 1:
            told = self._best_elsewhere(kind, generation)
        trial = self.studies.begin(kind.name, generation, told)
        settings = kind.draw(trial, self.bounds)
        return trial, settings if start is None else kind.start_settings(
            start, settings, self.bounds
        )

    def _best_elsewhere(self, kind: space.Kind, generation: int) -> dict[str, Any]:
        """The best model that another kind had before this generation, as it is drawn."""
        others = [
            (-trial["value"], name, trial["number"])
            for name, kind_trials in self.trials.items()
            for trial in kind_trials[:generation]
            if name != kind.name
        ]
        if not others:
            return {}
        _, name, number = min(others)
        model = space.as_drawn(self.trials[name][number]["settings"], self.bounds)
        return {key: value for key, value in model.items() if key not in kind.choices}

    def _say(self, name: str) -> None:
        """A line on the latest trial of a kind."""
        latest = self.trials[name][-1]
        best = max(trial["value"] for kind_trials in self.trials.values() for trial in kind_trials)
        family = f"  {space.terms_text(latest['settings']['family'])}" if name == space.OURS else ""
        said = f"{name} trial {latest['number']}: {100 * latest['value']:.2f} %"
        self.log(f"{said}; best of all {100 * best:.2f} %{family}")

    # The end ------------------------------------------------------------------------------------

    def _finish(self) -> Report:
        """Halving, the final, what the winner is made of, and then the test."""
        finals, trials = self.finals, self.trials
        counts = {name: len(kind_trials) for name, kind_trials in trials.items()}
        if len(set(counts.values())) > 1:
            raise RefusedValue("kinds are compared after equal numbers of trials", "equal", counts)
        best = finals.halve(trials)
        winner, finalists = finals.choose(best, trials)
        settings = finals.settings(winner, trials)
        finals.ablate(settings)
        finals.look(settings)
        chosen = {
            name: next((place for place in finalists if place[0] == name), kind_places[0])
            for name, kind_places in best.items()
        }
        members = finalists[: self.plan.ensemble]
        places = dict.fromkeys([*chosen.values(), *members])
        models = {finals.key(place): finals.settings(place, trials) for place in places}
        finals.test(models, [finals.key(place) for place in members], self.dataset)
        return replace(self._report(), winner=winner, finalists=finalists, chosen=chosen)

    def _progress(self, stage: str = "") -> None:
        """Once a minute: how far a stage is, and the page so far."""
        if time.monotonic() - self._written > PAGE_SECONDS:
            if stage:  # trials have lines of their own
                self.log(stage)
            self._write(self._report(stage))
            self._written = time.monotonic()

    def _report(self, stage: str = "") -> Report:
        titles = {kind.name: kind.title for kind in self.kinds}
        config, kept = self.folder.read_config(), {}
        for what in ("final", "without", "seen", "tests"):
            kept[what] = self.studies.kept(space.OURS, what, {})
        kept["rungs"] = {name: self.studies.kept(name, "rungs", {}) for name in titles}
        return Report(self.plan, titles, self.trials, config, kept, stage=stage)

    def _write(self, report: Report) -> None:
        pages = {TABLE: make_page(report, "markdown"), PAGE: make_page(report)}
        if report.winner is not None:
            pages[WINNER] = write_toml(report.winner_settings(), report.winner_remark())
        for name, text in pages.items():
            self.folder.put(name, text.encode())


def cores() -> int:
    """The cores that this process may use."""
    get_affinity = getattr(os, "sched_getaffinity", None)
    return len(get_affinity(0)) if get_affinity is not None else os.cpu_count() or 1
