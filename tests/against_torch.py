"""Comparing layers with torch's: values, gradients of inputs, and gradients of all weights."""

import copy

import torch

from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.testing import assert_near

WEIGHTS = {torch.float64: 1e-10, torch.float32: 5e-5}


def drawn(module):
    """The module with biases and norms that are not what they began as."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def assert_same(ours, theirs, run_ours, run_theirs, inputs, weigh=None):
    """Values, gradients of inputs, and of weights, brought into our layout by conversion."""
    assert_same_weights(ours, theirs)
    actual, expected = run_ours(*inputs), run_theirs(*inputs)
    assert_near(actual, expected)
    direction = torch.randn_like(expected)
    found = torch.autograd.grad(actual, [*inputs, *ours.parameters()], direction)
    wanted = torch.autograd.grad(expected, [*inputs, *theirs.parameters()], direction)
    for gradient, other in zip(found[: len(inputs)], wanted, strict=False):
        assert_near(gradient, other, at_least=0.1)
    holder = copy.deepcopy(theirs)
    with torch.no_grad():
        for parameter, gradient in zip(holder.parameters(), wanted[len(inputs) :], strict=True):
            parameter.copy_(gradient)
    converted = dict(from_torch(holder).named_parameters())
    gradients = zip(ours.named_parameters(), found[len(inputs) :], strict=True)
    largest = max(float(gradient.abs().max()) for gradient in wanted[len(inputs) :])
    for (name, _), gradient in gradients:
        assert_near(gradient, converted[name], WEIGHTS[gradient.dtype], at_least=0.1 * largest)


def assert_same_weights(ours, theirs):
    """Parameters begin as torch's."""
    converted = dict(from_torch(theirs).named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, converted[name]), name
