"""One process at a time works in the folder of a run, of a search, or of a table."""

import subprocess
import sys
from contextlib import ExitStack

import pytest
from run_folders import read_all

from pyg_outerconv.lab.reproduce.run import read_report
from pyg_outerconv.lab.train import folder as lock
from pyg_outerconv.lab.train.folder import RunFolder

HOLDER = """
import sys
from filelock import FileLock
lock = FileLock(sys.argv[1] + "/lock")
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "SECONDS", 0.3)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        said = []
        refused = pytest.raises(ValueError, match="one process at a time")
        with refused, lock.alone_in(tmp_path, said.append):
            pass
        assert said == [f"{tmp_path}: another process works there; it has 0 s to stop"]
        holder.kill()
        holder.wait()
        with lock.alone_in(tmp_path):
            pass
    with lock.alone_in(tmp_path):
        pass


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="a run has a folder"), lock.alone_in(tmp_path / "none"):
        pass


def test_what_was_made_for_a_block_goes_if_nothing_was_put_in(tmp_path):
    folder = tmp_path / "runs" / "one"

    def make():
        folder.mkdir(parents=True, exist_ok=True)

    with lock.alone_in(folder, begin=make):
        assert folder.is_dir()
    assert not (tmp_path / "runs").exists()
    with lock.alone_in(folder, begin=make):
        (folder / "file").touch()
    assert (folder / "file").exists()


def test_a_folder_is_looked_at_again_once_it_is_locked(tmp_path):
    """As of two that begin together the other one may have been there, and left."""
    folder, looks = tmp_path / "run", []

    def begin():
        folder.mkdir(exist_ok=True)
        looks.append((folder / lock.LOCK).exists())
        if looks[-1]:
            raise ValueError("used")

    with pytest.raises(ValueError, match="used"), lock.alone_in(folder, begin=begin):
        pass
    assert looks == [False, True]
    assert not folder.exists()


# Begins each line of its own when another process begins the same one of its lines.
TOGETHER = """
import sys, time
from pathlib import Path
from pyg_outerconv.lab.cli import main
import pyg_outerconv.lab.train.command, pyg_outerconv.lab.reproduce.run
import pyg_outerconv.lab.search.command
own, other, rounds, *line = sys.argv[1:]
codes = []
for number in range(int(rounds)):
    Path(f"{own}-{number}").touch()
    while not Path(f"{other}-{number}").exists():
        time.sleep(0.001)
    codes.append(main([*line, "--out", f"{own.rpartition('/')[0]}/out-{number}"]))
print("codes", *codes)
"""
TABLE = """
title = "Karate"
seeds = 1
[defaults]
epochs = 3
patience = 0
[data.KarateClub]
[[row]]
name = "GCN"
family = "gcn"
"""
ROUNDS = 3


def _run(folder):
    read_all(folder)
    home = RunFolder(folder)
    assert len(home.read_runs()) == home.settings().seeds
    assert home.load_checkpoint()["settings"] == home.settings().as_dict()


def _table(folder):
    _run(folder / "karateclub-gcn")
    (one,) = read_report(folder / "karate.json")
    assert one["seeds"] == RunFolder(folder / "karateclub-gcn").settings().seeds


def _search(folder):
    from pyg_outerconv.lab.search.search import SearchFolder

    plan = SearchFolder(folder).plan
    kept = SearchFolder(folder).studies(plan, ["outerconv"]).kept("outerconv", "tests", {})
    assert set(kept) == {str(seed) for seed in range(plan.test_seeds)}


SEARCH = ["search", "KarateClub", "--trials", "2", "--seeds", "1", "--finalists", "1"]
SEARCH += ["--epochs", "2", "--max-depth", "1", "--max-hidden", "8", "--peers", "none"]
COMMANDS = {
    "train": (["train", "KarateClub", "--epochs", "3", "--patience", "0"], "--seeds", _run),
    "search": (SEARCH, "--test-seeds", _search),
    "reproduce": (["reproduce", "karate.toml"], "--seeds", _table),
}


# Trains without a folder, and goes on with the number it chose when another process has one too.
NUMBERED = """
import os, sys, time
from pathlib import Path
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import command
own, other, *line = sys.argv[1:]
os.chdir(Path(own).parent)
alone_in = command.alone_in
def both_chose(*arguments):
    Path(own).touch()
    while not Path(other).exists():
        time.sleep(0.001)
    return alone_in(*arguments)
command.alone_in = both_chose
print("codes", main(line))
"""


@pytest.mark.slow
def test_of_two_without_a_folder_each_takes_a_number(tmp_path, fresh):
    line = COMMANDS["train"][0]
    names = [str(tmp_path / name) for name in ("first", "second")]
    begun = [
        fresh.begin(NUMBERED, own, other, *line, "--seeds", "1")
        for own, other in (names, names[::-1])
    ]
    for one in map(fresh.end, begun):
        assert one.stdout.rpartition("codes ")[2].split() == ["0"], one.stderr
    made = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert made == [f"karateclub-gcn-{number:03d}" for number in (1, 2)]
    for name in made:
        _run(tmp_path / "runs" / name)


def test_a_number_whose_folder_stays_empty_is_free_again(tmp_path):
    with ExitStack() as held:
        folders = [lock.next_folder(tmp_path / "runs", "a", held) for _ in range(3)]
        assert [folder.name for folder in folders] == ["a-001", "a-002", "a-003"]
        (folders[1] / "file").touch()
    assert [folder.is_dir() for folder in folders] == [False, True, False]
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be writable: expected a folder, or --out"):
        lock.next_folder(tmp_path / "file", "a")


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("command", COMMANDS)
def test_of_two_that_begin_together_one_is_refused(command, tmp_path, fresh):
    line, option, is_whole = COMMANDS[command]
    if command == "search":
        pytest.importorskip("optuna")
    (tmp_path / "karate.toml").write_text(TABLE)
    line = [str(tmp_path / word) if word.endswith(".toml") else word for word in line]
    names = [str(tmp_path / name) for name in ("first", "second")]
    begun = [
        fresh.begin(TOGETHER, own, other, str(ROUNDS), *line, option, seeds)
        for own, other, seeds in ((*names, "1"), (*names[::-1], "2"))
    ]
    ended = [fresh.end(one) for one in begun]
    said = [one.stdout.rpartition("codes ")[2].split() for one in ended]
    assert all(len(codes) == ROUNDS for codes in said), [one.stderr for one in ended]
    for number, codes in enumerate(zip(*said, strict=True)):
        assert sorted(codes) == ["0", "2"], f"round {number}: {codes}"
        is_whole(tmp_path / f"out-{number}")
