"""Copies of layers and models with our classes, with PyG's, and as an OuterConv."""

import copy
import inspect

import pytest
import torch
from pyg.cases import CASES, arguments, pair
from pyg.parity import (
    OF_GRADIENTS,
    TOLERANCE,
    D,
    Drawn,
    P,
    Q,
    by_size,
    compare,
    graphs,
)
from torch import nn
from torch_geometric import nn as theirs

from pyg_outerconv import OuterConv
from pyg_outerconv import pyg as ours
from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.pyg import from_pyg, outer_conv, to_pyg
from pyg_outerconv.testing import assert_near

ATTENTION = ("GATConv", "GATv2Conv", "TransformerConv", "SuperGATConv", "AGNNConv")


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name):
    case = CASES[name]
    layer = case.make(getattr(theirs, name)).double()
    copied = from_pyg(layer)
    back = to_pyg(copied)
    assert type(copied) is getattr(ours, name)
    assert not isinstance(back, ours.DropIn)
    ends = [{one.data_ptr() for one in part.parameters()} for part in (layer, copied, back)]
    assert ends[0].isdisjoint(ends[1])  # copies of the weights
    assert ends[1].isdisjoint(ends[2])
    compare(layer, copied, arguments(name), case.compared_in(torch.float64))
    compare(layer, back, arguments(name), case.compared_in(torch.float64))


def named(layer, args):
    """The arguments of a call that are there, by the names that PyG and OuterConv have for them."""
    bound = inspect.signature(layer.forward).bind(*args).arguments
    if isinstance(layer, theirs.SignedConv):
        x, positive, negative = args
        kind = torch.arange(positive.size(1) + negative.size(1)) >= positive.size(1)
        return {"x": x, "edge_index": torch.cat([positive, negative], 1), "edge_type": kind.long()}
    return {name: value for name, value in bound.items() if value is not None}


def assert_is(layer, args, dtype=torch.float64):
    """The layer as an OuterConv gives its values, with messages too, and all of its gradients."""
    holder = copy.deepcopy(layer)  # of gradients where weights were, which become ours alike
    conv = outer_conv(layer)
    assert isinstance(conv, OuterConv)
    assert conv.training is layer.training
    pointers = [{one.data_ptr() for one in part.parameters()} for part in (conv, layer)]
    assert pointers[0].isdisjoint(pointers[1])
    inputs = named(layer, args)
    leaves = torch.utils._pytree.tree_leaves(inputs)
    numbers = [one for one in leaves if isinstance(one, torch.Tensor) and one.requires_grad]
    actual, expected = conv(**inputs), layer(*args)
    assert_near(actual, expected, TOLERANCE[dtype])
    direction = torch.randn_like(expected)

    def gradients(out, leaves):
        if not out.requires_grad:
            return []
        return list(torch.autograd.grad(out, leaves, direction, materialize_grads=True))

    actual_gradients = gradients(actual, [*numbers, *conv.parameters()])
    wanted = gradients(expected, [*numbers, *layer.parameters()])
    with torch.no_grad():
        for parameter, gradient in zip(holder.parameters(), wanted[len(numbers) :], strict=True):
            parameter.copy_(gradient)
    in_ours = [*wanted[: len(numbers)], *outer_conv(holder).parameters()]
    for gradient, other in zip(actual_gradients, in_ours, strict=True):
        assert_near(gradient, other, OF_GRADIENTS[dtype], at_least=0.1)
    conv.fuse = False
    assert_near(conv(**inputs), expected, TOLERANCE[dtype])


def combinations():
    """Every option by itself, with several heads where there are heads, and drawn ones."""
    for name, case in CASES.items():
        heads = {"heads": 2} if "heads" in case.options and name in ATTENTION else {}
        for options in (*case.one_by_one(), *map(case.drawn, range(4))):
            # A map that PyG calls twice becomes two, and zeros between blocks become numbers.
            powers, is_first = options.get("powers") or [], options.get("first_aggr", True)
            if not case.runs_by_pyg(options) and is_first and len(powers) == len({*powers}):
                label = "-".join(f"{option}={value}" for option, value in options.items())
                yield pytest.param(name, heads | options, id=f"{name}-{label}")


@by_size
@pytest.mark.slow(cases=40)
@pytest.mark.parametrize(("name", "options"), list(combinations()))
def test_a_convolution_alone_becomes_an_outer_conv(name, options):
    case, layer = CASES[name], pair(name, **options)[0]
    mine = case.make(getattr(ours, name), **options)
    is_decomposed = options.get("decomposed_layers") == 2
    if is_decomposed or mine.outside() or isinstance(mine._tied().conv, nn.ModuleList):
        with pytest.raises(RefusedValue, match=r"nothing beside it|several steps|of its own"):
            outer_conv(layer)
        return
    call = "attributes" if options.get("edge_dim") else None
    for kind in ("multi-edge", "pair") if case.pairs else ("multi-edge",):
        if kind == "pair" and options.get("flow") == "target_to_source":
            continue
        args = arguments(name, call=call, graph=graphs()[kind])
        assert_is(layer, args, case.compared_in(torch.float64))


@by_size
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"edge_dim": D, "bias": False}, {"concat": False, "edge_dim": D}], ids=str
)
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_ends_of_two_widths_become_an_outer_conv(name, options, dtype):
    drawn = Drawn(graphs()["pair"], dtype)
    attributes = (drawn.attributes(),) if "edge_dim" in options else ()
    layer = getattr(theirs, name)((P, P + 1), Q, 3, **options).to(dtype).eval()
    assert_is(layer, (drawn.x(targets=P + 1), drawn.graph.edge_index, *attributes), dtype)


@pytest.mark.parametrize("ends", [-1, (-1, -1)])
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv", "SuperGATConv"])
def test_sizes_of_the_first_input_are_taken_over(name, ends):
    if name == "SuperGATConv" and ends != -1:
        pytest.skip("no pairs of features")
    lazy = {} if name == "SuperGATConv" else {"edge_dim": -1}
    layer = getattr(theirs, name)(ends, Q, 2, **lazy).double()
    args = arguments(name, call="attributes" if lazy else None)
    args = args if ends == -1 else ((args[0], args[0]), *args[1:])
    with pytest.raises(ValueError, match=r"no shapes before the first input"):
        outer_conv(layer)
    expected = layer(*args)
    assert_near(outer_conv(layer)(**named(layer, args)), expected)


def test_a_skip_that_is_never_used_may_be_without_weights():
    layer = theirs.TransformerConv(-1, Q, root_weight=False, beta=True).double()
    args = arguments("TransformerConv")
    expected = layer(*args)
    assert torch.nn.parameter.is_lazy(layer.lin_skip.weight)
    assert_near(outer_conv(layer)(*args), expected)


@pytest.mark.parametrize("name", ATTENTION)
def test_type_and_what_is_learned_stay(name):
    edges = {"edge_dim": D} if "edge_dim" in CASES[name].options else {}
    layer = pair(name, **edges)[0]
    assert all(parameter.dtype == torch.float64 for parameter in outer_conv(layer).parameters())
    assert all(p.dtype == torch.float32 for p in outer_conv(layer.float()).parameters())
    parameters = list(layer.parameters())
    assert len(parameters) == len(list(outer_conv(layer).parameters()))
    for only in parameters:
        layer.requires_grad_(False)
        only.requires_grad_(True)
        (learned,) = [p for p in outer_conv(layer).parameters() if p.requires_grad]
        assert_near(learned.sum(), only.sum())
        assert learned.numel() == only.numel()


def test_a_vector_for_self_loops_is_a_copy():
    layer = theirs.GATConv(P, Q, edge_dim=D, fill_value=torch.rand(D).double()).double()
    args = arguments("GATConv", call="attributes")
    conv, expected = outer_conv(layer), layer(*args)
    layer.fill_value.zero_()
    assert_near(conv(**named(layer, args)), expected)


@pytest.mark.parametrize("name", [name for name in ATTENTION if name != "AGNNConv"])
def test_attention_is_dropped_alike(name):
    conv = outer_conv(getattr(theirs, name)(P, Q, dropout=0.25))
    assert conv.family.normalise.dropout == 0.25


def test_options_that_were_set_later_count():
    layer = theirs.GATConv(P, Q, 2).double()
    layer.add_self_loops = False
    assert_is(layer, arguments("GATConv"))


def test_models_keep_what_has_no_equal():
    model = nn.ModuleList([theirs.GCNConv(4, 4), theirs.EdgeConv(nn.Linear(8, 4)), nn.Linear(4, 4)])
    copied = from_pyg(model)
    assert isinstance(copied[0], ours.GCNConv)
    assert type(copied[1]) is theirs.EdgeConv
    assert type(model[0]) is theirs.GCNConv
    assert ours.restore(copied) == []  # a copy has no other past
    assert [type(layer) for layer in to_pyg(copied)] == [type(layer) for layer in model]


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (theirs.SAGEConv(4, 4, aggr="median"), "median"),
        (theirs.SAGEConv(-1, 4), "before the first input"),
        (theirs.GATConv(P, Q, aggr="max"), "aggr=max is not a sum"),
        (theirs.TransformerConv(P, Q, aggr=["add", "max"]), "aggr=.*add.*max"),
    ],
)
def test_what_cannot_be_converted_is_named(layer, reason):
    with pytest.raises(ValueError, match=reason):
        outer_conv(layer)
