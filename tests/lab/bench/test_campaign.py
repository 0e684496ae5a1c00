"""Several processes as one run: medians of medians, their range, and ratios within each process."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest
from lab.bench.fakes import ROOFLINE, record, timing

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.bench import campaign
from pyg_outerconv.lab.bench.campaign import merge, run_processes
from pyg_outerconv.lab.bench.case import FORWARD, OURS, PYG, TRAINING
from pyg_outerconv.lab.bench.command import Options
from pyg_outerconv.lab.bench.tables import say_ratios
from pyg_outerconv.lab.bench.targets import Faster
from pyg_outerconv.lab.cli import main

TINY = ["bench", "--quick", "--scale", "0.002", "--repeats", "2"]


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


def test_ratios_are_of_each_process_and_are_judged_by_their_median():
    (found,), _ = merge([report(1.0, 2.0), report(2.0, 10.0), report(4.0, 12.0)])
    assert found["ratios"] == {FORWARD: {PYG: [2.0, 5.0, 3.0]}}
    verdict = Faster(PYG, 2.5, FORWARD).judge([found])
    assert (verdict["measured"], verdict["reached"]) == ("3.00× (2.00–5.00)", True)
    said = say_ratios({"records": [found]}).splitlines()[-1].split()
    assert said == ["fake", "PyG", "forward", "3.00", "2.00", "–", "5.00"]
    assert say_ratios({"records": [record()]}) == ""


def test_what_breaks_off_in_one_process_stays():
    one = report(1.0, 2.0, errors={PYG: "differs"}, agreement={PYG: None})
    (found,), _ = merge([report(1.0, 2.0, agreement={PYG: 1e-7}), one])
    assert found["errors"] == {PYG: "differs"}
    assert found["agreement"] == {PYG: None}


def test_two_processes_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(words: list[str], **options: object) -> CompletedProcess[str]:
        """The command in this process, where all that it needs is imported."""
        assert words[:3] == [sys.executable, "-m", "pyg_outerconv"]
        with redirect_stdout(io.StringIO()):
            return CompletedProcess(words, main(words[3:]), "", "")

    monkeypatch.setattr(campaign, "subprocess", SimpleNamespace(run=here))
    monkeypatch.setattr(campaign, "measure_roofline", lambda context: ROOFLINE)
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
    (made,) = found["records"]
    assert list(made["ratios"]) == [FORWARD, TRAINING]
    assert len(made["ratios"][FORWARD][PYG]) == 2


def test_a_process_that_breaks_off_is_said(tmp_path: Path) -> None:
    options = SimpleNamespace(**{**vars(Options(quick=True, processes=2)), "threads": "two"})
    with pytest.raises(RefusedValue, match="process 1 must end: .*--threads.*'two' is not a valid"):
        run_processes(options, tmp_path, print)
