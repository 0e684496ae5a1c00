"""Every public call, with one argument after another replaced by a hostile value.

It succeeds, or is refused in one line with the rule, what it expects and what came, and leaves its
other arguments as they were.
"""

import inspect
import zlib

import pytest
import torch
from public_calls import CALLS, EDGE_INDEX, Call, data, x
from public_names import public_names
from torch.nn import Module

from pyg_outerconv.attention import Normaliser, QueryModule, Score
from pyg_outerconv.errors import Refused
from pyg_outerconv.nn import FixedBasis, ThetaModule

PLAIN = {
    "None": lambda: None,
    "text": lambda: "x",
    "3.5": lambda: 3.5,
    "-1": lambda: -1,
    "10^30": lambda: 10**30,
    "NaN": lambda: float("nan"),
    "a switch": lambda: True,
    "an empty list": list,
    "a list of two kinds": lambda: [1, "a"],
    "an empty tuple": lambda: (),
    "a dictionary": dict,
    "an object": object,
}
DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)
DRAWN = 6
"""Tensors drawn for each argument."""


def hostile(name, option):
    """Makers of values by name; tensors are drawn, of any size and dtype, on a CPU or meta."""
    values = dict(PLAIN)
    if name.startswith("testing."):  # laws compute with dense tensors, of sizes that fit
        return values
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {option}".encode()))

    def number(below):
        return int(torch.randint(below, (1,), generator=generator))

    for _ in range(DRAWN):
        shape = tuple(number(5) for _ in range(1 + number(3)))
        dtype, on = DTYPES[number(len(DTYPES))], "meta" if number(4) == 0 else "cpu"
        drawn = torch.full(shape, (1, -5, 2)[number(3)], device=on).to(dtype)
        values[f"{dtype} {shape} on {on}, {len(values)}"] = drawn.clone
    return values


def options_of(call):
    """The names of the arguments of a call, and the places of those of any number."""
    named = inspect.signature(call.function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [one.name for one in named if one.kind in kinds and not one.name.startswith("_")]
    return [*names, *range(len(call.several))]


def replaced(call, option, value):
    """The call with another value for an argument."""
    if isinstance(option, str):
        return call._replace(arguments={**call.arguments, option: value})
    several = list(call.several)
    several[option] = value
    return call._replace(several=tuple(several))


def contents(call, option):
    """Copies of the tensors in the other arguments."""
    other_arguments = [
        *call.several,
        *(one for name, one in call.arguments.items() if name != option),
    ]
    states = [
        one.state_dict().values() if isinstance(one, Module) else [one] for one in other_arguments
    ]
    return [one.clone() for state in states for one in state if type(one) is torch.Tensor]


@pytest.mark.slow(cases=120)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_a_hostile_argument_is_taken_or_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        CALLS[name]()()
    except Refused as error:
        pytest.skip(f"not on this machine: {error}")
    assert_taken_or_refused(name, CALLS[name], options_of(CALLS[name]()))


PARTS = (FixedBasis, Normaliser, QueryModule, Score, ThetaModule)
"""Modules that layers call, with what they have made."""
ONES = torch.ones(4)
GRAPH = {"x": x(), "edge_index": EDGE_INDEX}
GRAPHS = {"batch": torch.tensor([0, 0, 1, 1])}
PRESENT = torch.ones(4, dtype=torch.bool)
SHARES = {"return_attention_weights": True}
WIDE = {"x": x(2, 4, 4)}
POSITIONS = {"x": x(2, 5, 4), "position": torch.arange(5)}
STEP = {**GRAPH, "edge_weight": ONES}
MORE = {
    "a pair of nothing": lambda: (x(), None),
    "a list of lists": lambda: [[0, 1], [1, 2]],
    "a function": lambda: torch.sin,
    "an array": lambda: x().numpy(),
    "a sparse matrix": lambda: torch.eye(4).to_sparse(),
    "a number without axes": lambda: torch.tensor(True),
}
FORWARD = {
    # the name of a call that makes a module: the arguments of its own call
    "AttentionConv": {
        **GRAPH,
        "size": (4, 4),
        "source_mask": PRESENT,
        **GRAPHS,
        **SHARES,
        "keys": x(),
    },
    "OuterConv": {**STEP, "size": (4, 4), **GRAPHS},
    "attention.ALiBi": {"relative": x(4, 1)},
    "attention.EdgeBias": {"edge_attr": x(4, 2)},
    "attention.EdgeFeatures": {"x": x(4, 2)},
    "attention.GraphPositions": {"data": data()},
    "attention.LearnedPositions": POSITIONS,
    "attention.PositiveRandom": {"x": x(5, 2, 4)},
    "attention.Projection": {"x": x(4, 2)},
    "attention.RelativeBias": {"relative": x(4, 1)},
    "attention.Rotary": {"x": x(5, 2, 4), "position": torch.arange(5)},
    "attention.SinusoidalPositions": POSITIONS,
    "nn.AttentionGNN": GRAPH,
    "nn.BSpline": {"edge_attr": x(4, 1)},
    "nn.BlockStack": WIDE,
    "nn.ComposedConv": STEP,
    "nn.ConvGRUCell": {**STEP, "state": x(4, 4)},
    "nn.ConvLSTMCell": {**STEP, "state": (x(4, 4), x(4, 4))},
    "nn.DecoderBlock": {**WIDE, "memory": x(2, 4, 4), "memory_mask": PRESENT},
    "nn.EdgeNetwork": {"edge_attr": x(4, 2)},
    "nn.EncoderBlock": {**WIDE, "source_mask": PRESENT, "return_attention_weights": False},
    "nn.EncoderDecoder": {**WIDE, "source": x(2, 4, 4), "memory_mask": PRESENT},
    "nn.FeedForward": WIDE,
    "nn.GaussianMixture": {"edge_attr": x(4, 2)},
    "nn.GridConv": {"x": x(2, 3, 4, 4), "edge_weight": None},
    "nn.GridPool": {"x": x(16, 3), "cells": (4, 4)},
    "nn.GridUnpool": {"x": x(4, 3), "cells": (4, 4)},
    "nn.OuterGNN": STEP,
    "nn.TransformerConv": {**GRAPH, **SHARES},
    "nn.agnn_conv": GRAPH,
    "nn.appnp": GRAPH,
    "nn.attention.GraphAttention": {**GRAPH, **SHARES},
    "nn.attention.Skip": {**WIDE, "function": torch.sin},
    "nn.convert.from_torch": {"x": x(2, 3, 4, 4)},
    "nn.gat_conv": {**GRAPH, **SHARES},
    "nn.gatv2_conv": {**GRAPH, **SHARES},
    "nn.gdc_conv": GRAPH,
    "nn.linear_attention": {"x": x(), **GRAPHS, "source_mask": PRESENT},
    "nn.long_sequence_block": WIDE,
    "nn.mix_hop": GRAPH,
    "nn.multi_head_attention": {**WIDE, "source_mask": PRESENT, **SHARES},
    "nn.set_pooling": {"x": x(), **GRAPHS},
    "nn.sg_conv": GRAPH,
    "nn.ssg_conv": GRAPH,
    "nn.super_gat_conv": GRAPH,
    "nn.windowed_block": {"x": x(16, 4), "edge_index": (4, 4)},
    "transforms.AddBasis": {"data": data()},
    "transforms.BasisToHetero": {"data": data().update({"edge_type": torch.arange(4) % 2})},
    "ToSparseFeatures": {"data": data()},
}
WITH_EDGES = {"edge_dim": 2}
OTHERWISE = {
    # the same of other options
    "nn.gatv2_conv, edge features": (WITH_EDGES, {**GRAPH, "edge_attr": x(4, 2)}),
    "nn.TransformerConv, edge features": (WITH_EDGES, {**GRAPH, "edge_attr": x(4, 2)}),
    "AttentionConv, edge features": (WITH_EDGES, {**GRAPH, "edge_attr": x(4, 2)}),
    "OuterConv, edge types": (
        {"family": "relation(2)"},
        {**GRAPH, "edge_type": torch.tensor([0, 1, 0, 1])},
    ),
    "OuterConv, lazy": ({"in_channels": -1}, GRAPH),
}
FORWARD_OF = {name: ({}, arguments) for name, arguments in FORWARD.items()} | OTHERWISE


def test_every_module_is_called():
    classes = {name for name, one in public_names().items() if inspect.isclass(one)} & set(CALLS)
    modules = {name for name in classes if issubclass(public_names()[name], Module)}
    parts = {name for name in modules if issubclass(public_names()[name], PARTS)}
    pygs = {name for name in modules if name.startswith("pyg.")}
    assert modules - parts - pygs <= set(FORWARD)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORWARD_OF)
def test_a_module_takes_or_refuses_what_it_is_called_with(name):
    options, arguments = FORWARD_OF[name]
    constructor = CALLS[name.split(",")[0]]()
    make = constructor._replace(arguments={**constructor.arguments, **options})
    module = make()

    def call():
        of = make() if "lazy" in name else module
        return Call(lambda **arguments: of(**arguments), dict(arguments))

    call()()
    assert_taken_or_refused(name, call, arguments, MORE)


def assert_taken_or_refused(name, make_call, options, more=()):
    """A call with one hostile argument succeeds, or is refused in a line."""
    for option in options:
        for what, make in {**hostile(name, option), **dict(more)}.items():
            call = replaced(make_call(), option, make())
            before = contents(call, option)
            try:
                call()
            except Refused as refused:
                message = str(refused)
                assert "\n" not in message, (option, what)
                assert "expected" in message, (option, what, message)
            except AssertionError:
                assert name.startswith("testing."), (option, what)
            except Exception as error:
                raise AssertionError(f"{option}={what}: {error!r}") from error
            for one, other in zip(before, contents(call, option), strict=True):
                assert one.is_meta or torch.equal(one, other), (option, what)
