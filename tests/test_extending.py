"""Every recipe of docs/extending.md runs as it stands."""

import re
from pathlib import Path

import pytest
import torch

from pyg_outerconv import OuterConv, attention, families
from pyg_outerconv.nn import AttentionConv
from pyg_outerconv.testing import assert_declared_laws

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "extending.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
WEIGHTED, NEAREST, SCORED = range(3)


@pytest.fixture
def run(monkeypatch):
    """Run a block with registries of its own, and return what it defined."""
    monkeypatch.setattr(families.family, "FAMILIES", dict(families.FAMILIES))
    monkeypatch.setattr(families.registry, "FAMILIES", families.family.FAMILIES)
    monkeypatch.setattr(attention.score, "SCORES", dict(attention.SCORES))
    monkeypatch.setattr(attention.spec, "SCORES", attention.score.SCORES)

    def run_block(number):
        namespace = {"__name__": "recipe"}
        exec(compile(BLOCKS[number], "extending.md", "exec"), namespace)
        return namespace

    return run_block


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_runs_with_its_own_imports(run, number):
    assert run(number)["out"].shape == (34, 16)


def test_the_weighted_basis_has_the_laws_of_a_family(run):
    made = run(WEIGHTED)
    for seed in range(5):
        assert_declared_laws(made["Hub"](2), seed)
    count = torch.bincount(made["edge_index"][1], minlength=34)
    sums = made["basis"].to_dense()[0].sum(0)
    torch.testing.assert_close(sums, (count > 2).float())


def test_the_nearest_neighbours_are_those_of_the_features(run):
    made = run(NEAREST)
    family, x = made["NearestFeatures"](4), made["x"]
    basis = OuterConv(8, 16, family).basis(x, None)
    distance = torch.cdist(x, x)
    kth = distance.sort(dim=0).values[3]
    assert torch.equal(basis.to_dense()[0] > 0, distance <= kth)


def test_features_are_asked_for_outside_a_layer(run):
    family = run(NEAREST)["NearestFeatures"]()
    with pytest.raises(ValueError, match=r"NearestFeatures makes its basis of the features"):
        family.basis(None, size=(4, 4))


def test_the_own_score_goes_by_its_name(run):
    made = run(SCORED)
    conv = AttentionConv(8, 16, heads=4, score="negative-distance")
    assert conv(made["x"], made["edge_index"]).shape == (34, 16)
