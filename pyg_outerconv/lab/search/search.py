"""A search: trials of each contestant in turn, the finals, the test, and what is written."""

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
from ..own_code import require_imported
from ..train import Interrupted
from ..train.experiment import StopOnInterrupt
from ..train.folder import alone_in
from ..train.settings import write_toml
from ..train.splits import check_classes
from .contestants import OURS, Contestant, contestants, visible_labels, without_labels
from .finals import PAGE, TABLE, TRIALS, WINNER, Finals, SearchFolder
from .page import make_page
from .plan import Plan
from .report import Report, markdown
from .space import Bounds, check_terms, neighbours_for, terms_text
from .trials import Bench, Diverged, Stopped, Studies, run_trial, writing

Record = dict[str, Any]


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
        self.plan = plan
        self.dataset = dataset or load(
            plan.base.dataset, root, plan.base.split, log, plan.base.undirected
        )
        self.dataset.require_memory("a search", "a graph in other files, or outerconv train")
        self.contestants = contestants(list(plan.peers))
        seeds = range(plan.test_seeds)
        graph = without_labels(self.dataset)
        labels = visible_labels(self.dataset, plan.base.split, seeds)
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
        begin = (lambda: None) if resume else self.folder.make
        with ExitStack() as held:  # which lets go of the folder if it is refused
            held.enter_context(alone_in(self.folder.path, begin=begin))
            if not resume:
                self.folder.begin(plan.as_dict(), self.dataset)
            self.folder.check_data(self.dataset)
            self.folder.sweep()
            names = [contestant.name for contestant in self.contestants]
            self.studies = Studies(self.folder.storage, names, plan.seed)
            self.trials = {name: self.studies.finished(name) for name in names}
            self._check_kept()
            self.studies.drop_unfinished()
            self.finals = Finals(self.folder, plan, self.bench, log)
            self._held = held.pop_all()

    def close(self) -> None:
        """Let other processes go on with the search."""
        self._held.close()

    def run(self) -> Report:
        """Search, validate the finalists, test the winners once, and write all files."""
        self._keep()  # with a trial that finished when the process was killed
        with StopOnInterrupt() as stop, writing(self.folder.storage):
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
        if self.finals.found["winners"]:
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
        self.studies.note(trial, candidate)
        seeds, began = range(self.plan.seeds), time.perf_counter()
        facts: dict[str, Any] = {}
        results: list[Record] | None = None
        try:
            results = run_trial(trial, self.bench, contestant, candidate, seeds)
        except TrialPruned:
            pass
        except Diverged as error:
            facts["diverged"] = str(error)
        facts["wall"] = time.perf_counter() - began
        self.studies.end(name, trial, results, **facts)
        self.trials[name] = self.studies.finished(name)
        self._keep()
        self._say(contestant)

    def _keep(self) -> None:
        self.folder.write(TRIALS, {"trials": self.trials})

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
            if not any(trial["state"] == "complete" for trial in trials):
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
        report = Report(
            self.plan,
            {contestant.name: contestant.shown for contestant in self.contestants},
            self.trials,
            winners,
            self.finals.found,
            self.folder.read_config(),
        )
        settings = report.winner_settings()
        winner = write_toml(settings, report.winner_remark())
        for name, text in ((WINNER, winner), (TABLE, markdown(report)), (PAGE, make_page(report))):
            self.folder.put(name, text.encode())
        return report

    # The folder ---------------------------------------------------------------------------------

    def _check_kept(self) -> None:
        """Refuse a storage that lacks trials which ``trials.json`` lists, or has others."""
        kept = (self.folder.read(TRIALS) or {}).get("trials", {})
        for name, listed in kept.items():
            found = self.trials.get(name, [])
            if found[: len(listed)] != listed:
                raise RefusedValue(
                    f"{self.folder.storage} must hold the trials of {name} that {TRIALS} lists",
                    f"these {len(listed)}",
                    f"others ({len(found)} are finished there)",
                )
