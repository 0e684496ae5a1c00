"""Attention layers of PyG become layers here; and what has no equal is refused by name."""

import copy
import doctest

import pytest
import torch
from against_pyg import EDGES, NODES, D, P, Q
from torch.utils._pytree import tree_leaves, tree_map
from torch_geometric.nn import (
    AGNNConv,
    GATConv,
    GATv2Conv,
    SuperGATConv,
    TransformerConv,
)

from pyg_outerconv.nn.attention.graph_attention import gat_conv
from pyg_outerconv.nn.convert import from_torch
from pyg_outerconv.pyg import convert, outer_conv
from pyg_outerconv.testing import assert_near

F64, PAIR = torch.float64, (P, P + 1)
PAIR_EDGES = torch.tensor([[0, 5, 3, 2, 2, 6, 1], [1, 0, 1, 2, 3, 3, 1]])  # 7 sources, 4 targets


def super_gat(*channels, **options):
    return SuperGATConv(*channels, attention_type="SD", **options)


# A layer of PyG, its channels, and its options.
LAYERS = {
    "gat": (GATConv, P, {}),
    "gat-mean": (GATConv, P, {"concat": False, "bias": False, "negative_slope": 0.5}),
    "gat-no-loops": (GATConv, P, {"add_self_loops": False, "residual": True}),
    "gat-edges": (GATConv, P, {"edge_dim": D, "fill_value": 0.7}),
    "gat-edges-vector": (GATConv, P, {"edge_dim": D, "fill_value": torch.rand(D, dtype=F64)}),
    "gat-pair": (GATConv, PAIR, {"residual": True, "concat": False}),
    "gat-pair-edges": (GATConv, PAIR, {"edge_dim": D, "fill_value": "max"}),
    "gat-equal-pair": (GATConv, (P, P), {}),
    "gatv2": (GATv2Conv, P, {}),
    "gatv2-mean": (GATv2Conv, P, {"concat": False, "bias": False, "negative_slope": 0.5}),
    "gatv2-shared": (GATv2Conv, P, {"share_weights": True, "residual": True}),
    "gatv2-shared-pair": (GATv2Conv, (P, P), {"share_weights": True}),
    "gatv2-pair": (GATv2Conv, PAIR, {"edge_dim": D, "residual": True, "add_self_loops": False}),
    "transformer": (TransformerConv, P, {}),
    "transformer-mean": (TransformerConv, P, {"concat": False, "beta": True, "edge_dim": D}),
    "transformer-beta": (TransformerConv, P, {"beta": True}),
    "transformer-no-root": (TransformerConv, P, {"root_weight": False, "beta": True}),
    "transformer-pair": (TransformerConv, PAIR, {"edge_dim": D, "bias": False}),
    "super-gat": (super_gat, P, {"negative_slope": 0.3}),
    "super-gat-mean": (super_gat, P, {"concat": False, "bias": False, "add_self_loops": False}),
    "super-gat-mx": (SuperGATConv, P, {"attention_type": "MX"}),
    "gat-edges-mean": (GATConv, P, {"edge_dim": D, "concat": False}),
    "gat-edges-no-loops": (GATConv, P, {"edge_dim": D, "add_self_loops": False}),
    "gatv2-edges": (GATv2Conv, P, {"edge_dim": D}),
    "agnn": (AGNNConv, None, {}),
    "agnn-fixed": (AGNNConv, None, {"requires_grad": False, "add_self_loops": False}),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def layer_of(name, channels=None, **further):
    """A layer of PyG in float64, whose parameters are nowhere zero or one."""
    make, known, options = LAYERS[name]
    channels = known if channels is None else channels
    if make is AGNNConv:
        layer = make(**options, **further).double()
    else:
        layer = make(channels, Q, **{"heads": 3, **options, **further}).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            if not torch.nn.parameter.is_lazy(parameter):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def inputs_of(name):
    _, channels, options = LAYERS[name]
    pair = isinstance(channels, tuple)
    edges = PAIR_EDGES if pair else EDGES
    if pair:
        x = torch.randn(7, channels[0], dtype=F64), torch.randn(4, channels[1], dtype=F64)
    else:
        x = torch.randn(NODES, P, dtype=F64)
    attr = torch.randn(edges.size(1), D, dtype=F64) if "edge_dim" in options else None
    given = {"x": x, "edge_index": edges}
    return given if attr is None else {**given, "edge_attr": attr}


@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=str)
@each_layer
@pytest.mark.parametrize("training", [True, False])
def test_values_and_all_gradients_are_pygs(name, training, dtype):
    theirs = layer_of(name).train(training).to(dtype)
    inputs = tree_map(
        lambda x: x.to(dtype).requires_grad_() if x.is_floating_point() else x, inputs_of(name)
    )
    if isinstance(getattr(theirs, "fill_value", None), torch.Tensor):
        theirs.fill_value = theirs.fill_value.to(dtype)
    holder = copy.deepcopy(theirs)  # of gradients where weights were, which become ours alike
    ours, numbers = outer_conv(theirs), [x for x in tree_leaves(inputs) if x.requires_grad]
    assert ours.training is training
    actual, expected = ours(**inputs), theirs(**inputs)
    assert_near(actual, expected)
    direction, its = torch.randn_like(expected), list(theirs.parameters())
    found = torch.autograd.grad(actual, [*numbers, *ours.parameters()], direction)
    wanted = torch.autograd.grad(expected, [*numbers, *its], direction, allow_unused=True)
    with torch.no_grad():
        for parameter, gradient in zip(holder.parameters(), wanted[len(numbers) :], strict=True):
            parameter.copy_(torch.zeros_like(parameter) if gradient is None else gradient)
    in_ours = [*wanted[: len(numbers)], *outer_conv(holder).parameters()]
    for gradient, other in zip(found, in_ours, strict=True):
        assert_near(gradient, other, {torch.float32: 5e-5, F64: 1e-10}[dtype], at_least=0.1)
    ours.fuse = False
    assert_near(ours(**inputs), expected)


@pytest.mark.parametrize("name", [name for name in LAYERS if LAYERS[name][0] is not AGNNConv])
def test_sizes_of_the_first_input_are_taken_over(name):
    channels = (-1, -1) if isinstance(LAYERS[name][1], tuple) else -1
    lazy = {"edge_dim": -1} if "edge_dim" in LAYERS[name][2] else {}
    theirs, inputs = layer_of(name, channels, **lazy), inputs_of(name)
    with pytest.raises(ValueError, match=r"no shapes before the first input"):
        outer_conv(theirs)
    expected = theirs(**inputs)
    assert_near(outer_conv(theirs)(**inputs), expected)


@each_layer
def test_weights_are_copies(name):
    theirs, inputs = layer_of(name), inputs_of(name)
    ours, before = outer_conv(theirs), theirs(**inputs)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.fill_(7.0)
    assert torch.equal(theirs(**inputs), before)
    kept = copy.deepcopy(ours.state_dict())
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.fill_(3.0)
    assert all(torch.equal(value, kept[key]) for key, value in ours.state_dict().items())


@each_layer
def test_type_and_what_is_learned_stay(name):
    theirs = layer_of(name)
    assert all(parameter.dtype == F64 for parameter in outer_conv(theirs).parameters())
    assert all(p.dtype == torch.float32 for p in outer_conv(theirs.float()).parameters())
    used = [p for n, p in theirs.named_parameters() if ours_has(theirs, n)]
    assert len(used) == len(list(outer_conv(theirs).parameters()))
    for only in used:
        theirs.requires_grad_(False)
        only.requires_grad_(True)
        (learned,) = [p for p in outer_conv(theirs).parameters() if p.requires_grad]
        assert_near(learned.sum(), only.sum())
        assert learned.numel() == only.numel()


def ours_has(theirs, name):
    """Whether a parameter of PyG's is used: without a root weight there is a skip that is not."""
    return getattr(theirs, "root_weight", True) or not name.startswith("lin_skip")


def test_a_skip_that_is_never_used_may_be_without_weights():
    theirs, inputs = layer_of("transformer-no-root", -1), inputs_of("transformer-no-root")
    expected = theirs(**inputs)
    assert torch.nn.parameter.is_lazy(theirs.lin_skip.weight)
    assert_near(outer_conv(theirs)(**inputs), expected)


def test_a_vector_for_self_loops_is_a_copy():
    theirs, inputs = layer_of("gat-edges-vector"), inputs_of("gat-edges-vector")
    ours, expected = outer_conv(theirs), theirs(**inputs)
    theirs.fill_value.zero_()
    assert_near(ours(**inputs), expected)


@pytest.mark.parametrize("name", ["gat", "gatv2", "transformer", "super-gat"])
def test_attention_is_dropped_alike(name):
    ours = outer_conv(layer_of(name, dropout=0.25))
    assert ours.family.normalise.dropout == 0.25


def test_options_that_were_set_later_count():
    theirs, inputs = layer_of("gat"), inputs_of("gat")
    theirs.add_self_loops = False
    assert_near(outer_conv(theirs)(**inputs), theirs(**inputs))


class OwnGAT(GATConv):
    """A subclass, which may compute something else."""


@pytest.mark.parametrize(
    ("layer", "error", "words"),
    [
        (OwnGAT(P, Q), TypeError, "OwnGAT: is a subclass of GATConv"),
        (torch.nn.Linear(P, Q), TypeError, "got Linear"),
        (gat_conv(P, Q), TypeError, "got AttentionConv"),
        (GATConv(P, Q, aggr="max"), ValueError, "aggr=max is not a sum"),
        (TransformerConv(P, Q, aggr=["add", "max"]), ValueError, "aggr=.*add.*max"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_what_has_no_equal_is_refused(layer, error, words):
    with pytest.raises(error, match=words):
        outer_conv(layer)


def test_from_torch_names_what_takes_layers_of_pyg():
    with pytest.raises(TypeError, match=r"pyg.outer_conv take layers of PyG.*got GATConv"):
        from_torch(GATConv(P, Q))
    with pytest.raises(TypeError, match=r"layer of torch.nn, got Linear"):
        from_torch(torch.nn.Linear(P, Q))


def test_docstrings_run():
    found = doctest.testmod(convert)
    assert found.attempted
    assert found.failed == 0
