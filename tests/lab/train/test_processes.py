"""Processes that train together get the numbers of one process, and none waits for ever."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import CASES
from run_folders import seed_run as begun

from pyg_outerconv.graph import Graph
from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.inputs import Share
from pyg_outerconv.scale import Carried

pytestmark = pytest.mark.skipif(
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
    found = []
    for changes, seed, epochs in jobs:
        run = seed_run(changes, seed, together)
        for _ in range(epochs):
            run.step()
        found.append([run.model.state_dict(), run.history["val_loss"]])
    if together.leads:
        torch.save(found, found_in)
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
    given = {"batches": "random-nodes", "parts": 5, "accumulate": 2, "hidden": 8}
    settings = Settings("KarateClub", **{"family": "gcn", "split": "public", **given, **changes})
    return begun(settings, seed, **({} if processes is None else {"processes": processes}))


def together(fresh, jobs, folder, seconds):
    """What two processes get of some jobs."""
    here, found = Path(__file__).resolve().parent, folder / "found.pt"
    paths = [str(here), str(here.parents[1])]
    done = fresh(TWO, *map(json.dumps, (paths, jobs, str(found), seconds)))
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(found, weights_only=True)


def assert_as_alone(jobs, found):
    for (changes, seed, epochs), (parameters, losses) in zip(jobs, found, strict=True):
        alone = seed_run(changes, seed)
        for _ in range(epochs):
            alone.step()
        for name, value in alone.model.state_dict().items():
            off = (value - parameters[name]).abs().max()
            assert off <= 1e-5 * value.abs().max().clamp(min=1e-2), (changes, name)
        assert losses == pytest.approx(alone.history["val_loss"], rel=1e-5), changes


def carried_by_text():
    """The families of edges whose basis samples carry, as text."""
    graph, found = data.load("KarateClub").data, []
    for family in CASES:
        if issubclass(Graph, family.reads):
            try:
                Carried(family, family.structure_in(graph))
            except ValueError:
                continue
            found.append(repr(family))
    return found


OPTIONS = [
    {"family": "walk(2)", "dropout": 0.5},
    {"family": "stack(gcn, identity)", "batches": "clusters", "class_weights": "balanced"},
    {"family": "directed(gcn)", "accumulate": 4, "skip": "concat", "layer_norm": "layer"},
    {"family": "gat(heads=2)", "theta": "full"},
    {"family": "chebyshev(3)", "architecture": "blocks", "layer_norm": "layer"},
    {"family": "relation(1)", "theta": "basis-decomposed:2", "precision": "bfloat16"},
]


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
for number in range(100):
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


@pytest.mark.slow(cases=1)
def test_a_wrapper_that_outlives_the_group_does_not_wait_for_it(fresh):
    """Left alone, torch's wrapper hangs here within some tens of tries."""
    done = fresh.end(fresh.begin(MANY_ENDS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ended\n")


def test_why_processes_have_unequal_updates():
    """Without shares of one plan, a process has updates that the other has not.

    A process that draws parts of its own, and leaves out those without a labelled node, whose mean
    loss is not a number, adds up gradients more often than the other, and waits for ever.
    """
    run = seed_run({})
    assert hasattr(run.contender.inputs, "sampler")
    sampler, nodes = run.contender.inputs.sampler, run.nodes["train"]
    differ = [
        len(sampler.plan(nodes, seed, 0)) != len(sampler.plan(nodes, seed + 1, 0))
        for seed in range(0, 80, 2)
    ]
    assert any(differ)
    assert not all(differ)  # by chance it goes well
    for count in range(12):
        numbers = [Share(4, rank, 2).numbers(count) for rank in range(2)]
        assert len(numbers[0]) == len(numbers[1])
        assert len(numbers[0]) % 2 == 0
        known = [number for part in numbers for number in part if number is not None]
        assert sorted(known) == list(range(count))


def test_no_parameter_is_without_a_gradient():
    """A sample without edges, or without labelled nodes, has a gradient for each parameter."""
    for text in carried_by_text():
        run = seed_run({"family": text})
        (batch, *_) = run.contender.inputs.batches(run.nodes["train"], 0, 0, run.share)
        held = run.contender.inputs.sampler.carried
        bare = replace(batch, structure=held.frame(batch.structure.size[0]))
        for one in (None, bare, replace(bare, rows=bare.rows[:0], nodes=bare.nodes[:0])):
            run.model.zero_grad()
            run.loss(one).backward()
            assert all(p.grad is not None for p in run.model.parameters()), text
