"""Grid and Pool: sizes, signs and names; nn/convert/test_layers.py draws options against torch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional as F

from pyg_outerconv import Cells, Grid, Pool, flatten_grid, parse_family, unflatten_grid
from pyg_outerconv.testing import assert_near


def test_a_shift_moves_what_it_finds():
    x = torch.arange(12.0).view(3, 4)
    for d in itertools.product((-1, 0, 2), repeat=2):
        matrix = Grid(offsets=(d,), padding_mode="circular").basis((3, 4)).to_dense()[0]
        moved = (matrix.t() @ x.flatten()).view(3, 4)
        assert torch.equal(moved, x.roll(d, (0, 1))), "input m goes to output m + d"


def test_weight_j_of_torch_is_the_shift_padding_minus_dilation_j():
    grid = Grid((3, 2), padding=(2, 0), dilation=(2, 3))
    assert grid.shifts == ((2, 0), (2, -3), (0, 0), (0, -3), (-2, 0), (-2, -3))
    assert grid.labels[1] == "shift (2, -3)"
    assert grid.num_bases == len(grid.labels) == 6
    assert Grid((2,)).labels == ("shift (0)", "shift (-1)")


def test_causal_outputs_see_nothing_that_comes_later():
    grid = Grid((3,), padding="causal", dilation=2)
    dense = grid.basis((7,)).to_dense()
    assert grid.output_shape((7,)) == (7,)
    assert float(dense.sum(0).tril(-1).abs().max()) == 0
    assert torch.equal(dense.sum(0)[:, 6], torch.tensor([0.0, 0, 1, 0, 1, 0, 1]))
    assert Grid((3,), 2, "causal").output_shape((7,)) == (4,)


def test_offsets_are_shifts_in_the_paper_s_sign():
    offsets = ((0, 0), (2, -1), (-1, 3))
    grid = Grid(offsets=offsets, stride=(1, 2))
    assert grid.shifts == offsets
    assert grid.output_shape((3, 5)) == (3, 3)
    dense = grid.basis((3, 5)).to_dense()
    for k, (a, b) in enumerate(offsets):
        for m, n in itertools.product(range(15), range(9)):
            at = (m // 5 == n // 3 - a) and (m % 5 == 2 * (n % 3) - b)
            assert dense[k, m, n] == float(at)


def test_offsets_of_a_kernel_are_the_kernel():
    kernel = Grid((3, 3), padding=1, padding_mode="reflect")
    offsets = Grid(offsets=kernel.shifts, padding_mode="reflect")
    assert_near(offsets.basis((3, 4)).to_dense(), kernel.basis((3, 4)).to_dense())


def test_a_transposed_grid_is_the_transpose_of_the_convolution():
    forward, transposed = (
        Grid((3, 2), 2, 1),
        Grid((3, 2), 2, 1, transposed=True, output_padding=(0, 1)),
    )
    assert transposed.output_shape((3, 2)) == (5, 3)
    assert forward.output_shape((5, 3)) == (3, 2)
    basis = transposed.basis((3, 2))
    assert_near(basis.to_dense(), forward.basis((5, 3)).transpose().to_dense())
    offsets = Grid(offsets=((0,), (1,)), stride=3, transposed=True, output_padding=2)
    assert offsets.output_shape((3,)) == (9,)
    assert Grid(offsets=((0,), (1,)), stride=3).output_shape((9,)) == (3,)


def test_an_axis_without_cells_has_no_outputs():
    assert Grid((3, 3), padding=1).output_shape((0, 4)) == (0, 4)
    assert Grid((3, 3), 2).output_shape((0, 4)) == (0, 1)
    assert Grid((3, 3), 2, transposed=True).output_shape((0, 4)) == (0, 9)
    assert Grid(offsets=((1, 1),)).output_shape((0, 4)) == (0, 4)


def test_images_become_nodes_and_images_again():
    images = torch.randn(2, 3, 4, 5)
    nodes = flatten_grid(images)
    assert nodes.shape == (2, 20, 3)
    assert nodes.data_ptr() == images.data_ptr()
    assert torch.equal(nodes[1, 2 * 5 + 3], images[1, :, 2, 3])
    again = unflatten_grid(nodes, (4, 5))
    assert torch.equal(again, images)
    assert again.data_ptr() == images.data_ptr()
    assert flatten_grid(torch.zeros(2, 3, 0, 5)).shape == (2, 0, 3)
    assert unflatten_grid(torch.zeros(2, 0, 3), (0, 5)).shape == (2, 3, 0, 5)


SAME = [
    (Grid([3, 3]), Grid((3, 3))),
    (Grid(torch.tensor([3, 3]), padding=1), Grid((3, 3), padding=1)),
    (Grid((np.int64(3), 3), stride=np.int32(2), dim=np.int64(2)), Grid((3, 3), stride=2, dim=2)),
    (Grid(offsets=(0, 1, -1)), Grid(offsets=((0,), (1,), (-1,)))),
    (Grid(offsets=torch.tensor([0, 1, -1])), Grid(offsets=((0,), (1,), (-1,)))),
    (Grid(offsets=torch.tensor([[0, 1], [2, 0]])), Grid(offsets=((0, 1), (2, 0)))),
    (Pool(np.int64(2), dim=1), Pool(2, dim=1)),
]


@pytest.mark.parametrize(("family", "plain"), SAME, ids=str)
def test_lists_tensors_and_integers_of_numpy_are_tuples_and_integers(family, plain):
    assert family == plain == parse_family(repr(family))
    assert repr(family) == repr(plain)
    assert hash(family) == hash(plain)


def test_integers_serve_all_axes():
    assert Grid(3, 1, 1, dim=2).basis((4, 5)).size == (20, 20)
    assert Grid(3, stride=(1, 2)).num_axes == 2
    assert Grid(3, padding_mode=("zeros", "reflect", "circular")).num_axes == 3


def test_shapes_may_be_tensors():
    family = Grid((3, 3), padding=1)
    expected = family.basis((4, 5)).to_dense()
    assert torch.equal(family.basis(torch.tensor([4, 5])).to_dense(), expected)


def test_listed_cells_are_centred_by_padding():
    cells = Cells(torch.arange(5).view(-1, 1))
    sees = Grid(3, dim=1).basis(cells).to_dense().sum(0)[:, 2]
    assert sees.nonzero().flatten().tolist() == [2, 3, 4]
    for padding in (1, "same"):
        sees = Grid(3, padding=padding, dim=1).basis(cells).to_dense().sum(0)[:, 2]
        assert sees.nonzero().flatten().tolist() == [1, 2, 3]


def test_cells_far_away_are_cells_like_others():
    far = Cells(torch.tensor([[2**60], [2**60 + 1]]))
    grid = Grid(3, padding=1, growth="full", dim=1)
    assert grid.outputs(far).index.flatten().tolist() == [2**60 + d for d in (-1, 0, 1, 2)]
    assert grid.basis(far).num_edges == 6


def test_labels_count_from_the_end_of_a_cluster():
    """A_k[m, n] = 1 iff m = s n − k, with indices that start at 1: s = 3, M = 6, N = 2."""
    dense = Pool((3,)).basis((6,)).to_dense()
    for k in range(3):
        for m in range(1, 7):
            for n in range(1, 3):
                assert dense[k, m - 1, n - 1] == float(m == 3 * n - k)
    assert dense[0, :, 0].tolist() == [0, 0, 1, 0, 0, 0], "label 0 is the last cell"


def test_pool_is_the_kernel_of_a_grid_from_its_end():
    pool = Pool((3, 2), (2, 1), (1, 0), (1, 2)).basis((5, 6))
    grid = Grid((3, 2), (2, 1), (1, 0), (1, 2)).basis((5, 6))
    assert_near(pool.to_dense(), grid.to_dense().flip(0))
    assert Pool((2, 3)).labels[2] == "place (0, 2) from the end"


@st.composite
def options(draw):
    dims = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=dims, max_size=dims)))

    kernel = each(1, 4)
    chosen = {"window": kernel, "stride": draw(st.none() | st.just(each(1, 4)))}
    chosen["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    chosen["dilation"], chosen["ceil_mode"] = each(1, 2), draw(st.booleans())
    return chosen, each(1, 7)


POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


@given(drawn=options())
def test_sizes_and_cells_are_those_of_torch(drawn):
    chosen, shape = drawn
    number = torch.arange(1.0, torch.Size(shape).numel() + 1).view(1, 1, *shape)
    try:
        others = {name: chosen[name] for name in chosen if name != "window"}
        expected = POOL[len(shape)](number, chosen["window"], **others)
    except RuntimeError:
        assume(False)
    pool = Pool(**chosen)
    assert pool.output_shape(shape) == tuple(expected.shape[2:])
    dense = pool.basis(shape).to_dense()
    highest = (dense.sum(0) * number.flatten().unsqueeze(1)).amax(0)
    expected = torch.where(expected.isinf(), 0.0, expected)  # a cluster of padding alone
    assert torch.equal(highest, expected.flatten())


def test_clusters_of_listed_cells_are_those_with_a_cell():
    cells = Cells(torch.tensor([[-1, 0], [4, 5], [5, 5], [0, 0]]))
    pool = Pool((2, 2))
    outputs = pool.outputs(cells)
    assert outputs.index.tolist() == [[-1, 0], [0, 0], [2, 2]]
    basis = pool.basis(cells)
    assert basis.edges().index.tolist() == [[0, 3, 2, 1], [0, 1, 2, 2]]
    assert [pool.labels[k] for k in basis.edges().label.tolist()] == [
        "place (0, 1) from the end",
        "place (1, 1) from the end",
        "place (0, 0) from the end",
        "place (1, 0) from the end",
    ]
