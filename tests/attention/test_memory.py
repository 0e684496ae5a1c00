"""No score and no order of attention holds a tensor of edges × channels."""

from functools import partial

import pytest
import torch
from nn.layers import assert_same, results
from probes import Kept, Largest, Watched
from scores import TRIED
from torch.utils.checkpoint import checkpoint

from pyg_outerconv.attention import sums
from pyg_outerconv.families import Causal, Complete, Hops, SlidingWindow
from pyg_outerconv.kernels import BACKENDS, tiles
from pyg_outerconv.nn.attention_conv import AttentionConv

NODES, EDGES, HEADS, D = 40, 6000, 2, 16
NUMBERS = EDGES * HEADS  # one for each edge and head, which are allowed


@pytest.mark.parametrize("text", [*TRIED, "edges in values"])
def test_nothing_is_held_for_edges_but_a_few_numbers(text, monkeypatch):
    for module in (tiles, sums):
        monkeypatch.setattr(module, "TILE_ELEMENTS", 4 * NUMBERS)
    options = {"edge_dim": 2} if text == "edges in values" else {"score": text}
    conv = AttentionConv(HEADS * D, HEADS * D, HEADS, order="heads_transform_first", **options)
    edges = torch.randint(0, NODES, (2, EDGES))
    x = torch.randn(NODES, HEADS * D, requires_grad=True)
    attr = torch.randn(EDGES, 2, requires_grad=True) if "edge" in text else None
    conv(x, edges, edge_attr=attr)  # edges are sorted, and matrices made
    with Kept() as kept:
        out = conv(x, edges, edge_attr=attr)
    with Largest() as largest:
        conv(x, edges, edge_attr=attr).sum().backward()
    out.sum().backward()
    assert largest.nbytes <= 4 * 4 * NUMBERS
    assert max(t.untyped_storage().nbytes() for t in kept._tensors.values()) <= 8 * NUMBERS


@pytest.mark.parametrize("support", [Hops(1), Complete(), Causal(), SlidingWindow(1)], ids=str)
def test_checkpointing_draws_the_same_dropout_again(support):
    conv = AttentionConv(4, 6, 2, support, dropout=0.5).double()
    edges = torch.tensor([[0, 1, 2, 3, 0, 4, 1, 0], [1, 2, 3, 0, 2, 1, 1, 2]])
    arguments, outputs = (edges,) if isinstance(support, Hops) else (), []
    x = torch.randn(5, 4, dtype=torch.float64)
    for run in (conv, partial(checkpoint, conv, use_reentrant=False)):
        torch.manual_seed(3)
        outputs.append(results(conv, {"x": x}, lambda x, run=run: run(x, *arguments)))
    assert_same(*outputs)


# What is held -------------------------------------------------------------------------------------

FEW_NODES, COUNT, CHANNELS, FEW_HEADS = 50, 8000, 64, 2
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
    conv = AttentionConv(CHANNELS, CHANNELS, FEW_HEADS, order=order)
    edges, x = (
        torch.randint(FEW_NODES, (2, COUNT)),
        torch.randn(FEW_NODES, CHANNELS, requires_grad=True),
    )
    conv(x, edges)
    inputs = [x, *conv.parameters()]
    with Kept() as kept, Largest() as outside:
        out = conv(x, edges)
        torch.autograd.grad(out.square().sum(), inputs)
    largest = max(watched.nbytes, outside.nbytes)
    assert largest <= COUNT * FEW_HEADS * 8  # an integer for each edge and head, at most
    _, storage_bytes = kept.beside(*inputs)
    numbers = COUNT * FEW_HEADS * (4 if order.startswith("heads") else 0)
    assert storage_bytes <= 4 * (numbers + 12 * FEW_NODES * CHANNELS * FEW_HEADS)


def test_a_window_holds_numbers_of_nodes_alone():
    nodes, window = 4096, 32
    conv = AttentionConv(16, 16, 2, SlidingWindow(window))
    x = torch.randn(nodes, 16, requires_grad=True)
    with Kept() as kept, Largest() as largest:
        conv(x, None).sum().backward()
    pairs = nodes * (2 * window + 1)
    assert largest.nbytes < pairs * 16 * 4 / 4
    assert kept.beside(x, *conv.parameters())[1] < 4 * nodes * 16 * 16
