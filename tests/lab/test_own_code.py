"""Families and scores of one's own, by --import."""

import json
from pathlib import Path

import pytest
from own_modules import CODE, forget, nothing_stays

from pyg_outerconv.attention import SCORES
from pyg_outerconv.families import FAMILIES
from pyg_outerconv.lab.cli import main

QUICK = ["--epochs", "3", "--seeds", "1", "--hidden", "4"]


@pytest.fixture(autouse=True)
def _nothing_stays():
    with nothing_stays():
        yield


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    "family", ["stack(into_hubs(2), gcn)", "multi_head(2, score=minus-distance)"]
)
@pytest.mark.parametrize("name", ["mine_hubs.py", "mine_hubs"])
def test_a_run_with_own_code_trains_resumes_and_predicts(family, name, capsys, refused):
    Path("mine_hubs.py").write_text(CODE)
    train = ["train", "KarateClub", "--family", family, *QUICK, "--out", "run"]
    refused(train)
    assert main([*train, "--import", name]) == 0
    assert f"outerconv predict run --import {name}" in capsys.readouterr().out
    settings = json.loads(Path("run/config.json").read_text())["settings"]
    assert settings["imports"] == name
    assert main(["predict", "run"]) == 0
    forget()
    for line in (["predict", "run"], ["train", "--resume", "--out", "run"]):
        refused(line, f"expected --import {name}, got no such option")
    assert main(["predict", "run", "--import", name]) == 0
    assert main(["train", "--resume", "--out", "run", "--import", name]) == 0


def test_own_families_are_listed_and_drawn(capsys):
    Path("mine_hubs.py").write_text(CODE)
    assert main(["families", "--import", "mine_hubs.py"]) == 0
    assert "into_hubs" in capsys.readouterr().out
    forget()
    assert main(["families", "into_hubs", "--import", "mine_hubs.py"]) == 0
    assert "threshold: integer, default 3\n      how many." in capsys.readouterr().out
    drawn = ["--family", "into_hubs", "--dataset", "KarateClub", "--kind", "matrices"]
    assert main(["show", *drawn, "--import", "mine_hubs.py", "--out", "hubs.svg"]) == 0
    assert Path("hubs.svg").exists()


@pytest.mark.parametrize(
    ("code", "name", "told"),
    [
        (None, "mine_absent.py", "expected a file, got mine_absent.py"),
        (None, "mine_absent", "expected a module of Python's path or of this folder"),
        (
            "1 / 0\n",
            "mine_faulty.py",
            "ZeroDivisionError: division by zero (mine_faulty.py, line 1)",
        ),
        (
            "import mine_other\n",
            "mine_faulty",
            "No module named 'mine_other' (mine_faulty.py, line 1)",
        ),
        ("def f(:\n", "mine_faulty.py", "(mine_faulty.py, line 1)"),
        (CODE.replace("IntoHubs", "GCN"), "mine_gcn.py", "'gcn', which pyg_outerconv.families.gcn"),
        ("", "json.py", "json is imported already"),
    ],
)
def test_what_cannot_be_imported_is_refused(code, name, told, refused):
    families, scores = dict(FAMILIES), dict(SCORES)
    if code is not None:
        Path(name if name.endswith(".py") else f"{name}.py").write_text(code)
    refused(["families", "--import", name], told)
    assert (families, scores) == (FAMILIES, SCORES)
