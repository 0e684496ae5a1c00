"""Values: how heads come together, biases, and output projections folded in and factored out."""

import copy

import pytest
import torch
from oracle import assert_same

from pyg_outerconv import nn
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.nn.attention.graph_attention import gat_conv
from pyg_outerconv.nn.attention_conv import AttentionConv
from pyg_outerconv.testing import assert_near

NODES, P, Q, HEADS = 7, 5, 6, 2
EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 4], [1, 2, 3, 4, 5, 0, 0, 5, 1]])  # none reaches 6


def layer(*, train=True, **options):
    conv = AttentionConv(P, Q, HEADS, **options).double().train(train)
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.normal_()
    return conv


def x_of(*shape):
    return torch.randn(*shape, NODES, P, dtype=torch.float64, requires_grad=True)


OPTIONS = [
    {},
    {"combine": "sum"},
    {"combine": "mean"},
    {"combine": "sum", "value_channels": 4},
    {"theta": "low-rank(rank=2)"},
]


def test_identity_has_no_values():
    conv, x = AttentionConv(P, -1, 1, theta="identity", channels=3, bias=False).double(), x_of()
    assert conv(x, EDGES).shape == (NODES, P)
    assert_near(conv(x, EDGES), torch.einsum("hmn,mp->np", conv.basis(x, EDGES).to_dense(), x))


# Folding and factoring ---------------------------------------------------------------------------


def test_a_folded_bias_is_exact_whatever_rows_add_up_to():
    conv = layer(combine="sum", value_channels=4, value_bias=True, normalise="sigmoid")
    x = x_of()
    assert_near(nn.fold_output(conv)(x, EDGES), conv(x, EDGES))
    conv = layer(combine="sum", value_channels=4, value_bias=True, dropout=0.5)
    folded = nn.fold_output(conv)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = conv(x, EDGES)
        torch.manual_seed(seed)
        assert_near(folded(x, EDGES), expected)


@pytest.mark.parametrize("bias", [True, False])
def test_a_value_bias_folds_into_the_bias_of_outputs_that_are_reached(bias):
    conv = layer(combine="sum", value_channels=4, value_bias=True, bias=bias)
    folded, x = nn.fold_output(conv, fold_bias=True), x_of()
    assert folded.value_bias is None
    out, expected = folded(x, EDGES), conv(x, EDGES)
    assert_near(out[:6], expected[:6])
    assert bool((out[6] - expected[6]).abs().max() > 0.1)  # the docstring says so


@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("value_bias", [False, True])
def test_every_layer_with_values_folds_and_factors(options, value_bias, batch):
    """Also where nothing reaches node 6."""
    conv, x = layer(value_bias=value_bias, **options), x_of(*batch)
    folded, factored = nn.fold_output(conv), nn.factor_output(conv, 6)
    assert factored.theta.value.shape == (HEADS, P, 6)
    assert "value_channels" not in options or folded.theta.name == "full"
    for converted in (folded, factored):
        assert_same(converted(x, EDGES), conv(x, EDGES), [x])


@pytest.mark.parametrize("value_bias", [False, True])
def test_factoring_undoes_folding(value_bias):
    conv, x = layer(combine="sum", value_channels=3, value_bias=value_bias), x_of()
    folded = nn.fold_output(conv)
    again = nn.factor_output(folded, 3)
    assert again.theta.output.shape == (HEADS, 3, Q)
    assert_near(again(x, EDGES), conv(x, EDGES))
    with pytest.raises(ValueError, match=r"rank >= 3, as ranks of the heads are \[3, 3\]"):
        nn.factor_output(folded, 2)


def test_the_rank_that_is_named_is_that_of_each_head():
    conv = layer(combine="sum")
    with torch.no_grad():
        conv.theta.weight[0] = torch.outer(*(torch.randn(n, dtype=torch.float64) for n in (P, Q)))
    with pytest.raises(ValueError, match=r"ranks of the heads are \[1, 5\]"):
        nn.factor_output(conv, 4)
    assert_near(nn.factor_output(conv, 5)(x := x_of(), EDGES), conv(x, EDGES))


def test_ranks_are_found_in_float32():
    conv = layer(combine="sum", value_channels=3, value_bias=True).float()
    x = x_of().float()
    assert_near(nn.factor_output(nn.fold_output(conv), 3)(x, EDGES), conv(x, EDGES), 5e-5)


def test_folded_layers_share_nothing_with_what_they_came_from():
    conv, x = layer(combine="sum", value_channels=4, value_bias=True), x_of()
    folded, before = nn.fold_output(conv), copy.deepcopy(conv)
    with torch.no_grad():
        for parameter in folded.parameters():
            parameter.zero_()
    assert_near(conv(x, EDGES), before(x, EDGES))
    frozen = layer(combine="sum", value_channels=4, value_bias=True).requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in nn.fold_output(frozen).parameters())


def test_a_lazy_score_of_values_sees_the_values_that_stay():
    """An OuterConv over the family, too, gives its parameters values once."""
    family = gat_conv(-1, Q, 2).family
    conv, x = OuterConv(-1, 2 * Q, family, theta="columns"), torch.randn(NODES, P)
    assert_near(conv(x, EDGES), conv(x, EDGES))
