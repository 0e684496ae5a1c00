"""The layer against its dense oracle, by the engine and by messages; forms of Θ, and bias."""

import copy

import pytest
import torch
from cases import ALL_PAIRS, STRUCTURES, over, structure_for

from pyg_outerconv import OuterConv, nn, testing
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near

THETAS = [
    "full",
    "shared",
    "basis-decomposed(num_bases=2)",
    "channelwise",
    "block-diagonal(num_blocks=2)",
    "low-rank(rank=2)",
    "grouped:4",
    "depthwise",
    "identity",
]


def layer(family, **options):
    width = 4 if options.get("theta") == "identity" else 8
    conv = OuterConv(4, width, family, **options).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return conv


def features(edges):
    return torch.randn(edges.size[0], 4, dtype=torch.float64, requires_grad=True)


@over(ALL_PAIRS)
def test_layer_equals_dense(family, name):
    structure = structure_for(family, name)
    testing.assert_layer_equals_dense(layer(family), features(structure), structure)


@pytest.mark.parametrize("theta", THETAS)
@pytest.mark.parametrize("family", [Relation(3), Walk(2), Stack(Chebyshev(2), Walk(1))], ids=str)
def test_every_form_of_theta(family, theta):
    edges = STRUCTURES["weighted"]
    conv = layer(family, theta=theta)
    testing.assert_layer_equals_dense(conv, features(edges), edges)


def test_kronecker_flattenings_multiply_flattened_inputs():
    edges = STRUCTURES["directed"]
    conv, x = layer(Walk(2), bias=False), features(edges)
    y = conv(x, edges.edge_index, size=edges.size)
    hat = nn.phi_hat(conv, edges.edge_index, size=edges.size)
    check = nn.phi_check(conv, edges.edge_index, size=edges.size)
    assert hat.shape == (5 * 4, 5 * 8)
    assert check.shape == (4 * 5, 8 * 5)
    torch.testing.assert_close(x.flatten() @ hat, y.flatten())
    torch.testing.assert_close(x.t().flatten() @ check, y.t().flatten())
    basis = conv.basis(x, edges.edge_index, size=edges.size).to_dense()
    expected = sum(torch.kron(a, t) for a, t in zip(basis, conv.theta()[:, 0], strict=True))
    torch.testing.assert_close(hat, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "family",
    [
        GCN(norm="target"),
        GCN(),
        Walk(1, norm="target"),
        Walk(1, norm="source", direction="backward"),
        Relation(1),
        Chebyshev(2, "bound", norm="source"),
    ],
    ids=str,
)
def test_short_types_count_a_thousand_neighbours(family, dtype):
    star = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    conv = OuterConv(1, 1, family, bias=False)
    torch.nn.init.ones_(conv.theta.weight)
    x = torch.ones(1001, 1)
    short = copy.deepcopy(conv).to(dtype)(x.to(dtype), star)
    assert_near(short, conv(x, star).to(dtype))


EDGES, TYPES = torch.randint(9, (2, 40)), torch.randint(3, (40,))


@pytest.mark.parametrize("family", [GCN(), Walk(2), Identity(), Relation(3)], ids=str)
@pytest.mark.parametrize("featureless", [False, True])
def test_a_bias_is_added_once_and_parameters_stay_as_they_are(family, featureless):
    conv = OuterConv(9 if featureless else 4, 3, family)
    torch.nn.init.ones_(conv.bias)
    before = {name: value.clone() for name, value in conv.state_dict().items()}
    x = None if featureless else torch.randn(9, 4)
    kinds = TYPES if family.makes_use_of("edge_type") else None
    basis = family.basis(EDGES, edge_type=kinds, size=(9, 9))
    with torch.no_grad():
        outs = [conv(x, basis) for _ in range(2)]
        conv.bias.zero_()
        plain = conv(x, basis)
    assert_near(outs[0], plain + 1)
    assert_near(outs[1], plain + 1)
    conv.bias.data.fill_(1)
    for name, value in conv.state_dict().items():
        assert torch.equal(value, before[name]), name
