"""Training that is killed at random moments leaves what can be read, and goes on to the same end.

``python -m pytest tests/train/test_kills.py --kills 40`` kills more often.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from pyg_outerconv import files
from pyg_outerconv.train.run_folder import NAMES

RUN = ["--epochs", "20", "--patience", "0", "--seeds", "2", "--hidden", "8", "--dropout", "0.5"]

# Imports once, then forks for each command line: a kill hits training, not the imports. The seed
# under way is kept after every epoch, so that kills hit the writing of it too. Every third draws,
# which takes longer than all else.
PARENT = """
import json, os, sys
import matplotlib.backends.backend_agg, matplotlib.figure
from pyg_outerconv.cli import main
from pyg_outerconv.train import experiment
experiment.SNAPSHOT_SECONDS = 0.0
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    experiment.can_draw = lambda: number % 3 == 0
    child = os.fork()
    if child == 0:
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 1
        try:
            code = main(json.loads(line))
            sys.stdout.flush()
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def kill(process: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(process, number)


class Runner:
    """Runs command lines in processes of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, line: list[str], number: int = 0, after: float = 0.0) -> int:
        """Run one, and return how it ended; kill it after so many seconds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        child = int(self.process.stdout.readline())
        killer = threading.Timer(after, kill, (child, number)) if number else None
        if killer is not None:
            killer.start()
        code = int(self.process.stdout.readline())
        if killer is not None:
            killer.cancel()
            killer.join()
        return code


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    monkeypatch.chdir(tmp_path)
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Runner(process)
        process.stdin.close()


def results(folder: Path) -> list[dict[str, Any]]:
    runs = files.load_json(folder / "metrics.json")["runs"]
    return [{key: value for key, value in run.items() if key != "seconds"} for run in runs]


def read_all(folder: Path) -> None:
    """Every file that stands under its name is whole."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix == ".json" and path.name in NAMES:
            files.load_json(path)
        elif path.name in NAMES and path.suffix == ".pt":
            files.load_tensors(path)
            torch.load(path, weights_only=True)
        elif path.name == "curves.png":
            assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
        else:
            assert path.name.startswith("."), f"{path} is no file of a run"


def test_killed_at_random_moments(
    runner: Runner, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    kills = pytestconfig.getoption("--kills")
    assert runner(["train", "KarateClub", *RUN, "--out", "whole"]) == 0
    began = time.monotonic()
    assert runner(["train", "KarateClub", *RUN, "--out", "again"]) == 0
    assert results(tmp_path / "again") == results(tmp_path / "whole")
    seconds = time.monotonic() - began
    draw, codes = random.Random(kills), []
    number = 0
    while len(codes) < kills:
        folder, number = tmp_path / f"run{number}", number + 1
        for _ in range(4):  # some runs are killed again when they go on
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else ["KarateClub", *RUN]
            how = draw.choice([signal.SIGKILL, signal.SIGTERM])
            code = runner(["train", *line, "--out", str(folder)], how, draw.uniform(0, seconds))
            read_all(folder)
            assert code in (0, -how, 128 + how), Path("said").read_text()
            if code:
                codes.append(code)
            if not code or draw.random() < 0.5:
                break
        begun = (folder / "config.json").exists()
        line = ["--resume"] if begun else ["KarateClub", *RUN]
        assert runner(["train", *line, "--out", str(folder)]) == 0, Path("said").read_text()
        read_all(folder)
        assert results(folder) == results(tmp_path / "whole")
        assert {path.name for path in folder.iterdir()} <= set(NAMES) - {"partial.pt"}
        ours, whole = (
            files.load_tensors(p / "checkpoint.pt") for p in (folder, tmp_path / "whole")
        )
        assert ours["seed"] == whole["seed"]
        assert all(torch.equal(v, whole["parameters"][k]) for k, v in ours["parameters"].items())
    print(f"{len(codes)} kills of {number} runs: {sorted((c, codes.count(c)) for c in set(codes))}")
