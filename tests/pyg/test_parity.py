"""Every class equals PyG's: values and gradients, option by option and in drawn combinations."""

import inspect

import pytest
import torch
from pyg.cases import CASES
from pyg.parity import Drawn, compare, graphs, layers
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours

GRAPHS = graphs()
DTYPES = (torch.float32, torch.float64)


def run(case, options, name, call, dtype):
    """Compare the layers of one combination on one graph."""
    graph = GRAPHS[name]
    if graph.is_pair and not case.pairs:
        pytest.skip("no pairs of features")
    their_layer, our_layer = layers(case, options, dtype)
    torch.manual_seed(11)
    inputs = case.calls[call](Drawn(graph, dtype))
    compare(their_layer, our_layer, inputs, case.compared_in(dtype))
    return our_layer


def single_options():
    for name, case in CASES.items():
        for options in case.one_by_one():
            label = "-".join(f"{key}={value}" for key, value in options.items()) or "defaults"
            yield pytest.param(name, options, id=f"{name}-{label}")


@pytest.mark.slow(cases=60)
@pytest.mark.parametrize(("name", "options"), list(single_options()))
def test_every_option_equals_pyg(name, options):
    case = CASES[name]
    taken = [graph for graph in GRAPHS if case.pairs or not GRAPHS[graph].is_pair]
    for place, graph in enumerate(taken):
        calls = list(case.calls)
        if options:  # with the defaults every call, else one after another
            calls = [calls[(place + later) % len(calls)] for later in (0, 3)]
        for call in dict.fromkeys(calls):
            layer = run(case, options, graph, call, torch.float64)
    assert bool(layer.lacks()) == case.runs_by_pyg(options), layer.lacks()


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("name", CASES)
def test_two_options_together_equal_pyg(name):
    case = CASES[name]
    for options in case.two_by_two():
        run(case, options, "directed", next(iter(case.calls)), torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", CASES)
def test_drawn_options_equal_pyg(name, graph, dtype):
    case = CASES[name]
    for seed in range(3):
        call = list(case.calls)[seed % len(case.calls)]
        run(case, case.drawn(seed), graph, call, dtype)


@pytest.mark.parametrize("name", CASES)
def test_signatures_names_and_draws_are_those_of_pyg(name):
    case, (mine, its) = CASES[name], (getattr(ours, name), getattr(theirs, name))
    assert inspect.signature(mine) == inspect.signature(its)
    for signature in (inspect.signature(mine.forward), inspect.signature(its.forward)):
        assert [(one.name, one.default) for one in signature.parameters.values()] == [
            (one.name, one.default) for one in inspect.signature(its.forward).parameters.values()
        ]
    for options in case.one_by_one():
        made = []
        for kind in (its, mine):
            torch.manual_seed(2)
            layer = case.make(kind, **options)
            made.append((repr(layer), layer.state_dict(), torch.rand(3)))
        (its_repr, its_state, its_next), (my_repr, my_state, my_next) = made
        assert its_repr == my_repr
        assert list(its_state) == list(my_state)
        assert all(torch.equal(its_state[key], my_state[key]) for key in its_state)
        assert torch.equal(its_next, my_next)  # making the layer draws no more numbers than PyG
