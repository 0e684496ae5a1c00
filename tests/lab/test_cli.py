"""The command line: the main job end to end, and one line for every bad input."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from run_folders import results
from torch_geometric import datasets as pyg_datasets

import pyg_outerconv
from pyg_outerconv import files
from pyg_outerconv.families import FAMILIES, parse_family
from pyg_outerconv.lab import data
from pyg_outerconv.lab.bench.command import QUICK_REPEATS, REPEATS
from pyg_outerconv.lab.cli import main, outerconv
from pyg_outerconv.lab.show import KINDS
from pyg_outerconv.lab.train import command, experiment, make_split
from pyg_outerconv.lab.train.loop import SeedRun

QUICK = ["--epochs", "15", "--seeds", "2", "--hidden", "8"]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def no_network(self):
        raise OSError("no route to host")

    for reader in ("Planetoid", "WebKB"):
        monkeypatch.setattr(getattr(pyg_datasets, reader), "download", no_network)


def test_the_main_job_without_data(capsys):
    assert main(["train", *QUICK]) == 0
    said = capsys.readouterr()
    assert said.err == "", "a bar or a warning reached something that is no terminal"
    assert "the copy inside pyg_outerconv is read" in said.out
    assert "Cora: 2708 nodes, 10556 edges, 7 classes, split public" in said.out
    assert "±" in said.out
    folder = Path("runs/cora-gcn-001")
    summary = json.loads((folder / "metrics.json").read_text())["summary"]
    assert f"{100 * summary['outerconv']['test_metric']['mean']:.2f} ±" in said.out
    assert f"on cpu, backends: {', '.join(summary['backends'])}\n" in said.out
    assert main(["train", *QUICK]) == 0
    assert Path("runs/cora-gcn-002").is_dir()


def test_files_below_the_root_go_before_the_copy(tmp_path, refused):
    raw = tmp_path / "root" / "Planetoid" / "Cora" / "raw"
    raw.mkdir(parents=True)
    for file in data.entry("Cora").files:
        (raw / Path(file).name).write_text("not really")
    refused(["train", "--root", tmp_path / "root"], "of Cora, by its sha256")


# Families that read no graph, or have options without defaults.
NOT_BY_NAME = {"cluster", "explicit", "full", "grid", "kernel", "pool", "stack"} | {
    *("attention", "linearattention"),
    *("blocks", "globaltokens", "nearest", "randomlinks", "slidingwindow", "strided", "union"),
}


@pytest.mark.parametrize("name", sorted(set(FAMILIES) - NOT_BY_NAME))
def test_every_family_trains(name):
    short = ["--epochs", "3", "--seeds", "1", "--hidden", "8"]
    assert main(["train", "KarateClub", "--family", name, *short, "--out", "run"]) == 0


@pytest.mark.parametrize("name", sorted(set(FAMILIES) & NOT_BY_NAME))
def test_a_name_that_is_not_enough_is_refused(name, refused):
    refused(["train", "KarateClub", "--family", name, *QUICK, "--out", "run"])


def test_a_peer_is_compared(capsys):
    assert main(["train", "KarateClub", "--peer", *QUICK, "--out", "run"]) == 0
    said = capsys.readouterr().out
    assert "PyG GCNConv" in said
    assert "ours − PyG: 0.00 ± 0.00 points (mean ± standard error), 2 seeds" in said


def test_predict_writes_what_the_model_says(finished, tmp_path, capsys):
    assert main(["predict", str(finished), "--out", "classes.csv"]) == 0
    with Path("classes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["node"]) for row in rows] == list(range(34))
    assert all(0.25 <= float(row["probability"]) <= 1 for row in rows)
    checkpoint = torch.load(finished / "checkpoint.pt", weights_only=True)
    club = data.load("KarateClub").data
    test = make_split(club, "public", checkpoint["seed"]).test
    right = (torch.tensor([int(row["class"]) for row in rows]) == club.y)[test].double().mean()
    assert float(right) == pytest.approx(checkpoint["test_metric"])
    assert f"test accuracy {100 * float(right):.2f} %" in capsys.readouterr().out
    assert main(["predict", str(finished), "--out", "-"]) == 0
    said = capsys.readouterr()
    assert said.out == Path("classes.csv").read_text()
    assert "test accuracy" in said.err
    assert main(["predict", str(finished), "--out", os.devnull]) == 0, "what is no file"


def test_datasets_lists_what_is_here(tmp_path, capsys):
    raw = tmp_path / "root" / "Amazon" / "Photo" / "raw"
    raw.mkdir(parents=True)
    (raw / "amazon_electronics_photo.npz").write_text("not really")
    assert main(["datasets", "--root", str(tmp_path / "root")]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert set(lines) == {"name", *data.registry()}
    assert lines["Photo"].endswith("Amazon")
    assert lines["KarateClub"].endswith("embedded")
    assert lines["CiteSeer"].endswith("no")
    assert lines["Cora"].endswith("embedded, for public, random")
    assert "2708" in lines["Cora"]
    assert main(["datasets", "--root", str(tmp_path / "root"), "--verify"]) == 2
    said = capsys.readouterr()
    assert "Photo: 1 differs" in said.out
    assert said.err.count("\n") == 1
    assert main(["datasets", "Cora", "--root", str(tmp_path / "root"), "--verify"]) == 0
    assert "Photo" not in capsys.readouterr().out


@pytest.mark.parametrize("name", data.registry())
def test_a_dataset_is_told_with_the_options_that_it_trains_with(name, capsys):
    assert main(["datasets", name.lower()]) == 0
    said = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    entry = data.entry(name)
    assert said["name"].strip() == f"{name}: {entry.about}"
    assert said["licence"].strip() == entry.licence
    for number, split in enumerate(entry.splits):
        words = said[f"split {split}" + ("" if number else ", the default")].split()
        if not entry.for_split(split).defaults:
            assert words[0] == "defaults"
            continue
        taken = outerconv.commands["train"].make_context("train", words).params
        for setting, value in entry.for_split(split).defaults.items():
            assert taken[f"settings_{setting}"] == value


def test_families_are_listed_and_each_is_described_with_the_meaning_of_its_options(capsys):
    assert main(["families"]) == 0
    listed = capsys.readouterr().out
    assert "length=2, norm='source'" in listed
    for name, family in FAMILIES.items():
        assert main(["families", name]) == 0
        said = capsys.readouterr().out
        assert FAMILIES.name_of(family) in listed
        assert family.equation in listed
        assert family.equation in said
        assert "above" not in said, "it stands alone"
        for option in fields(family):
            assert f"  {option.name}: " in said or not option.init
        if "in Python" not in said:
            (text,) = re.findall(r'^example: --family "?(.*?)"?$', said, re.MULTILINE)
            assert isinstance(parse_family(text), family)
    assert main(["families", "Walk"]) == 0
    said = capsys.readouterr().out
    assert "  length: integer, default 2\n      L, at most 10,000." in said
    assert "see Walk" not in said


HELP = """
import sys
from pyg_outerconv.lab.cli import main, outerconv
for name in ("", *outerconv.commands):
    for words, code in (["--help"], 0), (["--bogus"], 2), (["--length", "2"], 2):
        assert main([name, *words] if name else words) == code
        assert "torch" not in sys.modules, (name, words)
for words in ["train", "--lr", "x"], ["train", "--sedes", "3"], ["trian"]:
    assert main(words) == 2
    assert "torch" not in sys.modules, words
assert main(["--version"]) == 0
assert "torch" not in sys.modules
"""


def test_help_and_mistyped_options_do_not_wait_for_torch():
    done = subprocess.run(
        [sys.executable, "-c", HELP],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert "Usage: outerconv train" in done.stdout
    assert f"pyg_outerconv {pyg_outerconv.__version__}" in done.stdout


NOISE = """
import sys, warnings
sys.warnoptions.clear()
warnings.resetwarnings()
from pyg_outerconv.lab.cli import main, outerconv

@outerconv.command("noisy")
def noisy():
    for _ in range(3):
        with warnings.catch_warnings():  # after which Python forgets which ones it has shown
            pass
        warnings.warn("this will change", FutureWarning)
        warnings.warn("look at this", UserWarning)
    return 0

before = list(warnings.filters)
assert main(["noisy"]) == 0
assert warnings.filters == before
"""


@pytest.mark.parametrize(("rank", "count"), [("", 1), ("0", 1), ("1", 0)])
def test_warnings_come_once_and_not_those_of_what_will_change(rank, count, fresh):
    done = fresh(NOISE, **({"RANK": rank} if rank else {}))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("UserWarning: look at this") == count
    assert "will change" not in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("show", (*KINDS, data.EMBEDDED)),
        ("bench", ("bfloat16", f"default: {REPEATS}, with --quick {QUICK_REPEATS}")),
    ],
)
def test_help_names_all_values(command, words, capsys):
    """The options are declared without importing what they name."""
    assert main([command, "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for word in words:
        assert word in said


# A command line, and what is said of it.
REFUSED = [
    (["train", "Coraa"], "did you mean 'Cora'"),
    (["train", "KarateClub", "--family", "wolk"], "did you mean 'walk'"),
    (["train", "KarateClub", "--family", "walk(2"], "walk"),
    (
        ["train", "KarateClub", "--family", "walk", "--length", "2"],
        'options of a family are written in its text: --family "walk(length=3)"',
    ),
    (["train", "KarateClub", "--no-add-self-loops"], "options of a family are written in its text"),
    (["train", "KarateClub", "--sedes", "3"], "--seeds"),
    (["train", "KarateClub", "--family", "gcn(length=2)"], "length"),
    (["train", "KarateClub", "--family", "walk(length='x')"], "integer"),
    (["train", "KarateClub", "--family", "walk(-1)"], ">= 0"),
    (["train", "KarateClub", "--family", "directed(3)"], "expected a family"),
    (["train", "KarateClub", "--family", "walk(2.5)"], "expected integer"),
    (["train", "KarateClub", "--family", "gcn(**{'norm': 'target'})"], "name=value"),
    (["train", "KarateClub", "--theta", "low-rank:" + "9" * 5000], "low-rank"),
    (["train", "KarateClub", "--theta", "ful"], "did you mean 'full'"),
    (["train", "KarateClub", "--theta", "block-diagonal:5"], "34"),
    (["train", "KarateClub", "--aggr", "summ"], "did you mean 'sum'"),
    (["train", "KarateClub", "--backend", "nativ"], "did you mean 'native'"),
    (["train", "KarateClub", "--split", "publik"], "did you mean 'public'"),
    (["train", "KarateClub", "--split", "random"], "at least 20 nodes of class"),
    (["train", "KarateClub", "--device", "cpuu"], "did you mean 'cpu'"),
    (["train", "KarateClub", "--device", "cuda:99"], "is not here"),
    (["train", "KarateClub", "--lr", "x"], "'x' is not a valid float"),
    (["train", "KarateClub", "--family", "diffusion", "--peer"], "leave --peer out"),
    (["train", "KarateClub", "--family", "relation(3)"], "edge_type"),
    (["train", "Cornell"], "WebKB/cornell/raw"),
    (["train", "KarateClub", "--out", "file/run"], "writable"),
    (["train", "KarateClub", "--out", "occupied"], "a new or empty folder, or --resume"),
    (["train", "--resume", "--out", "nowhere"], "not a run folder"),
    (["train", "--resume"], "--out RUN_DIR"),
    (["train", "KarateClub", "--out", "a\x00b"], "no NUL"),
    (["train", "Cornell", "--root", "a\x00b"], "no NUL"),
    (["train", "KarateClub", "--out", "~nobody-at-all/run"], "home folder"),
    (["train", "Cornell", "--root", "~nobody-at-all/run"], "home folder"),
    (["train", "KarateClub", "--out", "a" * 300], "writable"),
    (["train", "KarateClub", "--split", "random-" + "9" * 5000 + "-1-1"], "split"),
    (["train", "KarateClub", "--family", ""], "a family is a name"),
    (["train", "KarateClub", "--out", ""], "--out must name a folder"),
    (
        ["train", "KarateClub", "--batch-size", "3"],
        "expected --batches neighbor, got --batches none",
    ),
    (["train", "KarateClub", "--bogus"], "--bogus"),
    (["train", "KarateClub", "--epo", "3"], "--epo"),
    (["show", "--out", "a\x00b.svg"], "no NUL"),
    (["show", "--out", "~nobody-at-all/x"], "home"),
    (["bench", "--quick", "--out", "a\x00b.svg"], "no NUL"),
    (["bench", "--quick", "--out", "~nobody-at-all/x"], "home"),
    (["bench", "--quick", "--compare", "a\x00b.svg"], "no NUL"),
    (["bench", "--quick", "--compare", "~nobody-at-all/x"], "home"),
    (["predict", "a\x00b.svg"], "no NUL"),
    (["predict", "~nobody-at-all/x"], "home"),
    (["predict", "FINISHED", "--out", "a\x00b.svg"], "no NUL"),
    (["predict", "FINISHED", "--out", "~nobody-at-all/x"], "home"),
    (["show", "--label", "9" * 25], "0 to 0"),
    (["show", "--seed", "9" * 25], "seed has a maximum: expected < 4294967296, got more"),
    (["show", "--seed=-1"], "seed has a minimum: expected >= 0, got -1"),
    (["show", "--shape=" + "9" * 5000], "--shape is integers"),
    (["datasets", "Coraa"], "did you mean 'Cora'"),
    (["families", "wolk"], "did you mean 'walk'"),
]


@pytest.mark.parametrize(("line", "words"), REFUSED, ids=lambda part: str(part)[:60])
def test_bad_input_is_refused_in_one_line(line, words, finished, refused):
    Path("file").write_text("")
    Path("occupied").mkdir()
    Path("occupied/mine").write_text("")
    refused([finished if word == "FINISHED" else word for word in line], words)


def change_config(run, **changes):
    config = files.load_json(run / "config.json")
    change_file(run, settings={**config["settings"], **changes})


def change_file(run, name="config.json", **changes):
    """Change a file as who forges its checksum too."""
    files.save_json(run / name, {**files.load_json(run / name), **changes})


def change_both(run, **changes):
    change_config(run, **changes)
    change_checkpoint(run, settings=files.load_json(run / "config.json")["settings"])


def change_checkpoint(run, **changes):
    content = files.load_tensors(run / "checkpoint.pt")
    files.save_tensors(run / "checkpoint.pt", {**content, **changes})


def fill(run, value):
    """All parameters have this value in one place, or the last of them alone has NaN."""
    parameters = files.load_tensors(run / "checkpoint.pt")["parameters"]
    for one in parameters.values():
        one.view(-1)[-1 if math.isnan(value) else slice(None)] = value
    change_checkpoint(run, parameters=parameters)


def instead(run, name, content):
    """In the place of a file are bytes, a tensor that is sealed, a pipe, a folder, or nothing."""
    path = run / name
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, torch.Tensor):
        files.save_tensors(path, content)
    elif content is not None:
        content(path)


def under_way(run, **changes):
    """As if the last seed were under way."""
    config = files.checksum(files.load_json(run / "config.json"))
    change_file(run, "metrics.json", runs=files.load_json(run / "metrics.json")["runs"][:1])
    of_its_own = {"config": config, "model": "outerconv", "seed": 1, "epoch": 0, "seconds": 0.0}
    rest = {part: {} for part in ("parameters", "optimizer", "history", "best", "random")}
    files.save_tensors(run / "partial.pt", {**of_its_own, **rest, **changes})


ANEW = "(begin anew in another folder, or use pyg_outerconv 0.1.0): expected format 3"
# What is said of a run that was changed, and how it was.
SPOIL = [
    ("expected family='Walk(length=2)'", change_config, {"family": "Walk(length=2)"}),
    ("expected hidden=9, got hidden=8", change_config, {"hidden": 9}),
    ("of this graph", change_checkpoint, {"fingerprint": "0"}),
    ("must fit the model", change_checkpoint, {"parameters": {}}),
    ("checkpoint.pt", instead, {"name": "checkpoint.pt", "content": None}),
    ("checksum", instead, {"name": "checkpoint.pt", "content": b"damaged"}),
    ("Tensor", instead, {"name": "checkpoint.pt", "content": torch.ones(1)}),
    ("must be finite", fill, {"value": math.nan}),
    ("must be finite", fill, {"value": 3e38}),
    ("checksum", instead, {"name": "checkpoint.pt", "content": pickle.dumps(shutil.rmtree)}),
    ("no regular file", instead, {"name": "checkpoint.pt", "content": os.mkfifo}),
    ("no regular file", instead, {"name": "checkpoint.pt", "content": os.mkdir}),
    ("no regular file", instead, {"name": "config.json", "content": os.mkfifo}),
    ("JSON", instead, {"name": "config.json", "content": b"{"}),
    ("checksum", instead, {"name": "config.json", "content": b"{}"}),
    (ANEW, change_file, {"format": 2}),
    ("expected format 3", change_file, {"format": 4}),
    ("got '8'", change_config, {"hidden": "8"}),
    ("unknown split", change_both, {"split": "x"}),
    ("format 3", change_checkpoint, {"format": 2}),
    ("must fit the model", change_checkpoint, {"parameters": []}),
    ("colour", change_config, {"colour": "red"}),
]
SPOIL_RESUME = [
    ("unknown device", change_config, {"device": "zz"}),
    ("unknown split", change_config, {"split": "x"}),
    ("must be of the run", change_file, {"name": "metrics.json", "config": "0" * 64}),
    ("no regular file", instead, {"name": "metrics.json", "content": os.mkfifo}),
    ("checkpoint.pt", instead, {"name": "checkpoint.pt", "content": None}),
    ("of the seed under way", under_way, {}),
    ("must be of the run", under_way, {"config": "0" * 64}),
]


@pytest.mark.parametrize(
    ("line", "words", "spoil", "changes"),
    [
        *((["predict", "run"], *case) for case in SPOIL),
        *((["train", "--resume", "--out", "run"], *case) for case in SPOIL_RESUME),
    ],
    ids=lambda part: getattr(part, "__name__", str(part)[:50]),
)
def test_a_run_that_does_not_fit_is_refused(line, words, spoil, changes, finished, refused):
    run = Path(shutil.copytree(finished, "run"))
    spoil(run, **changes)
    assert words in refused(line).replace('"', "'")


def test_a_picture_that_cannot_be_written_is_refused(finished, refused, monkeypatch):
    monkeypatch.setattr(experiment, "can_draw", lambda: True)
    instead(Path(shutil.copytree(finished, "run")), "curves.png", os.mkdir)
    refused(["train", "--resume", "--out", "run"], "a run folder must be writable")


@pytest.mark.parametrize("seed", range(24))
def test_damage_and_edits_of_a_run_are_noticed(seed, finished, refused):
    draw = random.Random(seed)
    shutil.copytree(finished, "run")
    under_way(Path("run"))
    name = ("config.json", "metrics.json", "partial.pt", "checkpoint.pt")[seed % 4]
    path = Path("run", name)
    content = path.read_bytes()
    if name.endswith("json"):  # a digit, so that it is JSON still
        places = [i for i, byte in enumerate(content) if chr(byte) in "123456789"]
        place = draw.choice(places)
        changed = content[:place] + bytes([content[place] - 1]) + content[place + 1 :]
    else:
        place = draw.randrange(len(content))
        changed = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
    path.write_bytes(draw.choice([changed, content[:place], changed]))
    words = f"run/{name} must be as outerconv wrote it"
    refused(["train", "--resume", "--out", "run"], words)


def test_a_file_that_torch_warns_of_is_refused_in_one_line(finished):
    shutil.copytree(finished, "run")
    files.save_tensors(Path("run/checkpoint.pt"), {"a": Path})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["predict", "run"]) == 2


# What is said, and to whom ------------------------------------------------------------------------


def test_a_full_disk_keeps_older_predictions(finished, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("classes.csv").write_text("older")
    monkeypatch.setattr(os, "fsync", full)
    assert main(["predict", str(finished), "--out", "classes.csv"]) == 2
    assert "No space left" in capsys.readouterr().err
    assert Path("classes.csv").read_text() == "older"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "utf-8"])
def test_any_encoding_of_the_output_will_do(encoding, finished, monkeypatch):
    shutil.copytree(finished, "Lauf-Ωμ")
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    err = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    for words in (["train", "--resume", "--out", "Lauf-Ωμ"], ["families"], ["predict", "Lauf-Ωμ"]):
        assert main(words) == 0
    assert main(["predict", "Läufe-Ω"]) == 2
    said = out.buffer.getvalue() + err.buffer.getvalue()
    assert ("±" in said.decode(encoding)) == (encoding != "ascii")
    assert said.decode(encoding).count("?") > 0 or encoding == "utf-8"


@pytest.mark.parametrize(
    "last",
    ["KarateClub: ", "features: ", "Directed(", "PyG DirGNNConv", "outerconv seed 0", "\nmodel"],
)
def test_training_goes_on_when_its_reader_leaves(last, monkeypatch, capfd):
    read, write = os.pipe()
    left = []

    class Out(io.TextIOWrapper):
        """Its reader leaves before a line that begins like ``last``."""

        def write(self, text):
            if text.startswith(last) and not left:
                os.close(read)
                left.append(text)
            return super().write(text)

    out = Out(open(write, "wb"))  # noqa: SIM115
    monkeypatch.setattr(sys, "stdout", out)
    options = ["--directed", "--peer", *QUICK, "--epochs", "2"]
    assert main(["train", "KarateClub", "--out", "run", *options]) == 0
    assert left
    assert len(results(Path("run"))) == 4  # two seeds of each contender
    assert "train goes on" in capfd.readouterr().err
    out.close()


def test_other_commands_say_that_nobody_read(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert main(["families"]) == 141


@pytest.mark.parametrize("name", ["checkpoint.pt", "config.json", "metrics.json", "partial.pt"])
@pytest.mark.parametrize("how", ["itself", "another way", "a link", "a hard link", "another run"])
def test_predict_spares_the_files_of_runs(name, how, finished, capsys):
    shutil.copytree(finished, "run")
    shutil.copytree(finished, "other")
    out = {
        "itself": f"run/{name}",
        "another way": str(Path("other/../run", name)),
        "a link": "link",
        "a hard link": "hard",
        "another run": f"other/{name}",
    }[how]
    if how == "a link":
        Path("link").symlink_to(Path("run", name))
    if how == "a hard link":
        if name == "partial.pt":
            return
        Path("hard").hardlink_to(Path("run", name))
    before = {path: path.read_bytes() for path in sorted(Path().glob("*/*"))}
    assert main(["predict", "run", "--out", out]) == 2
    assert "must not be a file of a run" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in sorted(Path().glob("*/*"))} == before


def test_memory_that_is_not_enough_is_said(monkeypatch, capsys):
    def greedy(self):
        torch.empty(2**60)

    monkeypatch.setattr(SeedRun, "step", greedy)
    assert main(["train", "KarateClub", "--out", "run", *QUICK]) == 1
    said = capsys.readouterr().err
    assert "memory is not enough" in said
    assert said.count("\n") == 1


def test_resume_refuses_other_settings(finished, refused):
    others = ["--hidden", "9", "--family", "walk"]
    said = refused(["train", "--resume", "--out", finished, *others], "hidden=8")
    assert 'got family="Walk(' in said
    assert main(["train", "--resume", "--out", str(finished), "--hidden", "8"]) == 0


def test_bugs_show_as_bugs(monkeypatch):
    monkeypatch.setattr(command, "table", None)  # a call of None, within the package
    with pytest.raises(TypeError, match="not callable"):
        main(["train", "KarateClub", *QUICK])
