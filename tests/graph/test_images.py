"""Unfolding makes an axis the rows, folding undoes it, and images become nodes by it."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyg_outerconv import flatten_grid, unflatten_grid
from pyg_outerconv.graph import fold, unfold

shapes = st.lists(st.integers(0, 4), min_size=1, max_size=5)


def kolda_bader(x, mode):
    """Section 2.4, index by index: i_k − 1 times the product of the sizes before k, but for n."""
    out = torch.empty(x.size(mode), x[(slice(None),) * mode + (0,)].numel(), dtype=x.dtype)
    for index in product(*map(range, x.shape)):
        column, stride = 0, 1
        for axis, place in enumerate(index):
            if axis != mode:
                column, stride = column + place * stride, stride * x.size(axis)
        out[index[mode], column] = x[index]
    return out


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_the_text_has_the_first_axis_run_fastest(mode):
    x = torch.randn(2, 3, 4, 2)
    assert torch.equal(unfold(x, mode, first_fastest=True), kolda_bader(x, mode))


def test_the_example_of_the_text():
    """Its 3 × 4 × 2 tensor with frontal slices 1 … 12 and 13 … 24, written by columns."""
    x = torch.arange(1, 25).view(2, 4, 3).permute(2, 1, 0)
    assert unfold(x, 1, first_fastest=True)[0].tolist() == [1, 2, 3, 13, 14, 15]
    assert unfold(x, 2, first_fastest=True)[1].tolist() == list(range(13, 25))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_last_axis_runs_fastest_otherwise(mode):
    x = torch.randn(2, 3, 4)
    slices = [one.flatten() for one in x.unbind(mode)]
    assert torch.equal(unfold(x, mode), torch.stack(slices))


@given(shapes, st.data(), st.booleans())
def test_folding_undoes_unfolding(shape, data, first_fastest):
    batch_dims = data.draw(st.integers(0, len(shape) - 1))
    rest = shape[batch_dims:]
    mode = data.draw(st.integers(-len(rest), len(rest) - 1))
    options = {"batch_dims": batch_dims, "first_fastest": first_fastest}
    x = torch.randn(shape)
    matrix = unfold(x, mode, **options)
    assert matrix.dim() == batch_dims + 2
    assert torch.equal(fold(matrix, mode, rest, **options), x)


def test_leading_axes_are_a_batch():
    x = torch.randn(5, 2, 3, 4)
    each = torch.stack([unfold(item, 1) for item in x])
    assert torch.equal(unfold(x, 1, batch_dims=1), each)
    assert torch.equal(torch.func.vmap(lambda item: unfold(item, 1))(x), each)


@pytest.mark.parametrize("shape", [(6,), (4, 5), (2, 3, 4)])  # sequences, images, videos
def test_features_of_cells_are_the_unfolding_along_channels(shape):
    images = torch.randn(7, 3, *shape)
    nodes = flatten_grid(images)
    assert torch.equal(unfold(images, 0, batch_dims=1).mT, nodes)
    channels_last = images.movedim(1, -1)
    assert torch.equal(unfold(channels_last, -1, batch_dims=1).mT, nodes)
    folded = fold(nodes.mT, 0, (3, *shape), batch_dims=1)
    assert torch.equal(folded, unflatten_grid(nodes, shape))
    assert torch.equal(fold(nodes.mT, -1, (*shape, 3), batch_dims=1), channels_last)


def test_images_and_videos_are_not_copied():
    for x, mode in ((torch.randn(3, 4, 5), 0), (torch.randn(4, 5, 3), -1), (torch.randn(6), 0)):
        matrix = unfold(x, mode)
        assert matrix.data_ptr() == x.data_ptr()
        assert fold(matrix, mode, x.shape).data_ptr() == x.data_ptr()
    fortran = torch.randn(3, 5, 4).permute(2, 1, 0)
    assert unfold(fortran, 0, first_fastest=True).data_ptr() == fortran.data_ptr()
