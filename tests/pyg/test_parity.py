"""Every class equals PyG's: values and gradients, option by option and in drawn combinations."""

import copy
import inspect

import pytest
import torch
from pyg.cases import CASES
from pyg.parity import Drawn, compare, graphs, layers, reseed
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours

GRAPHS = graphs()
DTYPES = (torch.float32, torch.float64)


def taken(case):
    """The graphs that a class takes."""
    return [name for name, graph in GRAPHS.items() if case.pairs or not graph.is_pair]


def run(case, pair, graph, call, dtype):
    """Compare the layers of a pair on one graph."""
    reseed(11)
    inputs = case.calls[call](Drawn(GRAPHS[graph], dtype))
    compare(*pair, inputs, case.compared_in(dtype))


def single_options():
    for name, case in CASES.items():
        for options in case.one_by_one():
            label = "-".join(f"{key}={value}" for key, value in options.items()) or "defaults"
            yield pytest.param(name, options, id=f"{name}-{label}")


@pytest.mark.slow(cases=60)
@pytest.mark.parametrize(("name", "options"), list(single_options()))
def test_every_option_equals_pyg(name, options):
    case = CASES[name]
    pair = layers(case, options, torch.float64)
    for place, graph in enumerate(taken(case)):
        calls = list(case.calls)
        if options:  # with the defaults every call, else one after another
            calls = [calls[(place + later) % len(calls)] for later in (0, 3)]
        for call in dict.fromkeys(calls):
            anew = map(copy.deepcopy, pair) if options.get("cached") else pair
            run(case, anew, graph, call, torch.float64)


FIRST_OF_TWO = dict.fromkeys(
    (name, next(iter(options))) for name, case in CASES.items() for options in case.two_by_two()
)


@pytest.mark.slow(cases=12)
@pytest.mark.parametrize(("name", "option"), FIRST_OF_TWO)
def test_two_options_together_equal_pyg(name, option):
    """The option with each that is listed after it."""
    case = CASES[name]
    for options in case.two_by_two():
        if next(iter(options)) == option:
            pair = layers(case, options, torch.float64)
            run(case, pair, "directed", next(iter(case.calls)), torch.float64)


TAKEN = [(name, graph) for name, case in CASES.items() for graph in taken(case)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "graph"), TAKEN)
def test_drawn_options_equal_pyg(name, graph, dtype):
    case = CASES[name]
    for seed in range(3):
        call = list(case.calls)[seed % len(case.calls)]
        run(case, layers(case, case.drawn(seed), dtype), graph, call, dtype)


@pytest.mark.parametrize("name", CASES)
def test_signatures_names_and_draws_are_those_of_pyg(name):
    """And each option is contracted, but for those that the table says PyG's own code runs."""
    case, (mine, its) = CASES[name], (getattr(ours, name), getattr(theirs, name))
    assert inspect.signature(mine) == inspect.signature(its)
    for signature in (inspect.signature(mine.forward), inspect.signature(its.forward)):
        assert [(one.name, one.default) for one in signature.parameters.values()] == [
            (one.name, one.default) for one in inspect.signature(its.forward).parameters.values()
        ]
    for options in case.one_by_one():
        layer_states = []
        for kind in (its, mine):
            reseed(2)
            layer = case.make(kind, **options)
            layer_states.append((repr(layer), layer.state_dict(), torch.rand(3)))
        (its_repr, its_state, its_next), (my_repr, my_state, my_next) = layer_states
        assert its_repr == my_repr
        assert list(its_state) == list(my_state)
        assert all(torch.equal(its_state[key], my_state[key]) for key in its_state)
        assert torch.equal(its_next, my_next)  # making the layer draws no more numbers than PyG
        assert bool(layer.lacks()) == case.runs_by_pyg(options), layer.lacks()
        assert layer.lacks() or not layer.why_not(), options
