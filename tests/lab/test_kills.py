"""Runs and searches that are killed at random moments can be read, and go on to the same end.

``python -m pytest -s tests/lab/test_kills.py --kills 40`` kills each kind until 40 have struck, and
says how. A kill strikes if a run was under way, which ends by it.
"""

import random
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import run_folders
from killed import HOW, Strikes, forking, running
from mapped_graphs import write

from pyg_outerconv import files

RUN = ["--epochs", "20", "--patience", "0", "--seeds", "2", "--hidden", "8", "--dropout", "0.5"]
BLOCKS = ["--batches", "blocks", "--parts", "6", "--parts-per-batch", "2", "--device", "cpu"]

# The seed under way is kept after every epoch, so that kills hit the writing of it too. Every third
# draws, which takes longer than all else.
TRAIN = """
import matplotlib.backends.backend_agg, matplotlib.figure
from pyg_outerconv.lab.train import experiment
experiment.SNAPSHOT_SECONDS = 0.0
"""
EACH = "experiment.can_draw = lambda: number % 3 == 0"
SEARCH = """
import pyg_outerconv.lab.search.search, pyg_outerconv.lab.search.command
from pyg_outerconv.lab.search import studies
studies.RANDOM_TRIALS = studies.COMPARED_TRIALS = 2
"""


def read_run(folder, before):
    """Read every file of a run."""
    run_folders.read_all(folder)


def read_search(folder, before):
    """The finished trials, those before among them, after a look at every file of a search."""
    from short_search import found_in, timeless

    from pyg_outerconv.lab.search.search import SearchFolder

    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".json" and not path.name.startswith("."):
            files.load_json(path)
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        else:
            known = (*SearchFolder.names, "study.db-journal")
            assert path.name.startswith(".") or path.name in known, f"{path} is no file of a search"
    now = timeless(found_in(folder)[0]) if (folder / "config.json").exists() else {}
    for name, trials in (before or {}).items():
        assert now[name][: len(trials)] == trials, "a finished trial was lost"
    return now


def assert_same_search(folder, whole):
    from short_search import numbers

    assert numbers(folder) == numbers(whole)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


KINDS = {
    "a run in memory": ("train", ["KarateClub", *RUN]),
    "a run in mapped files": ("train", ["--data", "graph", *RUN, *BLOCKS]),
    "a search": ("search", []),
}
# What is imported before, how a folder is read and compared with a whole one, how often a run is
# killed again at most, and with which chance it is not.
COMMANDS = {
    "train": (forking(TRAIN, EACH), read_run, run_folders.assert_same_end, 4, 0.5),
    "search": (forking(SEARCH), read_search, assert_same_search, 8, 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(kind, tmp_path, monkeypatch, pytestconfig, record_property):
    monkeypatch.chdir(tmp_path)
    (command, new), strikes = KINDS[kind], Strikes(pytestconfig.getoption("--kills"))
    if command == "search":
        pytest.importorskip("optuna")
        from short_search import LINE

        new = LINE
    if "graph" in new:
        write(tmp_path / "graph")
    program, read, assert_same_end, most, chance = COMMANDS[command]

    def line_for(folder):
        begun = (folder / "config.json").exists()
        return [command, *(["--resume"] if begun else new), "--out", str(folder)]

    with running(program) as runner:
        assert runner([command, *new, "--out", "whole"]) == 0, Path("said").read_text()
        began = time.monotonic()
        assert runner([command, *new, "--out", "again"]) == 0
        assert_same_end(tmp_path / "again", tmp_path / "whole")
        seconds = time.monotonic() - began
        draw, number = random.Random(strikes.wanted), 0
        while strikes.are_left:
            folder, number, seen = tmp_path / f"run{number}", number + 1, None
            for basis in tmp_path.glob("graph/basis-*"):  # so that kills hit the writing of it too
                shutil.rmtree(basis)
            for _ in range(most):  # some are killed again when they go on
                how = draw.choice(HOW)
                code = runner(line_for(folder), how, draw.uniform(0, seconds))
                assert code in (0, -how, 128 + how), Path("said").read_text()
                seen = read(folder, seen)
                strikes.note(how, bool(code))
                if not strikes.are_left or not code or draw.random() < chance:
                    break
            assert runner(line_for(folder)) == 0, Path("said").read_text()
            read(folder, seen)
            assert_same_end(folder, tmp_path / "whole")
    told = strikes.told(number)
    record_property("kills", told)
    print(told)
