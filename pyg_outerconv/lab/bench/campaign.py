"""One run of ``outerconv bench``, in one process or in several; then its tables and its page."""

from __future__ import annotations

import io
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from ...errors import RefusedValue
from ...files import as_path
from ..train.folder import next_folder, versions, write_files
from ..train.model import check_device
from . import report as reports
from .case import CASES, Case, Context
from .cases import register_all
from .roofline import measure_roofline
from .run import in_a_process, run_cases

if TYPE_CHECKING:
    from .command import Options

PACKAGE = Path(__file__).parents[2]
WRITABLE = "the folder must be writable"


class Campaign:
    """One run of ``outerconv bench``."""

    def __init__(self, options: Options, cases: Sequence[Case]) -> None:
        self.cases = cases
        earlier, quick = options.compare, options.quick
        self.old = None if earlier is None else reports.read_json(as_path(earlier, "--compare"))
        device, dtype = check_device(options.device), getattr(torch, options.dtype)
        self.options = options
        self.context = Context(
            options.scale,
            quick,
            device,
            dtype,
            options.seed,
            options.root,
            options.samples,
            not (quick or options.no_memory),
            options.threads or torch.get_num_threads(),
        )
        self.commit = reports.commit_of(PACKAGE)
        self.folder = new_folder(options.out)
        self.records: list[dict[str, Any]] = []
        self.failed: list[str] = []

    def run(self) -> dict[str, Any]:
        """Measure, print and write the report; an interrupted run keeps what it has."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.context.threads)
        try:
            self.began = time.perf_counter()
            self.machine = reports.describe_machine(self.context.device)
            print(reports.say_machine(self.machine))
            if self.options.processes > 1:
                self._run_processes()
            else:
                self._run_here()
            report = self._finish()
            self._say_end(report)
            return report
        finally:
            torch.set_num_threads(before)

    def _run_processes(self) -> None:
        """Measure all cases in each process and merge the records."""
        names = [case.name for case in self.cases]
        measured = run_processes(self.options, names, self.folder, print)
        self.records, self.roofline = reports.merge(measured)
        for record in self.records:
            print(f"\n{reports.say_record(record)}")

    def _run_here(self) -> None:
        self.roofline = measure_roofline(self.context)
        print(
            f"copies {self.roofline.bandwidth / 1e9:.1f} GB/s, multiplies matrices at "
            f"{self.roofline.flop_rate / 1e9:.0f} Gflop/s\n"
        )
        total = sum(len(case.points(self.context)) for case in self.cases)
        bar = tqdm(total=total, unit="point", disable=not sys.stderr.isatty(), leave=False)

        def done(record: dict[str, Any]) -> None:
            self.records.append(record)
            bar.write(reports.say_record(record) + "\n", file=sys.stdout)
            bar.update()
            self._write()

        try:
            with bar:
                run_cases(self.cases, self.context, self.roofline, bar.set_description, done)
        except BaseException:  # such as Ctrl-C: the page shows what there is so far
            self._finish()
            raise

    def _finish(self) -> dict[str, Any]:
        report = self._write()
        write_files(self.folder, {"bench.html": reports.make_page(report).encode()}, WRITABLE)
        return report

    def _write(self) -> dict[str, Any]:
        context, seconds = self.context, time.perf_counter() - self.began
        settings = {
            "quick": context.quick,
            "scale": context.scale,
            "share": context.share,
            "repeats": context.repeats,
            "processes": self.options.processes,
            "threads": self.context.threads,
            "dtype": str(context.dtype).removeprefix("torch."),
            "seed": context.seed,
            "version": versions()["pyg_outerconv"],
            "commit": self.commit,
        }
        report = reports.make_report(
            self.machine, settings, self.roofline, self.records, self.cases, seconds
        )
        if self.old is not None:
            report["compared"] = reports.compare_reports(report, self.old)
        write_files(self.folder, {"bench.json": reports.as_json(report)}, WRITABLE)
        return report

    def _say_end(self, report: dict[str, Any]) -> None:
        print(f"\n{reports.say_end(report)}")
        self.failed = reports.failures(report)
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
    options: Options, cases: Sequence[str], folder: Path, told: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The report of each process, one after the other; each has a folder ``process-<number>``.

    Peak memory is measured by the first one alone.
    """
    measured = []
    for number in range(1, options.processes + 1):
        out, no_memory = str(folder / f"process-{number}"), options.no_memory or number > 1
        one = replace(options, processes=1, compare=None, out=out, no_memory=no_memory)
        try:
            measured.append(in_a_process(_report_of, one, cases))
        except Exception as error:  # of any kind: there is nothing to compare then
            got = f"{type(error).__name__}: {error}"
            raise RefusedValue(f"process {number} must end", "a report", got) from error
        told(f"process {number} of {options.processes}: {measured[-1]['seconds']:.0f} s")
    return measured


def _report_of(options: Options, cases: Sequence[str]) -> dict[str, Any]:
    """What a run finds, which prints nothing."""
    register_all()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return Campaign(options, [CASES[name] for name in cases]).run()
