"""``outerconv show`` end to end: what it writes, what it says, and what it refuses."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch_geometric.datasets import KarateClub

from pyg_outerconv.basis import Basis
from pyg_outerconv.families import GCN, Blocks, Diffusion, Full, Grid, Pool, Walk
from pyg_outerconv.lab import data
from pyg_outerconv.lab.cli import main
from pyg_outerconv.lab.show import KINDS
from pyg_outerconv.plot.basis import KINDS as DRAWN

pytestmark = pytest.mark.pages

Drawn = list[tuple[Basis, str, dict[str, object], Figure]]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    """What was drawn, in the order of drawing."""
    pictures: Drawn = []
    plot = Basis.plot

    def watched(basis: Basis, kind: str, path: Path, **options: object) -> Figure:
        figure = plot(basis, kind, path, **options)
        pictures.append((basis, kind, options, figure))
        return figure

    monkeypatch.setattr(Basis, "plot", watched)
    return pictures


def image(figure: Figure, place: int) -> np.ma.MaskedArray:
    return np.ma.asarray(figure.axes[place].images[0].get_array())


def test_the_shift_of_a_grid_is_drawn(drawn: Drawn, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["show", "--family", "grid", "--shape", "8x10", "--offset", "2,4"]
    assert main([*command, "--out", "figure.svg"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out == (
        "figure.svg: matrices of grid(offsets=((2, 4),), dim=2) on a grid of 8x10: "
        "M = 80, N = 80, K = 1\n"
    )
    text = Path("figure.svg").read_text()
    assert text.startswith("<?xml")
    assert "shift (2, 4)" in text
    ((_, _, _, figure),) = drawn
    expected = Grid(offsets=((2, 4),)).basis((8, 10)).to_dense()[0]
    assert np.array_equal(image(figure, 0).filled(0), expected.numpy())


SHOWN = {
    "--shape 4x5 --offset 2,4 --offset=-1,0": (Grid(offsets=((2, 4), (-1, 0))), "matrices", {}),
    "--shape 6x7 --family 'grid((3, 3), padding=1)' --label 1": (
        Grid((3, 3), padding=1),
        "matrices",
        {"labels": [1]},
    ),
    "--shape 6x7 --family 'grid(3, stride=2, dim=2)'": (Grid((3, 3), stride=2), "matrices", {}),
    "--shape 6x7 --family 'grid(window=(3,3), dilation=2)'": (
        Grid((3, 3), dilation=2),
        "matrices",
        {},
    ),
    "--shape 6x7 --family 'pool((2, 2))'": (Pool((2, 2)), "matrices", {}),
    "--shape 8x9 --family 'grid((3,3), padding=1)' --kind receptive-field --cell 3,4 --reach 2": (
        Grid((3, 3), padding=1),
        "receptive-field",
        {"cell": (3, 4), "reach": 2},
    ),
    "--shape 8x8 --family 'blocks(4)' --kind receptive-field --cell 3,3": (
        Blocks(4),
        "receptive-field",
        {"cell": (3, 3)},
    ),
    "--shape 5 --family 'grid((2,))' --kind flattenings --channels 1x3 --seed 4": (
        Grid((2,)),
        "flattenings",
        {"channels": (1, 3), "seed": 4},
    ),
    "--shape 2 --family 'full((2, 3))'": (Full((2, 3)), "matrices", {}),
    "--family \"diffusion(kind='heat')\" --kind matrices": (Diffusion("heat"), "matrices", {}),
    "--node 16": (GCN(), "graph", {"around": [16]}),
}


@pytest.mark.parametrize("command", SHOWN)
def test_a_command_draws_a_picture_of_a_basis_with_its_options(drawn: Drawn, command: str) -> None:
    """What a picture shows is in ``test_pictures.py``."""
    family, kind, wanted = SHOWN[command]
    assert main(["show", *shlex.split(command), "--out", "a.png"]) == 0
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    ((basis, picture_kind, options, _),) = drawn
    shape = re.search(r"--shape (\S+)", command)
    structure = tuple(map(int, shape[1].split("x"))) if shape else KarateClub()[0].edge_index
    expected = family.basis(structure if not isinstance(family, Full) else None)
    assert torch.equal(basis.to_dense(), expected.to_dense())
    assert (picture_kind, {name: options[name] for name in wanted}) == (kind, wanted)


def test_a_graph_without_arguments(drawn: Drawn, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show"]) == 0
    assert capsys.readouterr().out == (
        "gcn-graph.svg: graph of gcn on KarateClub: M = 34, N = 34, K = 1\n"
    )
    figure = drawn[0][3]
    lines = KarateClub()[0].num_edges // 2  # there and back
    assert len(figure.axes[0].patches) == lines + 34
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        f"class {k}" for k in range(4)
    ]


def test_labels_of_a_family_are_titles(drawn: Drawn) -> None:
    flags = ["--dataset", "karateclub", "--label", "1", "--layout", "circle"]
    assert main(["show", "--family", "walk(2)", *flags, "--out", "a.svg"]) == 0
    assert drawn[0][3].axes[0].get_title() == Walk(2).labels[1]


def test_relations_are_as_many_as_the_data_has(
    drawn: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = data.load("KarateClub")
    dataset.data.edge_type = torch.arange(dataset.data.num_edges) % 3
    monkeypatch.setattr(data, "load", lambda *arguments: dataset)
    assert main(["show", "--family", "relation", "--out", "a.svg"]) == 0
    *panels, _ = drawn[0][3].axes
    assert [axes.get_title() for axes in panels] == [f"relation {r}" for r in range(3)]


def test_every_kind_is_named() -> None:
    assert set(KINDS) == set(DRAWN)


GRID = ["--shape", "8x10", "--offset", "2,4"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--shape", "8y10", "--offset", "2,4"], "expected such as 8x10, got 8y10"),
        (["--shape", "8x10", "--offset", "2;4"], "expected such as 8,10, got 2;4"),
        (["--shape", "8x10", "--offset", "2,4,1"], "expected one D, got dim 2, offsets 3"),
        (["--shape", "8x10", "--offset", "2,4", "--offset", "2,4"], "distinct shifts"),
        (["--shape", "8x10"], "one of window and offsets"),
        (["--shape", "0x10", "--offset", "1,1"], "a picture needs nodes"),
        ([*GRID, "--kind", "receptive-field", "--cell", "8,1"], "below (8, 10), got (8, 1)"),
        ([*GRID, "--kind", "receptive-field", "--cell", "a"], "--cell is integers"),
        ([*GRID, "--kind", "shift", "--cell", "1,1", "--node", "3"], "--cell or --node, got both"),
        ([*GRID, "--label", "1"], "expected 0 to 0, got 1"),
        ([*GRID, "--label", "one"], "'one' is not a valid integer"),
        ([*GRID, "--layout", "circle"], "unknown option of a picture of matrices 'layout'"),
        ([*GRID, "--dataset", "KarateClub"], "--shape or --dataset, got both"),
        ([*GRID, "--family", "grid(window=(3, 3))"], "in the family's text or by --offset"),
        ([*GRID, "--family", "gird"], "did you mean 'grid'"),
        (["--shape", "8x10", "--family", "gcn"], "expected --dataset, got --shape"),
        (["--family", "grid"], "--shape such as 8x10"),
        (["--family", "grid(window=(3, 3))"], "--shape such as 8x10"),
        (["--family", "cluster(2)", "--shape", "3"], "Cluster reads assignments"),
        (["--dataset", "karate"], "did you mean 'KarateClub'"),
        (["--layout", "springs"], "did you mean 'spring'"),
        (["--kind", "receptive-field", "--node", "34"], "below (34,)"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert says in said.err
    assert said.err.startswith("outerconv show: error: ")
    assert said.err.count("\n") == 1
    assert not list(Path().glob("*.svg"))


PICTURES = Path(__file__).resolve().parents[2] / "examples" / "pictures"
COMMANDS = re.findall(r"^\$ outerconv (show .*)$", (PICTURES / "README.md").read_text(), re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_examples_draw_them(command: str) -> None:
    arguments = shlex.split(command)
    assert main(arguments) == 0
    assert Path(arguments[-1]).is_file()
    assert (PICTURES / arguments[-1]).is_file()


def test_example_pictures_are_all_explained_and_small() -> None:
    files = {path.name: path.stat().st_size for path in PICTURES.glob("*.svg")}
    assert set(files) == {shlex.split(command)[-1] for command in COMMANDS}
    assert sum(files.values()) < 150_000
