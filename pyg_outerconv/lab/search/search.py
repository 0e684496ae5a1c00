"""A search in its folder: trials of each contestant in turn, the finals, the test, the page."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from optuna import TrialPruned

from ...errors import RefusedValue
from ..data import Dataset, load
from ..fields import write_toml
from ..own_code import require_imported
from ..train import Interrupted
from ..train.experiment import StopOnInterrupt
from ..train.folder import CONFIG, LOCK, Folder, alone_in
from ..train.splits import check_classes
from .contestants import OURS, Contestant, contestants, visible_labels, without_labels
from .finals import Finals
from .plan import Plan, plan_from
from .report import Report, make_page
from .space import Bounds, check_terms, neighbours_for, terms_text
from .studies import Record, Studies, writing
from .trials import Bench, Diverged, Stopped, run_trial

STORAGE, WINNER, TABLE, PAGE = "study.db", "winner.toml", "search.md", "search.html"


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
        folder: of the search.
        root: where data is, see :func:`pyg_outerconv.lab.data.data_root`.
        dataset: a graph that was read; None to read that of the plan.
        log: takes lines of text.
    """

    def __init__(
        self,
        plan: Plan | None,
        folder: str | Path,
        root: str | Path | None = None,
        log: Callable[[str], None] = print,
        dataset: Dataset | None = None,
    ) -> None:
        self.log, self.folder = log, SearchFolder(folder)
        resume = plan is None
        if plan is None:
            plan, root = self.folder.plan, root or self.folder.root()
            require_imported(plan.base.imports)
        self.plan, base = plan, plan.base
        self.dataset = dataset or load(base.dataset, root, base.split, log, base.undirected)
        self.dataset.require_memory("a search", "a graph in other files, or outerconv train")
        self.contestants = contestants(plan.peers)
        self._prepare()
        names = [contestant.name for contestant in self.contestants]
        begin = (lambda: None) if resume else self.folder.make
        with ExitStack() as held:  # which lets go of the folder if it is refused
            held.enter_context(alone_in(self.folder.path, begin=begin))
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
            self.finals = Finals(self.studies, plan, self.bench, log)
            self._held = held.pop_all()

    def _prepare(self) -> None:
        """What trials are trained on, and what they draw from."""
        plan, graph = self.plan, without_labels(self.dataset)
        labels = visible_labels(self.dataset, plan.base.split, range(plan.test_seeds))
        for seen in labels.values():
            check_classes(self.dataset.data.y, seen.split, plan.base.metric)
        self.bench = Bench(graph, labels)
        self.bounds = Bounds(
            plan.base.as_dict(),
            neighbours_for(self.dataset),
            graph.has_features,
            graph.is_directed,
            self.dataset.num_relations,
            plan.max_depth,
            plan.max_hidden,
            plan.terms,
        )
        check_terms(plan.terms, self.bounds, graph)

    def close(self) -> None:
        """Let other processes go on with the search."""
        self._held.close()

    def run(self) -> Report:
        """Search, validate the finalists, test the winners once, and write all files."""
        with StopOnInterrupt() as stop, writing(self.studies.path):
            self.bench.stop = stop
            try:
                while (contestant := self._next()) is not None:
                    self._trial(contestant)
                winners = self._finals()
            except Stopped:
                done = sum(map(len, self.trials.values()))
                number = stop.number or signal.SIGINT
                raise Interrupted(f"stopped; {done} finished trials are kept", number) from None
        return self._write(winners)

    # Trials -------------------------------------------------------------------------------------

    def _next(self) -> Contestant | None:
        """The contestant that has used the smallest share of its budget; None when all is used."""
        plan = self.plan
        if self.studies.kept(OURS, "winner", None) is not None:
            return None  # the search was over

        def used(contestant: Contestant) -> float:
            trials = self.trials[contestant.name]
            if plan.trials:
                return len(trials) / plan.trials
            share = plan.budget / len(self.contestants)
            return sum(trial["wall"] for trial in trials) / share

        least = min(self.contestants, key=used)
        return least if used(least) < 1 else None

    def _trial(self, contestant: Contestant) -> None:
        name = contestant.name
        trial = self.studies.begin(name, contestant.starts(self.bounds))
        candidate = contestant.draw(trial, self.bounds)
        facts: dict[str, Any] = {"settings": candidate.settings.as_dict(), "heads": candidate.heads}
        results: list[Record] | None = None
        began = time.perf_counter()
        try:
            seeds = range(self.plan.seeds)
            results = run_trial(trial, self.bench, contestant, candidate, seeds)
        except TrialPruned:
            pass
        except Diverged as error:
            facts["diverged"] = str(error)
        self.studies.end(name, trial, results, **facts, wall=time.perf_counter() - began)
        self.trials[name] = self.studies.finished(name)
        self._say(contestant)

    def _say(self, contestant: Contestant) -> None:
        """A line on the latest trial of a contestant."""
        trials = self.trials[contestant.name]
        latest = trials[-1]
        values = [trial["value"] for trial in trials if trial["value"] is not None]
        said = latest["state"] if latest["value"] is None else f"{100 * latest['value']:.2f} %"
        best = f"; best {100 * max(values):.2f} %" if values else ""
        family = terms_text(latest["settings"]["family"]) if contestant.name == OURS else ""
        self.log(f"{contestant.name} trial {latest['number']}: {said}{best}  {family}".rstrip())

    # The end ------------------------------------------------------------------------------------

    def _finals(self) -> dict[str, Record]:
        """The winner of each contestant, its terms and labels, and then the test."""
        winners = {}
        for contestant in self.contestants:
            trials = self.trials[contestant.name]
            if not any(trial["value"] is not None for trial in trials):
                raise RefusedValue(
                    f"a search ends with a finished trial of {contestant.name}",
                    "more --trials, a larger --budget, or another learning rate",
                    f"{len(trials)} trials, all stopped early",
                )
            winners[contestant.name] = self.finals.choose(contestant, trials)
        self.finals.ablate(self.contestants[0], winners[OURS])
        self.finals.weigh_labels(self.contestants[0], winners[OURS])
        for contestant in self.contestants:
            self.finals.test(contestant, winners[contestant.name], self.dataset)
        return winners

    def _write(self, winners: dict[str, Record]) -> Report:
        shown = {contestant.name: contestant.shown for contestant in self.contestants}
        found, config = self.finals.found(list(shown)), self.folder.read_config()
        report = Report(self.plan, shown, self.trials, winners, found, config)
        winner = write_toml(report.winner_settings(), report.winner_remark())
        pages = {WINNER: winner, TABLE: make_page(report, "markdown"), PAGE: make_page(report)}
        for name, text in pages.items():
            self.folder.put(name, text.encode())
        return report
