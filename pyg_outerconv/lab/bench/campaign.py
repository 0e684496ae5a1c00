"""One run of ``outerconv bench``, in one process or in several; then its tables and its page."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from ...errors import RefusedValue
from ...files import as_path
from ..train.folder import next_folder, versions, write_files
from ..train.model import check_device
from .case import Case, Context
from .page import make_page
from .report import (
    as_json,
    commit_of,
    compare_reports,
    describe_machine,
    failures,
    make_report,
    merge,
    read_json,
    say_end,
    say_machine,
    say_record,
)
from .roofline import measure_roofline
from .run import Plan, run_cases

if TYPE_CHECKING:
    from .command import Options

PACKAGE = Path(__file__).parents[2]
WRITABLE = "the folder must be writable"
_OF_THE_WHOLE = ("out", "compare", "processes", "only_list")


class Campaign:
    """One run of ``outerconv bench``."""

    def __init__(self, options: Options, cases: Sequence[Case]) -> None:
        self.cases = cases
        earlier = options.compare
        self.old = None if earlier is None else read_json(as_path(earlier, "--compare"))
        quick = options.quick
        context = Context(
            options.scale,
            quick,
            check_device(options.device),
            getattr(torch, options.dtype),
            options.seed,
            options.root,
        )
        self.options = options
        self.threads = options.threads or torch.get_num_threads()
        self.plan = Plan(context, options.samples, not (quick or options.no_memory), self.threads)
        self.commit = commit_of(PACKAGE)
        self.folder = new_folder(options.out)
        self.records: list[dict[str, Any]] = []
        self.failed: list[str] = []

    def run(self) -> None:
        """Measure, print and write; an interrupted run keeps the records that it has."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            began, machine = time.perf_counter(), describe_machine(self.plan.context.device)
            print(say_machine(machine))
            if self.options.processes > 1:
                self._run_processes()
            else:
                self._run_here(machine, began)
            self._say_end(self._finish(machine, began))
        finally:
            torch.set_num_threads(before)

    def _run_processes(self) -> None:
        """Measure all cases in each process and merge the records."""
        reports = run_processes(self.options, self.folder, print)
        self.records, self.roofline = merge(reports)
        for record in self.records:
            print(f"\n{say_record(record)}")

    def _run_here(self, machine: dict[str, Any], began: float) -> None:
        self.roofline = measure_roofline(self.plan.context)
        print(
            f"copies {self.roofline.bandwidth / 1e9:.1f} GB/s, multiplies matrices at "
            f"{self.roofline.flop_rate / 1e9:.0f} Gflop/s\n"
        )
        total = sum(len(case.points(self.plan.context)) for case in self.cases)
        bar = tqdm(total=total, unit="point", disable=not sys.stderr.isatty(), leave=False)

        def done(record: dict[str, Any]) -> None:
            self.records.append(record)
            bar.write(say_record(record) + "\n", file=sys.stdout)
            bar.update()
            self._write(machine, time.perf_counter() - began)

        try:
            with bar:
                run_cases(self.cases, self.plan, self.roofline, bar.set_description, done)
        except BaseException:  # such as Ctrl-C: the page shows what there is so far
            self._finish(machine, began)
            raise

    def _finish(self, machine: dict[str, Any], began: float) -> dict[str, Any]:
        report = self._write(machine, time.perf_counter() - began)
        write_files(self.folder, {"bench.html": make_page(report).encode()}, WRITABLE)
        return report

    def _write(self, machine: dict[str, Any], seconds: float) -> dict[str, Any]:
        context = self.plan.context
        settings = {
            "quick": context.quick,
            "scale": context.scale,
            "share": context.share,
            "repeats": self.plan.repeats,
            "processes": self.options.processes,
            "threads": self.threads,
            "dtype": str(context.dtype).removeprefix("torch."),
            "seed": context.seed,
            "version": versions()["pyg_outerconv"],
            "commit": self.commit,
        }
        report = make_report(machine, settings, self.roofline, self.records, self.cases, seconds)
        if self.old is not None:
            report["compared"] = compare_reports(report, self.old)
        write_files(self.folder, {"bench.json": as_json(report)}, WRITABLE)
        return report

    def _say_end(self, report: dict[str, Any]) -> None:
        print(f"\n{say_end(report)}")
        self.failed = failures(report)
        for line in self.failed:
            print(f"outerconv bench: error: {line}", file=sys.stderr)
        page = self.folder / "bench.html"
        print(f"\n{report['seconds']:.0f} s; {shlex.quote(str(page))} and bench.json beside it")


def new_folder(out: str | None) -> Path:
    """A new or empty folder for the results."""
    path = as_path(out, "--out") if out else next_folder(Path("runs"), "bench")
    write_files(path, {}, "--out must be writable")
    if any(path.iterdir()):
        raise RefusedValue(
            "a benchmark needs a folder of its own",
            "a new or empty folder",
            f"{path}, which has files",
        )
    return path


# Several processes that measure the same: memory is laid out anew in each, and moves times.


def run_processes(
    options: Options, folder: Path, told: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The report of each process, one after the other; each has a folder ``process-<number>``.

    Peak memory is measured by the first one alone.
    """
    reports = []
    for number in range(1, options.processes + 1):
        out = folder / f"process-{number}"
        flags = [*_flags(options), *(["--no-memory"] if number > 1 else [])]
        done = subprocess.run(
            [sys.executable, "-m", "pyg_outerconv", "bench", *flags, "--out", str(out)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        if not (out / "bench.html").is_file():
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise RefusedValue(f"process {number} must end", "a report", last)
        reports.append(read_json(out / "bench.json"))
        told(f"process {number} of {options.processes}: {reports[-1]['seconds']:.0f} s")
    return reports


def _flags(options: Options) -> list[str]:
    """The options of one process."""
    flags: list[str] = []
    for name, value in vars(options).items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, tuple):
            flags += [word for one in value for word in (flag, one)]
        elif name not in _OF_THE_WHOLE and value not in (None, False):
            flags += [flag] if value is True else [flag, str(value)]
    return flags
