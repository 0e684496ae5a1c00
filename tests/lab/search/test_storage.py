"""The storage: damage is named, and what does not fit on a disk leaves what was there."""

import shutil
import sqlite3
import sys
from pathlib import Path

import pytest
from short_search import LINE, found_in, numbers, plan, searched

from pyg_outerconv import files
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.search.search import Search, SearchFolder
from pyg_outerconv.lab.search.studies import Studies, open_storage


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "whole"
    searched(folder, plan(trials=2, peers="none", test_seeds=1, finalists=1))
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def refused(folder, capsys):
    assert main(["search", "--resume", "--out", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_storage_that_is_cut_is_refused(share, copied, capsys):
    path = copied / "study.db"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    said = refused(copied, capsys)
    assert "study.db must" in said
    assert path.stat().st_size in (int(share * len(content)), path.stat().st_size)


@pytest.mark.parametrize("pages", [1, 5])
def test_a_storage_cut_between_its_pages_is_refused(pages, copied, capsys):
    path = copied / "study.db"
    with sqlite3.connect(path) as connection:
        ((size,),) = connection.execute("PRAGMA page_size").fetchall()
    connection.close()
    path.write_bytes(path.read_bytes()[: -pages * size])
    assert "study.db must" in refused(copied, capsys)


def test_a_storage_that_is_gone_is_refused(copied, capsys):
    (copied / "study.db").unlink()
    said = refused(copied, capsys)
    assert "must hold the trials of the search" in said
    assert "begin anew in another folder" in said


def test_a_storage_of_something_else_is_refused(copied, capsys):
    (copied / "study.db").write_text("hello\n" * 1000)
    assert "study.db must be a whole database" in refused(copied, capsys)


def test_a_configuration_that_is_cut_is_refused(copied, capsys):
    path = copied / "config.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert "config.json" in refused(copied, capsys)


def test_the_storage_of_another_search_is_refused(copied, tmp_path, capsys):
    searched(tmp_path / "other", plan(trials=1, peers="none", test_seeds=1, finalists=1, seed=1))
    shutil.copy(tmp_path / "other" / "study.db", copied)
    assert "must be of the search of its folder" in refused(copied, capsys)


def test_a_folder_of_an_earlier_format_is_refused_with_what_to_do(copied, capsys):
    content = files.load_json(copied / "config.json")
    files.save_json(copied / "config.json", {**content, "format": 2})
    said = refused(copied, capsys)
    assert "begin anew in another folder, or use pyg_outerconv 0.1.0" in said
    assert "expected format 3" in said


def test_a_search_that_was_killed_before_its_configuration_begins_there(copied):
    """Its storage is made first, and holds nothing yet."""
    before = numbers(copied)
    chosen = SearchFolder(copied).plan
    for path in copied.iterdir():
        path.unlink()
    Studies(copied / "study.db", ["outerconv"], chosen.seed)
    searched(copied, chosen)
    assert numbers(copied) == before


def test_a_storage_with_trials_is_no_new_folder(copied, capsys):
    (copied / "config.json").unlink()
    for name in ("winner.toml", "search.md", "search.html"):
        (copied / name).unlink()
    assert main(["search", *LINE, "--out", str(copied)]) == 2
    assert "a search begins without trials: expected another folder" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedValue, match="must be writable"):
        Search(plan(), tmp_path / "file" / "run", log=lambda line: None)


def test_a_storage_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(RefusedValue, match="must take the trials"):
        open_storage(tmp_path / "nowhere" / "study.db")


FULL = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from short_search import plan
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab.search.search import Search
chosen = plan(trials=3, peers="none", test_seeds=1, finalists=1)
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
