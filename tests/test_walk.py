"""The way of a call is counted by its functions, files and calls."""

import sys
from types import SimpleNamespace

import pytest
import torch
import torch_geometric
from torch_geometric.nn import GCNConv
from walk import CACHED, MOST, NEW, PYG, ROOMS, main, times, walk, walks

import pyg_outerconv
from pyg_outerconv import OuterConv


@pytest.fixture(scope="module")
def walks_by_name():
    return walks()


def test_functions_of_a_folder_are_told_apart_and_all_calls_counted(tmp_path):
    names = {}
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder, text in (
        (inside, "def one():\n    pass\ndef two():\n    [one() for _ in (1, 2)]\n    other()\n"),
        (outside, "def other():\n    pass\n"),
    ):
        folder.mkdir()
        path = folder / "file.py"
        exec(compile(text, str(path), "exec"), names)
    walk_of_two = walk(names["two"], SimpleNamespace(__file__=str(inside / "__init__.py")))
    assert walk_of_two.length == (2, 1)
    assert walk_of_two.files == {"file.py": ["two", "one"]}
    assert sorted(walk_of_two.entered.values()) == [1, 2]
    assert walk_of_two.calls == 5 if sys.version_info < (3, 12) else 4


def test_a_profiler_is_put_back_even_after_an_error():
    before = sys.getprofile()
    with pytest.raises(ZeroDivisionError):
        walk(lambda: 1 / 0, pyg_outerconv)
    assert sys.getprofile() is before


def test_the_walks_are_of_the_layers(walks_by_name):
    assert "nn/outer_conv.py" in walks_by_name[NEW].files
    assert "OuterConv.forward" in walks_by_name[CACHED].files["nn/outer_conv.py"]
    assert "nn/conv/gcn_conv.py" in walks_by_name[PYG].files
    assert GCNConv.forward.__code__ in walks_by_name[PYG].entered
    assert walks_by_name[PYG].folder.name == torch_geometric.__name__


def test_a_kept_basis_shortens_the_way(walks_by_name):
    assert walks_by_name[CACHED].length < walks_by_name[NEW].length
    assert walks_by_name[CACHED].calls < walks_by_name[NEW].calls


@pytest.mark.parametrize("name", MOST)
def test_a_call_takes_no_longer_way_than_it_may(walks_by_name, name):
    functions, files, calls = MOST[name]
    entered, among = walks_by_name[name].length
    assert entered <= functions
    assert among <= files
    assert walks_by_name[name].calls <= calls


def test_the_time_of_a_call_is_told_by_room():
    graphs = [torch.tensor([[0, 1, 2], [1, 2, 0]]) for _ in range(8)]
    for layer in (OuterConv(2, 2, "gcn"), GCNConv(2, 2)):
        microseconds = times(layer, graphs, torch.ones(3, 2))
        assert set(microseconds) <= set(ROOMS.values())
        assert all(part >= 0 for part in microseconds.values())
        ours = microseconds["edges checked and weighted"]
        assert (ours > 0) is isinstance(layer, OuterConv)
        assert (microseconds["PyG"] > sum(microseconds.values()) / 10) is isinstance(layer, GCNConv)


def test_it_prints_what_it_counts(capsys):
    main(["--list"])
    said = capsys.readouterr().out
    for words in (f"{NEW}: ", " functions in ", " Python calls in all", "  nn/outer_conv.py: "):
        assert words in said
