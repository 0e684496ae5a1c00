"""The command line: the main job end to end, and one line for every bad input."""

from __future__ import annotations

import csv
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric import datasets as pyg_datasets

from pyg_outerconv import data
from pyg_outerconv.basis import FAMILIES
from pyg_outerconv.cli import main
from pyg_outerconv.train import command, make_split

QUICK = ["--epochs", "15", "--seeds", "2", "--hidden", "8"]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own, no data, and no network."""

    def no_network(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    for reader in ("Planetoid", "WebKB"):
        monkeypatch.setattr(getattr(pyg_datasets, reader), "download", no_network)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "run"
    assert main(["train", "KarateClub", "--out", str(folder), *QUICK]) == 0
    return folder


def test_the_main_job_without_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *QUICK]) == 0
    said = capsys.readouterr()
    assert said.err == "", "a bar or a warning reached something that is no terminal"
    assert "KarateClub, the real graph" in said.out
    assert "±" in said.out
    assert "outerconv train Cora" in said.out
    folder = Path("runs/karateclub-gcn-001")
    summary = json.loads((folder / "metrics.json").read_text())["summary"]
    assert f"{100 * summary['outerconv']['test_accuracy']['mean']:.2f} ±" in said.out
    assert main(["train", *QUICK]) == 0
    assert Path("runs/karateclub-gcn-002").is_dir()


def test_cora_is_the_default_where_its_files_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "root" / "Planetoid" / "Cora" / "raw"
    raw.mkdir(parents=True)
    for file in data.entry("Cora").files:
        (raw / Path(file).name).write_text("not really")
    assert main(["train", "--root", str(tmp_path / "root")]) == 2
    said = capsys.readouterr()
    assert "no dataset named: Cora" in said.out
    assert "of Cora, by its sha256" in said.err


@pytest.mark.parametrize(
    ("flags", "family"),
    [
        (
            ["--family", "walk", "--length", "1", "--directed"],
            "Directed(family=Walk(length=1, norm='source', direction='forward', aggregate='sum', "
            "powers=None, add_self_loops=False))",
        ),
        (
            ["--family", "stack(gcn, identity)"],
            "Stack(GCN(norm='sym', add_self_loops=True, improved=False), Identity())",
        ),
        (["--family", "relation"], "Relation(num_relations=1, norm='mean')"),
    ],
)
def test_families_by_flags_and_by_text(flags: list[str], family: str) -> None:
    assert main(["train", "KarateClub", *flags, *QUICK, "--out", "run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["settings"]["family"] == family
    assert main(["predict", "run"]) == 0  # the text gives the family back


# Families that read no graph, or have options without defaults.
NOT_BY_NAME = {"cluster", "explicit", "full", "grid", "kernel", "pool", "stack"} | {
    *("attention", "linearattention"),
    *("blocks", "globaltokens", "nearest", "randomlinks", "slidingwindow", "strided", "union"),
}


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - NOT_BY_NAME))
def test_every_family_trains(name: str) -> None:
    assert main(["train", "KarateClub", "--family", name, *QUICK, "--out", "run"]) == 0


@pytest.mark.parametrize("name", sorted(set(FAMILIES) & NOT_BY_NAME))
def test_a_name_that_is_not_enough_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "KarateClub", "--family", name, *QUICK, "--out", "run"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--theta", "shared", "--family", "walk"],
        ["--theta", "low-rank:2"],
        ["--aggr", "mean"],
        ["--label-aggr", "mean"],
        ["--depth", "4", "--skip", "residual", "--layer-norm", "layer"],
        ["--depth", "1"],
        ["--skip", "concat", "--layer-norm", "batch"],
        ["--root-weight"],
        ["--backend", "reference"],
        ["--split", "random-40-30-30"],
        ["--decay", "first"],
        ["--normalize-features"],
        ["--patience", "0"],
    ],
)
def test_options_are_taken(flags: list[str]) -> None:
    assert main(["train", "KarateClub", *flags, *QUICK, "--out", "run"]) == 0
    metrics = json.loads(Path("run/metrics.json").read_text())
    backend = "reference" if "reference" in flags else "native"
    assert metrics["summary"]["backends"] == [backend]


def test_a_peer_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "KarateClub", "--peer", *QUICK, "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "PyG GCNConv" in said
    assert "difference to the peer, paired by seed" in said


def test_predict_writes_what_the_model_says(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(finished), "--out", "classes.csv"]) == 0
    with Path("classes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["node"]) for row in rows] == list(range(34))
    assert all(0.25 <= float(row["probability"]) <= 1 for row in rows)
    checkpoint = torch.load(finished / "checkpoint.pt", weights_only=True)
    club = data.load("KarateClub").data
    test = make_split(club, "public", checkpoint["seed"]).test
    right = (torch.tensor([int(row["class"]) for row in rows]) == club.y)[test].double().mean()
    assert float(right) == pytest.approx(checkpoint["test_accuracy"])
    assert f"test accuracy {100 * float(right):.2f} %" in capsys.readouterr().out
    assert main(["predict", str(finished), "--out", "-"]) == 0
    said = capsys.readouterr()
    assert said.out == Path("classes.csv").read_text()
    assert "test accuracy" in said.err


def test_datasets_lists_what_is_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "root" / "Amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_text("not really")
    assert main(["datasets", "--root", str(tmp_path / "root")]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert set(lines) == {"name", *data.registry()}
    assert lines["Photo"].endswith("Amazon")
    assert lines["KarateClub"].endswith("embedded")
    assert lines["Cora"].endswith("no")
    assert "2708" in lines["Cora"]
    assert main(["datasets", "--root", str(tmp_path / "root"), "--verify"]) == 2
    said = capsys.readouterr()
    assert "Photo: 1 differs" in said.out
    assert said.err.count("\n") == 1


def test_families_lists_equations_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families"]) == 0
    said = capsys.readouterr().out
    for name, family in FAMILIES.items():
        assert name in said
        assert family.equation in said
    assert "--length 2" in said


BAD = {
    "unknown dataset": (["Coraa"], "did you mean 'Cora'"),
    "unknown family": (["KarateClub", "--family", "wolk"], "did you mean 'walk'"),
    "family text": (["KarateClub", "--family", "walk(2"], "walk"),
    "flag of another family": (["KarateClub", "--length", "2"], "--norm, --add-self-loops"),
    "value of a flag": (["KarateClub", "--family", "walk", "--length", "x"], "integer"),
    "value out of range": (["KarateClub", "--family", "walk", "--length", "-1"], ">= 0"),
    "a family of no family": (["KarateClub", "--family", "directed(3)"], "expected a family"),
    "a length of no number": (["KarateClub", "--family", "walk(2.5)"], "expected integer"),
    "options in stars": (["KarateClub", "--family", "gcn(**{'norm': 'rw'})"], "name=value"),
    "a theta of many digits": (["KarateClub", "--theta", "low-rank:" + "9" * 5000], "low-rank"),
    "unknown theta": (["KarateClub", "--theta", "ful"], "did you mean 'full'"),
    "theta that does not divide": (["KarateClub", "--theta", "block-diagonal:5"], "34"),
    "unknown aggr": (["KarateClub", "--aggr", "summ"], "did you mean 'sum'"),
    "unknown backend": (["KarateClub", "--backend", "nativ"], "did you mean 'native'"),
    "unknown split": (["KarateClub", "--split", "publik"], "did you mean 'public'"),
    "split too large": (["KarateClub", "--split", "random"], "at least 20 nodes of class"),
    "unknown device": (["KarateClub", "--device", "cpuu"], "did you mean 'cpu'"),
    "absent device": (["KarateClub", "--device", "cuda:99"], "is not here"),
    "unknown norm": (["KarateClub", "--layer-norm", "batchnorm"], "did you mean 'batch'"),
    "negative lr": (["KarateClub", "--lr", "-1"], "> 0"),
    "lr that is no number": (["KarateClub", "--lr", "x"], "invalid float value"),
    "no seeds": (["KarateClub", "--seeds", "0"], ">= 1"),
    "dropout of all": (["KarateClub", "--dropout", "1"], "[0, 1)"),
    "no peer": (["KarateClub", "--family", "identity", "--peer"], "leave --peer out"),
    "edge types": (["KarateClub", "--family", "relation", "--num-relations", "3"], "edge_type"),
    "missing data": (["Cornell"], "WebKB/cornell/raw"),
    "unwritable folder": (["KarateClub", "--out", "file/run"], "writable"),
    "occupied folder": (["KarateClub", "--out", "occupied"], "--resume"),
    "nothing to resume": (["--resume", "--out", "nowhere"], "not a run folder"),
    "resume without a folder": (["--resume"], "--out RUN_DIR"),
    "unknown flag": (["KarateClub", "--bogus"], "--bogus"),
    "abbreviated flag": (["KarateClub", "--epo", "3"], "--epo"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, words = BAD[case]
    Path("file").write_text("")
    Path("occupied").mkdir()
    Path("occupied/mine").write_text("")
    assert main(["train", *flags]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("outerconv")
    assert ": error: " in said.err
    assert words in said.err
    assert said.err.count("\n") == 1
    assert not Path("runs").exists()
    assert [path.name for path in Path("occupied").iterdir()] == ["mine"]


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["settings"].update(changes)
    (folder / "config.json").write_text(json.dumps(config))


def change_file(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def change_config_and_checkpoint(folder: Path, **changes: object) -> None:
    change_config(folder, **changes)
    settings = json.loads((folder / "config.json").read_text())["settings"]
    change_checkpoint(folder, settings=settings)


def change_checkpoint(folder: Path, **changes: object) -> None:
    content = torch.load(folder / "checkpoint.pt", weights_only=True)
    torch.save({**content, **changes}, folder / "checkpoint.pt")


SPOIL = {
    "another family": (
        lambda run: change_config(run, family="Walk(length=2)"),
        'expected family="Walk(length=2)"',
    ),
    "another width": (lambda run: change_config(run, hidden=9), "expected hidden=9, got hidden=8"),
    "other channels": (lambda run: change_checkpoint(run, in_channels=7), "expected (7, 4)"),
    "another graph": (lambda run: change_checkpoint(run, fingerprint="0"), "of this graph"),
    "other parameters": (lambda run: change_checkpoint(run, parameters={}), "must fit the model"),
    "no checkpoint": (lambda run: (run / "checkpoint.pt").unlink(), "checkpoint.pt"),
    "a damaged checkpoint": (lambda run: (run / "checkpoint.pt").write_text("x"), "cannot read"),
    "a tensor": (lambda run: torch.save(torch.ones(1), run / "checkpoint.pt"), "Tensor"),
    "damaged configuration": (lambda run: (run / "config.json").write_text("{"), "JSON"),
    "foreign configuration": (lambda run: (run / "config.json").write_text("{}"), "format"),
    "a setting of another type": (lambda run: change_config(run, hidden="8"), "got '8'"),
    "another split": (lambda run: change_config_and_checkpoint(run, split="x"), "unknown split"),
    "data of another kind": (lambda run: change_file(run, data=[]), "data with its root"),
    "a seed that was not": (lambda run: change_checkpoint(run, seed=9), "format 1"),
    "a number as text": (lambda run: change_checkpoint(run, test_accuracy="x"), "format 1"),
    "a list of parameters": (lambda run: change_checkpoint(run, parameters=[]), "format 1"),
    "an odd setting": (lambda run: change_config(run, colour="red"), "colour"),
}


@pytest.mark.parametrize("case", SPOIL)
def test_a_run_that_does_not_fit_is_refused(
    case: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, "run")
    spoil, words = SPOIL[case]
    spoil(Path("run"))
    assert main(["predict", "run"]) == 2
    said = capsys.readouterr()
    assert words.replace('"', "'") in said.err.replace('"', "'")
    assert said.err.count("\n") == 1
    assert not Path("run/predictions.csv").exists()


SPOIL_RESUME = {
    "no runs": ("metrics.json", {"format": 1}, "a record for each seed"),
    "runs that are none": ("metrics.json", {"format": 1, "runs": [{}]}, "a record for each seed"),
    "another format": ("metrics.json", {"format": 2, "runs": []}, "a record for each seed"),
    "another seed under way": (
        "partial.pt",
        {"model": "outerconv", "seed": 1, "parameters": {}},
        "of the seed under way",
    ),
}


@pytest.mark.parametrize("case", SPOIL_RESUME)
def test_a_run_that_cannot_go_on_is_refused(
    case: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, "run")
    file, content, words = SPOIL_RESUME[case]
    if file == "partial.pt":
        torch.save(content, "run/partial.pt")
        metrics = json.loads(Path("run/metrics.json").read_text())
        file, content = "metrics.json", {**metrics, "runs": metrics["runs"][:1]}
    Path("run", file).write_text(json.dumps(content))
    assert main(["train", "--resume", "--out", "run"]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("name", "value"), [("device", "zz"), ("split", "x")])
def test_a_run_of_settings_that_are_not_here_is_refused(
    name: str, value: str, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, "run")
    change_config(Path("run"), **{name: value})
    assert main(["train", "--resume", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert f"unknown {name}" in said
    assert said.count("\n") == 1


def test_a_picture_that_cannot_be_written_is_refused(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, "run")
    Path("run/curves.png").unlink()
    Path("run/curves.png").mkdir()
    assert main(["train", "--resume", "--out", "run"]) == 2
    assert "the run folder must be writable" in capsys.readouterr().err


def test_a_file_that_torch_warns_of_is_refused_in_one_line(finished: Path) -> None:
    shutil.copytree(finished, "run")
    Path("run/checkpoint.pt").write_bytes(pickle.dumps({"a": Path}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["predict", "run"]) == 2


def test_resume_refuses_other_settings(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["train", "--resume", "--out", str(finished), "--hidden", "9", "--family", "walk"])
        == 2
    )
    said = capsys.readouterr().err
    assert "hidden=8" in said
    assert 'got family="Walk(' in said
    assert said.count("\n") == 1
    assert main(["train", "--resume", "--out", str(finished), "--hidden", "8"]) == 0


def test_bugs_show_as_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "table", None)  # a call of None, within the package
    with pytest.raises(TypeError, match="not callable"):
        main(["train", "KarateClub", *QUICK])


def test_interrupt_and_resume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [
        "train",
        "KarateClub",
        "--epochs",
        "300",
        "--patience",
        "0",
        "--seeds",
        "3",
        "--dropout",
        "0.5",
    ]
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "pyg_outerconv", *flags, "--out", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("outerconv seed 0"):
                process.send_signal(signal.SIGINT)
                break
        process.stdout.read()
        complaint = process.stderr.read()
        assert process.wait() == 130
    assert complaint.count("\n") == 1
    assert "outerconv train --resume --out run" in complaint
    kept = json.loads(Path("run/metrics.json").read_text())["runs"]
    assert kept
    assert kept[0]["seed"] == 0
    assert main(["train", "--resume", "--out", "run"]) == 0
    assert main([*flags, "--out", "whole"]) == 0
    runs = [json.loads(Path(name, "metrics.json").read_text())["runs"] for name in ("run", "whole")]
    for one, other in zip(*runs, strict=True):
        one.pop("seconds")
        other.pop("seconds")
        assert one == other
