"""A search that is killed at random moments loses no trial, and ends as an unbroken one.

``python -m pytest -s tests/lab/search/test_kills.py --kills 40`` kills until 40 have struck, and
says how. A kill strikes if a search was under way, which ends by it.
"""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from killed import HOW, Strikes, forking, running
from short_search import LINE, numbers, timeless

from pyg_outerconv import files
from pyg_outerconv.lab.search.folder import SearchFolder

PRELUDE = """
import pyg_outerconv.lab.search.search, pyg_outerconv.lab.search.command
from pyg_outerconv.lab.search import studies
studies.RANDOM_TRIALS = studies.COMPARED_TRIALS = 2
"""


def finished(folder: Path) -> dict[str, list]:
    """The trials in the table, after a look at every file that stands under its name."""
    if not folder.is_dir():
        return {}
    for path in folder.iterdir():
        if path.suffix == ".json" and not path.name.startswith("."):
            files.load_json(path)
        elif path.suffix == ".db":
            with closing(sqlite3.connect(path)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        else:
            known = (*SearchFolder.names, "study.db-journal")
            assert path.name.startswith(".") or path.name in known, f"{path} is no file of a search"
    table = folder / "trials.json"
    return timeless(files.load_json(table)["trials"]) if table.exists() else {}


@pytest.mark.slow(cases=1)
def test_killed_at_random_moments(tmp_path, monkeypatch, pytestconfig, record_property):
    monkeypatch.chdir(tmp_path)
    strikes = Strikes(pytestconfig.getoption("--kills"))
    with running(forking(PRELUDE)) as runner:
        began = time.monotonic()
        assert runner(["search", *LINE, "--out", "whole"]) == 0, Path("said").read_text()
        seconds = time.monotonic() - began
        draw, number = random.Random(strikes.wanted), 0
        while strikes.are_left:
            folder, number = tmp_path / f"run{number}", number + 1
            kept: dict[str, list] = {}
            for _ in range(8):  # most searches are killed again when they go on
                begun = (folder / "config.json").exists()
                line = ["--resume"] if begun else LINE
                how = draw.choice(HOW)
                after = draw.uniform(0, seconds)
                code = runner(["search", *line, "--out", str(folder)], how, after)
                assert code in (0, -how, 128 + how), Path("said").read_text()
                now = finished(folder)
                for name, trials in kept.items():
                    assert now[name][: len(trials)] == trials, "a finished trial was lost"
                kept = now
                strikes.note(how, bool(code))
                if not code or not strikes.are_left:
                    break
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else LINE
            assert runner(["search", *line, "--out", str(folder)]) == 0, Path("said").read_text()
            finished(folder)
            assert numbers(folder) == numbers(tmp_path / "whole")
            assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    told = strikes.told(number)
    record_property("kills", told)
    print(told)
