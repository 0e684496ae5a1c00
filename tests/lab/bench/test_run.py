"""The benchmark: what agrees is timed, what breaks off is said; timing by a clock; least work; and
``outerconv bench`` end to end on a tiny scale, in one process and in several; bad input.
"""

from __future__ import annotations

import gc
import importlib.util
import io
import json
import math
import os
import platform
import signal
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from lab.bench.fakes import CONTEXT, ROOFLINE, broken, contender, fake_case, record, timing

import pyg_outerconv
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import campaign, command, run
from pyg_outerconv.lab.bench import case as module
from pyg_outerconv.lab.bench.campaign import run_processes
from pyg_outerconv.lab.bench.case import (
    CASES,
    FORWARD,
    OURS,
    PYG,
    SCATTER,
    TRAINING,
    Case,
    Contender,
    Context,
    Setup,
    Work,
    case,
    select,
)
from pyg_outerconv.lab.bench.command import Options
from pyg_outerconv.lab.bench.graphs import Fresh
from pyg_outerconv.lab.bench.report import RECORD, commit_of, failures, merge, ratio_rows
from pyg_outerconv.lab.bench.roofline import attention, convolution, measure_roofline
from pyg_outerconv.lab.bench.targets import faster
from pyg_outerconv.lab.cli import main


def run_one(bench_case):
    (case_record,) = run.run_cases([bench_case], CONTEXT, ROOFLINE)
    return case_record


def test_a_record_has_times_bounds_fractions_and_agreement():
    case_record = run_one(fake_case(contender(OURS), contender(PYG)))
    assert set(case_record) == RECORD
    assert list(case_record["modes"]) == [FORWARD, TRAINING]
    assert list(case_record["modes"][FORWARD]) == [OURS, PYG]
    assert case_record["bounds"][FORWARD]["seconds"] == 16e-9
    median = case_record["modes"][FORWARD][PYG]["median"]
    assert case_record["fractions"][FORWARD][PYG] == 16e-9 / median
    assert case_record["agreement"] == {PYG: 0.0}
    assert case_record["errors"] == case_record["absent"] == {}


NO_COMPILER = "RuntimeError: no compiler"


@pytest.mark.parametrize(
    ("ours", "other", "timed", "agreement", "errors", "absent"),
    [
        (contender(OURS), contender(PYG, 2.1), [OURS], {PYG: 0.05}, {PYG: "by 5.0e-02"}, {}),
        (contender(OURS), contender(PYG, math.nan), [OURS], {PYG: None}, {PYG: "differs"}, {}),
        (contender(OURS), broken(PYG), [OURS], {}, {}, {PYG: NO_COMPILER}),
        (contender(OURS), broken("an order", own=True), [OURS], {}, {"an order": NO_COMPILER}, {}),
        (broken(OURS), contender(PYG), [PYG], {}, {OURS: NO_COMPILER}, {}),
        # It shows a bound, and is compared with nothing.
        (contender(OURS), Contender("floor", {FORWARD: int}), [OURS, "floor"], {}, {}, {}),
    ],
    ids=["differs", "no number", "a peer breaks off", "an own one", "ours", "a bound"],
)
def test_what_differs_or_breaks_off_is_said_and_all_else_is_timed(
    ours, other, timed, agreement, errors, absent
):
    case_record = run_one(fake_case(ours, other, contender(SCATTER)))
    assert list(case_record["modes"][FORWARD]) == [*timed, SCATTER]
    gaps = {name: gap for name, gap in case_record["agreement"].items() if name != SCATTER}
    assert gaps == pytest.approx(agreement)
    assert case_record["errors"].keys() == errors.keys()
    assert all(words in case_record["errors"][name] for name, words in errors.items())
    assert case_record["absent"] == absent
    said = [f"fake: {name}: {reason}" for name, reason in case_record["errors"].items()]
    assert failures({"records": [case_record]}) == said


def test_a_case_that_cannot_be_set_up_does_not_stop_the_others():
    def make(context, at):
        raise MemoryError("too large")

    unmade = Case("unmade", "fakes", "cannot be made", make)
    begun, done = [], []
    records = run.run_cases(
        [unmade, fake_case(contender(OURS))], CONTEXT, ROOFLINE, begun.append, done.append
    )
    assert records == done
    assert begun == ["unmade", "fake"]
    assert records[0]["errors"] == {OURS: "MemoryError: too large"}
    assert records[1]["modes"]


def test_a_case_is_one_registration(monkeypatch):
    monkeypatch.setattr(module, "CASES", {})

    @case("b", "letters", "times three", targets=(faster(PYG, 2),), factor=3.0)
    @case("a", "letters", "times two", factor=2.0)
    def times(context, factor):
        return Setup([contender(OURS, factor)], {"factor": factor})

    assert list(module.CASES) == ["a", "b"]
    assert module.CASES["b"].make(CONTEXT, None).sizes == {"factor": 3.0}
    with pytest.raises(RefusedValue, match="'a' is taken"):
        case("a", "letters", "again")(times)


def test_cases_are_chosen_by_name_and_by_group():
    cases = {
        name: Case(name, group, "", lambda context, at: None)
        for name, group in (("gcn-a", "gcn"), ("gcn-b", "gcn"), ("walk", "polynomial"))
    }
    assert [bench_case.name for bench_case in select([], cases)] == ["gcn-a", "gcn-b", "walk"]
    assert [bench_case.name for bench_case in select(["walk", "gcn-b"], cases)] == ["gcn-b", "walk"]
    assert [bench_case.name for bench_case in select(["gcn"], cases)] == ["gcn-a", "gcn-b"]
    with pytest.raises(RefusedValue, match=r"unknown benchmark 'gnc' \(did you mean 'gcn'\?\)"):
        select(["gnc"], cases)
    assert not {"a", "fake"} & set(CASES)


# Timing, the least work, and the machine


class Clock:
    """Goes on only when a step says so."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def step(self, name, *seconds):
        remaining = list(seconds)

        def run():
            self.log.append(name)
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]

        return run


def test_contenders_take_turns_and_change_who_begins():
    clock = Clock()
    steps = {name: clock.step(name, 1.0) for name in "abc"}
    run.measure(steps, 3, clock=lambda: clock.now)
    assert "".join(clock.log) == "abc" + "abc" + "bca" + "cab"


def test_medians_and_quartiles_leave_the_warm_up_out():
    clock = Clock()
    steps = {"a": clock.step("a", 100.0, 5.0, 1.0, 2.0, 4.0, 3.0)}
    summary = run.measure(steps, 5, clock=lambda: clock.now)["a"]
    quartiles = {"median": 3.0, "low": 2.0, "high": 4.0, "least": 1.0}
    assert summary == {**quartiles, "repeats": 5, "inner": 1}
    alone = dict.fromkeys(("median", "low", "high", "least"), 2.0)
    assert run.summarise([2.0], 1) == {**alone, "repeats": 1, "inner": 1}


@pytest.mark.parametrize(("seconds", "asked", "inner"), [(1e-3, None, 5), (1.0, 3, 3)])
def test_short_steps_are_repeated_within_a_sample_and_a_given_number_is_kept(seconds, asked, inner):
    clock = Clock()
    summary = run.measure({"a": clock.step("a", seconds)}, 2, inner=asked, clock=lambda: clock.now)[
        "a"
    ]
    assert (summary["inner"], len(clock.log)) == (inner, 1 + 2 * inner)
    assert summary["median"] == pytest.approx(seconds)


def test_what_is_told_before_a_sample_is_not_timed():
    clock, told = Clock(), []

    def ready(count):
        told.append(count)
        clock.now += 100.0

    steps = {name: clock.step(name, 1.0) for name in "ab"}
    summaries = run.measure(
        steps, 2, inner=3, clock=lambda: clock.now, ready={"a": ready, "b": None}
    )
    assert told == [1, 3, 3]
    assert summaries["a"]["median"] == summaries["b"]["median"] == 1.0


def test_new_graphs_are_copies_of_each_in_turn():
    x = torch.ones(2, requires_grad=True)
    numbers = [torch.tensor(number) for number in range(3)]
    supply = Fresh([(x, number) for number in numbers])
    supply.ready(2)
    first = [supply.take() for _ in range(2)]
    supply.ready(2)
    second = [supply.take() for _ in range(3)]
    assert [int(number) for _, number in first + second] == [0, 1, 2, 0, 1]
    copies = [copy for copy, _ in first + second]
    assert len({id(copy) for copy in [x, *copies]}) == 6
    assert all(copy.is_leaf and copy.requires_grad and torch.equal(copy, x) for copy in copies)


def test_the_collector_of_garbage_is_left_as_it_was():
    seen = []
    assert gc.isenabled()
    run.measure({"a": lambda: seen.append(gc.isenabled())}, 1, inner=1)
    assert gc.isenabled()
    assert seen == [True, False]  # the warm-up, then the sample


@pytest.mark.parametrize(
    ("actual", "expected", "gap"),
    [
        ([torch.tensor([1.0, 4.0])], [torch.tensor([2.0, 4.0])], 0.25),
        ([torch.zeros(2), torch.tensor([3.0])], [torch.zeros(2), torch.tensor([2.0])], 0.5),
        ([torch.zeros(0)], [torch.zeros(0)], 0.0),
        ([torch.zeros(2)], [torch.zeros(3)], float("inf")),
        ([torch.zeros(2)], [], float("inf")),
        ([torch.tensor([float("nan"), 1.0])], [torch.ones(2)], float("inf")),
        ([torch.ones(2)], [torch.tensor([float("nan"), 1.0])], float("inf")),
    ],
)
def test_difference(actual, expected, gap):
    assert run.difference(actual, expected) == gap


def test_the_bound_is_the_slower_of_traffic_and_arithmetic():
    assert ROOFLINE.bound(Work(2e9, 1e9))["seconds"] == 2.0
    assert ROOFLINE.bound(Work(2e9, 1e9))["limit"] == "traffic"
    assert ROOFLINE.bound(Work(1e9, 3e9)) == {
        "bytes": 1e9,
        "flops": 3e9,
        "seconds": 3.0,
        "limit": "arithmetic",
    }


def test_least_work_of_one_small_convolution():
    # 3 sources, 2 targets, P = 5, Q = 4, E = 7: counted by hand.
    work = convolution((3, 2, 5, 4), 20, 7, 3, 4)
    structure = 7 * (4 + 4) + 3 * 4
    forward = 4 * (3 * 5 + 2 * 4 + 20) + structure
    backward = 4 * (2 * 4 + 3 * 5 + 20 + 3 * 5 + 20) + structure
    assert work[FORWARD] == Work(forward, 2 * 7 * 4 + 2 * 3 * 5 * 4)
    assert work[TRAINING] == Work(forward + backward, 2 * (2 * 7 * 4) + 3 * (2 * 3 * 5 * 4))


def test_least_work_of_attention():
    work = attention(10, 30, 8, 4)
    assert work[FORWARD].flops == 4 * 30 * 8
    assert work[TRAINING].flops == 14 * 30 * 8
    assert work[FORWARD].num_bytes == 4 * 4 * 10 * 8 + 4 * 30 + 4 * 11


def test_the_roofline_is_measured():
    roofline = measure_roofline(Context(quick=True))
    assert 1e8 < roofline.bandwidth < 1e14
    assert 1e8 < roofline.flop_rate < 1e16


# Peak memory: known allocations are found, here and in a child ------------------------------------


MIB = 1 << 20


def hold(mib):
    """Hold and touch some memory for a moment."""
    torch.ones(mib * MIB // 4).sum()


@pytest.mark.skipif(not run.is_known("cpu"), reason="this system has no record of peaks")
def test_the_peak_of_a_step_is_what_it_holds():
    peak = run.peak_here(lambda: hold(256))
    # An allocator may keep the warm-up's block, hence the other bound on the process.
    assert peak["step"] < 300 * MIB
    assert peak["process"] > 256 * MIB


@pytest.mark.parametrize(("slack", "is_timed"), [(1.0, False), (5.0, True)])
def test_a_point_says_how_much_more_a_peer_may_round(slack, is_timed):
    rounded = fake_case(contender(OURS), contender(PYG, factor=2.004), slack=slack)
    (case_record,) = run.run_cases([rounded], CONTEXT, ROOFLINE)
    assert (PYG in case_record["modes"][FORWARD]) is is_timed
    assert (PYG in case_record["errors"]) is not is_timed
    assert case_record["agreement"][PYG] == pytest.approx(0.002, rel=0.01)


def test_where_no_peak_is_known_a_note_says_so(monkeypatch):
    monkeypatch.setattr(run, "is_known", lambda device: False)
    context = replace(CONTEXT, memory=True)
    (case_record,) = run.run_cases([fake_case(contender(OURS), memory=(OURS,))], context, ROOFLINE)
    assert case_record["notes"] == ["peak memory is measured on CUDA devices and on Linux"]
    assert case_record["memory"] == case_record["errors"] == {}


def test_a_process_measures_one_contender():
    before = dict(os.environ)
    ours = run.peak_alone(Context(scale=0.2), "gcn-100k", None, TRAINING, OURS)
    # 240k edges × 64 channels of float32 make 58 MiB, which PyG holds several times and ours never.
    assert 0 < ours["step"] < 58 * MIB
    assert ours["process"] > 100 * MIB
    assert os.environ == before


def test_a_process_that_breaks_off_says_why(monkeypatch):
    with pytest.raises(ValueError, match="'no number'"):
        run.in_a_process(int, "no number")
    monkeypatch.setattr(run, "in_a_process", lambda function, *arguments: function(*arguments))
    with pytest.raises(KeyError, match="no-such-case"):
        run.peak_alone(Context(), "no-such-case", None, TRAINING, OURS)
    context = replace(CONTEXT, memory=True)
    (case_record,) = run.run_cases([fake_case(contender(OURS), memory=(OURS,))], context, ROOFLINE)
    assert case_record["errors"] == {f"memory of {OURS}": "KeyError: 'fake'"}


ENDLESS = """
import sys
from pyg_outerconv.lab.bench.run import in_a_process
in_a_process(exec, "import time; open(r'%s', 'w').close(); time.sleep(1000)" % sys.argv[1])
"""


def test_no_process_outlives_a_benchmark_that_is_killed(tmp_path, fresh):
    begun = fresh.begin(ENDLESS, str(tmp_path / "works"))
    running, until = psutil.Process(begun.process), time.monotonic() + 120
    while not (tmp_path / "works").exists():
        assert time.monotonic() < until, begun.err.read_text()
        time.sleep(0.02)
    children = running.children()
    running.kill()
    assert fresh.end(begun).returncode == -signal.SIGKILL
    # One keeps track of multiprocessing's resources, the other one works.
    assert len(children) == 2
    assert not psutil.wait_procs(children, timeout=60)[1]


# The command --------------------------------------------------------------------------------------


TINY = ["bench", "--quick", "--scale", "0.002", "--repeats", "2"]


@pytest.fixture(autouse=True, scope="module")
def _roofline():
    """No bandwidth is measured, which takes as long as all else."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(campaign, "measure_roofline", lambda context: ROOFLINE)
        yield


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The folder of a run, what it said, and torch's threads before and after."""
    folder, said, threads = tmp_path_factory.mktemp("bench"), io.StringIO(), []
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said):
        patched.chdir(folder)
        threads.append(torch.get_num_threads())
        assert main([*TINY, "--only", "gcn-100k", "--only", "density-tiny", "--threads", "2"]) == 0
        threads.append(torch.get_num_threads())
    return folder / "runs/bench-001", said.getvalue(), threads


def test_end_to_end(measured):
    folder, said, (before, after) = measured
    assert before == after
    for words in (
        "gcn-100k: GCN layer",
        "Summary\n",
        "density-tiny, forward: ",
        "not run: PyG, compiled: left out of a quick run",
        "runs/bench-001/bench.html",
    ):
        assert words in said, words
    assert sorted(path.name for path in folder.iterdir()) == ["bench.html", "bench.json"]
    report = json.loads((folder / "bench.json").read_text())
    assert (report["kind"], report["format"]) == ("pyg_outerconv.bench", 1)
    assert report["settings"]["scale"] == 0.002
    assert [record["case"] for record in report["records"]] == ["gcn-100k"] + ["density-tiny"] * 5
    assert all(record["errors"] == {} for record in report["records"])
    assert len(report["crossovers"]) == 2
    assert report["machine"]["threads"] == 2
    commit = report["settings"]["commit"]
    assert commit == commit_of(Path(pyg_outerconv.__file__).parent)
    text, page = ((folder / f"bench.{end}").read_text() for end in ("json", "html"))
    assert "<svg" in page
    said = f", commit {commit}" if commit else ""
    assert f"pyg_outerconv {pyg_outerconv.__version__}{said}. Copies" in " ".join(page.split())
    for own in (Path.home(), folder, platform.node()):  # of this machine
        assert str(own) not in text + page


def test_compared_with_an_earlier_run(measured, capsys):
    folder, _, _ = measured
    flags = ["--only", "gcn-100k", "--threads", "2", "--compare", str(folder / "bench.json")]
    assert main([*TINY, *flags, "--out", "again"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "Against the earlier run" in said.out
    report = json.loads(Path("again/bench.json").read_text())
    (record,) = report["records"]
    assert len(report["compared"]["rows"]) == sum(map(len, record["modes"].values())) > 0


def test_errors_are_counted(monkeypatch, capsys):
    from pyg_outerconv.lab.train import peers

    def other(theirs, mine):
        theirs.lin.weight.data.copy_(2 * mine.theta.weight[0].t())

    monkeypatch.setattr(peers, "begin_as", other)
    assert main([*TINY, "--only", "gcn-100k", "--out", "run"]) == 1
    assert "gcn-100k: PyG: differs from outerconv" in capsys.readouterr().err


def test_list(capsys):
    assert main(["bench", "--list", "--only", "relation"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("relation\n  rgcn-8 ")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--only", "gnc"], "unknown benchmark 'gnc' (did you mean 'gcn'?)"),
        (["--repeats", "0"], "repeats has a minimum: expected >= 1, got 0"),
        (["--scale", "nan"], "scale has a minimum"),
        (["--dtype", "float23"], "unknown dtype 'float23' (did you mean 'float32'?)"),
        (["--device", "gpu"], "unknown device 'gpu'"),
        (["--compare", "none.json"], "must be written by outerconv bench"),
        (["--out", "full"], "a benchmark needs a folder of its own"),
        (["--out", "full/file"], "--out must be writable"),
    ],
)
def test_bad_input_is_refused_in_one_line(flags, words, refused):
    Path("full").mkdir()
    Path("full/file").write_text("here")
    refused([*TINY, *flags], words)


@pytest.mark.parametrize("missing", command.EXTRAS)
def test_a_missing_extra_is_named(missing, monkeypatch, refused):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name)
    )
    words = f"needs {missing}, not installed here: pip install 'pyg_outerconv[bench]'"
    refused([*TINY, "--only", "gcn"], words)


# Several processes as one run: medians of medians, their range, and ratios within each process.


def report(ours, theirs, **changes):
    times = {OURS: timing(ours, 0.5), PYG: timing(theirs, 0.5)}
    case_record = record(modes={FORWARD: times}, bounds={FORWARD: {"seconds": 0.5}}, **changes)
    return {"records": [case_record], "roofline": {"bandwidth": ours, "flop_rate": theirs}}


def test_times_are_medians_with_their_range():
    (case_record,), roofline = merge([report(1.0, 2.0), report(2.0, 10.0), report(4.0, 12.0)])
    ours = case_record["modes"][FORWARD][OURS]
    assert (ours["median"], ours["low"], ours["high"]) == (2.0, 1.0, 4.0)
    assert (ours["least"], ours["repeats"]) == (0.5, 15)
    assert case_record["fractions"][FORWARD][OURS] == 0.25
    assert (roofline.bandwidth, roofline.flop_rate) == (2.0, 10.0)


def test_ratios_are_of_each_process_and_are_said_with_their_range():
    (case_record,), _ = merge([report(1.0, 2.0), report(2.0, 10.0), report(4.0, 12.0)])
    assert case_record["ratios"] == {FORWARD: {PYG: [2.0, 5.0, 3.0]}}
    assert ratio_rows({"records": [case_record]})[1:] == [
        ("fake", "PyG", "forward", "3.00", "2.00 – 5.00")
    ]
    assert len(ratio_rows({"records": [record()]})) == 1


def test_what_breaks_off_in_one_process_stays():
    one = report(1.0, 2.0, errors={PYG: "differs"}, agreement={PYG: None})
    (case_record,), _ = merge([report(1.0, 2.0, agreement={PYG: 1e-7}), one])
    assert case_record["errors"] == {PYG: "differs"}
    assert case_record["agreement"] == {PYG: None}


def test_two_processes_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "in_a_process", lambda function, *arguments: function(*arguments))
    flags = [*TINY, "--only", "new-karate-gcn", "--processes", "2", "--threads", "1"]
    assert main([*flags, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "process 2 of 2" in said.out
    assert "median and range over processes" in said.out
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["bench.html", "bench.json", "process-1", "process-2"]
    merged_report = json.loads((tmp_path / "run" / "bench.json").read_text())
    assert merged_report["settings"]["processes"] == 2
    of_one = json.loads((tmp_path / "run" / "process-2" / "bench.json").read_text())["settings"]
    assert of_one == {**merged_report["settings"], "processes": 1}
    assert (of_one["quick"], of_one["scale"], of_one["repeats"]) == (True, 0.002, 2)
    (case_record,) = merged_report["records"]
    assert list(case_record["ratios"]) == [FORWARD, TRAINING]
    assert len(case_record["ratios"][FORWARD][PYG]) == 2


def test_a_process_that_breaks_off_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "in_a_process", lambda function, *arguments: function(*arguments))
    options = Options(quick=True, processes=2)
    with pytest.raises(RefusedValue, match="process 1 must end: .* a report, got KeyError: 'gone'"):
        run_processes(options, ["gone"], tmp_path, print)
