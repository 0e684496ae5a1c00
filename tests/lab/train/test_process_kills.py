"""Processes that train together, killed at random moments, go on to the end of an unbroken run.

``python -m pytest -s tests/lab/train/test_process_kills.py --kills 40`` kills until 40 have
struck, and says whom. A kill strikes if it hits the launcher or a worker of a run under way, which
ends by it.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest
from killed import Runner, Strikes, kill, running
from run_folders import assert_same_end, read_all

from pyg_outerconv import files

HOW = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
EPOCHS, SEEDS = 8, 2
RUN = ["--epochs", str(EPOCHS), "--patience", "0", "--seeds", str(SEEDS), "--hidden", "8"]
RUN += ["--family", "walk(2)"]
RUN += ["--batches", "random-nodes", "--parts", "6", "--split", "public"]

# Imports once, then forks the agent of torchrun for each command line, which forks two workers.
PARENT = '''
import json, os, sys
from multiprocessing.context import ForkContext
from pathlib import Path
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import command, experiment, loop  # all that a worker imports
experiment.SNAPSHOT_SECONDS = 0.0
experiment.can_draw = lambda: False

class Finished:
    """Tells workers that all have finished; multiprocessing's event waits for killed ones for ever.

    Only workers that run a function have it, not those of the command torchrun.
    """

    def __init__(self):
        self.reading, self.writing = os.pipe()

    def set(self):
        os.write(self.writing, b"..")

    def wait(self):
        os.close(self.writing)
        os.read(self.reading, 1)

ForkContext.Event = lambda context: Finished()

def noted(run, step=loop.SeedRun.step):
    step(run)
    if run.processes.leads:
        with Path(f"{os.getppid()}.epochs").open("a") as file:
            file.write(".")

loop.SeedRun.step = noted

def work(line):
    Path(f"{os.getppid()}.worker{os.environ['RANK']}").write_text(str(os.getpid()))
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
'''


WHOM = {"launcher": "", "first worker": "worker0", "other worker": "worker1"}


class Together(Runner):
    """Runs command lines in two processes, and kills one of the three that are there."""

    def timed(self, line):
        """The seconds before the first epoch of a whole run, and those of an epoch."""
        agent = self.begin(line)
        seen = []
        for epoch in (0, 1, EPOCHS * SEEDS):
            assert self._reaches(agent, epoch), Path("said").read_text()
            seen.append(time.monotonic())
        assert self._code(agent) == 0, Path("said").read_text()
        return seen[1] - seen[0], (seen[2] - seen[1]) / (EPOCHS * SEEDS - 1)

    def struck(self, line, whom, number, epoch, after):
        """Run one, and kill a process so many seconds after an epoch, of those of this run.

        Returns:
            How it ended, and whether the process was there to be killed.
        """
        agent = self.begin(line)
        is_there = self._reaches(agent, epoch)
        if is_there:
            time.sleep(after)
            target = int(Path(f"{agent}.{WHOM[whom]}").read_text()) if WHOM[whom] else agent
            is_there = exists(target)
            kill(target, number)
        return self._code(agent), is_there

    def whole(self, line):
        """Run one to its end."""
        assert self._code(self.begin(line)) == 0, Path("said").read_text()

    def _code(self, agent):
        """How it ended, which takes a minute at most."""
        until = time.monotonic() + 60
        while exists(agent):
            if time.monotonic() > until:
                os.killpg(agent, signal.SIGKILL)  # its session
                raise AssertionError(f"hangs: {Path('said').read_text()}")
            time.sleep(0.01)
        return self.told()

    def _reaches(self, agent, epoch):
        """Wait until both workers run and so many epochs are done; whether it came to that."""
        workers = [Path(f"{agent}.worker{rank}") for rank in (0, 1)]
        epochs, until = Path(f"{agent}.epochs"), time.monotonic() + 60
        while not all(worker.exists() and worker.read_text() for worker in workers) or (
            epoch and not (epochs.exists() and epochs.stat().st_size >= epoch)
        ):
            assert time.monotonic() < until, Path("said").read_text()
            if not exists(agent):
                return False
            time.sleep(0.002)
        return True


def exists(process):
    """Whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def epochs_left(folder):
    """How many epochs a run has before it, by what its folder holds."""
    seeds = []
    if (folder / "metrics.json").exists():
        seeds = [result["seed"] for result in files.load_json(folder / "metrics.json")["runs"]]
    done = EPOCHS * len(seeds)
    if (folder / "partial.pt").exists():
        state = files.load_tensors(folder / "partial.pt")
        done += len(state["history"]["val_loss"]) if state["seed"] not in seeds else 0
    return EPOCHS * SEEDS - done


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with running(PARENT, Together) as made:
        yield made


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_killed_processes(runner, tmp_path, pytestconfig, record_property):
    strikes = Strikes(pytestconfig.getoption("--kills"))
    starting, lasting = runner.timed(["train", "KarateClub", *RUN, "--out", "whole"])
    draw, number = random.Random(strikes.wanted), 0
    while strikes.are_left:
        folder, number = tmp_path / f"run{number}", number + 1
        for _ in range(4):  # some runs are killed again when they go on
            begun = (folder / "config.json").exists()
            line = ["--resume"] if begun else ["KarateClub", *RUN]
            whom, how = draw.choice([*WHOM]), draw.choice(HOW)
            epoch = draw.randrange(epochs_left(folder)) if epochs_left(folder) else 0
            after = draw.uniform(0, lasting if epoch else starting)
            code, was_there = runner.struck(
                ["train", *line, "--out", str(folder)], whom, how, epoch, after
            )
            assert was_there or not code, Path("said").read_text()
            read_all(folder)
            strikes.note(how, bool(code), whom)
            if not strikes.are_left or not code or draw.random() < 0.5:
                break
        begun = (folder / "config.json").exists()
        line = ["--resume"] if begun else ["KarateClub", *RUN]
        runner.whole(["train", *line, "--out", str(folder)])
        read_all(folder)
        assert_same_end(folder, tmp_path / "whole")
    told = strikes.told(number)
    record_property("kills", told)
    print(told)
