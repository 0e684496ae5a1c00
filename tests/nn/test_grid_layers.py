"""Layers that take images: equal to torch's, and under torch's own machinery."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from contractions import normal
from oracle import assert_same
from torch import nn

from pyg_outerconv.graph import Cells
from pyg_outerconv.nn import FORMS, GridConv, GridPool, GridUnpool
from pyg_outerconv.nn.grids import GRIDS
from pyg_outerconv.nn.theta import GroupedTheta
from pyg_outerconv.testing import assert_near, dense_contraction

SHAPES = [(6,), (5, 6), (3, 4, 5), (2, 3, 2, 3)]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def nodes(x, axes):
    return x.flatten(-axes).transpose(-1, -2)


# GridConv -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
@each_shape
def test_images_of_any_number_of_axes_equal_the_dense_form(shape, transposed):
    conv = GridConv(2, 3, 2, stride=2, padding=1, transposed=transposed, dim=len(shape)).double()
    x = normal(2, 2, *shape)
    rule = conv.rule(x)
    dense = dense_contraction(rule, nodes(x, len(shape)).movedim(-2, 0), conv.theta())
    expected = dense.movedim(0, -1).unflatten(-1, rule.output_shape)
    expected = expected + conv.bias.view(-1, *(1,) * len(shape))
    assert_same(conv(x), expected, [x, conv.theta.weight, conv.bias])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_seed_gives_the_initial_weights_of_torch(dim, groups, transposed):
    name = f"ConvTranspose{dim}d" if transposed else f"Conv{dim}d"
    torch.manual_seed(5)
    theirs = getattr(nn, name)(4, 6, 3, groups=groups)
    after = torch.rand(1)
    torch.manual_seed(5)
    ours = GridConv(4, 6, 3, groups=groups, transposed=transposed, dim=dim)
    assert torch.equal(torch.rand(1), after)
    x = torch.randn(2, 4, *(5,) * dim)
    assert_near(ours(x), theirs(x))
    assert torch.equal(ours.bias, theirs.bias)


def test_torchs_weights_are_a_view_of_theta():
    conv = GridConv(4, 6, 3, groups=2, dim=2)
    conv(torch.randn(1, 4, 5, 5)).sum().backward()
    torch.optim.Adam(conv.parameters()).step()
    for same in (conv, copy.deepcopy(conv), pickle.loads(pickle.dumps(conv)), conv.double()):
        weight = same.theta.weight.permute(1, 3, 2, 0).reshape(6, 2, 3, 3)
        assert weight.data_ptr() == same.theta.weight.data_ptr()
        assert weight.is_contiguous()


def test_nodes_and_a_shape_are_images():
    conv, x = GridConv(2, 3, 3, padding=1, dim=2).double(), normal(2, 2, 4, 5)
    assert_near(conv(nodes(x, 2), (4, 5)), nodes(conv(x), 2))
    assert conv.basis(nodes(x, 2), (4, 5)).size == conv.basis(x).size == (20, 20)


def test_listed_cells_are_where_missing_ones_are_zero():
    conv = GridConv(2, 3, 3, padding=1, dim=2).double()
    mask = torch.rand(6, 7) < 0.4
    x = torch.where(mask, normal(2, 6, 7), 0.0)
    out = conv(x[:, mask].t(), mask)
    assert_near(out, conv(x)[:, mask].t())
    assert_near(conv(x[:, mask].t(), Cells.of_mask(mask)), out)


def test_grids_of_a_batch_have_cells_of_their_own():
    conv = GridConv(2, 3, 3, padding=1, dim=2).double()
    mask = torch.rand(3, 5, 5) < 0.5
    x = torch.where(mask.unsqueeze(1), normal(3, 2, 5, 5), 0.0)
    out = conv(x.movedim(1, -1)[mask], Cells.of_mask(mask, batched=True))
    assert_near(out, conv(x).movedim(1, -1)[mask])


def test_the_choice_shows_and_no_edges_are_made():
    conv, x = GridConv(8, 8, 3, padding=1, dim=2), torch.randn(2, 8, 32, 32)
    path = conv.contraction_path(x)
    assert path.chosen == ["convolution"]
    assert not conv.rule(x).has_edges
    conv.order = "propagate_first"
    assert conv.contraction_path(x).chosen == ["propagate_first"]


def test_means_root_weights_and_messages_go_the_long_way():
    x = normal(2, 2, 5, 5)
    mean = GridConv(2, 3, 3, padding=1, dim=2, label_aggr="mean", bias=False).double()
    plain = GridConv(2, 3, 3, padding=1, dim=2, bias=False).double()
    plain.load_state_dict(mean.state_dict())
    assert_near(mean(x) * 9, plain(x))
    slow = copy.deepcopy(plain)
    slow.fuse = False
    assert_near(slow(x[0]), plain(x[0]))
    rooted = GridConv(2, 3, 3, padding=1, dim=2, root_weight=True, bias=False).double()
    rooted.theta.load_state_dict(plain.theta.state_dict())
    rest = rooted(x) - plain(x)
    assert_near(rest, torch.einsum("bchw,cd->bdhw", x, rooted.root()[0, 0]), at_least=1.0)


# Rules that a layer keeps -------------------------------------------------------------------------


def test_rules_are_kept_bounded_and_no_state():
    conv, pool = GridConv(1, 1, 3, dim=1), GridPool(2, dim=1)
    for layer in (conv, pool):
        for size in range(3, 5 + GRIDS):
            layer(torch.randn(1, size))
        x = torch.randn(1, 4 + GRIDS)
        assert layer.rule(x) is layer.rule(x)
        assert len(layer._rules) == GRIDS
        assert not any("rule" in name for name in layer.state_dict())
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert len(other._rules) == 0
            assert_near(other(x), layer(x))


# GridPool and GridUnpool --------------------------------------------------------------------------


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@each_shape
def test_pools_of_any_number_of_axes(shape, aggr):
    pool = GridPool(2, stride=1, padding=1, aggr=aggr, dim=len(shape))
    x = normal(2, *shape)
    padded = F.pad(x, (1, 1) * len(shape), value=float("nan"))
    windows = padded
    for axis in range(1, 1 + len(shape)):
        windows = windows.unfold(axis, 2, 1)
    windows = windows.flatten(1 + len(shape))
    rest = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf}[aggr]
    windows = torch.where(windows.isnan(), rest, windows)
    expected = getattr(windows, {"max": "amax", "min": "amin"}.get(aggr, aggr))(-1)
    assert_near(pool(x), expected)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_listed_cells_pool_what_is_there(aggr):
    pool = GridPool(2, aggr=aggr, count_include_pad=False, dim=2)
    mask = torch.rand(6, 8) < 0.5
    mask[:2, :2] = False
    x = normal(3, 6, 8)
    rest = {"sum": 0.0, "mean": 0.0, "max": -torch.inf, "min": torch.inf}[aggr]
    blocks = torch.where(mask, x, rest).unflatten(2, (4, 2)).unflatten(1, (3, 2))
    blocks = blocks.transpose(2, 3).flatten(3)  # (3, 3, 4, 2, 2) to (3, 3, 4, 4)
    there = mask.unflatten(1, (4, 2)).unflatten(0, (3, 2)).sum((1, 3))
    how = {"max": "amax", "min": "amin"}.get(aggr, "sum")
    expected = getattr(blocks.reshape(3, 3, 4, -1), how)(-1)
    expected = expected / there.clamp(min=1) if aggr == "mean" else expected
    outputs = pool.family.outputs(mask).index
    actual = pool(x[:, mask].t(), mask)
    assert len(actual) == int((there > 0).sum())
    assert_near(actual, expected[:, outputs[:, 0], outputs[:, 1]].t())


@pytest.mark.parametrize("size", [2, 3, (2, 3)], ids=str)
def test_unpooling_is_nearest_interpolation(size):
    x = normal(2, 3, 4, 5)
    unpool = GridUnpool(size, dim=2)
    expected = F.interpolate(x, scale_factor=size, mode="nearest")
    for order in (None, "propagate_first", "convolution"):
        unpool.order = order
        assert_same(unpool(x), expected, [x])


def test_unpooling_is_the_transpose_of_the_sum():
    pool, unpool = (kind(3, 2, 1, dim=2) for kind in (GridPool, GridUnpool))
    pool.aggr = "sum"
    x = normal(2, 3, 7, 6)
    y = torch.randn_like(pool(x))
    back = unpool(y, output_size=(7, 6))
    assert_near((pool(x) * y).sum(), (x * back).sum())
    assert_near(back, torch.autograd.grad(pool(x), x, y)[0])
    assert unpool(y).shape == (2, 3, 7, 5)
    mask = torch.rand(7, 6) < 0.5
    listed = torch.randn(pool.family.outputs(mask).num_cells, 3, dtype=torch.float64)
    assert unpool(listed, mask).shape == (int(mask.sum()), 3)
    with pytest.raises(ValueError, match="clusters must be the cells of the input"):
        unpool(y, output_size=(9, 9))


def test_an_image_that_is_too_small_leaves_a_lazy_layer_lazy():
    layer = GridConv(-1, 4, 3, dim=2)
    with pytest.raises(ValueError, match="must fit"):
        layer(torch.randn(1, 2, 2, 2))
    with pytest.raises(ValueError, match="needs a grid of as many axes"):
        layer(torch.randn(5, 2), (5,))
    assert layer.theta.in_channels == -1
    assert layer(torch.randn(1, 3, 5, 5)).shape == (1, 4, 3, 3)


def test_an_optimiser_that_was_made_before_the_first_image_trains_a_lazy_layer():
    layer = GridConv(-1, 4, 3, dim=2)
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
    loss = layer(torch.randn(2, 3, 5, 5)).square().sum()
    before = layer.theta.weight.detach().clone()
    loss.backward()
    optimiser.step()
    assert (layer.theta.weight != before).any()


def test_parametrizations_leave_the_forms_of_theta_alone():
    image = torch.randn(2, 3, 5, 5)
    for _ in range(2):
        layer = GridConv(3, 4, 3, dim=2)
        before = layer(image)
        torch.nn.utils.parametrizations.weight_norm(layer.theta, "weight")
        assert_near(layer(image), before)
    assert FORMS["grouped"] is GroupedTheta


@pytest.mark.parametrize("aggr", ["max", "min", "sum", "mean"])
def test_poolings_show_the_order_that_they_take(aggr):
    image, mask = torch.randn(8, 3, 32, 32), torch.rand(32, 32) < 0.1
    for order in ("pooling", "all_edges"):
        layer = GridPool(2, dim=2, aggr=aggr, order=order)
        assert layer.contraction_path(image).chosen == [order]
    free = GridPool(2, dim=2, aggr=aggr)
    assert free.contraction_path(torch.randn(int(mask.sum()), 3), mask).chosen != ["pooling"]
    layer = GridUnpool(2, dim=2, order="all_edges")
    for path in (
        layer.contraction_path(image),
        layer.contraction_path(image, output_size=(65, 64)),
        layer.contraction_path(torch.randn(4, 3), (4, 4)),
    ):
        assert path.chosen == ["all_edges"]
