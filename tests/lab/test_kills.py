"""Runs and searches that are killed at random moments can be read, and go on to the same end.

``python -m pytest -s tests/lab/test_kills.py --kills 40`` kills each kind until 40 have struck, and
says how. A kill strikes if a run was under way, which ends by it. Of processes that train together
it hits the launcher or a worker.
"""

import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import run_folders
from mapped_graphs import write
from tiers import every_case

from pyg_outerconv import files

# Processes that are killed ------------------------------------------------------------------------

# Imports once, then forks for each command line, which comes through a pipe, as its answers go: a
# kill hits the work, not the imports.
PARENT = """
import json, os, sys
sys.path.insert(0, os.getcwd())
os.chdir(sys.argv[1])
os.dup2(os.open("told", os.O_WRONLY), 1)
sys.stdin = open("asked")
from pyg_outerconv.lab.cli import main
{prelude}
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    {each}
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
MINUTE = 60.0
HOW = (signal.SIGKILL, signal.SIGTERM)


@contextmanager
def running(fresh, prelude, each="pass"):
    """What runs command lines in processes of their own, in the current folder.

    Args:
        fresh: begins processes.
        prelude: Python that is run once, with its imports.
        each: Python that is run before each command line, whose ``number`` it knows.
    """
    for name in ("asked", "told"):
        os.mkfifo(name)
    begun = fresh.begin(PARENT.format(prelude=prelude, each=each), str(Path.cwd()))
    with open("told") as told, open("asked", "w") as asked:

        def run(line, number=0, after=0.0, whom=0):
            """How one ended, that was killed after so many seconds, or one that it started.

            Whatever still runs a minute later hangs, and is killed with all that it started.
            """
            asked.write(json.dumps(line) + "\n")
            asked.flush()
            child = int(told.readline())
            killers = [threading.Timer(MINUTE, end, (child,))]
            if number:
                killers.append(threading.Timer(after, kill, (child, number, whom)))
            for killer in killers:
                killer.start()
            code = int(told.readline())
            for killer in killers:
                killer.cancel()
                killer.join()
            return code

        assert told.readline() == "ready\n", begun.err.read_text()
        yield run
    assert fresh.end(begun).returncode == 0


def kill(process, number, whom):
    """Kill a process, or one of those that it has started."""
    with suppress(psutil.NoSuchProcess, IndexError):  # it has just ended by itself, or not begun
        agent = psutil.Process(process)
        [agent, *agent.children()][whom].send_signal(number)


def end(process):
    with suppress(psutil.NoSuchProcess):
        agent = psutil.Process(process)
        for one in (*agent.children(recursive=True), agent):
            one.kill()


# What is killed -----------------------------------------------------------------------------------

RUN = ["--epochs", "12", "--patience", "0", "--seeds", "2", "--hidden", "8", "--dropout", "0.5"]
BLOCKS = ["--batches", "blocks", "--parts", "6", "--parts-per-batch", "2", "--device", "cpu"]

# The seed under way is kept after every epoch, so that kills hit the writing of it too. Every third
# draws, as every third search does, which takes longer than all else.
TRAIN = """
import matplotlib.backends.backend_agg, matplotlib.figure
from pyg_outerconv.lab.train import experiment
experiment.SNAPSHOT_SECONDS = 0.0
"""
EACH = "experiment.can_draw = lambda: number % 3 == 2"
SEARCH = """
import pyg_outerconv.lab.search.command
from pyg_outerconv.lab.search import search, studies
studies.RANDOM_TRIALS = 2
make_page = search.make_page
"""
EACH_SEARCH = (
    'search.make_page = lambda *of: make_page(of[0], "html" if number % 3 == 2 else "markdown")'
)

# Forks the agent of torchrun for each command line, which forks two workers. Its event would wait
# for killed workers for ever; only those that run a function have one, not those of the command.
TOGETHER = """
from multiprocessing.context import ForkContext
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from pyg_outerconv.lab.train import command, experiment
experiment.SNAPSHOT_SECONDS = 0.0
experiment.can_draw = lambda: False

class Finished:
    def __init__(self):
        self.reading, self.writing = os.pipe()
    def set(self):
        os.write(self.writing, b"..")
    def wait(self):
        os.close(self.writing)
        os.read(self.reading, 1)

ForkContext.Event = lambda context: Finished()
alone = main

def work(line):
    code = alone(line)
    sys.stdout.flush()
    if code:
        os._exit(code)

def main(line):
    os.setsid()
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", max_restarts=0,
        rdzv_endpoint="localhost:0", start_method="fork", monitor_interval=0.1, run_id="kills",
    )
    elastic_launch(config, work)(line)
    return 0
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
            file_names = (*SearchFolder.names, "study.db-journal")
            assert path.name.startswith(".") or path.name in file_names, (
                f"{path} is no file of a search"
            )
    now = timeless(found_in(folder)[0]) if (folder / "config.json").exists() else {}
    for name, trials in (before or {}).items():
        assert now[name][: len(trials)] == trials, "a finished trial was lost"
    return now


def assert_same_search(folder, whole):
    from short_search import numbers

    assert numbers(folder) == numbers(whole)
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


A_RUN = (read_run, run_folders.assert_same_end, 4, 0.5)
PARTS = ["--batches", "random-nodes", "--parts", "6", "--split", "public"]
# The command line, what is imported before, how a folder is read and compared with a whole one, how
# often a run is killed again at most, and with which chance it is not.
KINDS = {
    "a run in memory": (["train", "KarateClub", *RUN], (TRAIN, EACH), *A_RUN),
    "a run in mapped files": (
        ["train", "--data", "graph", *RUN, *BLOCKS],
        (TRAIN, EACH),
        *A_RUN,
    ),
    "two processes": (["train", "KarateClub", *RUN, *PARTS], (TOGETHER,), *A_RUN),
    "a search": (["search"], (SEARCH, EACH_SEARCH), read_search, assert_same_search, 8, 0.0),
}


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_random_moments(kind, tmp_path, pytestconfig, record_property, fresh):
    ((command, *new), program, read, assert_same_end, most, chance) = KINDS[kind]
    wanted = pytestconfig.getoption("--kills") or (3 if every_case(pytestconfig) else 1)
    together = kind == "two processes"
    if command == "search":
        pytest.importorskip("optuna")
        from short_search import LINE

        new = LINE
    if "graph" in new:
        write(tmp_path / "graph")

    def line_for(folder):
        begun = (folder / "config.json").exists()
        return [command, *(["--resume"] if begun else new), "--out", str(folder)]

    with running(fresh, *program) as runner:
        began = time.monotonic()
        assert runner([command, *new, "--out", "whole"]) == 0, Path("said").read_text()
        seconds = time.monotonic() - began
        draw, number, tried, struck = random.Random(wanted), 0, 0, Counter()
        while struck.total() < wanted and tried < 2 * wanted + 10:
            folder, number, seen = tmp_path / f"run{number}", number + 1, None
            for basis in tmp_path.glob("graph/basis-*"):  # so that kills hit the writing of it too
                shutil.rmtree(basis)
            for _ in range(most):  # some are killed again when they go on
                how = draw.choice((*HOW, signal.SIGINT) if together else HOW)
                whom = draw.randrange(3) if together else 0
                code = runner(line_for(folder), how, draw.uniform(0, seconds), whom)
                # Where a worker is hit, the launcher says in its own way that one is gone.
                assert together or code in (0, -how, 128 + how), Path("said").read_text()
                seen, tried = read(folder, seen), tried + 1
                hit = ("launcher ", "worker ", "worker ")[whom] * together
                struck[f"{hit}{signal.Signals(how).name}"] += bool(code)
                if struck.total() >= wanted or not code or draw.random() < chance:
                    break
            assert runner(line_for(folder)) == 0, Path("said").read_text()
            read(folder, seen)
            assert_same_end(folder, tmp_path / "whole")
    parts = ", ".join(f"{one} {count}" for one, count in sorted(struck.items()) if count)
    line = f"{struck.total()} kills that struck, of {tried}, over {number} runs: {parts}"
    assert struck.total() >= wanted, f"{line}; wanted {wanted}"
    told = f"{line}; nothing unreadable, all ended as unbroken ones"
    record_property("kills", told)
    print(told)
