"""Training that is killed at random moments leaves what can be read, and goes on to the same end.

``python -m pytest -s tests/lab/train/test_kills.py --kills 40`` kills until 40 have struck, and
says how. A kill strikes if a run was under way, which ends by it.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killed import HOW, Runner, Strikes, forking, running
from mapped_graphs import write
from run_folders import assert_same_end, read_all, results

RUN = ["--epochs", "20", "--patience", "0", "--seeds", "2", "--hidden", "8", "--dropout", "0.5"]

BLOCKS = ["--batches", "blocks", "--parts", "6", "--parts-per-batch", "2", "--device", "cpu"]

# The seed under way is kept after every epoch, so that kills hit the writing of it too. Every third
# draws, which takes longer than all else.
PRELUDE = """
import matplotlib.backends.backend_agg, matplotlib.figure
from pyg_outerconv.lab.train import experiment
experiment.SNAPSHOT_SECONDS = 0.0
"""
EACH = "experiment.can_draw = lambda: number % 3 == 0"


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    with running(forking(PRELUDE, EACH)) as made:
        yield made


@pytest.mark.parametrize("graph", ["in memory", "in mapped files"])
def test_killed_at_random_moments(
    graph: str,
    runner: Runner,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    strikes = Strikes(pytestconfig.getoption("--kills"))
    new = ["KarateClub", *RUN]
    if graph == "in mapped files":
        new = ["--data", str(write(tmp_path / "graph")), *RUN, *BLOCKS]
    assert runner(["train", *new, "--out", "whole"]) == 0
    began = time.monotonic()
    assert runner(["train", *new, "--out", "again"]) == 0
    assert results(tmp_path / "again") == results(tmp_path / "whole")
    seconds = time.monotonic() - began
    draw, number = random.Random(strikes.wanted), 0
    while strikes.are_left:
        folder, number = tmp_path / f"run{number}", number + 1
        for basis in tmp_path.glob("graph/basis-*"):  # so that kills hit the writing of it too
            shutil.rmtree(basis)
        for _ in range(4):  # some runs are killed again when they go on
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else new
            how = draw.choice(HOW)
            code = runner(["train", *line, "--out", str(folder)], how, draw.uniform(0, seconds))
            read_all(folder)
            assert code in (0, -how, 128 + how), Path("said").read_text()
            strikes.note(how, bool(code))
            if not strikes.are_left or not code or draw.random() < 0.5:
                break
        begun = (folder / "config.json").exists()
        line = ["--resume"] if begun else new
        assert runner(["train", *line, "--out", str(folder)]) == 0, Path("said").read_text()
        read_all(folder)
        assert_same_end(folder, tmp_path / "whole")
    told = strikes.told(number)
    record_property("kills", told)
    print(told)
