"""Two layers composed are equal to the chain, by messages too, inner biases and all."""

import copy

import pytest
import torch
from oracle import assert_same

from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Compose,
    Identity,
    Kernel,
    Mean,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.families.grid import Grid
from pyg_outerconv.nn import ComposedConv, GridConv, OuterConv, compose, quadri_tensor
from pyg_outerconv.testing import assert_near, awkward_structures

EDGES = awkward_structures()["multi-edge"]
ARGUMENTS = (EDGES,)  # of which each family reads what it needs


def layer(*args, **kwargs):
    """A layer in double precision whose biases are not zero."""
    conv = OuterConv(*args, **kwargs).double()
    for parameter in conv.parameters():
        torch.nn.init.normal_(parameter)
    return conv


def features(*batch, channels=4):
    return torch.randn(*batch, 5, channels, dtype=torch.float64, requires_grad=True)


RELATION = Relation(3, norm=None)
PAIRS = {
    "one operator": (layer(4, 3, GCN()), layer(3, 5, GCN())),
    "labels by labels": (layer(4, 3, RELATION), layer(3, 5, Chebyshev(3))),
    "means within labels": (layer(4, 3, RELATION, aggr="mean"), layer(3, 2, RELATION, aggr="mean")),
    "means over labels": (
        layer(4, 3, RELATION, label_aggr="mean"),
        layer(3, 2, Walk(2), label_aggr="mean"),
    ),
    "root weights": (
        layer(4, 3, RELATION, root_weight=True),
        layer(3, 5, RELATION, aggr="mean", label_aggr="mean", root_weight=True),
    ),
    "forms of theta": (
        layer(4, 6, RELATION, theta="basis-decomposed(num_bases=2)"),
        layer(6, 3, Chebyshev(2), theta="grouped(groups=3)"),
    ),
    "no parameters": (layer(4, 4, GCN(), theta="identity"), layer(4, 3, GCN())),
    "no bias": (layer(4, 3, GCN(), bias=False), layer(3, 2, GCN(), bias=False)),
    "against the edges": (
        layer(4, 3, RELATION, flow="target_to_source"),
        layer(3, 2, Walk(2), flow="target_to_source"),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_composition_equals_the_chain(name):
    first, second = PAIRS[name]
    both = compose(first, second)
    for x in (features(), features(2, 3)):
        expected = second(first(x, *ARGUMENTS), *ARGUMENTS)
        for both.fuse in (True, False):
            assert_same(both(x, *ARGUMENTS), expected, [x, EDGES.edge_weight])


@pytest.mark.parametrize("name", PAIRS)
def test_composition_of_three_is_associative(name):
    first, second = PAIRS[name]
    third = layer(second.out_channels, 4, Stack(GCN(), Identity()), flow=first.flow)
    x = features()
    expected = third(second(first(x, *ARGUMENTS), *ARGUMENTS), *ARGUMENTS)
    for both in (
        compose(compose(first, second), third),
        compose(first, compose(second, third)),
    ):
        assert_near(both(x, *ARGUMENTS), expected)


def test_parameters_multiply():
    first, second = PAIRS["labels by labels"]
    both = compose(first, second)
    products = torch.einsum("ipr,jrq->ijpq", first.theta.weight, second.theta.weight)
    assert_near(both.theta.weight.unflatten(0, (3, 3)), products)
    assert both.family == Compose(RELATION, Chebyshev(3))
    assert_near(both.constants["1"], torch.einsum("r,jrq->jq", first.bias, second.theta.weight))
    phi = torch.einsum(
        "mlpr,lnrq->mnpq", quadri_tensor(first, *ARGUMENTS), quadri_tensor(second, *ARGUMENTS)
    )
    assert_near(quadri_tensor(both, *ARGUMENTS), phi)


def test_a_mean_becomes_a_family_and_a_root_weight_the_identity():
    assert compose(*PAIRS["means within labels"]).family == Compose(Mean(RELATION), Mean(RELATION))
    rooted = compose(*PAIRS["root weights"]).family
    assert rooted.first == Stack(RELATION, Identity())
    assert rooted.second == Stack(Mean(RELATION), Identity())
    assert repr(compose(*PAIRS["root weights"])).startswith("ComposedConv(4, 5, Compose(")


def test_parameters_are_copies_that_learn():
    first, second = PAIRS["one operator"]
    before = copy.deepcopy((first.state_dict(), second.state_dict()))
    both = compose(first, second)
    both(features(), *ARGUMENTS).square().sum().backward()
    assert {name for name, _ in both.named_parameters()} == {"theta.weight", "bias", "constants.1"}
    assert all(bool(parameter.grad.any()) for parameter in both.parameters())
    torch.optim.SGD(both.parameters(), 0.1).step()
    for state, conv in zip(before, (first, second), strict=True):
        assert all(value.equal(conv.state_dict()[name]) for name, value in state.items())


def test_layers_without_features_and_with_indices():
    first, second = layer(5, 3, GCN()), layer(3, 2, GCN())
    both = compose(first, second)
    rows = torch.tensor([0, 3, 3, 1, 4])
    for x in (None, rows):
        expected = second(first(x, *ARGUMENTS, size=(5, 5)), *ARGUMENTS)
        assert_near(both(x, *ARGUMENTS, size=(5, 5)), expected)


def test_sparse_features():
    first, second = PAIRS["labels by labels"]
    x = features().detach().relu()
    expected = second(first(x, *ARGUMENTS), *ARGUMENTS)
    assert_near(compose(first, second)(x.to_sparse_csr(), *ARGUMENTS), expected)


def test_a_basis_may_be_given():
    first, second = PAIRS["labels by labels"]
    both = compose(first, second)
    basis = RELATION.basis(EDGES).compose(Chebyshev(3).basis(EDGES))
    x = features()
    assert_near(both(x, basis), second(first(x, *ARGUMENTS), *ARGUMENTS))
    with pytest.raises(ValueError, match=r"inner biases pass through the last factors.*expected 2"):
        both(x, basis.edges())
    without = compose(*PAIRS["no bias"])
    gcn = GCN().basis(EDGES)
    assert_near(without(x, gcn.compose(gcn).edges()), without(x, gcn.compose(gcn)))


def test_what_inner_biases_are_multiplied_with_serves_training_after_inference():
    first, second = PAIRS["one operator"]
    both, x = compose(first, second), features()
    gcn = GCN().basis(EDGES.edge_index, EDGES.edge_weight.detach())
    product = gcn.compose(gcn)
    with torch.inference_mode():
        both(x, product)
    both(x, product).sum().backward()
    assert bool(both.constants["1"].grad.any())


def test_functions_of_edges_are_copied_and_learn():
    def kernel_layer(ends):
        return layer(*ends, Kernel(torch.nn.Linear(2, 3).double(), num_functions=3))

    first, second = kernel_layer((4, 3)), kernel_layer((3, 5))
    both = compose(first, second)
    about = {"edge_attr": torch.randn(EDGES.num_edges, 2, dtype=torch.float64)}
    x = features()
    expected = second(first(x, EDGES.edge_index, **about), EDGES.edge_index, **about)
    actual = both(x, EDGES.edge_index, **about)
    assert_near(actual, expected)
    own = {id(parameter) for parameter in both.parameters()}
    assert own.isdisjoint(id(p) for conv in (first, second) for p in conv.parameters())
    actual.square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in both.parameters())


def test_grids_are_followed():
    conv, pool = Grid(window=3, stride=2, padding=1, dim=2), Grid(window=2, dim=2)
    first, second = layer(3, 4, conv), layer(4, 2, pool)
    x = torch.randn(2, 63, 3, dtype=torch.float64)
    expected = second(first(x, (7, 9)), conv.output_shape((7, 9)))
    assert_near(compose(first, second)(x, (7, 9)), expected)


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"aggr": "max"}, {}, "the first has aggr='max', which is not linear"),
        ({}, {"label_aggr": "min"}, "the second has label_aggr='min'"),
        ({"flow": "target_to_source"}, {}, "messages flow target_to_source in the first"),
        ({"in_channels": -1}, {}, "the first has no parameters before its first input"),
        ({"out_channels": 7}, {}, "the first has 7 out_channels, the second 3 in_channels"),
        ({"in_channels": (4, 2), "root_weight": True}, {}, "targets that are not its sources"),
    ],
)
def test_layers_that_have_no_composition_are_refused_with_every_reason(first, second, reason):
    ends = {"in_channels": 4, "out_channels": 3, "family": GCN()}
    one = OuterConv(**{**ends, **first})
    other = OuterConv(**{**ends, "in_channels": 3, **second})
    with pytest.raises(ValueError, match="no composition") as caught:
        compose(one, other)
    assert reason in str(caught.value)


def test_other_modules_and_pairs_of_features_are_refused():
    conv = layer(4, 4, GCN())

    class Other(OuterConv):
        pass

    with pytest.raises(ValueError, match="is a Other, which may do more than it says"):
        compose(conv, Other(4, 2, GCN()))
    images = r"the second is a GridConv, which takes images: .* OuterConv\(P, Q, Grid\(\.\.\.\)\)"
    with pytest.raises(ValueError, match=images) as caught:
        compose(conv, GridConv(4, 2, (3, 3)))
    assert "may do more" not in str(caught.value)
    both = compose(conv, conv)
    assert isinstance(both, ComposedConv)
    x = features()
    assert_near(both((x, x), *ARGUMENTS), both(x, *ARGUMENTS))
