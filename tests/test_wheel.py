"""What ``pip install`` brings: the package and the data that it ships, which work by themselves."""

from pathlib import Path

import pytest
from try_wheel import ROOT, build, contents, environment, install, metadata, smoke

import pyg_outerconv
from pyg_outerconv.lab.fields import read_toml

pytest.importorskip("build", reason="the wheel is built by build and hatchling")
pytest.importorskip("hatchling")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"))


def test_it_holds_the_package_and_its_data_and_nothing_else(wheel):
    files = (ROOT / "pyg_outerconv").rglob("*.*")
    own = {str(one.relative_to(ROOT)) for one in files if one.parent.name != "__pycache__"}
    assert {Path(one).suffix for one in own} == {".py", ".jinja", ".css", ".toml", ".typed"}
    shipped = read_toml(ROOT / "pyproject.toml")["tool"]["hatch"]["build"]
    assert contents(wheel) == own | set(shipped["targets"]["wheel"]["force-include"].values())
    assert {"pyg_outerconv/py.typed", "pyg_outerconv/_datasets/cora.npz"} <= contents(wheel)


def test_it_says_its_version_licence_and_command(wheel):
    said = metadata(wheel)
    assert said.version == pyg_outerconv.__version__
    assert said.metadata["License-Expression"] == "MIT"
    assert [one.value for one in said.entry_points] == ["pyg_outerconv.lab.cli:main"]


@pytest.mark.pages
def test_it_works_in_an_environment_that_has_only_what_it_asks_for(wheel, tmp_path):
    python = environment(tmp_path / "environment", wheel, "")
    install(python, wheel, "")
    assert str(tmp_path) in smoke(python, tmp_path / "run")
