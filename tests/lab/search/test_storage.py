"""The storage: damage is named, and what does not fit on a disk leaves what was there."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest
from short_search import LINE, found_in, numbers, plan, searched

from pyg_outerconv import files
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.search.search import SearchFolder
from pyg_outerconv.lab.search.studies import Studies, open_storage


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "whole"
    searched(folder, plan(trials=2, portfolio="none", test_seeds=1, finalists=1))
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


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
    searched(other, plan(trials=1, portfolio="none", test_seeds=1, finalists=1, seed=1))
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


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from short_search import plan
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.search.search import Search
chosen = plan(trials=3, portfolio="none", test_seeds=1, finalists=1)
found = Search(chosen, sys.argv[2], log=lambda line: None)
size = (found.folder.path / "study.db").stat().st_size // 2
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    found.run()
except RefusedValue as error:
    print(error)
"""


@pytest.mark.slow(cases=1)
@pytest.mark.skipif(sys.platform == "win32", reason="no limits of file sizes there")
def test_a_full_disk_is_named_and_the_search_goes_on_later(tmp_path, fresh):
    """Files cannot grow beyond a limit, as on a full disk."""
    folder = tmp_path / "run"
    tests = str(Path(__file__).resolve().parents[2])
    done = fresh(FULL, tests, str(folder), PYG_OUTERCONV_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert "space on its disk" in done.stdout
    searched(folder)
    assert len(found_in(folder)[0]["outerconv"]) == 3
