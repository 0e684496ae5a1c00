"""Training on samples: gradients are those of the whole graph, and evaluation is on it."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from run_folders import seed_run as begun

from pyg_outerconv import files
from pyg_outerconv.lab.train import Experiment, Settings

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


def parameters(made):
    return {name: value.clone() for name, value in made.model.state_dict().items()}


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
    given = {"family": "Identity()", "class_weights": class_weights}
    parts, whole = seed_run(parts=7, accumulate=7, **given), seed_run(**WHOLE, **given)
    for _ in range(3):
        parts.step()
        whole.step()
    for name, value in parameters(whole).items():
        torch.testing.assert_close(parameters(parts)[name], value, rtol=1e-4, atol=1e-5)


def test_evaluation_has_the_weights_of_the_whole_graph():
    made = seed_run(family="Walk(length=2)")
    made.step()
    inputs = made.contender.inputs
    nodes = torch.arange(34)
    whole = made.model.eval()(inputs.x, inputs.basis)
    ours = replace(inputs, most_edges=9).predicted(made.model, nodes)
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
