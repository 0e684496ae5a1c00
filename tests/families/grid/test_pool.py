"""Pool: equation 5 spelled out, and the sizes of torch's pooling layers."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.nn import functional as F

from pyg_outerconv import Cells, Grid, Pool, parse_family
from pyg_outerconv.testing import assert_near


def test_labels_count_from_the_end_of_a_cluster():
    """A_k[m, n] = 1 iff m = s n − k, with indices that start at 1: s = 3, M = 6, N = 2."""
    dense = Pool((3,)).basis((6,)).to_dense()
    for k in range(3):
        for m in range(1, 7):
            for n in range(1, 3):
                assert dense[k, m - 1, n - 1] == float(m == 3 * n - k)
    assert dense[0, :, 0].tolist() == [0, 0, 1, 0, 0, 0], "label 0 is the last cell"


def test_places_of_two_axes_are_pairs_of_places():
    pool = Pool((2, 3))
    dense = pool.basis((4, 6)).to_dense()
    along = [Pool((2,)).basis((4,)).to_dense(), Pool((3,)).basis((6,)).to_dense()]
    expected = [torch.kron(a, b) for a in along[0] for b in along[1]]
    assert_near(dense, torch.stack(expected))
    assert pool.labels[:4] == tuple(
        f"place {place} from the end" for place in ("(0, 0)", "(0, 1)", "(0, 2)", "(1, 0)")
    )


def test_pool_is_the_kernel_of_a_grid_from_its_end():
    pool = Pool((3, 2), (2, 1), (1, 0), (1, 2)).basis((5, 6))
    grid = Grid((3, 2), (2, 1), (1, 0), (1, 2)).basis((5, 6))
    assert_near(pool.to_dense(), grid.to_dense().flip(0))


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


def test_the_last_cluster_begins_in_the_grid_or_before_it():
    assert Pool((2,), 3, ceil_mode=True).output_shape((3,)) == (1,)
    assert Pool((2,), 3, ceil_mode=True).output_shape((4,)) == (2,)
    assert Pool((2,), 2, ceil_mode=True).output_shape((5,)) == (3,)
    assert Pool((2,), 2).output_shape((5,)) == (2,)


def test_unpooling_is_the_transpose():
    basis = Pool((2, 2)).basis((4, 4)).transpose()
    x = torch.randn(1, 1, 2, 2)
    found = torch.einsum("kmn,m->n", basis.to_dense(), x.flatten())
    assert_near(found.view(1, 1, 4, 4), F.interpolate(x, scale_factor=2, mode="nearest"))


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


def test_text_names_pools():
    assert parse_family("pool((2, 2), stride=1)") == Pool((2, 2), stride=1)
    assert parse_family(repr(Pool(2, dim=3))) == Pool(2, dim=3)
