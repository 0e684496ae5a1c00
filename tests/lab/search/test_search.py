"""A search: what it may see, what it writes, that it goes on as if it had never been stopped."""

import copy
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from short_search import LINE, found_in, numbers, plan, searched, timeless

from pyg_outerconv import files
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.search import search as search_module
from pyg_outerconv.lab.search.finals import ENSEMBLE
from pyg_outerconv.lab.search.search import PAGE, TABLE, WINNER, Search, SearchFolder
from pyg_outerconv.lab.search.space import OURS
from pyg_outerconv.lab.search.studies import Studies, open_storage
from pyg_outerconv.lab.search.work import WITHHELD, Workers, visible_labels, without_labels
from pyg_outerconv.lab.train import Interrupted, make_split
from pyg_outerconv.lab.train.loop import SeedRun

TESTS = str(Path(__file__).resolve().parents[2])


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A finished search, all tasks of it, what was found before each test, and its early pages."""
    folder = tmp_path_factory.mktemp("search") / "whole"
    run, generate, asked, folder_states, pages = Workers.run, Search._generate, [], [], []

    def tasks_seen(workers, tasks, *rest):
        asked.extend(tasks := list(tasks))
        if any(task.wants == "logits" for task in tasks):
            folder_states.append(found_in(folder))
        return run(workers, tasks, *rest)

    def page_seen(search, generation):
        generate(search, generation)
        assert not (folder / WINNER).exists()
        pages.append((folder / TABLE).read_text() if generation else (folder / TABLE).exists())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Workers, "run", tasks_seen)
        patched.setattr(Search, "_generate", page_seen)
        searched(folder, plan(ensemble=2))
    return SimpleNamespace(folder=folder, asked=asked, folder_states=folder_states, pages=pages)


@pytest.fixture
def whole(watched):
    """The folder of a finished search."""
    return watched.folder


# What a search may see ----------------------------------------------------------------------------


def test_labels_of_test_nodes_are_withheld():
    karate = data.load("KarateClub")
    for seed in range(3):
        seen, split = (
            visible_labels(karate, "public", seed),
            make_split(karate.data, "public", seed),
        )
        visible = split.train | split.validation
        assert torch.equal(seen.y[visible], karate.data.y[visible])
        assert bool((seen.y[~visible] == WITHHELD).all())
        assert bool((seen.y[split.test] == WITHHELD).all())
    graph = without_labels(karate)
    assert bool((graph.dataset.data.y == WITHHELD).all())
    assert graph.num_classes == karate.num_classes
    assert bool((karate.data.y >= 0).all())


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("split", ["public", "held-out-50-20-30"])
def test_other_test_labels_change_nothing_but_the_test(split, tmp_path, monkeypatch):
    """Nor do features whose rows are normalised, or when training stops."""
    base = replace(plan().base, split=split, patience=2, normalize_features=True)
    chosen = replace(plan(trials=3, portfolio="gat"), base=base)
    fixed = make_split(data.load("KarateClub").data, split, 0)
    load = search_module.load

    def permuted(*args, **kwargs):
        dataset = load(*args, **kwargs)
        changed = copy.copy(dataset.data)
        changed.y = dataset.data.y.clone()
        changed.y[fixed.test] = dataset.data.y[fixed.test].flip(0)
        assert not torch.equal(changed.y, dataset.data.y)
        return replace(dataset, data=changed)

    if split == "public":  # whose test nodes are drawn by seeds: all trials have seed 0
        monkeypatch.setattr(search_module, "FIRST_TRIAL_SEED", 0)
    folder_states = {}
    for name in ("true", "other"):
        if name == "other":
            monkeypatch.setattr(search_module, "load", permuted)
        with_labels = Search(chosen, tmp_path / name, log=lambda line: None, jobs=1)
        try:
            if split == "public":
                with_labels._search()
            else:
                with_labels.run()
        finally:
            with_labels.close()
        folder_states[name] = found_in(tmp_path / name)
    (trials, finals), (other_trials, other_finals) = timeless([*map(list, folder_states.values())])
    assert trials == other_trials
    tests, other_tests = finals.pop("tests"), other_finals.pop("tests")
    assert finals == other_finals
    assert split == "public" or tests != other_tests  # the labels do count there


def test_workers_have_no_label_of_a_test_node(watched):
    """What they are given, of every task of a search: no more than a seed may see."""
    karate = data.load("KarateClub").data
    assert {task.wants for task in watched.asked} == {"", "seen", "logits"}
    for task in watched.asked:
        split = make_split(karate, "public", task.seed)
        assert bool((task.labels.y[split.test] == WITHHELD).all())
    assert {0, 1} < {task.seed for task in watched.asked}
    assert all(task.seed >= 1000 for task in watched.asked if task.wants != "logits")


def test_the_test_is_read_after_everything_is_chosen(watched):
    """Each seed of each model that is tested is read once."""
    assert len(watched.folder_states) == 2
    for trials, finals in watched.folder_states:
        assert finals["winner"]
        assert finals["seen"]
        assert {name: len(kind_trials) for name, kind_trials in trials.items()} == {
            OURS: 4,
            "mlp": 4,
        }
    read = [(task.key, str(task.seed)) for task in watched.asked if task.wants == "logits"]
    tests = found_in(watched.folder)[1]["tests"]
    tested = [((key,), at) for at, models in tests.items() for key in models if key != ENSEMBLE]
    assert len(tested) >= 4  # two seeds of the best of two kinds
    assert sorted(read) == sorted(tested)


# What it writes -----------------------------------------------------------------------------------


def test_the_folder_of_a_search(whole):
    assert {path.name for path in whole.iterdir()} == set(SearchFolder.names)
    trials, _ = found_in(whole)
    assert {name: len(kind_trials) for name, kind_trials in trials.items()} == {
        "outerconv": 4,
        "mlp": 4,
    }
    page, table = (whole / PAGE).read_text(), (whole / TABLE).read_text()
    assert "<svg" in page
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    for shown in ("basis searched", "MLP, no graph", "neighbours: ", "Homophily: ", "by chance"):
        assert shown in page
        assert shown in table


def test_a_page_is_written_while_the_search_goes_on(watched):
    """And says that it is no result; no winner is written before there is one."""
    none_yet, page, *_ = watched.pages
    assert none_yet is False
    assert "The search goes on" in page
    assert "| MLP, no graph |" in page
    assert "The search goes on" not in (watched.folder / TABLE).read_text()


def test_each_stage_tells_how_far_it_is(tmp_path, monkeypatch):
    """In lines and on the page, which has the models on the most seeds."""
    monkeypatch.setattr(search_module, "PAGE_SECONDS", -1.0)
    said, pages, write = [], [], Search._write

    def page_seen(search, report):
        write(search, report)
        pages.append((tmp_path / "run" / TABLE).read_text())

    monkeypatch.setattr(Search, "_write", page_seen)
    with closing(Search(plan(), tmp_path / "run", log=said.append, jobs=1)) as search:
        search.run()
    lines = [line for line in said if line.endswith("trainings")]
    stages = [*dict.fromkeys(line.partition(":")[0] for line in lines)]
    first, final, *others = stages
    assert first == "halving, 2 models of each kind on 3 seeds"
    assert final == "the final"
    assert others[-3:] == ["a look at the winner", "the test on seed 0", "the test on seed 1"]
    assert lines[0] == f"{first}: 1 of 8 trainings"
    later = [page for page in pages if "The search goes on (" in page]
    for line, page in zip(lines, later, strict=True):
        assert f"The search goes on ({line});" in page
        _, _, *rows = page[page.index("| kind |") :].split("\n\n")[0].splitlines()
        counts = {row.split(" | ")[2] for row in rows}
        assert counts <= ({"1", "2", "3"} if line.startswith(first) else {"3"})


def test_tables_fit_a_page(whole):
    """In 1,120 px, by 8 px a letter; families break anywhere, other cells between words."""
    report = searched(whole).run()
    assert report.facts.count("4 trials of each of 2 kinds")
    assert report.result_rows()[-1][0] == "mean of 2 finalists"
    assert report.winner in report.finalists
    assert all(0 <= one[ENSEMBLE]["test_metric"] <= 1 for one in report.kept["tests"].values())
    for rows in (report.result_rows(), report.model_rows(), report.best_rows()):
        assert len(rows) > 2
        widest = (
            max(len(word) for cell in column for word in cell.split() or [""])
            for column in zip(*rows, strict=True)
        )
        assert sum(8 * letters + 23 for letters in [*widest][2:]) < 1120 - 2 * 150


def test_seconds_end_a_search_after_a_whole_generation(tmp_path):
    report = searched(tmp_path / "run", plan(trials=0, budget=0.2)).run()
    counts = {len(trials) for trials in report.trials.values()}
    assert len(counts) == 1
    (count,) = counts
    assert f"{count} trials of each of 2 kinds" in report.facts
    walls = [[trial["wall"] for trial in trials] for trials in report.trials.values()]
    assert sum(map(sum, walls)) >= 0.2
    assert count == 1 or sum(sum(one[:-1]) for one in walls) < 0.2


def test_options_take_the_place_of_a_configuration(whole, tmp_path):
    run = tmp_path / "run"
    line = ["train", "--config", str(whole / WINNER), "--out", str(run)]
    assert main([*line, "--seeds", "1", "--family", "gcn", "--depth", "1", "--skip", "none"]) == 0
    settings = files.load_json(run / "config.json")["settings"]
    assert (settings["seeds"], settings["depth"]) == (1, 1)
    assert settings["family"].startswith("GCN(")
    assert settings["lr"] == read_toml(whole / WINNER)["lr"]


# Going on -----------------------------------------------------------------------------------------


def test_a_finished_search_is_only_written_anew(whole, monkeypatch):
    before = numbers(whole)
    (whole / PAGE).unlink()
    monkeypatch.setattr(SeedRun, "step", None)  # nothing is trained
    assert main(["search", "--resume", "--out", str(whole)]) == 0
    assert numbers(whole) == before
    assert (whole / PAGE).exists()


SEVERAL = """
import multiprocessing, sys
from multiprocessing import get_context
tests, folder, how = sys.argv[1:]
sys.path.insert(0, tests)
multiprocessing.get_context = lambda kind: get_context(how)
from pyg_outerconv.lab.search import studies, work
from pyg_outerconv.lab.search.search import SearchFolder
from short_search import plan, searched
studies.RANDOM_TRIALS, work.ALONE = 2, 0.0
searched(folder, plan(ensemble=2), jobs=2)
"""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_several_processes_find_what_one_finds(how, whole, tmp_path, fresh):
    done = fresh(SEVERAL, TESTS, str(tmp_path / "run"), how)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "run") == numbers(whole)


# Several data sets --------------------------------------------------------------------------------


def test_several_data_sets_are_searched_and_gone_on_with(tmp_path, monkeypatch, capsys):
    """The second is begun when the first has ended; a stop between them, and the rest later."""
    second = replace(data.entry("KarateClub"), name="Other")
    entry, load = data.entry, data.load
    monkeypatch.setattr(data, "entry", lambda name: second if name == "Other" else entry(name))

    def read(name, *rest, **more):
        dataset = load("KarateClub", *rest, **more)
        return replace(dataset, entry=second) if name == "Other" else dataset

    monkeypatch.setattr(data, "load", read)
    monkeypatch.setattr(search_module, "load", read)
    run, stops = Search.run, []

    def stopped(search):
        if search.plan.base.dataset == "Other" and not stops:
            stops.append(1)
            raise Interrupted("stopped")
        return run(search)

    monkeypatch.setattr(Search, "run", stopped)
    out = tmp_path / "both"
    line = [LINE[0], "Other", "--trials", "2", *LINE[3:]]
    assert main(["search", *line, "--out", str(out)]) == 130
    assert f"go on by: outerconv search --resume --out {out}" in capsys.readouterr().err
    before = numbers(out / "karateclub")
    assert main(["search", "--resume", "--out", str(out)]) == 0
    assert numbers(out / "karateclub") == before
    table = (out / "searches.md").read_text()
    assert "| KarateClub | basis searched |" in table
    assert "| Other | basis searched |" in table
    assert (out / "other" / WINNER).exists()


def test_several_data_sets_are_refused_before_the_first_is_searched(tmp_path, refused):
    line = [*LINE[1:], "--out", tmp_path / "both"]
    refused(["search", "KarateClub", "KarateClb", *line], "did you mean 'KarateClub'")
    refused(["search", "KarateClub", "KarateClub", *line], "a data set is searched once")
    assert not (tmp_path / "both").exists()


# The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "a search needs data"),
        (["KarateClub", "--trials", "0"], "--trials or --budget"),
        (["KarateClub", "--trials", "3", "--budget", "9"], "--trials or --budget"),
        (["KarateClub", "--budget", "-1"], "--trials or --budget"),
        (["KarateClub", "--ensemble", "1"], "--ensemble from 2 to 6, or 0"),
        (["KarateClub", "--ensemble", "9"], "--ensemble from 2 to 6, or 0"),
        (["KarateClub", "--jobs", "-1"], "jobs has a minimum"),
        (["KarateClub", "--seeds", "0"], "seeds has a minimum"),
        (["KarateClub", "--max-depth", "33"], "max_depth has a maximum: expected <= 32"),
        (["KarateClub", "--max-hidden", "5000"], "max_hidden has a maximum: expected <= 4096"),
        (["KarateClub", "--trials", "100001"], "trials has a maximum: expected <= 100000"),
        (["KarateClub", "--portfolio", "mlq"], "did you mean 'mlp'"),
        (["KarateClub", "--portfolio", "dir-gcn"], "expected direction, got a graph without"),
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
    finals = found_in(tmp_path / "run")[1]
    again = files.load_json(tmp_path / "again" / "metrics.json")["runs"]
    key = "{} {}".format(*finals["winner"])
    assert [finals["tests"][str(seed)][key]["test_metric"] for seed in range(2)] == [
        result["test_metric"] for result in again
    ]


# The storage: damage is named, and a disk that is full leaves what was there ----------------------


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copied")


def cut(name, share):
    """Keep a share of a file."""

    def spoil(folder):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(share * len(content))])

    return spoil


def cut_pages(count):
    """Take pages from the end of the storage."""

    def spoil(folder):
        path = folder / "study.db"
        with closing(sqlite3.connect(path)) as connection:
            ((size,),) = connection.execute("PRAGMA page_size").fetchall()
        path.write_bytes(path.read_bytes()[: -count * size])

    return spoil


def take_another(folder):
    other = folder.parent / "other"
    searched(other, plan(trials=1, test_seeds=1, finalists=1, seed=1))
    shutil.copy(other / "study.db", folder)


def make_older(folder):
    content = files.load_json(folder / "config.json")
    files.save_json(folder / "config.json", {**content, "format": 2})


def change_plan(folder, **changed):
    content = files.load_json(folder / "config.json")
    content["plan"].update(changed)
    files.save_json(folder / "config.json", content)


DAMAGE = {
    **{f"{share} of it": (cut("study.db", share), "study.db must") for share in (0, 0.5, 0.999)},
    **{f"{count} pages less": (cut_pages(count), "study.db must") for count in (1, 5)},
    "gone": (
        lambda folder: (folder / "study.db").unlink(),
        "must hold the trials of the search: expected the file as a search wrote it (or begin anew",
    ),
    "another file": (
        lambda folder: (folder / "study.db").write_text("hello\n" * 1000),
        "study.db must be a whole database",
    ),
    "a configuration that is cut": (cut("config.json", 0.9), "config.json"),
    "of another search": (take_another, "must be of the search of its folder"),
    "with an earlier plan": (
        lambda folder: change_plan(folder, peers="mlp"),
        "must hold the plan of a search of this version (begin anew elsewhere)",
    ),
    "of an earlier format": (
        make_older,
        "(begin anew in another folder, or use pyg_outerconv 0.1.0): expected format 3",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_folder_that_is_damaged_or_of_something_else_is_refused(case, copied, refused):
    spoil, words = DAMAGE[case]
    spoil(copied)
    refused(["search", "--resume", "--out", copied], words)


def test_a_search_that_was_killed_before_its_configuration_begins_there(copied):
    """Its storage is made first, and holds nothing yet."""
    before = numbers(copied)
    chosen = SearchFolder(copied).plan
    for path in copied.iterdir():
        path.unlink()
    Studies(copied / "study.db", ["outerconv"], chosen.seed)
    searched(copied, chosen)
    assert numbers(copied) == before


def test_a_storage_with_trials_is_no_new_folder(copied, refused):
    (copied / "config.json").unlink()
    for name in ("winner.toml", "search.md", "search.html"):
        (copied / name).unlink()
    words = "a search begins without trials: expected another folder"
    refused(["search", *LINE, "--out", copied], words)


def test_a_storage_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(RefusedValue, match="must take the trials"):
        open_storage(tmp_path / "nowhere" / "study.db")


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes there")
def test_a_full_disk_is_named_and_the_search_goes_on_later(tmp_path):
    """Files cannot grow beyond a limit, as on a full disk."""
    import resource

    chosen = plan(trials=3, portfolio="none", test_seeds=1, finalists=1)
    with closing(Search(chosen, tmp_path / "run", log=lambda line: None, jobs=1)) as search:
        size = (tmp_path / "run/study.db").stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, hard))
        try:
            with pytest.raises(RefusedValue, match="space on its disk"):
                search.run()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    searched(tmp_path / "run")
    assert len(found_in(tmp_path / "run")[0]["outerconv"]) == 3
