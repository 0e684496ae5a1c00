"""Attention under torch's own machinery, and what it holds."""

import copy
import pickle

import pytest
import torch
from probes import Kept, Largest, Watched
from torch.func import functional_call, grad, vmap
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


@pytest.mark.slow(cases=2)
@of_each
def test_compile_of_a_used_support_is_one_graph(support):
    conv, x = layer(support), features()
    edges = support.basis(EDGES, size=(5, 5)) if isinstance(support, Hops) else None
    expected = gradients(lambda x: conv(x, edges), conv, x)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    assert_same(gradients(lambda x: compiled(x, edges), conv, x), expected)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("score", ["key-query", "additive"])
def test_compile_of_edges_as_they_are(score):
    conv, x = layer(Hops(1), score=score), features()
    assert_near(torch.compile(conv, backend="eager")(x, EDGES), conv(x, EDGES))


@pytest.mark.parametrize("use_reentrant", [False, True])
@of_each
def test_checkpointing_changes_nothing(support, use_reentrant):
    conv, edges = layer(support), edges_of(support)
    x = features(2)
    expected = gradients(lambda x: conv(x, edges), conv, x)
    run = lambda x: checkpoint(conv, x, edges, use_reentrant=use_reentrant)  # noqa: E731
    assert_same(gradients(run, conv, x), expected)


@of_each
def test_checkpointing_draws_the_same_dropout_again(support):
    conv, edges = layer(support, dropout=0.5), edges_of(support)
    x = features()
    results = []
    for run in (conv, lambda *inputs: checkpoint(conv, *inputs, use_reentrant=False)):
        torch.manual_seed(3)
        results.append(gradients(lambda x, run=run: run(x, edges), conv, x))
    assert_same(results[1], results[0])


@of_each
def test_copies_and_pickles_compute_the_same(support):
    conv, x, edges = layer(support), features(), edges_of(support)
    expected = conv(x, edges)  # and supports are kept now
    for other in (copy.deepcopy(conv), pickle.loads(pickle.dumps(conv))):
        assert_near(other(x, edges), expected)
        assert not {id(p) for p in other.parameters()} & {id(p) for p in conv.parameters()}


@of_each
def test_functional_calls_take_all_parameters(support):
    conv, x, edges = layer(support), features(), edges_of(support)
    parameters = {name: p.detach() for name, p in conv.named_parameters()}

    def loss(parameters, x):
        return functional_call(conv, parameters, (x, edges)).square().sum()

    found = grad(loss, argnums=(0, 1))(parameters, x)
    _, of_x, *of_parameters = gradients(lambda x: conv(x, edges), conv, x)
    assert_near(found[1], of_x)
    for name, expected in zip(parameters, of_parameters, strict=True):
        assert_near(found[0][name], expected, at_least=0.1)
    many = torch.stack([x, 2 * x])
    assert_near(
        vmap(grad(loss, 1), (None, 0))(parameters, many)[1], grad(loss, 1)(parameters, 2 * x)
    )


@of_each
def test_autocast_is_near_float32(support):
    conv, x, edges = layer(support).float(), features().float(), edges_of(support)
    expected = gradients(lambda x: conv(x, edges), conv, x)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(lambda x: conv(x, edges).float(), conv, x)
    assert_same(found, expected, 6e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@of_each
def test_every_floating_point_type(support, dtype):
    conv, x, edges = layer(support), features(), edges_of(support)
    short = copy.deepcopy(conv).to(dtype)(x.to(dtype), edges)
    assert short.dtype == dtype
    assert_near(short, conv(x, edges).to(dtype), at_least=1.0)


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
