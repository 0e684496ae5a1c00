"""Layers of torch become layers on grids and back; and what has no equal is refused by name."""

import pytest
import torch
from torch import nn

from pyg_outerconv.nn import GridConv, GridPool, OuterConv
from pyg_outerconv.nn.convert.torch_layers import from_torch, to_torch
from pyg_outerconv.testing import assert_near

POOLINGS = [
    nn.MaxPool1d(3, 2, 1),
    nn.MaxPool2d((2, 3), padding=(1, 0), dilation=(1, 2)),
    nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    nn.MaxPool3d(2),
    nn.AvgPool1d(3, 2, 1, count_include_pad=False),
    nn.AvgPool1d(2, ceil_mode=True),
    nn.AvgPool2d(3),
    nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d((3, 2), (2, 1), (1, 0), ceil_mode=True, count_include_pad=False),
    nn.AvgPool3d(2, 1, 1),
    nn.LPPool1d(1, 3, 2),
    nn.LPPool2d(1, (2, 3)),
    nn.LPPool3d(1, 2),
]


@pytest.mark.parametrize("order", [None, "propagate_first"])
@pytest.mark.parametrize("module", POOLINGS, ids=str)
def test_poolings_are_equal_with_their_gradients(module, order):
    layer = from_torch(module)
    if layer.aggr != "max":
        layer.order = order
    for batch in ((), (2,), (0,)):
        dim = layer.family.num_axes
        x = torch.randn(*batch, 3, *range(7, 7 + dim), dtype=torch.float64, requires_grad=True)
        if isinstance(module, nn.LPPool3d) and not batch:
            continue  # torch takes these with a batch alone
        out, expected = layer(x), module(x)
        assert_near(out, expected)
        direction = torch.randn_like(out)
        found, wanted = (torch.autograd.grad(y, x, direction)[0] for y in (out, expected))
        assert_near(found, wanted)
        assert torch.equal(to_torch(layer)(x), expected)


@pytest.mark.parametrize(
    "module", [*POOLINGS, nn.Conv2d(2, 4, 3, groups=2), nn.ConvTranspose1d(2, 3, 2)], ids=str
)
def test_there_and_back_is_the_same_layer(module):
    again = to_torch(from_torch(module.eval()))
    assert type(again) is type(module)
    assert not again.training
    x = torch.randn(2, 2, *(6,) * from_torch(module).family.num_axes)
    assert torch.equal(again(x), module(x))
    module.train()


def test_a_copy_learns_on_its_own():
    module = nn.Conv1d(2, 3, 3)
    layer = from_torch(module)
    with torch.no_grad():
        layer.theta.weight.zero_()
    assert module.weight.abs().sum() > 0


def test_frozen_weights_stay_frozen():
    module = nn.Conv1d(2, 3, 3)
    module.weight.requires_grad_(False)
    layer = from_torch(module)
    assert [p.requires_grad for p in (layer.theta.weight, layer.bias)] == [False, True]
    again = to_torch(layer)
    assert [p.requires_grad for p in (again.weight, again.bias)] == [False, True]


def test_types_are_kept():
    layer = from_torch(nn.Conv1d(2, 3, 3, dtype=torch.float64, bias=False))
    assert layer.theta.weight.dtype == torch.float64
    assert layer.bias is None
    assert to_torch(layer).weight.dtype == torch.float64


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (GridConv(2, 2, 2, dim=4), "1 to 3 axes, got 4"),
        (GridConv(2, 2, offsets=((0, 0), (1, 2))), "a kernel_size, got offsets"),
        (GridConv(2, 2, 3, padding="causal", dim=1), "both ends, got padding='causal'"),
        (GridConv(2, 2, (3, 3), padding_mode=("zeros", "circular")), "one padding_mode"),
        (GridConv(2, 2, 3, padding="same", transposed=True, dim=1), "numbers of zeros"),
        (GridConv(2, 2, 3, dim=1, theta="low-rank(rank=1)"), "got theta='low-rank'"),
        (GridConv(2, 2, 3, dim=1, label_aggr="mean"), "sums alone"),
        (GridConv(-1, 2, 3, dim=1), "which the first input makes, got none yet"),
        (GridPool(2, aggr="min", dim=1), "got min"),
        (GridPool(2, dim=4), "1 to 3 axes, got 4"),
        (GridPool(2, dilation=2, aggr="mean", dim=1), "dilation for max alone"),
        (GridPool(2, padding=1, aggr="sum", dim=1), "sums without padding"),
        (GridPool(2, ceil_mode=True, aggr="sum", dim=1), "sums without ceil_mode"),
    ],
    ids=str,
)
def test_what_torch_lacks_is_refused(layer, reason):
    with pytest.raises(ValueError) as caught:
        to_torch(layer)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("module", "error", "reason"),
    [
        (nn.Linear(2, 2), TypeError, "got Linear"),
        (nn.MaxPool1d(2, return_indices=True), ValueError, "return_indices"),
        (nn.AvgPool2d(2, divisor_override=3), ValueError, "divisor_override"),
        (nn.LPPool1d(2, 2), ValueError, "norm_type"),
        (nn.LPPool1d(1, 2, ceil_mode=True), ValueError, "ceil_mode"),
        (nn.Conv1d(2, 2, 1, dtype=torch.cfloat), TypeError, "got torch.complex64"),
        (nn.LazyConv1d(2, 2), ValueError, "none yet"),
    ],
    ids=str,
)
def test_what_has_no_equal_here_is_refused(module, error, reason):
    with pytest.raises(error) as caught:
        from_torch(module)
    assert reason in str(caught.value)


def test_other_layers_of_this_package_are_refused():
    with pytest.raises(TypeError, match="got OuterConv"):
        to_torch(OuterConv(2, 2, "gcn"))
