"""A search that is killed at random moments loses no trial, and ends as an unbroken one.

``python -m pytest tests/search/test_kills.py --kills 40`` kills more often.
"""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from killed import HOW, running
from short_search import LINE, numbers, timeless

from pyg_outerconv import files
from pyg_outerconv.search.folder import NAMES

PRELUDE = """
import pyg_outerconv.search.search, pyg_outerconv.search.command
from pyg_outerconv.search import studies
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
            known = (*NAMES, "study.db-journal")
            assert path.name.startswith(".") or path.name in known, f"{path} is no file of a search"
    table = folder / "trials.json"
    return timeless(files.load_json(table)["trials"]) if table.exists() else {}


@pytest.mark.slow(cases=1)
def test_killed_at_random_moments(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.chdir(tmp_path)
    kills = pytestconfig.getoption("--kills")
    with running(PRELUDE) as runner:
        began = time.monotonic()
        assert runner(["search", *LINE, "--out", "whole"]) == 0, Path("said").read_text()
        seconds = time.monotonic() - began
        draw, codes = random.Random(kills), []
        number = 0
        while len(codes) < kills:
            folder, number = tmp_path / f"run{number}", number + 1
            kept: dict[str, list] = {}
            for _ in range(8):  # most searches are killed again when they go on
                begun = (folder / "config.json").exists()
                line = ["--resume"] if begun else LINE
                how = draw.choice(HOW)
                last = len(codes) >= kills
                after = draw.uniform(0, seconds)
                code = runner(["search", *line, "--out", str(folder)], 0 if last else how, after)
                assert code in (0, -how, 128 + how), Path("said").read_text()
                now = finished(folder)
                for name, trials in kept.items():
                    assert now[name][: len(trials)] == trials, "a finished trial was lost"
                kept = now
                if not code:
                    break
                codes.append(code)
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else LINE
            assert runner(["search", *line, "--out", str(folder)]) == 0, Path("said").read_text()
            finished(folder)
            assert numbers(folder) == numbers(tmp_path / "whole")
            assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert -signal.SIGKILL in codes or kills < 3
    counted = sorted((code, codes.count(code)) for code in set(codes))
    print(f"{len(codes)} kills of {number} searches: {counted}")
