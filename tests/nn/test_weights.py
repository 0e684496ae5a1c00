"""Edge weights of any type and shape, and adjacency matrices, as PyG's layers take them."""

import pytest
import torch
from oracle import assert_same
from peers import OURS_OF, P, Q
from torch.func import functional_call
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, GraphConv, TAGConv
from torch_geometric.transforms import ToSparseTensor

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Identity, Relation, Stack, Walk
from pyg_outerconv.testing import assert_near

FAMILIES = [
    GCN(),
    GCN("target", add_self_loops=False),
    Chebyshev(3),
    Chebyshev(2, norm=None),
    Walk(2),
    Walk(2, None),
    Walk(2, "sym", aggr="max"),
    Relation(1, None),
    Relation(1),
    Stack(GCN(), Identity(), Relation(1, None)),
]
TYPES = [torch.int64, torch.int32, torch.uint8, torch.float64, torch.float32, torch.float16]
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def drawn(seed, nodes=7, edges=20):
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(nodes, (2, edges), generator=generator)
    weight = torch.randint(1, 5, (edges,), generator=generator)
    return torch.randn(nodes, P, generator=generator), index, weight


def results(conv, x, *edges, learns):
    out = conv(x, *edges)
    direction = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return out, torch.autograd.grad(out, [x, *conv.parameters(), *learns], direction)


@pytest.mark.parametrize("column", [False, True], ids=["(E,)", "(E, 1)"])
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@of_each_family
def test_weights_of_any_type_are_numbers_in_the_type_of_x(family, dtype, x_dtype, column):
    x, index, weight = drawn(len(str(family)) + TYPES.index(dtype))
    x = x.to(x_dtype).requires_grad_()
    weight = weight.to(dtype) if not dtype.is_floating_point else (weight / 4).to(dtype)
    expected_weight = weight.to(x_dtype)
    learns = [], []
    if dtype.is_floating_point:
        learns = [weight.requires_grad_()], [expected_weight.requires_grad_()]
    given = weight.unsqueeze(1) if column else weight
    conv = OuterConv(P, Q, family).to(x_dtype)
    found, gradients = results(conv, x, index, given, learns=learns[0])
    expected, references = results(conv, x, index, expected_weight, learns=learns[1])
    assert found.dtype == x_dtype
    assert_near(found, expected)
    for gradient, reference in zip(gradients, references, strict=True):
        tolerance = 1e-3 if gradient.dtype == torch.float16 else 1e-6
        assert_near(gradient, reference.to(gradient.dtype), tolerance)


# PyG's layer and the family of ours.
PAIRS = {
    "GCNConv": (lambda: GCNConv(P, Q), GCN()),
    "GCNConv(no self-loops)": (
        lambda: GCNConv(P, Q, add_self_loops=False),
        GCN(add_self_loops=False),
    ),
    "GraphConv": (lambda: GraphConv(P, Q), Relation(1, None)),
    "TAGConv": (lambda: TAGConv(P, Q, K=3), Walk(3, norm="sym")),
    "TAGConv(no norm)": (lambda: TAGConv(P, Q, K=2, normalize=False), Walk(2, norm=None)),
}


def both(name, *arguments, our_arguments=None):
    """Ours on PyG's parameters, and PyG's layer."""
    make, family = PAIRS[name]
    theirs = make()
    ours = OuterConv(P, Q, family, root_weight=name == "GraphConv")
    parameters = OURS_OF[name.split("(")[0]](theirs)
    return functional_call(ours, parameters, our_arguments or arguments), theirs(*arguments)


# What PyG's other layers refuse, a Laplacian of integers or in a column, ours take.
@pytest.mark.parametrize(
    ("name", "dtype", "column"),
    [
        ("GraphConv", torch.int64, False),
        ("GraphConv", torch.int64, True),
        ("GraphConv", torch.float32, True),
        ("GCNConv", torch.float32, True),
        ("GCNConv(no self-loops)", torch.float16, False),
        ("TAGConv(no norm)", torch.int32, False),
    ],
)
def test_integers_and_columns_are_what_pyg_makes_of_them(name, dtype, column):
    x, index, weight = drawn(5)
    index, weight = index[:, index[0] != index[1]], weight[index[0] != index[1]].to(dtype)
    found, expected = both(name, x, index, weight.unsqueeze(1) if column else weight)
    assert_near(found, expected, 1e-3 if dtype == torch.float16 else None)


@pytest.mark.parametrize("seed", range(3))
def test_negative_weights_of_gcn_are_pygs_where_degrees_stay_positive(seed):
    x, index, weight = drawn(seed)
    ring = torch.arange(7)
    index = torch.cat([index, torch.stack([ring, ring.roll(1)])], 1)
    weight = torch.cat([0.2 * weight, torch.full((7,), -0.1)])
    keep = index[0] != index[1]
    index, weight = index[:, keep], weight[keep].requires_grad_()
    assert bool((weight < 0).any())
    found, expected = both("GCNConv", x, index, weight)
    assert_same(found, expected, [weight])


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv", "TAGConv"])
def test_what_the_transform_gives_is_taken_as_pygs_layers_take_it(name, weighted):
    x, index, weight = drawn(2)
    index = torch.unique(index[:, index[0] != index[1]], dim=1)
    given = Data(x=x, edge_index=index)
    if weighted:
        given.edge_weight = weight[: index.size(1)].float()
    data = ToSparseTensor()(given)
    found, expected = both(name, data.x, data.adj_t)
    assert_near(found, expected)
    basis = PAIRS[name][1].basis_of(data)
    torch.manual_seed(1)
    again, _ = both(name, data.x, data.adj_t, our_arguments=(data.x, basis))
    torch.manual_seed(1)
    assert_near(again, both(name, data.x, data.adj_t)[0])


def test_integers_without_x_are_numbers_of_torchs_default_type():
    index, weight = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2, -3])
    value = Relation(1, None).basis(index, weight).value
    assert value.dtype == torch.float32
    assert sorted(value.tolist()) == [-3.0, 2.0]
