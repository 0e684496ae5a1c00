"""SplineConv, which PyG does not build without pyg-lib, against the definition of B-splines."""

import copy
import pickle
from itertools import product

import pytest
import torch
from pyg.parity import assert_close
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs
from torch_geometric.nn.conv import spline_conv

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.pyg import SplineConv

P, Q, D = 3, 4, 2
EDGE_INDEX = torch.tensor([[0, 1, 2, 3, 3, 0, 4, 0], [1, 2, 0, 0, 3, 1, 2, 1]])


def cardinal(t, degree):
    """The B-spline of integer knots 0, …, degree + 1, by the recursion of Cox and de Boor."""
    if degree == 0:
        return ((t >= 0) & (t < 1)).to(t.dtype)
    left, right = cardinal(t, degree - 1), cardinal(t - 1, degree - 1)
    return (t * left + (degree + 1 - t) * right) / degree


def splines(u, size, degree, is_open):
    """The ``size`` B-splines along one attribute, (E, size): closed ones repeat every ``size``."""
    t = (u * (size - degree * is_open)).unsqueeze(1)
    number = torch.arange(size)
    if is_open:
        return cardinal(t - number + degree, degree)
    return sum(cardinal(t - number + degree + turn * size, degree) for turn in (-1, 0, 1))


def by_definition(layer, x, attributes, pairs):
    """Y[n] = 1/d Σ_m Σ_k N_k(e) X_m Θ_k + X_n Θ + b, edge by edge."""
    source, target = pairs
    sizes, switches = layer.kernel_size.tolist(), layer.is_open_spline.bool().tolist()
    along = [
        splines(attributes[:, d], sizes[d], layer.degree, switches[d]) for d in range(len(sizes))
    ]
    messages = 0
    for places in product(*map(range, sizes)):
        number, step = 0, 1
        for place, size in zip(places, sizes, strict=True):
            number, step = number + step * place, step * size
        value = torch.stack([along[d][:, place] for d, place in enumerate(places)]).prod(0)
        messages = messages + value.unsqueeze(1) * (x[0][source] @ layer.weight[number])
    out = torch.zeros(x[1].size(0), Q, dtype=x[1].dtype).index_add(0, target, messages)
    if layer.aggr == "mean":
        degree = torch.bincount(target, minlength=x[1].size(0)).clamp(min=1)
        out = out / degree.unsqueeze(1)
    out = out + layer.lin(x[1]) if layer.root_weight else out
    return out if layer.bias is None else out + layer.bias


OPTIONS = {
    "degree": (1, 2, 3),
    "kernel_size": ([5, 4], 4),
    "is_open_spline": (True, False, [True, False]),
    "aggr": ("mean", "add"),
    "root_weight": (True, False),
    "bias": (True, False),
    "flow": ("source_to_target", "target_to_source"),
}


def combinations():
    """Every degree with every kind of ends, and every value of the other options."""
    for degree, is_open in product(OPTIONS["degree"], OPTIONS["is_open_spline"]):
        yield {"degree": degree, "is_open_spline": is_open}
    for name in ("kernel_size", "aggr", "root_weight", "bias", "flow"):
        yield {name: OPTIONS[name][1], "degree": 2}


@pytest.mark.parametrize("options", list(combinations()), ids=str)
@pytest.mark.parametrize("pair", [False, True])
def test_spline_conv_equals_its_definition(options, pair):
    if pair and "flow" in options:
        pytest.skip("PyG reads pairs along the edges")
    layer = SplineConv(P, Q, D, **{"kernel_size": [5, 4], **options}).double()
    x = torch.randn(5, P, dtype=torch.float64, requires_grad=True)
    target = torch.randn(4, P, dtype=torch.float64, requires_grad=True) if pair else x
    attributes = torch.rand(8, D, dtype=torch.float64, requires_grad=True)
    features = (x, target) if pair else x
    ends = EDGE_INDEX if layer.flow == "source_to_target" else EDGE_INDEX.flip(0)
    assert not layer.why_not(features, EDGE_INDEX)
    actual = layer(features, EDGE_INDEX, attributes)
    expected = by_definition(layer, (x, target), attributes, ends)
    assert_close(actual, expected, 1e-10, "values")
    inputs = [x, target, attributes, *layer.parameters()]
    weight = torch.randn_like(actual)
    for one, other in zip(
        torch.autograd.grad((actual * weight).sum(), inputs, allow_unused=True),
        torch.autograd.grad((expected * weight).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        assert_close(one, other, 1e-10, "gradients")


def test_second_call_sees_other_attributes():
    layer, x = SplineConv(P, Q, D, 5).double(), torch.randn(5, P, dtype=torch.float64)
    for _ in range(2):
        attributes = torch.rand(8, D, dtype=torch.float64)
        expected = by_definition(layer, (x, x), attributes, EDGE_INDEX)
        assert_close(layer(x, EDGE_INDEX, attributes), expected, 1e-10, "values")


def test_an_edge_index_tells_the_number_of_targets_without_features():
    layer, x, attributes = SplineConv(P, Q, D, 5), torch.randn(5, P), torch.rand(8, D)
    expected = layer((x, None), EDGE_INDEX, attributes, size=(5, 4))
    edges = EdgeIndex(EDGE_INDEX, sparse_size=(5, 4))
    assert_close(layer((x, None), edges, attributes), expected, 1e-6, "values")
    assert len(expected) == 4


@pytest.mark.parametrize("options", [{}, {"root_weight": False}, {"bias": False}], ids=str)
@pytest.mark.parametrize("in_channels", [P, (P, P), -1])
def test_parameters_and_draws_are_those_of_pyg(options, in_channels, monkeypatch):
    monkeypatch.setattr(spline_conv, "spline_basis", object())  # its constructor asks for it
    layers = []
    for kind in (theirs.SplineConv, SplineConv):
        torch.manual_seed(4)
        layers.append(kind(in_channels, Q, D, [5, 4], **options))
    assert repr(layers[0]) == repr(layers[1])
    names = [[name for name, _ in layer.named_parameters()] for layer in layers]
    assert names[0] == names[1]
    buffers = [dict(layer.named_buffers()) for layer in layers]
    assert list(buffers[0]) == list(buffers[1])
    assert all(torch.equal(buffers[0][name], buffers[1][name]) for name in buffers[0])
    if in_channels != -1:
        states = [layer.state_dict() for layer in layers]
        assert list(states[0]) == list(states[1])
        assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


def test_a_lazy_layer_copied_and_pickled_is_the_same():
    layer = SplineConv(-1, Q, D, 5)
    x, attributes = torch.randn(5, P), torch.rand(8, D)
    out = layer(x, EDGE_INDEX, attributes)
    assert layer.weight.shape == (25, P, Q)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x, EDGE_INDEX, attributes), out)


@pytest.mark.skipif(spline_conv.spline_basis is not None, reason="pyg-lib runs it")
def test_without_pyg_lib_what_is_no_contraction_is_refused():
    x, attributes = torch.randn(5, P), torch.rand(8, D)
    with pytest.raises(RefusedValue, match="maximum|sum or mean"):
        SplineConv(P, Q, D, 5, aggr="max")(x, EDGE_INDEX, attributes)
    with pytest.raises(RefusedValue, match="more pieces"):
        SplineConv(P, Q, D, 3, degree=3)(x, EDGE_INDEX, attributes)
    with pytest.raises(RefusedValue, match=r"\[0, 1\]"):
        SplineConv(P, Q, D, 5)(x, EDGE_INDEX, attributes + 1)
