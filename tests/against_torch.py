"""Comparing layers with torch's: values, gradients of inputs, and gradients of all weights."""

import copy
from dataclasses import dataclass, field

import torch

from pyg_outerconv.attention import EdgeBias
from pyg_outerconv.families import Relation
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
    actual_gradients = torch.autograd.grad(actual, [*inputs, *ours.parameters()], direction)
    wanted = torch.autograd.grad(expected, [*inputs, *theirs.parameters()], direction)
    for gradient, other in zip(actual_gradients[: len(inputs)], wanted, strict=False):
        assert_near(gradient, other, at_least=0.1)
    holder = copy.deepcopy(theirs)
    with torch.no_grad():
        for parameter, gradient in zip(holder.parameters(), wanted[len(inputs) :], strict=True):
            parameter.copy_(gradient)
    converted = dict(from_torch(holder).named_parameters())
    gradients = zip(ours.named_parameters(), actual_gradients[len(inputs) :], strict=True)
    largest = max(float(gradient.abs().max()) for gradient in wanted[len(inputs) :])
    for (name, _), gradient in gradients:
        assert_near(gradient, converted[name], WEIGHTS[gradient.dtype], at_least=0.1 * largest)


def assert_same_weights(ours, theirs):
    """Parameters begin as torch's."""
    converted = dict(from_torch(theirs).named_parameters())
    for name, parameter in ours.named_parameters():
        assert torch.equal(parameter, converted[name]), name


# Masks -------------------------------------------------------------------------------------------


@dataclass
class Mask:
    """What targets see, as torch's mask (N, M), and in ours.

    Attributes:
        theirs: torch's mask, of booleans or numbers, or None.
        is_causal: whether torch is told that it is causal.
        options: of ``from_torch``.
        edges: what the support reads, or None.
        attr: the numbers of these edges, or None.
    """

    theirs: torch.Tensor | None = None
    is_causal: bool = False
    options: dict = field(default_factory=dict)
    edges: torch.Tensor | None = None
    attr: torch.Tensor | None = None


def drawn_mask(pick, sources, targets, heads):
    """A mask of any kind, in which all targets see source 0."""
    kind = pick.choice(("none", "causal", "causal", "booleans", "numbers"))
    if kind == "none":
        return Mask()
    as_numbers = pick.random() < 0.5
    if kind == "causal":
        hidden = torch.ones(targets, sources).triu(1).bool()
        numbers = torch.zeros(targets, sources).double().masked_fill(hidden, -torch.inf)
        is_causal = sources == targets and pick.random() < 0.5
        return Mask(numbers if as_numbers else hidden, is_causal, {"support": "causal"})
    seen = torch.rand(sources, targets) < 0.5
    seen[0] = True
    edges, options = seen.nonzero().t(), {"support": Relation(1, None)}
    if kind == "booleans":
        return Mask(~seen.t(), False, options, edges)
    numbers = torch.randn(sources, targets).double().masked_fill(~seen, -torch.inf)
    options["terms"] = (EdgeBias(heads),)
    return Mask(numbers.t(), False, options, edges, numbers[seen])


def drawn_padding(pick, like, *batch_and_sources):
    """Our ``source_mask`` and torch's ``key_padding_mask`` of the kind of ``like``, or None."""
    if pick.random() < 0.5:
        return None, None
    there = torch.rand(batch_and_sources) < 0.6
    there[..., 0] = True
    if like is None or like.dtype == torch.bool:
        return there, ~there
    return there, torch.zeros(batch_and_sources).double().masked_fill(~there, -torch.inf)
