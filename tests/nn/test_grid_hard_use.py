"""Layers on grids under hard use: refusals leave them as they were, and torch's tools work."""

from __future__ import annotations

import pytest
import torch

from pyg_outerconv.nn import FORMS, GridConv, GridPool, GridUnpool
from pyg_outerconv.nn.theta import GroupedTheta
from pyg_outerconv.testing import assert_near


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


@pytest.mark.parametrize("order", ["pooling", "all_edges", "compare_labels"])
def test_the_gradient_of_equal_cells_goes_to_the_first_of_them(order):
    image = torch.ones(1, 1, 2, 2, requires_grad=True)
    GridPool(2, dim=2, order=order)(image).sum().backward()
    assert image.grad.flatten().tolist() == [1.0, 0.0, 0.0, 0.0]


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
    nodes = torch.randn(int(mask.sum()), 3)
    for order in ("pooling", "all_edges"):
        layer = GridPool(2, dim=2, aggr=aggr, order=order)
        assert [step.chosen for step in layer.contraction_path(image).steps] == [order]
    free = GridPool(2, dim=2, aggr=aggr)
    assert free.contraction_path(nodes, mask).steps[0].chosen != "pooling"


def test_unpooling_shows_the_order_that_it_takes():
    image = torch.randn(2, 3, 4, 4)
    layer = GridUnpool(2, dim=2, order="all_edges")
    assert layer.contraction_path(image).steps[0].chosen == "all_edges"
    assert layer.contraction_path(image, output_size=(9, 8)).steps[0].chosen == "all_edges"
    assert layer.contraction_path(torch.randn(4, 3), (4, 4)).steps[0].chosen == "all_edges"
