"""What a picture shows is what the basis says: arrays, cells and colours are read back from it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import Basis
from pyg_outerconv.basis.products import Composed, Kronecker
from pyg_outerconv.families import GCN, Grid, Identity, Pool, Relation, Stack, Walk
from pyg_outerconv.graph import Cells
from pyg_outerconv.plot.canvas import MAX_ENTRIES, MAX_SIDE
from pyg_outerconv.plot.colours import ABSENT, MARK, REACHED
from pyg_outerconv.plot.graph import MAX_EDGES, MAX_LABELS, MAX_NODES

EDGES = torch.tensor([[0, 1, 2, 3, 3, 0, 0], [1, 2, 0, 0, 3, 1, 1]])
TYPES = torch.tensor([0, 1, 2, 0, 1, 2, 2])


@pytest.fixture
def labelled() -> Basis:
    weight = torch.tensor([1.0, -2.0, 0.5, 0.0, 3.0, 1.0, 1.0], dtype=torch.double)
    return Relation(3, None).basis(EDGES, weight, TYPES)


@pytest.fixture
def kernel() -> Basis:
    return Grid(window=(3, 3), padding=1).basis((4, 5))


def images(figure: Figure) -> list[np.ma.MaskedArray]:
    return [np.ma.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def panels(figure: Figure) -> list[object]:
    return [axes for axes in figure.axes if axes.images]


# Matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [Walk(2), GCN(), Stack(Walk(1), Identity())])
def test_a_panel_of_each_matrix_shows_it(family: object) -> None:
    basis = family.basis(KarateClub()[0].edge_index)  # type: ignore[attr-defined]
    shown = images(basis.plot())
    dense, support = basis.to_dense(), basis.support()
    assert len(shown) == basis.num_bases
    for image, matrix, mask in zip(shown, dense, support, strict=True):
        assert np.array_equal(np.ma.getmaskarray(image), ~mask.numpy())
        assert np.allclose(image.filled(0), matrix.double().numpy(), rtol=1e-6, atol=0)


def test_a_zero_has_a_colour_and_an_absent_edge_is_white(labelled: Basis) -> None:
    (panel, *_) = panels(labelled.plot())
    picture = panel.images[0]  # type: ignore[attr-defined]
    colours = picture.to_rgba(picture.get_array())
    assert labelled.to_dense()[0, 3, 0] == 0
    assert labelled.support()[0, 3, 0]
    assert to_hex(colours[0, 0]) == ABSENT
    assert to_hex(colours[3, 0]) != ABSENT


def test_colours_of_signed_values_are_centred_at_zero(labelled: Basis) -> None:
    scales = [panel.images[0].norm for panel in panels(labelled.plot())]  # type: ignore[attr-defined]
    assert {(scale.vmin, scale.vmax) for scale in scales} == {(-3.0, 3.0)}
    ones = Relation(1, None).basis(EDGES).plot()
    assert (ones.axes[0].images[0].norm.vmin, ones.axes[0].images[0].norm.vmax) == (0.0, 3.0)


def test_there_is_one_colour_bar(kernel: Basis) -> None:
    figure = kernel.plot()
    assert len(figure.axes) - len(panels(figure)) == 1


def test_titles_say_what_labels_mean(kernel: Basis, labelled: Basis) -> None:
    named = [panel.get_title() for panel in panels(kernel.plot())]  # type: ignore[attr-defined]
    assert named == list(Grid(window=(3, 3), padding=1).labels)
    told = labelled.plot(titles=["sees", "knows", "likes"], labels=[2, 0])
    assert [panel.get_title() for panel in panels(told)] == ["likes", "sees"]  # type: ignore[attr-defined]


def test_chosen_labels_alone_are_drawn(labelled: Basis) -> None:
    (shown,) = images(labelled.plot(labels=[2]))
    assert np.array_equal(shown.filled(0), labelled.to_dense()[2].numpy())


def test_labels_that_are_left_out_are_counted(kernel: Basis) -> None:
    figure = kernel.plot(max_panels=4)
    assert len(images(figure)) == 4
    assert figure.get_suptitle() == "4 of 9 labels; 5 left out"
    assert kernel.plot().get_suptitle() == ""


def test_matrices_of_grids_have_lines_between_rows_of_cells(kernel: Basis) -> None:
    across, down = panels(kernel.plot())[0].collections  # type: ignore[attr-defined]
    assert [line[0, 1] for line in across.get_segments()] == [4.5, 9.5, 14.5]
    assert [line[0, 0] for line in down.get_segments()] == [4.5, 9.5, 14.5]


def test_gradients_of_values_do_not_stand_in_the_way() -> None:
    weight = torch.rand(EDGES.size(1), requires_grad=True)
    basis = GCN().basis(EDGES, weight)
    (image,) = images(basis.plot())
    assert np.allclose(image.filled(0), basis.to_dense().detach()[0].numpy())
    basis.plot("flattenings")
    basis.plot("graph")


# Shifts -------------------------------------------------------------------------------------


def test_an_output_has_the_number_of_the_input_that_it_sees() -> None:
    basis = Grid(offsets=((2, 4), (0, -1))).basis((8, 10))
    given, *made = images(basis.plot("shift"))
    numbers = torch.arange(1.0, 81.0)
    assert np.array_equal(given.ravel() + 1, numbers.numpy())
    for image, matrix in zip(made, basis.to_dense(torch.float), strict=True):
        seen = matrix.T @ numbers  # 0 where an output sees no input
        assert np.array_equal((image + 1).filled(0).ravel(), seen.numpy())


def test_an_arrow_leads_from_a_cell_by_the_shift() -> None:
    figure = Grid(offsets=((2, 4), (0, 0))).basis((8, 10)).plot("shift", cell=(1, 3))
    start, moved, still = panels(figure)
    (frame,) = [patch for patch in start.patches if isinstance(patch, Rectangle)]  # type: ignore[attr-defined]
    assert frame.get_xy() == (2.5, 0.5)
    assert to_hex(frame.get_edgecolor()) == MARK
    (arrow,) = moved.texts  # type: ignore[attr-defined]
    assert (arrow.xyann, arrow.xy) == ((3, 1), (7, 3))
    assert not still.texts  # type: ignore[attr-defined]


def test_shifts_go_between_grids_of_different_size() -> None:
    basis = Pool((2, 2)).basis((4, 6))
    _, *made = images(basis.plot("shift"))
    cells = np.arange(24).reshape(4, 6)
    assert np.array_equal(made[0], cells[1::2, 1::2])  # label 0 is the last of a cluster
    assert np.array_equal(made[-1], cells[::2, ::2])


def test_slices_of_more_axes_stand_below_each_other() -> None:
    given, made = images(Grid(offsets=((1, 0, 0),)).basis((2, 3, 4)).plot("shift"))
    assert given.shape == made.shape == (6, 4)
    assert np.ma.getmaskarray(made)[:3].all()
    assert np.array_equal(made[3:], given[:3])


def test_an_axis_alone_is_a_row() -> None:
    _, made = images(Grid(offsets=((1,),)).basis((5,)).plot("shift"))
    assert made.filled(-1).tolist() == [[-1, 0, 1, 2, 3]]


def test_the_algebra_keeps_grids(kernel: Basis) -> None:
    for basis in (
        kernel.scale(0.5),
        kernel.select([8, 0]),
        kernel.T,
        kernel.stack(kernel),
        Composed(kernel.select([0]), kernel.select([1])),
    ):
        assert images(basis.plot("shift"))[0].shape == (4, 5)
    rows, columns = (Grid(offsets=((1,),)).basis((n,)) for n in (4, 5))
    both = images(Kronecker(rows, columns).plot("shift"))[1]
    assert np.array_equal(
        both.filled(-1), images(Grid(offsets=((1, 1),)).basis((4, 5)).plot("shift"))[1].filled(-1)
    )


def test_nodes_may_be_said_to_be_a_grid() -> None:
    basis = Grid(offsets=((0, 1),)).basis((4, 5)).edges()
    _, made = images(basis.plot("shift", inputs=(4, 5)))
    assert np.array_equal(made[:, 1:], np.arange(20).reshape(4, 5)[:, :-1])


# Irregular grids -----------------------------------------------------------------------------


def dark(axes: object) -> np.ndarray:
    """Where an image is covered because there is no node."""
    if len(axes.images) == 1:  # type: ignore[attr-defined]
        return np.zeros(axes.images[0].get_array().shape, dtype=bool)  # type: ignore[attr-defined]
    return ~np.ma.getmaskarray(axes.images[1].get_array())  # type: ignore[attr-defined]


def test_listed_cells_stand_where_they_are_and_the_others_are_dark() -> None:
    mask = torch.rand(5, 6) < 0.6
    family = Grid(window=(3, 3), padding=1)
    basis = family.basis(mask)
    given, *made = panels(basis.plot("shift", inputs=mask))
    numbers = torch.arange(30)[mask.flatten()]
    for axes, matrix in zip(made, basis.to_dense(torch.double), strict=True):
        assert np.array_equal(dark(axes), ~mask.numpy())
        shown = (axes.images[0].get_array() + 1).filled(0)  # type: ignore[attr-defined]
        assert np.array_equal(shown[mask.numpy()], (matrix.T @ (numbers + 1).double()).numpy())
    assert np.array_equal(dark(given), ~mask.numpy())


def test_cells_without_bounds_and_those_that_they_reach_share_a_box() -> None:
    cells = Cells(torch.tensor([[10, 20], [12, 21]]))
    family = Grid(offsets=((1, 0), (0, -1)), growth="full")
    basis, outputs = family.basis(cells), family.outputs(cells)
    given, down, left = panels(basis.plot("shift", inputs=cells, outputs=outputs))
    assert np.argwhere(~dark(given)).tolist() == [[0, 1], [2, 2]]  # box from (10, 19)
    assert np.argwhere(~dark(down)).tolist() == [[0, 0], [1, 1], [2, 1], [3, 2]]
    numbers = np.arange(12).reshape(4, 3)
    assert down.images[0].get_array()[1, 1] == numbers[0, 1]  # type: ignore[attr-defined]
    assert left.images[0].get_array()[2, 1] == numbers[2, 2]  # type: ignore[attr-defined]


def test_receptive_fields_of_listed_cells() -> None:
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2, 3] = mask[0] = False
    basis = Grid(window=(3, 3), padding=1).basis(mask)
    figure = basis.plot("receptive-field", cell=(2, 2), inputs=mask)
    asked, field = images(figure)
    assert np.argwhere(asked).tolist() == [[2, 2]]
    expected = np.zeros((5, 5))
    expected[1:4, 1:4] = 1
    expected[2, 3] = 0
    assert np.array_equal(field, expected)
    assert panels(figure)[1].get_title() == "reached by 8 of 19 inputs"  # type: ignore[attr-defined]
    with pytest.raises(IndexError, match="a cell must have a node"):
        basis.plot("receptive-field", cell=(2, 3), inputs=mask)


# Receptive fields ---------------------------------------------------------------------------


@pytest.mark.parametrize(("reach", "side"), [(1, 3), (2, 5)])
def test_cells_of_a_receptive_field_are_filled(reach: int, side: int) -> None:
    basis = Grid(window=(3, 3), padding=1).basis((8, 10))
    asked, field = images(basis.plot("receptive-field", cell=(3, 4), reach=reach))
    assert np.argwhere(asked).tolist() == [[3, 4]]
    assert field.sum() == side**2
    assert np.flatnonzero(field).tolist() == basis.receptive_field(34, reach).tolist()


def test_a_cell_may_be_its_number(kernel: Basis) -> None:
    by_number = images(kernel.plot("receptive-field", cell=7))
    by_place = images(kernel.plot("receptive-field", cell=(1, 2)))
    for one, other in zip(by_number, by_place, strict=True):
        assert np.array_equal(one, other)


def test_nodes_of_a_receptive_field_are_filled_and_the_output_is_framed() -> None:
    basis = GCN(add_self_loops=False).basis(KarateClub()[0].edge_index)
    (axes,) = basis.plot("receptive-field", cell=16, reach=2).axes
    nodes = axes.collections[0]
    filled = [i for i, fill in enumerate(nodes.get_facecolors()) if to_hex(fill) == REACHED]
    framed = [i for i, edge in enumerate(nodes.get_edgecolors()) if to_hex(edge) == MARK]
    assert filled == basis.receptive_field(16, 2).tolist()
    assert framed == [16]


def test_sources_and_targets_of_a_rectangular_basis_are_nodes_of_their_own() -> None:
    index = torch.tensor([[0, 1, 2], [1, 0, 0]])
    basis = Relation(1, None).basis(index, size=(3, 2))
    (axes,) = basis.plot("receptive-field", cell=0).axes
    nodes = axes.collections[0]
    assert [to_hex(fill) == REACHED for fill in nodes.get_facecolors()] == [0, 1, 1, 0, 0]
    assert [to_hex(edge) == MARK for edge in nodes.get_edgecolors()] == [0, 0, 0, 1, 0]
    assert nodes.get_offsets()[:, 0].tolist() == [0, 0, 0, 1, 1]


# Flattenings --------------------------------------------------------------------------------


def test_flattenings_of_a_layer_are_its_dense_forms() -> None:
    conv = OuterConv(2, 3, Walk(2), theta="low-rank(rank=1)").double()
    hat, check = images(conv.plot(EDGES))
    assert np.array_equal(hat.filled(0), conv.phi_hat(EDGES).detach().numpy())
    assert np.array_equal(check.filled(0), conv.phi_check(EDGES).detach().numpy())


def test_a_layer_of_means_is_drawn_as_it_is() -> None:
    conv = OuterConv(2, 3, Relation(3, None), aggr="mean", label_aggr="mean").double()
    hat, _ = images(conv.plot(EDGES, edge_type=TYPES))
    assert np.array_equal(hat.filled(0), conv.phi_hat(EDGES, edge_type=TYPES).detach().numpy())


def test_flattenings_of_a_basis_are_those_of_a_layer_with_the_same_parameters() -> None:
    conv = OuterConv(2, 3, Walk(2), bias=False).double()
    theta = conv.theta()[:, 0]
    hat, check = images(Walk(2).basis(EDGES, dtype=torch.double).plot("flattenings", theta=theta))
    assert np.allclose(hat.filled(0), conv.phi_hat(EDGES).detach().numpy(), atol=1e-12)
    assert np.allclose(check.filled(0), conv.phi_check(EDGES).detach().numpy(), atol=1e-12)


def test_parameters_that_nobody_gave_follow_the_seed(kernel: Basis) -> None:
    one, again, other = (images(kernel.plot("flattenings", seed=s))[0] for s in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert images(kernel.plot("flattenings", channels=(4, 1)))[0].shape == (80, 20)


# Graphs -------------------------------------------------------------------------------------


def test_every_edge_is_drawn_in_the_colour_of_its_label(labelled: Basis) -> None:
    figure = labelled.plot("graph", layout="circle", titles=["sees", "knows", "likes"])
    (legend,) = figure.legends
    colours = {
        text.get_text(): to_hex(line.get_color())
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert len(set(colours.values())) == 3
    edges = labelled.edges()
    patches = figure.axes[0].patches
    names = [["sees", "knows", "likes"][k] for k in edges.label]
    drawn = [to_hex(patch.get_edgecolor()) for patch in patches]
    assert drawn == [colours[name] for name in names]


def test_arrows_lead_from_source_to_target_and_loops_are_circles(labelled: Basis) -> None:
    axes = labelled.plot("graph").axes[0]
    places = axes.collections[0].get_offsets()
    for patch, (m, n) in zip(axes.patches, labelled.edges().index.T.tolist(), strict=True):
        if m == n:
            assert isinstance(patch, Circle)
            continue
        assert isinstance(patch, FancyArrowPatch)
        start, end = patch._posA_posB
        assert np.allclose(start, places[m])
        assert np.allclose(end, places[n])


def test_widths_follow_values_and_negative_edges_are_dashed(labelled: Basis) -> None:
    patches = labelled.plot("graph").axes[0].patches
    values = labelled.edges().values().tolist()
    widths = [patch.get_linewidth() for patch in patches]
    order = sorted(range(len(values)), key=lambda edge: abs(values[edge]))
    assert [widths[edge] for edge in order] == sorted(widths)
    assert widths[order[0]] < widths[order[-1]]
    assert [patch.get_linestyle() == "--" for patch in patches] == [v < 0 for v in values]


def test_the_same_seed_gives_the_same_layout() -> None:
    basis = GCN().basis(KarateClub()[0].edge_index)
    one, again, other = (
        basis.plot("graph", seed=s).axes[0].collections[0].get_offsets() for s in (0, 0, 1)
    )
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_graph_without_edges_is_drawn() -> None:
    figure = GCN(add_self_loops=False).basis(torch.empty(2, 0).long(), size=(3, 3)).plot("graph")
    assert len(figure.axes[0].collections[0].get_offsets()) == 3
    assert not figure.legends


# Files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("B.SVG", b"<?xml")])
@pytest.mark.parametrize("kind", ["matrices", "shift", "flattenings", "receptive-field", "graph"])
def test_files_are_written_by_their_extension(
    tmp_path: Path, name: str, start: bytes, kind: str
) -> None:
    Grid(offsets=((0, 1),)).basis((2, 3)).plot(kind, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_the_same_picture_is_the_same_file(tmp_path: Path, labelled: Basis, name: str) -> None:
    labelled.plot("graph", tmp_path / name)
    first = (tmp_path / name).read_bytes()
    labelled.plot("graph", tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


def test_a_layer_writes_files(tmp_path: Path) -> None:
    OuterConv(2, 3, "gcn").plot(EDGES, path=tmp_path / "phi.svg")
    assert b"hat" in (tmp_path / "phi.svg").read_bytes()


# Refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kind": "matrix"}, "did you mean 'matrices'"),
        ({"path": "a.pdf"}, "expected one of png, svg"),
        ({"layout": "circle"}, "unknown option of a picture of matrices 'layout'"),
        ({"labels": [9]}, r"\[0, 9\)"),
        ({"labels": []}, "needs a label"),
        ({"titles": ["one"]}, "a title for each label: expected 9, got 1"),
        ({"max_panels": 0}, "max_panels >= 1"),
        ({"kind": "shift", "cell": (4, 0)}, r"below \(4, 5\), got \(4, 0\)"),
        ({"kind": "receptive-field", "cell": (1, 2, 3)}, "a coordinate for each axis"),
        ({"kind": "receptive-field", "cell": 20}, r"below \(20,\)"),
        ({"kind": "receptive-field", "cell": (0.5, 1)}, "integers"),
        ({"kind": "receptive-field", "reach": -1}, "reach >= 0"),
        ({"kind": "shift", "outputs": (4, 5)}, "inputs= too"),
        ({"kind": "shift", "inputs": (4, 4), "outputs": (4, 5)}, "inputs is one grid with"),
        ({"kind": "shift", "inputs": (4, 5), "outputs": (4, 6)}, "outputs is one grid with"),
        ({"kind": "shift", "inputs": "4x5"}, "a grid family reads cells"),
        ({"kind": "flattenings", "theta": torch.ones(2, 2, 3)}, r"\(9, P, Q\)"),
        ({"kind": "flattenings", "channels": (0, 3)}, r"\(P, Q\) >= 1"),
        ({"kind": "graph", "layout": "springs"}, "did you mean 'spring'"),
    ],
)
def test_bad_options_are_refused(kernel: Basis, options: dict[str, object], says: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError), match=says):
        kernel.plot(**options)  # type: ignore[arg-type]


def test_shifts_are_of_grids_and_show_one_input_for_an_output(kernel: Basis) -> None:
    with pytest.raises(ValueError, match="inputs= and outputs="):
        GCN().basis(EDGES).plot("shift")
    several = Grid(window=(3,), padding=2, padding_mode="replicate").basis((4,)).T
    with pytest.raises(ValueError, match="no output that sees several"):
        several.plot("shift")


def test_nothing_is_drawn_without_nodes() -> None:
    empty = GCN().basis(torch.empty(2, 0).long(), size=(0, 0))
    with pytest.raises(ValueError, match="needs nodes"):
        empty.plot("graph")


def test_too_many_entries_are_refused_before_there_are_edges() -> None:
    basis = Grid(window=(3, 3), padding=1).basis((64, 64))
    with pytest.raises(ValueError, match=rf"M·N·K: expected <= {MAX_ENTRIES}, got {9 * 4096**2}"):
        basis.plot()
    with pytest.raises(ValueError, match=rf"rows and of columns: expected <= {MAX_SIDE}"):
        Grid(offsets=((0,),)).basis((MAX_SIDE + 1,)).restrict(targets=[0]).plot()
    with pytest.raises(ValueError, match="M·N·P·Q"):
        basis.plot("flattenings")
    with pytest.raises(ValueError, match="M·N·P·Q"):
        OuterConv(2, 3, Grid(window=(3, 3), padding=1)).plot((64, 64))
    assert not basis.has_edges  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="M \\+ N·K"):
        Grid(window=(3, 3), padding=1).basis((1000, 1000)).plot("shift")


def test_large_graphs_are_refused() -> None:
    ring = torch.arange(MAX_NODES + 1)
    edges = torch.stack([ring, ring.roll(1)])
    with pytest.raises(ValueError, match=f"limit of nodes: expected <= {MAX_NODES}"):
        GCN().basis(edges).plot("graph")
    full = torch.ones(60, 60).nonzero().T
    with pytest.raises(ValueError, match=f"limit of edges: expected <= {MAX_EDGES}, got 3600"):
        Relation(1, None).basis(full).plot("graph")
    with pytest.raises(ValueError, match=f"limit of labels: expected <= {MAX_LABELS}"):
        Walk(MAX_LABELS).basis(EDGES).plot("graph")
    Walk(MAX_LABELS).basis(EDGES).plot("graph", labels=[MAX_LABELS])


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, kernel: Basis) -> None:
    with pytest.raises(ValueError, match="No such file or directory"):
        kernel.plot(path=tmp_path / "absent" / "a.svg")


def test_pictures_without_matplotlib_name_the_extra() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pyg_outerconv.families import Grid\n"
        "from pyg_outerconv.errors import Refused\n"
        "try: Grid(offsets=((1,),)).basis((3,)).plot()\n"
        "except Refused as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("pip install 'pyg_outerconv[plot]'\n"), done.stderr


def test_drawing_leaves_pyplot_alone() -> None:
    code = (
        "import sys\n"
        "from pyg_outerconv.families import Grid\n"
        "Grid(offsets=((1,),)).basis((3,)).plot()\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "False\n", done.stderr
