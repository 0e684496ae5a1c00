"""Attention under torch's own machinery, and what it holds."""

import pytest
import torch
from probes import Kept, Largest, Watched
from torch.utils.checkpoint import checkpoint

from pyg_outerconv.families import Causal, Complete, Hops, SlidingWindow
from pyg_outerconv.kernels import BACKENDS
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

EDGES = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0], [1, 2, 3, 0, 2, 1, 1, 2]])
SUPPORTS = [Hops(1), Complete(), Causal(), SlidingWindow(1)]
of_each = pytest.mark.parametrize("support", SUPPORTS, ids=str)


def layer(support, **options):
    return AttentionConv(4, 6, 2, support, **options).double()


def edges_of(support):
    return EDGES if isinstance(support, Hops) else None


def features(*batch):
    return torch.randn(*batch, 5, 4, dtype=torch.float64)


def gradients(run, conv, x):
    conv.zero_grad()
    x = x.clone().requires_grad_()
    out = run(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *[p.grad.clone() for p in conv.parameters()]]


def assert_same(found, expected, tolerance=None):
    for mine, reference in zip(found, expected, strict=True):
        assert_near(mine, reference, tolerance, at_least=0.1)


@of_each
def test_checkpointing_draws_the_same_dropout_again(support):
    conv, edges = layer(support, dropout=0.5), edges_of(support)
    x = features()
    results = []
    for run in (conv, lambda *inputs: checkpoint(conv, *inputs, use_reentrant=False)):
        torch.manual_seed(3)
        results.append(gradients(lambda x, run=run: run(x, edges), conv, x))
    assert_same(results[1], results[0])


# What is held -------------------------------------------------------------------------------------

NODES, COUNT, CHANNELS, HEADS = 50, 8000, 64, 2
ORDERS = (
    "attend_transform_first",
    "attend_propagate_first",
    "heads_transform_first",
    "heads_propagate_first",
)


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_holds_edges_times_channels(order, monkeypatch):
    monkeypatch.setattr("pyg_outerconv.kernels.tiles.TILE_ELEMENTS", 4096)
    watched = Watched(BACKENDS["native"])
    monkeypatch.setitem(BACKENDS, "native", watched)
    conv = AttentionConv(CHANNELS, CHANNELS, HEADS, order=order)
    edges, x = torch.randint(NODES, (2, COUNT)), torch.randn(NODES, CHANNELS, requires_grad=True)
    conv(x, edges)
    inputs = [x, *conv.parameters()]
    with Kept() as kept, Largest() as outside:
        out = conv(x, edges)
        torch.autograd.grad(out.square().sum(), inputs)
    largest = max(watched.nbytes, outside.nbytes)
    assert largest <= COUNT * HEADS * 8  # an integer for each edge and head, at most
    _, held = kept.beside(*inputs)
    numbers = COUNT * HEADS * (4 if order.startswith("heads") else 0)
    assert held <= 4 * (numbers + 12 * NODES * CHANNELS * HEADS)


def test_a_window_holds_numbers_of_nodes_alone():
    nodes, window = 4096, 32
    conv = AttentionConv(16, 16, 2, SlidingWindow(window))
    x = torch.randn(nodes, 16, requires_grad=True)
    with Kept() as kept, Largest() as largest:
        conv(x, None).sum().backward()
    pairs = nodes * (2 * window + 1)
    assert largest.nbytes < pairs * 16 * 4 / 4
    assert kept.beside(x, *conv.parameters())[1] < 4 * nodes * 16 * 16
