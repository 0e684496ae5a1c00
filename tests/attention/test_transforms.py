"""Scores and normalisers under torch.func, and under autocast."""

import pytest
import torch
from torch.func import functional_call, grad, vmap

from pyg_outerconv.attention import NORMALISERS, SCORES
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 2], [1, 2, 3, 4, 0, 2, 0, 0]])
OPTIONS = [{"score": name} for name in SCORES] + [{"normalise": name} for name in NORMALISERS]


def layer(options):
    """A layer of two heads, its parameters, and what it is on x as a function of them."""
    conv = AttentionConv(4, 6, 2, **options).double()
    parameters = dict(conv.named_parameters())
    return conv, parameters, lambda known, x: functional_call(conv, known, (x, EDGES))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_functional_gradients_are_those_of_autograd(options):
    _, parameters, run = layer(options)
    x = torch.randn(5, 4).double()

    def loss(known):
        return run(known, x).square().sum()

    expected = torch.autograd.grad(loss(parameters), list(parameters.values()))
    for found, wanted in zip(grad(loss)(parameters).values(), expected, strict=True):
        assert_near(found, wanted, at_least=1e-3)  # some are 0 but for rounding


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_vmap_is_a_loop_over_items(options):
    conv, parameters, run = layer(options)
    x = torch.randn(3, 5, 4).double()
    found = vmap(lambda one: run(parameters, one))(x)
    assert_near(found, torch.stack([conv(one, EDGES) for one in x]))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_autocast_computes_in_its_type_and_stays_near(options):
    conv = layer(options)[0].float()
    x = torch.randn(5, 4)
    expected = conv(x, EDGES)
    with torch.autocast("cpu", torch.bfloat16):
        found = conv(x, EDGES)
    assert_near(found.float(), expected, 0.1)
    found.float().square().sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in conv.parameters())
