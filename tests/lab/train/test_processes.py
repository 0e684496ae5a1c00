"""Processes that train together get the numbers of one process, and none waits for ever; of others
one at a time works in the folder of a run, of a search, or of a table.
"""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES
from run_folders import seed_run as begun

from pyg_outerconv.graph import Graph
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train import folder as home
from pyg_outerconv.lab.train.inputs import Share
from pyg_outerconv.scale import Carried

distributed = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch without distributed"
)

# What torchrun starts: an agent, and two workers, which it forks. If they hang, all are killed.
TWO = """
import json, os, signal, sys
import torch
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

def work(jobs, found_in):
    from pyg_outerconv.scale.processes import processes
    from test_processes import seed_run

    together = processes("cpu")
    assert together.size == 2
    outcomes = []
    for changes, seed, epochs in jobs:
        run = seed_run(changes, seed, together)
        for _ in range(epochs):
            run.step()
        outcomes.append([run.model.state_dict(), run.history["val_loss"]])
    if together.leads:
        torch.save(outcomes, found_in)
    together.end()

paths, jobs, found_in, seconds = map(json.loads, sys.argv[1:])
sys.path[:0] = paths
os.setsid()
signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
signal.alarm(seconds)
config = LaunchConfig(
    min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", max_restarts=0,
    rdzv_endpoint="localhost:0", start_method="fork", monitor_interval=0.1, run_id="two",
)
elastic_launch(config, work)(jobs, found_in)
"""

Job = tuple[dict[str, Any], int, int]


def seed_run(changes, seed=0, processes=None):
    defaults = {"batches": "random-nodes", "parts": 5, "accumulate": 2, "hidden": 8}
    settings = Settings("KarateClub", **{"family": "gcn", "split": "public", **defaults, **changes})
    return begun(settings, seed, **({} if processes is None else {"processes": processes}))


def together(fresh, jobs, folder, seconds):
    """What two processes get of some jobs."""
    here, output_path = Path(__file__).resolve().parent, folder / "found.pt"
    paths = [str(here), str(here.parents[1])]
    done = fresh(TWO, *map(json.dumps, (paths, jobs, str(output_path), seconds)))
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(output_path, weights_only=True)


def assert_as_alone(jobs, outcomes):
    for (changes, seed, epochs), (parameters, losses) in zip(jobs, outcomes, strict=True):
        alone = seed_run(changes, seed)
        for _ in range(epochs):
            alone.step()
        for name, value in alone.model.state_dict().items():
            off = (value - parameters[name]).abs().max()
            assert off <= 1e-5 * value.abs().max().clamp(min=1e-2), (changes, name)
        assert losses == pytest.approx(alone.history["val_loss"], rel=1e-5), changes


def carried_by_text():
    """The families of edges whose basis samples carry, as text."""
    graph, texts = data.load("KarateClub").data, []
    for family in CASES:
        if issubclass(Graph, family.reads):
            try:
                Carried(family, family.structure_in(graph))
            except ValueError:
                continue
            texts.append(repr(family))
    return texts


OPTIONS = [
    {"family": "walk(2)", "dropout": 0.5},
    {"family": "stack(gcn, identity)", "batches": "clusters", "class_weights": "balanced"},
    {"family": "directed(gcn)", "accumulate": 4, "skip": "concat", "layer_norm": "layer"},
    {"family": "gat(heads=2)", "theta": "full"},
    {"family": "chebyshev(3)", "architecture": "blocks", "layer_norm": "layer"},
    {"family": "relation(1)", "theta": "basis-decomposed:2", "precision": "bfloat16"},
]


@distributed
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("which", ["options", "families"])
def test_two_processes_are_one(which, tmp_path, fresh):
    if which == "options":
        jobs = [(options, 1, 3) for options in OPTIONS]
    else:
        families = carried_by_text()
        assert len(families) > 25
        jobs = [({"family": text, "dropout": 0.5}, 0, 2) for text in families]
    assert_as_alone(jobs, together(fresh, jobs, tmp_path, seconds=500))


MANY_ENDS = """
import os, socket
import torch
from pyg_outerconv.scale.processes import Torchrun

torch.set_num_threads(1)
os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost"}
for number in range(40):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        os.environ["MASTER_PORT"] = str(free.getsockname()[1])
    together = Torchrun("cpu")
    parallel = together.wrap(torch.nn.Linear(4, 4))
    parallel(torch.ones(3, 4)).sum().backward()
    together.end()
    del parallel
print("ended")
"""


@distributed
@pytest.mark.slow(cases=1)
def test_a_wrapper_that_outlives_the_group_does_not_wait_for_it(fresh):
    """Left alone, torch's wrapper hangs here within some tens of tries."""
    done = fresh.end(fresh.begin(MANY_ENDS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ended\n")


def test_processes_share_out_batches_in_equal_numbers():
    """Else one adds up gradients more often than the other, and waits for ever."""
    for count in range(12):
        numbers = [Share(4, rank, 2).numbers(count) for rank in range(2)]
        assert len(numbers[0]) == len(numbers[1])
        assert len(numbers[0]) % 2 == 0
        batch_numbers = [number for part in numbers for number in part if number is not None]
        assert sorted(batch_numbers) == list(range(count))


def test_no_parameter_is_without_a_gradient():
    """A sample without edges, or without labelled nodes, has a gradient for each parameter."""
    for text in carried_by_text():
        run = seed_run({"family": text})
        (batch, *_) = run.contender.inputs.batches(run.nodes["train"], 0, 0, run.share)
        carried = run.contender.inputs.sampler.carried
        bare = replace(batch, structure=carried.frame(batch.structure.size[0]))
        for one in (None, bare, replace(bare, rows=bare.rows[:0], nodes=bare.nodes[:0])):
            run.model.zero_grad()
            run.loss(one).backward()
            assert all(p.grad is not None for p in run.model.parameters()), text


# One process at a time ----------------------------------------------------------------------------


HOLDER = """
import sys
from filelock import FileLock
home = FileLock(sys.argv[1] + "/lock")
home.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_a_killed_one_leaves_no_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "SECONDS", 0.3)
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        said = []
        refused = pytest.raises(ValueError, match="one process at a time")
        with refused, home.alone_in(tmp_path, said.append):
            pass
        assert said == [f"{tmp_path}: another process works there; it has 0 s to stop"]
        holder.kill()
        holder.wait()
        with home.alone_in(tmp_path):
            pass
    with home.alone_in(tmp_path):
        pass


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="a run has a folder"), home.alone_in(tmp_path / "none"):
        pass


def test_what_was_made_for_a_block_goes_if_nothing_was_put_in(tmp_path):
    folder = tmp_path / "runs" / "one"

    def make():
        folder.mkdir(parents=True, exist_ok=True)

    with home.alone_in(folder, begin=make):
        assert folder.is_dir()
    assert not (tmp_path / "runs").exists()
    with home.alone_in(folder, begin=make):
        (folder / "file").touch()
    assert (folder / "file").exists()


def test_a_folder_is_looked_at_again_once_it_is_locked(tmp_path):
    """As of two that begin together the other one may have been there, and left."""
    folder, looks = tmp_path / "run", []

    def begin():
        folder.mkdir(exist_ok=True)
        looks.append((folder / home.LOCK).exists())
        if looks[-1]:
            raise ValueError("used")

    with pytest.raises(ValueError, match="used"), home.alone_in(folder, begin=begin):
        pass
    assert looks == [False, True]
    assert not folder.exists()


def test_a_number_whose_folder_stays_empty_is_free_again(tmp_path):
    with ExitStack() as exit_stack:
        folders = [home.next_folder(tmp_path / "runs", "a", exit_stack) for _ in range(3)]
        assert [folder.name for folder in folders] == ["a-001", "a-002", "a-003"]
        (folders[1] / "file").touch()
    assert [folder.is_dir() for folder in folders] == [False, True, False]
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="must be writable: expected a folder, or --out"):
        home.next_folder(tmp_path / "file", "a")


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
COMMANDS = {
    "train": ["train", "KarateClub"],
    "search": ["search", "KarateClub", "--trials", "2", "--portfolio", "none"],
    "reproduce": ["reproduce", "karate.toml"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_in_a_folder_alone(command, tmp_path, monkeypatch, capsys):
    if command == "search":
        pytest.importorskip("optuna")
    monkeypatch.setattr(home, "SECONDS", 0.1)
    (tmp_path / "karate.toml").write_text(TABLE)
    (tmp_path / "out").mkdir()
    with home.alone_in(tmp_path / "out"):
        assert main([*COMMANDS[command], "--out", "out"]) == 2
    assert "one process at a time works in out" in capsys.readouterr().err
