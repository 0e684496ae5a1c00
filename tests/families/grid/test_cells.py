"""Listed cells: sparse images, voxels and sequences with holes, against dense grids and loops."""

import itertools
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from pyg_outerconv import Cells, Grid, Pool
from pyg_outerconv.families import Identity, Stack
from pyg_outerconv.graph import Structure
from pyg_outerconv.testing import assert_near, awkward_cells


def places(cells):
    """Each listed cell as (grid, coordinates)."""
    return list(zip(cells.grids().tolist(), map(tuple, cells.index.tolist()), strict=True))


def by_definition(grid, cells, outputs):
    """(K, n, n') ones where output n sees input s·n − d, on a grid without ends."""
    inputs = places(cells)
    dense = torch.zeros(grid.num_bases, len(inputs), outputs.num_cells)
    strides = [window.stride for window in grid.windows]
    for k, shift in enumerate(grid.shifts):
        for n, (number, at) in enumerate(places(outputs)):
            seen = tuple(s * c - d for s, c, d in zip(strides, at, shift, strict=True))
            if (number, seen) in inputs:
                dense[k, inputs.index((number, seen)), n] = 1
    return dense


@st.composite
def points(draw, dims):
    coordinate = st.integers(-4, 4)
    place = st.tuples(st.integers(0, 2), *[coordinate] * dims)
    drawn = draw(st.lists(place, unique=True, max_size=12))
    index = torch.tensor([p[1:] for p in drawn], dtype=torch.long).view(-1, dims)
    batch = torch.tensor([p[0] for p in drawn], dtype=torch.long)
    return Cells(index, batch=batch)


@given(cells=points(2))
def test_submanifold_outputs_see_the_inputs_around_them(cells):
    for grid in (Grid((3, 3), padding=1), Grid((2, 3)), Grid(offsets=((2, -1), (0, 0), (-5, 3)))):
        assert grid.outputs(cells) is cells
        expected = by_definition(grid, cells, cells)
        assert_near(grid.basis(cells).to_dense(), expected)


@given(cells=points(2))
def test_full_growth_has_all_outputs_that_see_an_input(cells):
    for options in (
        {"window": (3, 2), "padding": (1, 0), "stride": (2, 1)},
        {"offsets": ((2, -1), (0, 0), (-5, 3)), "stride": 3},
        {"window": (2, 2), "dilation": 3},
    ):
        grid = Grid(**options, growth="full")
        outputs = grid.outputs(cells)
        assert outputs.shape is None
        cell_places = places(outputs)
        assert cell_places == sorted(set(cell_places)), "grid by grid, then by coordinates"
        assert_near(grid.basis(cells).to_dense(), by_definition(grid, cells, outputs))
        assert set(cell_places) == {
            (number, tuple((c + d) // s for c, d, s in moved))
            for number, at in places(cells)
            for shift in grid.shifts
            for moved in [
                [(c, d, w.stride) for c, d, w in zip(at, shift, grid.windows, strict=True)]
            ]
            if all((c + d) % s == 0 for c, d, s in moved)
        }


@given(cells=points(1))
def test_transposed_growth_spreads_every_input(cells):
    grid = Grid((3,), 2, 1, transposed=True, growth="full")
    outputs = grid.outputs(cells)
    cell_places = places(outputs)
    assert cell_places == sorted(
        {(g, (2 * n - d,)) for g, (n,) in places(cells) for (d,) in grid.shifts}
    )
    forward = Grid((3,), 2, 1)
    assert_near(grid.basis(cells).to_dense(), by_definition(forward, outputs, cells).mT)


@pytest.mark.parametrize(
    "grid",
    [
        Grid((3, 3), padding=1),
        Grid((3, 2), padding="same", padding_mode="circular"),
        Grid((3, 3), padding="causal", padding_mode=("reflect", "replicate")),
        Grid((2, 3), padding="same", dilation=3, padding_mode="reflect"),
        Grid((3, 3), padding=1, transposed=True),
        Grid(offsets=((1, 0), (-3, 2)), padding_mode="circular"),
        Grid((3, 2), 2, 1, growth="full"),
        Grid((2, 3), (2, 1), (1, 1), growth="full", padding_mode="replicate"),
        Grid((2, 3), (1, 2), (0, 1), (2, 1), growth="full", padding_mode="reflect"),
        Grid((2, 2), 2, transposed=True, growth="full"),
        Pool((2, 2)),
        Pool((3, 2), (2, 1), (1, 1), ceil_mode=True),
    ],
    ids=str,
)
def test_listing_every_cell_is_the_full_grid(grid):
    whole = Cells.of_shape((5, 4))
    assert_near(grid.basis(whole.listed()).to_dense(), grid.basis((5, 4)).to_dense())
    outputs = grid.outputs(whole.listed())
    assert outputs.shape == grid.output_shape((5, 4)) == grid.outputs((5, 4)).shape
    assert torch.equal(outputs.index, Cells.of_shape(outputs.shape).listed().index)


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("transposed", [False, True])
def test_submanifold_is_the_masked_dense_form(mode, transposed):
    grid = Grid((3, 2), padding="same", padding_mode=mode, dilation=(1, 2), transposed=transposed)
    mask = torch.rand(4, 5) < 0.5
    active = mask.flatten().nonzero().flatten()
    dense = grid.basis((4, 5)).to_dense()[:, active][:, :, active]
    assert_near(grid.basis(mask).to_dense(), dense)
    mixed = torch.randperm(len(active))
    shuffled = Cells(mask.nonzero()[mixed], (4, 5))
    assert_near(grid.basis(shuffled).to_dense(), dense[:, mixed][:, :, mixed])


@pytest.mark.parametrize("mode", ["zeros", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("transposed", [False, True])
def test_full_growth_is_the_dense_form_without_what_sees_nothing(mode, transposed):
    grid = Grid((3, 2), 2, 1, padding_mode=mode, transposed=transposed, growth="full")
    mask = torch.rand(4, 5) < 0.2
    active = mask.flatten().nonzero().flatten()
    dense = grid.basis((4, 5)).to_dense()[:, active]
    reached = dense.sum((0, 1)).nonzero().flatten()
    assert_near(grid.basis(mask).to_dense(), dense[:, :, reached])
    outputs = grid.outputs(mask)
    assert outputs.shape == grid.output_shape((4, 5))
    assert torch.equal(outputs.index, Cells.of_shape(outputs.shape).listed().index[reached])


def test_neighbours_far_apart_take_no_room():
    """Coordinates of billions: what is made is as large as the edges, not as the box."""
    far = torch.tensor([[0, 0, 0], [0, 0, 1], [10**6, -(10**6), 5], [10**6, 1 - 10**6, 5]])
    basis = Grid((3, 3, 3), padding=1).basis(Cells(far))
    assert basis.num_edges == 4 + 4
    grown = Grid((3, 3, 3), 2, 1, growth="full")
    assert grown.basis(Cells(far)).size[1] == grown.outputs(Cells(far)).num_cells
    too_far = torch.tensor([[0, 0, 0], [2**40, 2**40, 2**40]])
    with pytest.raises(ValueError, match="bounding boxes need cell numbers"):
        Cells(too_far)


def test_short_integers_are_coordinates_too():
    index = torch.tensor([[0, 1], [1, 1]], dtype=torch.int16)
    assert Cells(index).index.dtype == torch.int64
    assert Grid((3, 3), padding=1).basis(Cells(index)).num_edges == 4


def test_a_mask_lists_its_cells_row_by_row():
    mask = torch.tensor([[True, False, True], [False, True, False]])
    cells = Cells.of_mask(mask)
    assert cells.index.tolist() == [[0, 0], [0, 2], [1, 1]]
    assert cells.shape == (2, 3)
    assert cells.size == (3, 3)
    two = Cells.of_mask(torch.stack([mask, ~mask]), batched=True)
    assert two.batch.tolist() == [0] * 3 + [1] * 3
    assert two.shape == (2, 3)
    assert Cells.of_mask(torch.tensor([True, False])).num_axes == 1


def test_cells_of_a_shape_are_listed_when_asked():
    whole = Cells.of_shape((2, 3))
    assert whole.is_full
    assert whole.num_cells == 6
    assert whole.listed().index.tolist() == [list(c) for c in itertools.product(range(2), range(3))]
    assert Cells.of_shape((4,)).listed().index.shape == (4, 1)
    assert Cells.of_shape((2, 0)).listed().index.shape == (0, 2)


def test_cells_move_and_are_pickled():
    cells = awkward_cells()["unbounded batch"]
    assert torch.equal(cells.to("cpu").batch, cells.batch)
    assert Cells.of_shape((2, 2)).to("meta").device.type == "meta"
    again = pickle.loads(pickle.dumps(cells))
    assert torch.equal(again.index, cells.index)
    assert repr(cells) == "Cells(6, 2 axes, 3 grids)"
    assert repr(Cells.of_shape((2, 2))) == "Cells(all, shape=(2, 2))"


# On graphs ---------------------------------------------------------------------------------------


def graphs():
    first = Data(pos=torch.tensor([[0, 0], [0, 1], [5, 5]]), x=torch.randn(3, 2))
    second = Data(pos=torch.tensor([[0, 1], [0, 0]]), x=torch.randn(2, 2))
    return [first, second]


def test_cells_of_a_graph_are_its_positions():
    cells = Cells.of_data(Batch.from_data_list(graphs()))
    assert cells.batch.tolist() == [0, 0, 0, 1, 1]
    assert cells.shape is None
    assert isinstance(Structure.of_data(graphs()[0]), Cells)
    assert Stack(Identity(), Grid((3, 3))).basis_of(graphs()[0]).num_bases == 10


@pytest.mark.parametrize("family", [Grid((2, 2), 2, growth="full"), Pool((2, 2))], ids=str)
def test_targets_of_its_own_are_not_stored_on_a_graph_but_made_of_it(family):
    with pytest.raises(ValueError, match=r"whose targets are the nodes, got .* basis_of\(data\)"):
        family(graphs()[0])
    dense = family.basis_of(Batch.from_data_list(graphs())).to_dense()
    blocks = [family.basis_of(graph).to_dense() for graph in graphs()]
    assert_near(dense, torch.stack([torch.block_diag(a, b) for a, b in zip(*blocks, strict=True)]))
