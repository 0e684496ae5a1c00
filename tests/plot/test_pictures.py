"""What a picture shows is what the basis says: arrays, cells and colours are read back from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fresh import Fresh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from torch_geometric.datasets import KarateClub

from pyg_outerconv import OuterConv, nn
from pyg_outerconv.basis import Basis, EdgeBasis
from pyg_outerconv.basis.products import Composed, Kronecker
from pyg_outerconv.families import GCN, Grid, Identity, Pool, Relation, Stack, Walk
from pyg_outerconv.plot.canvas import ABSENT, MARK, MAX_ENTRIES, REACHED
from pyg_outerconv.plot.graph import MAX_EDGES
from pyg_outerconv.plot.layout import MAX_NODES, PART

pytestmark = pytest.mark.pages

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


def test_a_notebook_shows_the_picture_that_is_written(labelled: Basis, tmp_path: Path) -> None:
    labelled.plot(path=tmp_path / "basis.png")
    assert labelled.plot()._repr_png_() == (tmp_path / "basis.png").read_bytes()


def test_titles_say_what_labels_mean(kernel: Basis, labelled: Basis) -> None:
    named = [panel.get_title() for panel in panels(kernel.plot())]  # type: ignore[attr-defined]
    assert named == list(Grid(window=(3, 3), padding=1).labels)
    told = labelled.plot(titles=["sees", "knows", "likes"], labels=[2, 0])
    assert [panel.get_title() for panel in panels(told)] == ["likes", "sees"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("labels", [[2], 2, -1, slice(2, None), [False, False, True]])
def test_chosen_labels_alone_are_drawn_given_as_select_takes_them(
    labelled: Basis, labels: Any
) -> None:
    (shown,) = images(labelled.plot(labels=labels))
    assert np.array_equal(shown.filled(0), labelled.to_dense()[2].numpy())
    titles = [one.get_title() for one in labelled.plot("graph", labels=labels).axes]
    assert list(filter(None, titles)) == ["k = 2"]


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


KERNEL = Grid(window=(3, 3), padding=1).basis((4, 5))
ROWS, COLUMNS = (Grid(offsets=((1,),)).basis((n,)) for n in (4, 5))


@pytest.mark.parametrize(
    ("basis", "shape"),
    [
        (Grid(offsets=((2, 4), (0, -1))).basis((8, 10)), (8, 10)),
        (Pool((2, 2)).basis((4, 6)), (2, 3)),
        (Grid(offsets=((1, 0, 0),)).basis((2, 3, 4)), (6, 4)),  # slices stand below each other
        (Grid(offsets=((1,),)).basis((5,)), (1, 5)),
        (KERNEL.scale(0.5), (4, 5)),
        (KERNEL.select([8, 0]), (4, 5)),
        (KERNEL.T, (4, 5)),
        (KERNEL.select([1, 2]).stack(KERNEL.select([0])), (4, 5)),
        (Composed(KERNEL.select([0]), KERNEL.select([1])), (4, 5)),
        (Kronecker(ROWS, COLUMNS), (4, 5)),
        (KERNEL.edges(), (4, 5)),  # which is said to be on a grid
    ],
    ids=str,
)
def test_an_output_has_the_number_of_the_input_that_it_sees(
    basis: Basis, shape: tuple[int, int]
) -> None:
    options = {"inputs": shape} if isinstance(basis, EdgeBasis) else {}
    input_image, *output_images = images(basis.plot("shift", **options))
    numbers = torch.arange(1.0, basis.size[0] + 1)
    assert np.array_equal(input_image.ravel() + 1, numbers.numpy())
    for image, matrix in zip(output_images, basis.support().float(), strict=True):
        assert image.shape == shape
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
    across = nodes.get_offsets()[:, 0]
    assert len({*across[:3]}) == len({*across[3:]}) == 1
    assert across[0] < across[3]


# Flattenings --------------------------------------------------------------------------------


def test_flattenings_of_a_layer_are_its_dense_forms() -> None:
    conv = OuterConv(2, 3, Walk(2), theta="low-rank(rank=1)").double()
    hat, check = images(nn.plot_phi(conv, EDGES))
    assert np.array_equal(hat.filled(0), nn.phi_hat(conv, EDGES).detach().numpy())
    assert np.array_equal(check.filled(0), nn.phi_check(conv, EDGES).detach().numpy())


def test_of_large_flattenings_the_norms_of_blocks_are_drawn() -> None:
    index = KarateClub()[0].edge_index
    conv = OuterConv(34, 16, "gcn").double()
    blocks = nn.quadri_tensor(conv, index).detach()
    nodes, channels = images(nn.plot_phi(conv, index))
    assert np.allclose(nodes.filled(0), blocks.permute(0, 1, 2, 3).square().sum((2, 3)).sqrt())
    assert np.allclose(channels.filled(0), blocks.square().sum((0, 1)).sqrt())


def test_a_layer_of_means_is_drawn_as_it_is() -> None:
    conv = OuterConv(2, 3, Relation(3, None), aggr="mean", label_aggr="mean").double()
    hat, _ = images(nn.plot_phi(conv, EDGES, edge_type=TYPES))
    assert np.array_equal(hat.filled(0), nn.phi_hat(conv, EDGES, edge_type=TYPES).detach().numpy())


def test_flattenings_of_a_basis_are_those_of_a_layer_with_the_same_parameters() -> None:
    conv = OuterConv(2, 3, Walk(2), bias=False).double()
    theta = conv.theta()[:, 0]
    hat, check = images(Walk(2).basis(EDGES, dtype=torch.double).plot("flattenings", theta=theta))
    assert np.allclose(hat.filled(0), nn.phi_hat(conv, EDGES).detach().numpy(), atol=1e-12)
    assert np.allclose(check.filled(0), nn.phi_check(conv, EDGES).detach().numpy(), atol=1e-12)


def test_parameters_that_nobody_gave_follow_the_seed(kernel: Basis) -> None:
    one, again, other = (images(kernel.plot("flattenings", seed=s))[0] for s in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    assert images(kernel.plot("flattenings", channels=(4, 1)))[0].shape == (80, 20)


# Graphs -------------------------------------------------------------------------------------

SIGNED = torch.tensor([[0, 1, 2, 3, 2], [1, 0, 0, 2, 2]])
SIGNED_VALUES = torch.tensor([1.0, 1.0, -2.0, 0.5, 3.0])


@pytest.fixture
def signed() -> Basis:
    """A pair of equal values both ways, a negative edge, a small one and a self-loop."""
    return Relation(1, None).basis(SIGNED, SIGNED_VALUES)


def drawn(axes: object, kind: str) -> list[object]:
    """The lines, arrows or loops of a panel."""
    return [patch for patch in axes.patches if patch.get_gid() == kind]  # type: ignore[attr-defined]


def places(axes: object) -> np.ndarray:
    return np.asarray(axes.collections[0].get_offsets())  # type: ignore[attr-defined]


def radii(axes: object) -> float:
    return float(axes.collections[0].get_widths()[0]) / 2  # type: ignore[attr-defined]


def test_every_label_has_a_panel_with_its_edges_in_one_layout(labelled: Basis) -> None:
    titles = ["sees", "knows", "likes"]
    *shown, bar = labelled.plot("graph", layout="circle", titles=titles).axes
    assert [axes.get_title() for axes in shown] == titles
    assert bar.get_ylabel() == "A[k, m, n]"
    count = labelled.edges().label.bincount().tolist()
    assert [len(axes.patches) for axes in shown] == count
    assert all(np.array_equal(places(axes), places(shown[0])) for axes in shown)


def test_lines_go_both_ways_arrows_one_and_loops_stand_beside_their_node(signed: Basis) -> None:
    axes = signed.plot("graph").axes[0]
    at, radius = places(axes), radii(axes)
    (line,), (loop,) = drawn(axes, "line"), drawn(axes, "loop")
    assert np.allclose(sorted(map(tuple, line._posA_posB)), sorted(map(tuple, at[:2])))  # type: ignore[attr-defined]
    arrows = drawn(axes, "arrow")
    assert all(isinstance(arrow, FancyArrowPatch) for arrow in arrows)
    ends = {
        tuple(np.linalg.norm(at - end, axis=1).argmin() for end in a._posA_posB) for a in arrows
    }  # type: ignore[attr-defined]
    assert ends == {(2, 0), (3, 2)}
    assert isinstance(loop, Circle)
    distance = np.linalg.norm(at - loop.center, axis=1)
    assert distance[2] == pytest.approx(radius + loop.radius)
    assert (np.delete(distance, 2) > radius + loop.radius).all()


def test_colours_and_widths_follow_values_and_negative_edges_are_dashed(signed: Basis) -> None:
    axes, bar = signed.plot("graph").axes
    looks = [
        (patch.get_linewidth(), patch.get_linestyle() == "--", to_hex(patch.get_edgecolor()))
        for patch in axes.patches
    ]
    widths, dashed, colours = zip(*sorted(looks), strict=True)
    assert len(set(widths)) == len(set(colours)) == 4
    assert dashed == (False, False, True, False)  # 0.5, 1, -2, 3
    assert bar.get_ylim() == (-3, 3)


def no_two_touch(axes: object) -> bool:
    at = places(axes)
    distance = np.linalg.norm(at[:, None] - at, axis=-1)
    np.fill_diagonal(distance, np.inf)
    return bool(distance.min() > 2 * radii(axes))


@pytest.mark.parametrize("layout", ["spring", "circle"])
def test_nodes_do_not_overlap(layout: str) -> None:
    star = torch.stack([torch.zeros(90, dtype=torch.long), torch.arange(1, 91)])
    for index in (KarateClub()[0].edge_index, star, torch.empty(2, 0, dtype=torch.long)):
        nodes = 3 if index.numel() == 0 else None
        size = None if nodes is None else (nodes, nodes)
        axes = GCN().basis(index, size=size).plot("graph", layout=layout).axes[0]
        assert no_two_touch(axes)


def test_the_same_seed_gives_the_same_layout() -> None:
    basis = GCN().basis(KarateClub()[0].edge_index)
    one, again, other = (places(basis.plot("graph", seed=s).axes[0]) for s in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_cells_of_a_grid_stand_where_they_are() -> None:
    at = places(Grid(offsets=((0, 1),)).basis((3, 4)).plot("graph").axes[0]).reshape(3, 4, 2)
    assert np.allclose(np.diff(at[..., 0], axis=1), 0.5)
    assert np.allclose(np.diff(at[..., 1], axis=0), -0.5)


def test_classes_are_colours_of_nodes_with_a_legend() -> None:
    graph = KarateClub()[0]
    classes = graph.y.clone()
    classes[5] = -1  # unknown
    figure = GCN().basis(graph.edge_index).plot("graph", classes=classes)
    fills = [to_hex(fill) for fill in figure.axes[0].collections[0].get_facecolors()]
    assert fills[5] == "#ffffff"
    (legend,) = figure.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert said == [*(f"class {k}" for k in range(4)), "no class"]
    named = [to_hex(line.get_color()) for line in legend.get_lines()]
    assert all(fill == named[k] for fill, k in zip(fills, classes.tolist(), strict=True) if k >= 0)
    with pytest.raises(ValueError, match=r"a class each: expected \(34,\), got \(3,\)"):
        GCN().basis(graph.edge_index).plot("graph", classes=classes[:3])


def test_a_class_has_one_colour_in_all_parts_of_a_graph() -> None:
    basis, classes = GCN().basis(ring(300)), np.arange(300) // 50
    legends = [
        basis.plot("graph", around=node, classes=classes, labels=[0]).legends[0]
        for node in (10, 99, 180)
    ]
    colours: dict[str, set[str]] = {}
    for legend in legends:
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True):
            colours.setdefault(text.get_text(), set()).add(to_hex(line.get_color()))
    assert set(colours) == {f"class {k}" for k in (0, 1, 2, 3, 5)}
    assert all(len(each) == 1 for each in colours.values())
    assert len(set.union(*colours.values())) == 5


def ring(count: int) -> torch.Tensor:
    one = torch.arange(count)
    return torch.stack([one, one.roll(1)])


def test_of_a_large_graph_a_part_is_drawn_and_the_title_says_which() -> None:
    basis = GCN(add_self_loops=False).basis(ring(3000))
    figure = basis.plot("graph", around=700)
    numbers = sorted(int(text.get_text()) for text in figure.axes[0].texts)
    assert numbers == list(range(numbers[0], numbers[0] + PART))
    assert numbers[0] < 700 < numbers[-1]
    assert figure.get_suptitle() == f"node 700 and what is nearest: {PART} of 3000 nodes"
    assert len(figure.axes[0].patches) == PART - 1
    assert len(places(basis.plot("graph").axes[0])) == PART
    whole = GCN().basis(ring(MAX_NODES)).plot("graph")
    assert len(places(whole.axes[0])) == MAX_NODES
    assert whole.get_suptitle() == ""
    with pytest.raises(IndexError, match="below 3000, got 3000"):
        basis.plot("graph", around=[3000])


def test_the_nodes_in_the_middle_of_a_part_are_framed() -> None:
    axes = GCN().basis(ring(300)).plot("graph", around=[7, 120]).axes[0]
    numbers = [int(text.get_text()) for text in axes.texts]
    frames = [to_hex(colour) == MARK for colour in axes.collections[0].get_edgecolors()]
    assert [n for n, framed in zip(numbers, frames, strict=True) if framed] == [7, 120]


def test_of_many_edges_the_largest_are_drawn_and_the_title_counts_the_others() -> None:
    full = torch.ones(60, 60).nonzero().T
    weight = torch.rand(full.size(1)) + torch.arange(full.size(1))
    axes = Relation(1, None).basis(full, weight).plot("graph").axes[0]
    assert len(axes.patches) <= 60 * MAX_EDGES
    assert axes.get_title().endswith(f", {3600 - 60 * MAX_EDGES} smaller edges left out")


def test_labels_beyond_the_panels_are_counted() -> None:
    figure = Walk(20).basis(EDGES).plot("graph")
    assert figure.get_suptitle() == "16 of 21 labels; 5 left out"
    (axes, _) = Walk(20).basis(EDGES).plot("graph", labels=[20]).axes
    assert axes.get_title() == "k = 20"


def test_of_many_labels_those_with_the_largest_values_in_the_part_are_drawn() -> None:
    index = torch.cat([ring(400)] * 2, 1)
    types = torch.cat([torch.arange(400) // 10, torch.full((400,), 41)])
    weight = torch.cat([torch.ones(400), torch.full((400,), 0.5)])
    figure = Relation(42, None).basis(index, weight, types).plot("graph", around=205)
    *panels_, _ = figure.axes
    titles = [axes.get_title() for axes in panels_]
    assert titles == [f"k = {k}" for k in (18, 19, 20, 21, 22, 41)]
    assert figure.get_suptitle().startswith("6 of 42 labels; 36 left out, 36 without an edge here;")
    widths = {patch.get_linewidth() for patch in panels_[2].patches}
    (thin,) = {patch.get_linewidth() for patch in panels_[-1].patches}
    assert widths == {2.5}
    assert thin == pytest.approx(0.6 + 1.9 * 0.5)  # on one scale with other panels


def test_a_receptive_field_of_a_large_graph_draws_what_is_reached() -> None:
    axes = GCN(add_self_loops=False).basis(ring(3000)).plot("receptive-field", cell=9).axes[0]
    assert len(places(axes)) == 2
    assert axes.get_title() == "output 9: reached by 1 of 3000 inputs; 2 of 3000 nodes are drawn"


def test_a_graph_without_edges_is_drawn() -> None:
    figure = GCN(add_self_loops=False).basis(torch.empty(2, 0).long(), size=(3, 3)).plot("graph")
    assert len(places(figure.axes[0])) == 3
    assert not figure.legends


# Files --------------------------------------------------------------------------------------


def test_a_picture_is_replaced_as_a_whole_or_stays(
    labelled: Basis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, link = tmp_path / "kept.svg", tmp_path / "link.svg"
    labelled.plot(path=target)
    link.symlink_to(target)
    before = target.read_bytes()
    labelled.plot("graph", link)
    assert link.is_symlink()
    after = target.read_bytes()
    assert after != before

    def full(*names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(ValueError, match="a writable path, got .*kept.svg: No space left"):
        labelled.plot(path=target)
    assert target.read_bytes() == after
    assert sorted(tmp_path.iterdir()) == [target, link]


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
    nn.plot_phi(OuterConv(2, 3, "gcn"), EDGES, path=tmp_path / "phi.svg")
    assert b"hat" in (tmp_path / "phi.svg").read_bytes()


# Refusals -----------------------------------------------------------------------------------


def test_too_many_entries_are_refused_before_there_are_edges() -> None:
    basis = Grid(window=(3, 3), padding=1).basis((64, 64))
    with pytest.raises(ValueError, match=rf"M·N·K: expected <= {MAX_ENTRIES}, got {9 * 4096**2}"):
        basis.plot()
    assert not basis.has_edges  # type: ignore[attr-defined]


def test_pictures_without_matplotlib_name_the_extra(fresh: Fresh) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pyg_outerconv.families import Grid\n"
        "from pyg_outerconv.errors import Refused\n"
        "try: Grid(offsets=((1,),)).basis((3,)).plot()\n"
        "except Refused as error: print(error)\n"
    )
    done = fresh(code)
    assert done.stdout.endswith("pip install 'pyg_outerconv[plot]'\n"), done.stderr


def test_drawing_leaves_pyplot_alone(fresh: Fresh) -> None:
    code = (
        "import sys\n"
        "from pyg_outerconv.families import Grid\n"
        "Grid(offsets=((1,),)).basis((3,)).plot()\n"
        "print('matplotlib.pyplot' in sys.modules)\n"
    )
    done = fresh(code)
    assert done.stdout == "False\n", done.stderr
