"""What tests of commands share."""

import re

import pytest

from pyg_outerconv.files import CACHE_VARIABLE, ROOT_VARIABLE
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.train import experiment
from pyg_outerconv.lab.train.folder import LOCK


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    """A working folder and a cache of its own, and no data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)


@pytest.fixture
def refused(tmp_path, capsys):
    """A command line is refused in one line, which has some words and is returned.

    Nothing is written, but to caches.
    """

    def there():
        return {
            path
            for path in tmp_path.rglob("*")
            if path.name != LOCK and not re.search(r"/(cache|basis-\w+)(/|$)", str(path))
        }

    def check(line, words=""):
        before = there()
        capsys.readouterr()
        assert main([str(word) for word in line]) == 2
        said = capsys.readouterr()
        assert said.err.startswith("outerconv")
        assert ": error: " in said.err
        assert words in said.err
        assert said.err.count("\n") == 1
        assert there() == before
        return said.err

    return check


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run of two seeds, which tests leave as it is."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    line = ["train", "KarateClub", "--epochs", "15", "--seeds", "2", "--hidden", "8"]
    assert main([*line, "--out", str(folder)]) == 0
    return folder


@pytest.fixture(autouse=True)
def _no_picture(monkeypatch):
    """Drawing takes longer than short runs; those of a whole module have their curves."""
    monkeypatch.setattr(experiment, "can_draw", lambda: False)
