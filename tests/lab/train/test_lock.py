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


# Begins each line when another process begins the same one of its lines; or one without a folder,
# where both have chosen a number before one of them locks its folder.
TOGETHER = """
import os, sys, time
from pathlib import Path
from pyg_outerconv.lab.cli import main
import pyg_outerconv.lab.reproduce.run, pyg_outerconv.lab.search.command
from pyg_outerconv.lab.train import command
own, other, rounds, *line = sys.argv[1:]
os.chdir(Path(own).parent)

def together(number):
    Path(f"{own}-{number}").touch()
    while not Path(f"{other}-{number}").exists():
        time.sleep(0.001)

codes, alone_in = [], command.alone_in
for number in range(int(rounds)):
    together(number)
    codes.append(main([*line, "--out", f"out-{number}"]))
if not codes:
    command.alone_in = lambda *given: together(0) or alone_in(*given)
    codes.append(main(line))
print("codes", *codes)
"""


def both(fresh, folder, rounds, *lines):
    """The exit codes of two processes, and what they complained of."""
    names = [str(folder / name) for name in ("first", "second")]
    begun = [
        fresh.begin(TOGETHER, *pair, str(rounds), *line)
        for pair, line in zip((names, names[::-1]), lines, strict=True)
    ]
    ended = [fresh.end(one) for one in begun]
    codes = [one.stdout.rpartition("codes ")[2].split() for one in ended]
    return codes, [one.stderr for one in ended]


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


SEARCH = ["search", "KarateClub", "--trials", "2", "--final-seeds", "1", "--finalists", "1"]
SEARCH += ["--epochs", "2", "--max-depth", "1", "--max-hidden", "8", "--portfolio", "none"]
COMMANDS = {
    "train": (["train", "KarateClub", "--epochs", "3", "--patience", "0"], "--seeds", _run),
    "search": (SEARCH, "--test-seeds", _search),
    "reproduce": (["reproduce", "karate.toml"], "--seeds", _table),
}


@pytest.mark.slow
def test_of_two_without_a_folder_each_takes_a_number(tmp_path, fresh):
    line = [*COMMANDS["train"][0], "--seeds", "1"]
    codes, told = both(fresh, tmp_path, 0, line, line)
    assert codes == [["0"], ["0"]], told
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
    codes, told = both(fresh, tmp_path, ROUNDS, *([*line, option, seeds] for seeds in "12"))
    assert [len(one) for one in codes] == [ROUNDS] * 2, told
    for number, pair in enumerate(zip(*codes, strict=True)):
        assert sorted(pair) == ["0", "2"], f"round {number}: {pair}"
        is_whole(tmp_path / f"out-{number}")
