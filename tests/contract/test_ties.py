"""Of equal inputs the first, of equal labels the lowest takes all of the gradient, on every way."""

import random

import pytest
import torch
from contractions import identity
from matrices import HERE
from oracle import assert_same
from shifts import box

from pyg_outerconv.basis import Pattern
from pyg_outerconv.contract import ORDERS, Problem, contract
from pyg_outerconv.families import Pool, Relation, Walk
from pyg_outerconv.graph import SparseFeatures
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.nn import GridPool, OuterConv
from pyg_outerconv.testing import dense_contraction

WAYS = [
    (inner, outer)
    for inner in ("sum", "mean", "max", "min")
    for outer in ("sum", "max", "min")
    if "m" in (inner[0] * (inner != "mean"), outer[0])
]


def whole(*shape, low=-1, high=2):
    """Few whole numbers, so that ties abound."""
    return torch.randint(low, high, shape).double().requires_grad_()


def drawn_edges(seed):
    """Parallel edges in any order, with values or ones, turned round or not."""
    torch.manual_seed(seed)
    pick = random.Random(seed)
    nodes, count = pick.randint(1, 5), pick.randint(1, 25)
    index, label = torch.randint(nodes, (2, count)), torch.randint(3, (count,))
    pattern = Pattern.build(index, label, size=(nodes, nodes), num_labels=3)
    edges = pattern.with_values(whole(count, high=3) if pick.random() < 0.7 else None)
    return edges.transposed_edges() if pick.random() < 0.5 else edges


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("seed", range(6))
def test_every_order_and_backend_picks_the_same(backend, seed):
    edges = drawn_edges(seed)
    x = whole(edges.size[0], 2)
    inputs = [x] if edges.value is None else [x, edges.value]
    for aggr, label_aggr in WAYS:
        for theta in (whole(3, 1, 2, 2), identity(3, 2)):
            expected = dense_contraction(edges, x, theta, aggr, label_aggr)
            problem = Problem(edges, x, theta, aggr, label_aggr)
            with use_backend(backend):
                names = [name for name, order in ORDERS.items() if not order.why_not(problem)]
                for name in names:
                    how = {"aggr": aggr, "label_aggr": label_aggr}
                    found = contract(edges, x, theta, name, **how)
                    assert_same(found, expected, inputs)


@pytest.mark.parametrize("seed", range(6))
def test_messages_pick_the_same(seed):
    edges = drawn_edges(seed)
    nodes = whole(edges.size[0], 2)
    for x in (nodes, torch.stack([nodes, -nodes])):
        for aggr, label_aggr in WAYS:
            for theta in ("full", "identity"):
                how = {"theta": theta, "aggr": aggr, "label_aggr": label_aggr}
                layers = [OuterConv(2, 2, Relation(3), **how).double() for _ in range(2)]
                layers[1].load_state_dict(layers[0].state_dict())
                for layer in layers:
                    layer.fuse = layer is layers[1]
                    for parameter in layer.parameters():
                        parameter.data.round_()
                held = [nodes] if edges.value is None else [nodes, edges.value]
                assert_same(*(layer(x, edges) for layer in layers), held)


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(20))
def test_lowered_pooling_picks_the_lowest_label(seed, aggr):
    pick = random.Random(seed)
    axes = pick.randint(1, 3)
    shape = tuple(pick.randint(3, 7 - axes) for _ in range(axes))
    options = {"stride": pick.randint(1, 2), "padding": pick.randint(0, 1)}
    for basis in (
        box(shape, 3, **options),
        Pool((3,) * axes, **options).basis(shape),
        Pool((2,) * axes, dilation=2, padding=1, stride=1).basis(shape),
    ):
        x, theta = whole(basis.size[0], 2), identity(basis.num_bases, 2)
        expected = dense_contraction(basis, x, theta, aggr, aggr)
        for order in (None, "pooling", "all_edges", "compare_labels"):
            found = contract(basis, x, theta, order, aggr=aggr, label_aggr=aggr)
            assert_same(found, expected, [x])


@pytest.mark.parametrize("aggr", ["max", "min"])
@pytest.mark.parametrize("seed", range(6))
def test_pooling_of_images_picks_the_first_cell_as_torch_does(seed, aggr):
    torch.manual_seed(seed)
    options = {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0), "aggr": aggr}
    x, sign = whole(2, 3, 6, 5), 1 if aggr == "max" else -1
    expected = sign * torch.nn.functional.max_pool2d(sign * x, (3, 2), (2, 1), (1, 0))
    for order in (None, "pooling", "all_edges", "compare_labels"):
        assert_same(GridPool(**options, order=order)(x), expected, [x])
    nodes = GridPool(**options)(x.flatten(2).transpose(1, 2), (6, 5))
    assert_same(nodes.transpose(1, 2).reshape(expected.shape), expected, [x])
    mask = torch.ones(6, 5, dtype=torch.bool)
    listed = GridPool(**options)(x.flatten(2).transpose(1, 2), mask)
    assert_same(listed.transpose(1, 2).reshape(expected.shape), expected, [x])


@pytest.mark.parametrize("aggr", ["max", "min"])
def test_sparse_features_are_refused_in_one_line(aggr):
    index = torch.tensor([[0, 1, 2], [1, 1, 0]])
    x = torch.eye(3, 4)
    rule = f"{aggr} over the inputs of a label needs dense node features.*got SparseFeatures$"
    for family in (Relation(1), Walk(1)):
        conv = OuterConv(4, 2, family, aggr=aggr)
        for fuse in (True, False):
            conv.fuse = fuse
            with pytest.raises(ValueError, match=rule):
                conv(x.to_sparse_csr(), index)
    edges = Relation(1).basis(index)
    with pytest.raises(ValueError, match=rule):
        features = SparseFeatures.of(x.to_sparse_csr())
        contract(edges, features, torch.ones(1, 1, 4, 2), aggr=aggr, label_aggr=aggr)
    with pytest.raises(ValueError, match="got none$"):
        contract(edges, None, torch.ones(1, 1, 3, 2), aggr=aggr)
