"""``outerconv bench`` end to end on a tiny scale, in one process and in several; bad input."""

import io
import json
import platform
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from lab.bench.fakes import ROOFLINE, record, timing

import pyg_outerconv
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import campaign, command
from pyg_outerconv.lab.bench.campaign import run_processes
from pyg_outerconv.lab.bench.case import FORWARD, OURS, PYG, TRAINING
from pyg_outerconv.lab.bench.command import Options
from pyg_outerconv.lab.bench.report import commit_of, merge, ratio_rows
from pyg_outerconv.lab.cli import main

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
    folder, said, _ = measured
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
    assert "<svg" in (folder / "bench.html").read_text()


def test_the_commit_of_the_package_is_kept(measured):
    folder, _, _ = measured
    settings = json.loads((folder / "bench.json").read_text())["settings"]
    assert settings["commit"] == commit_of(Path(pyg_outerconv.__file__).parent)
    said = f", commit {settings['commit']}" if settings["commit"] else ""
    page = " ".join((folder / "bench.html").read_text().split())
    assert f"pyg_outerconv {pyg_outerconv.__version__}{said}. Copies" in page


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


def test_nothing_names_the_machine_or_its_folders(measured):
    folder, _, _ = measured
    text = (folder / "bench.json").read_text() + (folder / "bench.html").read_text()
    assert str(Path.home()) not in text
    assert str(folder) not in text
    assert platform.node() not in text


def test_threads_are_as_before(measured):
    folder, _, (before, after) = measured
    assert before == after
    assert json.loads((folder / "bench.json").read_text())["machine"]["threads"] == 2


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
    found = command.importlib.util.find_spec
    monkeypatch.setattr(
        command.importlib.util, "find_spec", lambda name: None if name == missing else found(name)
    )
    words = f"needs {missing}, not installed here: pip install 'pyg_outerconv[bench]'"
    refused([*TINY, "--only", "gcn"], words)


# Several processes as one run: medians of medians, their range, and ratios within each process.


def report(ours, theirs, **changes):
    times = {OURS: timing(ours, 0.5), PYG: timing(theirs, 0.5)}
    made = record(modes={FORWARD: times}, bounds={FORWARD: {"seconds": 0.5}}, **changes)
    return {"records": [made], "roofline": {"bandwidth": ours, "flop_rate": theirs}}


def test_times_are_medians_with_their_range():
    (found,), roofline = merge([report(1.0, 2.0), report(2.0, 10.0), report(4.0, 12.0)])
    ours = found["modes"][FORWARD][OURS]
    assert (ours["median"], ours["low"], ours["high"]) == (2.0, 1.0, 4.0)
    assert (ours["least"], ours["repeats"]) == (0.5, 15)
    assert found["fractions"][FORWARD][OURS] == 0.25
    assert (roofline.bandwidth, roofline.flop_rate) == (2.0, 10.0)


def test_ratios_are_of_each_process_and_are_said_with_their_range():
    (found,), _ = merge([report(1.0, 2.0), report(2.0, 10.0), report(4.0, 12.0)])
    assert found["ratios"] == {FORWARD: {PYG: [2.0, 5.0, 3.0]}}
    assert ratio_rows({"records": [found]})[1:] == [
        ("fake", "PyG", "forward", "3.00", "2.00 – 5.00")
    ]
    assert len(ratio_rows({"records": [record()]})) == 1


def test_what_breaks_off_in_one_process_stays():
    one = report(1.0, 2.0, errors={PYG: "differs"}, agreement={PYG: None})
    (found,), _ = merge([report(1.0, 2.0, agreement={PYG: 1e-7}), one])
    assert found["errors"] == {PYG: "differs"}
    assert found["agreement"] == {PYG: None}


def test_two_processes_end_to_end(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "in_a_process", lambda function, *given: function(*given))
    flags = [*TINY, "--only", "new-karate-gcn", "--processes", "2", "--threads", "1"]
    assert main([*flags, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "process 2 of 2" in said.out
    assert "median and range over processes" in said.out
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["bench.html", "bench.json", "process-1", "process-2"]
    found = json.loads((tmp_path / "run" / "bench.json").read_text())
    assert found["settings"]["processes"] == 2
    of_one = json.loads((tmp_path / "run" / "process-2" / "bench.json").read_text())["settings"]
    assert of_one == {**found["settings"], "processes": 1}
    assert (of_one["quick"], of_one["scale"], of_one["repeats"]) == (True, 0.002, 2)
    (made,) = found["records"]
    assert list(made["ratios"]) == [FORWARD, TRAINING]
    assert len(made["ratios"][FORWARD][PYG]) == 2


def test_a_process_that_breaks_off_is_said(tmp_path):
    options = Options(quick=True, processes=2)
    with pytest.raises(RefusedValue, match="process 1 must end: .* a report, got KeyError: 'gone'"):
        run_processes(options, ["gone"], tmp_path, print)
