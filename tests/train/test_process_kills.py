"""Processes that train together, killed at random moments, go on to the end of an unbroken run.

``python -m pytest tests/train/test_process_kills.py --kills 40`` kills more often.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from killed import Runner, kill
from run_folders import read_all, results

from pyg_outerconv import files
from pyg_outerconv.train.run_folder import NAMES

RUN = ["--epochs", "8", "--patience", "0", "--seeds", "2", "--hidden", "8", "--family", "walk(2)"]
RUN += ["--batches", "random-nodes", "--parts", "6", "--split", "public"]

# Imports once, then forks the agent of torchrun for each command line, which forks two workers.
PARENT = """
import json, os, sys
from pathlib import Path
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from pyg_outerconv.cli import main
from pyg_outerconv.train import command, experiment, update  # all that a worker imports
experiment.SNAPSHOT_SECONDS = 0.0
experiment.can_draw = lambda: False

def work(line):
    Path(f"worker{os.environ['RANK']}").write_text(str(os.getpid()))
    code = main(line)
    sys.stdout.flush()
    if code:
        os._exit(code)

def launch(line):
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", max_restarts=0,
        rdzv_endpoint="localhost:0", start_method="fork", monitor_interval=0.1, run_id="kills",
    )
    elastic_launch(config, work)(line)

print("ready", flush=True)
for line in sys.stdin:
    for rank in (0, 1):
        Path(f"worker{rank}").unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 1
        try:
            launch(json.loads(line))
            code = 0
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Together(Runner):
    """Runs command lines in two processes, and kills one of the three that are there."""

    def struck(self, line: list[str], whom: str, number: int, after: float) -> int:
        """Run one, and kill after so many seconds of training."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        import json

        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        agent = int(self.process.stdout.readline())
        until = time.monotonic() + 60
        while not Path("worker1").exists() or not Path("worker1").read_text():
            assert time.monotonic() < until, Path("said").read_text()
            time.sleep(0.01)
        time.sleep(after)
        target = agent if whom == "agent" else int(Path(whom).read_text() or agent)
        kill(target, number)
        return int(self.process.stdout.readline())


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Together]:
    monkeypatch.chdir(tmp_path)
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Together(process)
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_killed_processes(runner: Together, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    kills = pytestconfig.getoption("--kills")
    began = time.monotonic()
    assert runner(["train", "KarateClub", *RUN, "--out", "whole"]) == 0, Path("said").read_text()
    seconds = 0.9 * (time.monotonic() - began)
    draw, struck, number, codes = random.Random(kills), 0, 0, []
    while struck < kills:
        folder, number = tmp_path / f"run{number}", number + 1
        for _ in range(4):  # some runs are killed again when they go on
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else ["KarateClub", *RUN]
            whom = draw.choice(["agent", "worker0", "worker1"])
            how = draw.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
            after = draw.uniform(0, seconds)
            ended = time.monotonic() + after
            code = runner.struck(["train", *line, "--out", str(folder)], whom, how, after)
            assert time.monotonic() - ended < 60, f"{whom} {how.name}: {Path('said').read_text()}"
            read_all(folder)
            if code:
                struck += 1
                codes.append((whom, how.name))
            if not code or draw.random() < 0.5:
                break
        begun = (folder / "config.json").exists()
        line = ["--resume"] if begun else ["KarateClub", *RUN]
        code = runner(["train", *line, "--out", str(folder)])
        assert code == 0, Path("said").read_text()
        read_all(folder)
        assert results(folder) == results(tmp_path / "whole")
        assert {path.name for path in folder.iterdir()} <= set(NAMES) - {"partial.pt"}
        ours, whole = (
            files.load_tensors(p / "checkpoint.pt") for p in (folder, tmp_path / "whole")
        )
        assert all(torch.equal(v, whole["parameters"][k]) for k, v in ours["parameters"].items())
    print(f"{struck} kills of {number} runs: {sorted((c, codes.count(c)) for c in set(codes))}")
