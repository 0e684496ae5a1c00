"""The example scripts run."""

import importlib.util
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_layer_many_convolutions(capsys):
    load("one_layer_many_convolutions").main()
    assert capsys.readouterr().out.count(" = ") == 6


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
