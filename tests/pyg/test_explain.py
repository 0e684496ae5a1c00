"""Layers in words, and the table of all of PyG's convolutions."""

import pytest
import torch
from pyg.cases import CASES
from torch_geometric import nn as theirs
from torch_geometric.nn import conv as convolutions
from write_layers import FILE, page

from pyg_outerconv import OuterConv
from pyg_outerconv import pyg as ours
from pyg_outerconv.lab.cli import main
from pyg_outerconv.pyg import explain
from pyg_outerconv.pyg.table import EQUAL, NONE, TRICK, entries, example


@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_explained_with_its_parameters(name):
    layer = example(name)
    text = str(explain(layer))
    assert text.startswith(repr(layer).split("\n", maxsplit=1)[0])
    assert "Y = " in text
    for parameter, _ in layer.named_parameters():
        assert parameter.removesuffix(".weight") in text, (parameter, text)


def test_an_explanation_tells_each_matrix_and_its_parameter():
    explained = explain(theirs.GCNConv(4, 3))
    (step,) = explained.steps
    assert step.terms == [("neighbours", "lin.weight.T")]
    assert step.others == {"b": "bias"}
    assert explained.source.endswith("(arxiv.org/abs/1609.02907)")
    heads = explain(theirs.GATConv(4, 3, heads=2)).steps[0]
    assert [theta for _, theta in heads.terms] == [
        "part 0 of lin.weight.T, 2 heads",
        "part 1 of lin.weight.T, 2 heads",
    ]
    mean = explain(theirs.SAGEConv(4, 3, aggr="max", project=True, normalize=True))
    assert "max_m" in mean.steps[0].sum
    assert len(mean.outside) == 2


def test_our_own_layers_are_explained_too():
    text = str(explain(OuterConv(4, 3, "stack(gcn, walk(20))")))
    assert "Y = Σ_k A_kᵀ X Θ_k + b" in text
    assert "labels between these" in text


def test_what_has_no_equal_form_says_so():
    assert explain(theirs.SAGEConv(4, 3, aggr="median")).lacks


def test_the_table_has_every_convolution_of_pyg():
    entries_by_name = {entry.name: entry for entry in entries()}
    assert list(entries_by_name) == [
        name for name in convolutions.__all__ if name != "MessagePassing"
    ]
    for name, entry in entries_by_name.items():
        assert entry.kind in (EQUAL, TRICK, NONE)
        assert (entry.kind == NONE) == (not hasattr(ours, name))
        assert entry.text
        assert "not known" not in entry.text


def test_the_command_explains(capsys):
    assert main(["explain", "SAGEConv"]) == 0
    assert "Θ_root = lin_r.weight.T" in capsys.readouterr().out
    assert main(["explain"]) == 0
    assert "EdgeConv" in capsys.readouterr().out
    assert main(["explain", "EdgeConv"]) == 2
    assert "both ends of an edge" in capsys.readouterr().err
    assert main(["explain", "GCN"]) == 2
    assert "GCNConv" in capsys.readouterr().err


def test_random_numbers_stay():
    layer = theirs.GATConv(4, 3)
    before = torch.get_rng_state()
    explain(layer)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_page_of_layers_is_as_it_would_be_written():
    again = "python tests/write_layers.py writes it anew"
    assert FILE.read_text(encoding="utf-8") == page(), again
