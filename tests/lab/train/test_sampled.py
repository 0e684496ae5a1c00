"""Training on samples: gradients are those of the whole graph, and evaluation is on it.

A graph in mapped files gives the numbers of the same graph in memory, and stays in its files.
"""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mapped_graphs
import pytest
import torch
from run_folders import results
from run_folders import seed_run as begun

from pyg_outerconv import files
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.data import Source, load_own
from pyg_outerconv.lab.train import Experiment, Settings, load_trained
from pyg_outerconv.lab.train import sampled as train_mapped
from pyg_outerconv.scale.mapped import HEADER, open_mapped

SETTINGS = Settings(
    "KarateClub",
    "stack(gcn, identity)",
    "public",
    hidden=8,
    dropout=0.5,
    epochs=6,
    patience=0,
    seeds=2,
    batches="random-nodes",
    parts=4,
)
WHOLE = {"batches": "none", "parts": 8, "accumulate": 0}


def seed_run(**changes):
    return begun(replace(SETTINGS, dropout=0.0, **{"accumulate": 1, **changes}))


def parameters(training_run):
    return {name: value.clone() for name, value in training_run.model.state_dict().items()}


def test_one_part_is_the_whole_graph():
    one, whole = seed_run(parts=1), seed_run(**WHOLE)
    for _ in range(3):
        one.step()
        whole.step()
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(one)[name], value, rtol=1e-4, atol=1e-5)
    assert one.history["val_loss"] == pytest.approx(whole.history["val_loss"], rel=1e-4)


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_rows_count_alike_in_parts_of_any_size(class_weights):
    """Of a family without edges, a sample's outputs are those of the graph: so are gradients."""
    options = {"family": "Identity()", "class_weights": class_weights}
    parts, whole = seed_run(parts=7, accumulate=7, **options), seed_run(**WHOLE, **options)
    for _ in range(3):
        parts.step()
        whole.step()
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, rtol=1e-4, atol=1e-5)


def test_evaluation_has_the_weights_of_the_whole_graph():
    training_run = seed_run(family="Walk(length=2)")
    training_run.step()
    inputs = training_run.contender.inputs
    nodes = torch.arange(34)
    whole = training_run.model.eval()(inputs.x, inputs.basis)
    ours = replace(inputs, most_edges=9).predicted(training_run.model, nodes)
    torch.testing.assert_close(ours, whole, rtol=1e-5, atol=1e-6)


def test_bfloat16_rounds_products():
    exact, narrow = seed_run(), seed_run(precision="bfloat16")
    exact.step()
    narrow.step()
    one, other = parameters(exact), parameters(narrow)
    assert all(value.dtype == torch.float32 for value in other.values())
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert narrow.history["val_loss"] == pytest.approx(exact.history["val_loss"], rel=0.02)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="no tensorboard")
def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    Experiment(SETTINGS, tmp_path / "run", log=lambda line: None, board=True).run()
    for seed in range(2):
        events = EventAccumulator(str(tmp_path / "run" / "tensorboard" / f"outerconv-{seed}"))
        events.Reload()
        losses = [scalar.value for scalar in events.Scalars("val_loss")]
        record = files.load_json(tmp_path / "run" / "metrics.json")["runs"][seed]
        assert losses == pytest.approx(record["history"]["val_loss"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"family": "stack(gat(heads=2), gcn)"}, "heads alone"),
        ({"propagation": "diffusion(ppr, alpha=0.1)"}, "--batches none"),
        ({"parts": 35}, "1 to 34"),
    ],
)
def test_what_samples_cannot_carry_is_refused(changes, expected):
    with pytest.raises(ValueError, match=expected):
        seed_run(**changes)


# Graphs in mapped files ---------------------------------------------------------------------------

MAPPED = Settings(
    "graph",
    "GCN()",
    "public",
    hidden=8,
    dropout=0.5,
    epochs=4,
    patience=0,
    seeds=2,
    batches="blocks",
    parts=6,
    parts_per_batch=2,
    features="dense",
)
WAYS = {
    "blocks": {},
    "random nodes": {"batches": "random-nodes", "parts_per_batch": 1},
    "clusters": {"batches": "clusters"},
    "accumulated": {"accumulate": 2},
    "bfloat16": {"precision": "bfloat16"},
    "walks": {"family": "Walk(length=2)"},
    "a stack": {"family": "stack(gcn, identity)", "skip": "concat"},
    "both directions": {"family": "directed(gcn)"},
    "attention": {"family": "gat(heads=2)"},
    "residual blocks": {"architecture": "blocks", "class_weights": "balanced"},
    "means": {"aggr": "mean", "family": "gcn(norm=None)", "layer_norm": "batch"},
    "now and then": {"evaluate_every": 3},
}


@pytest.fixture
def graph(tmp_path):
    return mapped_graphs.write(tmp_path / "graph")


def run(data, folder, settings, **keyword_arguments):
    """The records of a run, without what a clock measured, and its checkpoint's parameters."""
    dataset = load_own(Source(data=str(data)))
    options = {"log": lambda line: None, "dataset": dataset, **keyword_arguments}
    Experiment(settings, folder, **options).run()
    return results(folder), files.load_tensors(folder / "checkpoint.pt")["parameters"]


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("way", WAYS)
def test_numbers_are_those_of_the_graph_in_memory(way, graph, tmp_path):
    settings = MAPPED.with_values(**WAYS[way])
    saved = mapped_graphs.save(tmp_path / "graph.pt")
    mapped, ours = run(graph, tmp_path / "mapped", settings)
    whole, wanted = run(saved, tmp_path / "whole", settings)
    for one, other in zip(mapped, whole, strict=True):
        for curve, values in one.pop("history").items():
            assert values == pytest.approx(other["history"][curve], rel=1e-3), curve
        assert other.pop("history")
        assert one.pop("model") == other.pop("model")
        assert one == pytest.approx(other, rel=1e-3)
    for name, value in wanted.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-4)
    predictions = load_trained(tmp_path / "mapped").predictions()
    assert predictions.test_metric == pytest.approx(predictions.trained.recorded, abs=1e-6)


def test_epochs_without_evaluation_change_nothing(graph, tmp_path):
    settings = MAPPED.with_values(seeds=1, epochs=5)
    every, _ = run(graph, tmp_path / "every", settings)
    some, _ = run(graph, tmp_path / "some", settings.with_values(evaluate_every=2))
    for curve, values in some[0]["history"].items():  # of epochs 2, 4 and 5
        assert values == [every[0]["history"][curve][place] for place in (1, 3, 4)]
    assert some[0]["best_epoch"] in (2, 4, 5)


def test_no_tensor_has_the_size_of_the_edges(tmp_path, monkeypatch):
    """But for the mapped ones: of 100 000 edges, samples have some 2 000 and chunks 2 000."""
    edges = 100_000
    place = mapped_graphs.write(tmp_path / "graph", **mapped_graphs.arrays(1000, edges))
    settings = MAPPED.with_values(parts=50, parts_per_batch=1, epochs=1, seeds=1)
    dataset = load_own(Source(data=str(place)))
    train_mapped.prepare(dataset, settings, lambda line: None)
    monkeypatch.setattr(train_mapped, "MOST_EDGES", 2000)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, profile_memory=True) as seen:
        run(place, tmp_path / "run", settings, dataset=dataset)
        load_trained(tmp_path / "run").predictions()
    allocated_bytes = [
        e.nbytes() for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"
    ]
    assert 8 * 1000 <= max(allocated_bytes) < edges, (
        "something for each node, no byte for each edge"
    )


BLOCKS = ["--batches", "blocks", "--epochs", "1", "--seeds", "1", "--device", "cpu"]
REFUSED = {
    "no samples": (["--device", "cpu"], "--batches blocks --parts 1 --parts-per-batch 1"),
    "PyG's engine": (["--batches", "neighbor"], "--batches neighbor"),
    "propagation": ([*BLOCKS, "--propagation", "gcn"], "no --propagation"),
    "sparse features": ([*BLOCKS, "--feature-storage", "sparse"], "dense"),
    "other features": ([*BLOCKS, "--normalize-features"], "were normalised"),
    "another split": ([*BLOCKS, "--split", "random"], "public"),
    "other edges": ([*BLOCKS, "--undirected"], "no --undirected"),
    "edge types": ([*BLOCKS, "--family", "relation(3)"], "the type of every edge"),
    "too many parts": ([*BLOCKS, "--parts", "301"], "1 to 300"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_read_the_whole_graph_is_refused(case, graph, refused):
    flags, words = REFUSED[case]
    refused(["train", "--data", graph, *flags, "--out", "run"], words)


def _but(name, value, old=None):
    part = mapped_graphs.arrays()[name].clone()
    part[part == old if old is not None else slice(1, 2)] = value
    return {name: part}


BAD = {
    "no validation nodes": (
        _but("split", 0, old=2),
        "split.npy: every part of a split needs a node: expected validation nodes",
    ),
    "a part without a class": (_but("y", -1, old=2), "part of the split has a label"),
    "a class too many": (_but("y", 3), "[-1, 3)"),
    "a part too many": (_but("split", 4), "[0, 4)"),
    "a source that is no node": (_but("source", 300), "[0, 300)"),
    "a type of features": ({"x": torch.zeros(300, 5, dtype=torch.long)}, "float32 or"),
    "rows of features": ({"x": torch.zeros(299, 5)}, "of one graph"),
}


@pytest.mark.parametrize("case", BAD)
def test_graphs_that_break_rules_are_refused(case, tmp_path, refused):
    changes, words = BAD[case]
    place = mapped_graphs.write(tmp_path / "graph", **changes)
    refused(["train", "--data", place, *BLOCKS, "--out", "run"], words)


def test_damaged_files_are_refused(graph, tmp_path, refused):
    line = ["train", "--data", graph, *BLOCKS, "--out", "run"]
    for name in ("y", "source"):  # which are read whole: at the start, and for the basis
        path = graph / f"{name}.npy"
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refused(line, f"{name}.npy must have its sha256")
        path.write_bytes(content[:-8])
        refused(line, f"{name}.npy must be as it was")
        path.write_bytes(content)
    nameless = mapped_graphs.write(tmp_path / "nameless", facts={})
    refused(["train", "--data", nameless, *line[3:]], "num_classes")
    (graph / HEADER).unlink()
    refused(line, HEADER)


def test_other_commands(graph, tmp_path, refused):
    assert graph.is_dir()
    assert main(["train", "--data", "graph", *BLOCKS, "--out", "run"]) == 0
    assert main(["train", "--data", "graph", *BLOCKS, "--hidden", "8", "--out", "other"]) == 0
    assert main(["compare", "run", "other", "--out", "table"]) == 0
    torch.testing.assert_close(load_trained("run").probabilities().sum(-1), torch.ones(300))
    assert main(["predict", "run"]) == 0
    assert len(Path("run/predictions.csv").read_text().splitlines()) == 301
    refused(["show", "run", "--out", "page"], "reads a whole graph into memory")
    other = mapped_graphs.write(tmp_path / "another", **_but("y", 1))
    refused(["train", "--resume", "--out", "run", "--data", other], "--resume goes on with")


def test_what_a_killed_process_left_is_made_anew(graph, tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    run(graph, tmp_path / "first", MAPPED)
    (basis,) = graph.glob("basis-*")
    left = graph / f".{basis.name}.{ended.stdout.strip()}.0123abcd"
    basis.rename(left)
    (left / HEADER).unlink()
    run(graph, tmp_path / "second", MAPPED)
    assert (basis / HEADER).exists()
    assert list(graph.glob(".*")) == []
    assert open_mapped(graph, verify=True).fingerprint == open_mapped(graph).fingerprint
