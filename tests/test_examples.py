"""The example scripts run."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_layer_many_convolutions(capsys):
    load("one_layer_many_convolutions").main()
    assert capsys.readouterr().out.count(" = ") == 6


def test_digits_are_recognised_by_us_and_by_torch_with_our_weights(capsys):
    pytest.importorskip("sklearn")
    assert load("digits").main(["--epochs", "15"]) >= 0.97
    printed = capsys.readouterr().out
    total = int(re.search(r"of (\d+) images", printed)[1])
    assert f"agrees on {total} of them" in printed


def test_digits_with_holes_are_computed_on_the_cells_that_are_there(capsys, monkeypatch):
    pytest.importorskip("sklearn")
    digits = load("digits")
    rows, forward = [], digits.DigitNet.forward

    def watched(net, x, cells):
        """The number of rows that each layer before the first maximum computes."""
        handles = [
            layer.register_forward_hook(lambda _, given, out: rows.append((x, cells, out)))
            for layer in net.layers[:4]
        ]
        out = forward(net, x, cells)
        [handle.remove() for handle in handles]
        return out

    monkeypatch.setattr(digits.DigitNet, "forward", watched)
    assert digits.main(["--drop", "0.7", "--epochs", "4"]) > 0.3
    assert "% of the cells, and no others" in capsys.readouterr().out
    assert rows
    for x, cells, out in rows:
        assert len(x) == len(out) == cells.num_cells < 0.4 * 64 * cells.num_grids


def test_accuracy_page(tmp_path, monkeypatch, capsys):
    accuracy = load("accuracy")
    cases = [
        ("KarateClub", "public", "gcn", True, {}),
        ("KarateClub", "public", "walk(1)", False, {}),
    ]
    monkeypatch.setattr(accuracy, "CASES", cases)
    monkeypatch.setattr(
        sys, "argv", ["accuracy.py", "--seeds", "2", "--out", str(tmp_path / "a.md")]
    )
    accuracy.main()
    page = (tmp_path / "a.md").read_text()
    assert page.count("| KarateClub |") == 2
    assert "GCNConv" in page


def test_every_case_of_the_accuracy_page_names_what_exists():
    from pyg_outerconv import data, parse_family

    for name, split, family, _, _ in load("accuracy").CASES:
        assert parse_family(family)
        assert split in data.entry(name).splits
