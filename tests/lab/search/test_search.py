"""A search: what it may see, what it writes, that it goes on as if it had never been stopped."""

import copy
from dataclasses import replace

import pytest
import torch
from short_search import LINE, found_in, numbers, plan, searched, timeless

from pyg_outerconv import files
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.search import search as search_module
from pyg_outerconv.lab.search.contestants import (
    PEERS,
    WITHHELD,
    Candidate,
    contestants,
    visible_labels,
    without_labels,
)
from pyg_outerconv.lab.search.search import PAGE, TABLE, WINNER, Search, SearchFolder
from pyg_outerconv.lab.search.trials import Bench
from pyg_outerconv.lab.train import Interrupted, make_split
from pyg_outerconv.lab.train.loop import SeedRun


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished search."""
    folder = tmp_path_factory.mktemp("search") / "whole"
    searched(folder, plan())
    return folder


# What a search may see ----------------------------------------------------------------------------


def test_labels_of_test_nodes_are_withheld():
    karate = data.load("KarateClub")
    for seed, seen in visible_labels(karate, "public", range(3)).items():
        split = make_split(karate.data, "public", seed)
        known = split.train | split.validation
        assert torch.equal(seen.y[known], karate.data.y[known])
        assert bool((seen.y[~known] == WITHHELD).all())
        assert bool((seen.y[split.test] == WITHHELD).all())
    graph = without_labels(karate)
    assert bool((graph.dataset.data.y == WITHHELD).all())
    assert graph.num_classes == karate.num_classes
    assert bool((karate.data.y >= 0).all())


@pytest.mark.slow(cases=1)
def test_other_test_labels_change_nothing_but_the_test(whole, tmp_path, monkeypatch):
    """With one split, whose test nodes get labels of each other."""
    chosen = plan(trials=4, test_seeds=1, peers="none")
    fixed = make_split(data.load("KarateClub").data, "public", 0)
    load = search_module.load

    def permuted(*args, **kwargs):
        found = load(*args, **kwargs)
        changed = copy.copy(found.data)
        changed.y = found.data.y.clone()
        changed.y[fixed.test] = found.data.y[fixed.test].flip(0)
        assert not torch.equal(changed.y, found.data.y)
        return replace(found, data=changed)

    searched(tmp_path / "true", chosen)
    monkeypatch.setattr(search_module, "load", permuted)
    searched(tmp_path / "other", chosen)
    (trials, finals, _), (other_trials, other_finals, _) = (
        numbers(tmp_path / name) for name in ("true", "other")
    )
    assert trials == other_trials
    tests, other_tests = finals.pop("tests"), other_finals.pop("tests")
    assert finals == other_finals
    assert tests != other_tests  # the labels do count there


@pytest.mark.slow(cases=1)
def test_the_test_is_read_after_everything_is_chosen(tmp_path, monkeypatch):
    found = Search(plan(), tmp_path / "run", log=lambda line: None)
    read = []
    test = SeedRun.test

    def watched(run, y, mask):
        trials, finals = found_in(tmp_path / "run")
        read.append((run.contender.name, run.seed))
        assert None not in finals["winner"].values()
        assert len(trials["mlp"]) == 5
        return test(run, y, mask)

    monkeypatch.setattr(SeedRun, "test", watched)
    try:
        found.run()
        assert len(read) == len(set(read)) == 4  # two seeds of two winners, each once
        found.run()
        assert len(read) == 4
    finally:
        found.close()


# What it writes -----------------------------------------------------------------------------------


def test_the_folder_of_a_search(whole):
    assert {path.name for path in whole.iterdir()} == set(SearchFolder.names)
    trials, _ = found_in(whole)
    assert {name: len(found) for name, found in trials.items()} == {"outerconv": 5, "mlp": 5}
    page, table = (whole / PAGE).read_text(), (whole / TABLE).read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    for shown in ("OuterConv, basis searched", "MLP, no graph", "neighbours: "):
        assert shown in page
        assert shown in table


def test_tables_fit_a_page(whole):
    """In 1,120 px, by 8 px a letter; families break anywhere, other cells between words."""
    found = Search(None, whole, log=lambda line: None)
    try:
        report = found.run()
    finally:
        found.close()
    assert report.facts.count("5 trials each")
    for rows in (report.result_rows(), report.model_rows(), report.best_rows()):
        assert len(rows) > 2
        widest = (
            max(len(word) for cell in column for word in cell.split() or [""])
            for column in zip(*rows, strict=True)
        )
        assert sum(8 * letters + 23 for letters in [*widest][2:]) < 1120 - 2 * 150


def test_a_budget_says_how_many_trials_each_contestant_had(tmp_path):
    found = Search(plan(trials=0, budget=1.5), tmp_path / "run", log=lambda line: None)
    try:
        report = found.run()
    finally:
        found.close()
    said = "; trials: {} of OuterConv, basis searched, {} of MLP, no graph, a trial on 1 seeds"
    counts = (len(report.trials[name]) for name in ("outerconv", "mlp"))
    assert said.format(*counts) in report.facts


def test_train_takes_the_winner_and_finds_its_numbers(whole, tmp_path):
    run = tmp_path / "run"
    assert main(["train", "--config", str(whole / WINNER), "--out", str(run)]) == 0
    tests = found_in(whole)[1]["tests"]["outerconv"]
    for result in files.load_json(run / "metrics.json")["runs"]:
        found = tests[str(result["seed"])]
        assert found["test_metric"] == result["test_metric"]
        assert found["val_loss"] == result["val_loss"]


def test_options_take_the_place_of_a_configuration(whole, tmp_path):
    run = tmp_path / "run"
    line = ["train", "--config", str(whole / WINNER), "--out", str(run)]
    assert main([*line, "--seeds", "1", "--family", "gcn", "--depth", "1", "--skip", "none"]) == 0
    settings = files.load_json(run / "config.json")["settings"]
    assert (settings["seeds"], settings["depth"]) == (1, 1)
    assert settings["family"].startswith("GCN(")
    assert settings["lr"] == read_toml(whole / WINNER)["lr"]


# Going on -----------------------------------------------------------------------------------------


@pytest.mark.slow(cases=1)
def test_a_search_that_was_stopped_finds_what_an_unbroken_one_finds(whole, tmp_path, monkeypatch):
    """Stopped after every few epochs, again and again."""
    folder, epochs, stops = tmp_path / "run", 0, 0
    step = SeedRun.step

    def counted(run):
        nonlocal epochs
        epochs += 1
        step(run)

    monkeypatch.setattr(SeedRun, "step", counted)
    chosen = plan()
    while True:
        found = Search(chosen, folder, log=lambda line: None)
        chosen, allowed = None, epochs + 25
        found.bench.stop = lambda bound=allowed: epochs >= bound
        monkeypatch.setattr(
            search_module, "StopOnInterrupt", lambda found=found: _Asked(found.bench.stop)
        )
        try:
            found.run()
            break
        except Interrupted:
            stops += 1
        finally:
            found.close()
    assert stops > 3
    assert numbers(folder) == numbers(whole)


class _Asked:
    """In the place of signals."""

    number = 0

    def __init__(self, asks):
        self.asks = asks

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def __call__(self):
        return self.asks()


def test_a_finished_search_is_only_written_anew(whole, monkeypatch):
    before = numbers(whole)
    (whole / PAGE).unlink()
    monkeypatch.setattr(SeedRun, "step", None)  # nothing is trained
    assert main(["search", "--resume", "--out", str(whole)]) == 0
    assert numbers(whole) == before
    assert (whole / PAGE).exists()


@pytest.mark.slow(cases=1)
def test_seconds_are_shared_by_the_contestants(tmp_path):
    found = Search(plan(trials=0, budget=1.0), tmp_path / "run", log=lambda line: None)
    try:
        report = found.run()
    finally:
        found.close()
    for trials in report.trials.values():
        seconds = [trial["wall"] for trial in trials]
        assert sum(seconds) >= 0.5
        assert sum(seconds[:-1]) < 0.5


# Peers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("depth", [1, 3])
def test_peers_train(name, depth):
    karate = data.load("KarateClub")
    bench = Bench(without_labels(karate), visible_labels(karate, "public", range(1)))
    base = replace(plan().base, depth=depth, hidden=16, family=name, skip="concat")
    (peer,) = contestants(name)[1:]
    candidate = Candidate(base, heads=4)
    run = bench.train(bench.contender(peer, candidate), candidate, 0)
    assert run.epoch == 6
    assert all(parameter.grad is not None for parameter in run.model.parameters())


def test_unknown_peers_are_refused():
    with pytest.raises(RefusedValue, match="did you mean 'gcn'"):
        contestants("gcnn")
    with pytest.raises(RefusedValue, match="named once"):
        contestants("gcn,gcn")


# The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "a search needs data"),
        (["KarateClub", "--trials", "0"], "--trials or --budget"),
        (["KarateClub", "--trials", "3", "--budget", "9"], "--trials or --budget"),
        (["KarateClub", "--budget", "-1"], "--trials or --budget"),
        (["KarateClub", "--seeds", "11"], "--test-seeds >= 11"),
        (["KarateClub", "--seeds", "0"], "seeds has a minimum"),
        (["KarateClub", "--max-depth", "33"], "max_depth has a maximum: expected <= 32"),
        (["KarateClub", "--max-hidden", "5000"], "max_hidden has a maximum: expected <= 4096"),
        (["KarateClub", "--trials", "100001"], "trials has a maximum: expected <= 100000"),
        (["KarateClub", "--peers", "mlq"], "did you mean 'mlp'"),
        (["KarateClub", "--split", "geom-gcn"], "unknown split"),
        (["KarateClub", "--epochs", "0"], "epochs has a minimum"),
        (["--resume"], "--out DIR"),
        (["--resume", "--out", "nowhere"], "not the folder of a search"),
        (["--resume", "--out", "x", "--trials", "9"], "no other options, got --trials"),
        (["KarateClb"], "did you mean 'KarateClub'"),
    ],
)
def test_what_is_refused(line, said, refused):
    refused(["search", *line], said)


@pytest.mark.slow(cases=1)
def test_a_graph_of_ones_own(tmp_path):
    karate = data.load("KarateClub").data
    torch.save(karate, tmp_path / "mine.pt")
    run, own = str(tmp_path / "run"), ["--data", str(tmp_path / "mine.pt")]
    short = ["--trials", "2", *LINE[3:], "--split", "random-30-30-40"]
    assert main(["search", *own, *short, "--out", run]) == 0
    assert main(["search", "--resume", "--out", run]) == 0
    winner = str(tmp_path / "run" / WINNER)
    assert main(["train", *own, "--config", winner, "--out", str(tmp_path / "again")]) == 0
    tests = found_in(tmp_path / "run")[1]["tests"]["outerconv"]
    again = files.load_json(tmp_path / "again" / "metrics.json")["runs"]
    assert [tests[str(seed)]["test_metric"] for seed in range(2)] == [
        result["test_metric"] for result in again
    ]


def test_a_folder_with_files_is_refused(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    assert main(["search", *LINE, "--out", str(tmp_path / "run")]) == 2
    assert "new or empty folder" in capsys.readouterr().err


def test_one_process_at_a_time(whole, capsys):
    held = Search(None, whole, log=lambda line: None)
    try:
        assert main(["search", "--resume", "--out", str(whole)]) == 2
        assert "one process at a time" in capsys.readouterr().err
    finally:
        held.close()


def test_clocks_are_all_that_differs():
    assert timeless({"a": [{"wall": 1, "b": 2}], "seconds": 3}) == {"a": [{"b": 2}]}
