"""Layers of torch become layers on grids; and what has no equal is refused by name."""

import pytest
import torch
from torch import nn

from pyg_outerconv.nn.convert import from_torch
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


def test_types_are_kept():
    layer = from_torch(nn.Conv1d(2, 3, 3, dtype=torch.float64, bias=False))
    assert layer.theta.weight.dtype == torch.float64
    assert layer.bias is None
