"""Weights divided by degrees: tiny ones, and negative ones, on drawn graphs."""

import formulas
import pytest
import torch
from oracle import assert_same

from pyg_outerconv import OuterConv
from pyg_outerconv.families import GCN, Chebyshev, Diffusion, Directed, Relation, Walk
from pyg_outerconv.graph import Graph
from pyg_outerconv.graph.norm import NORMS, Norm, sums_in_order, transition
from pyg_outerconv.testing import assert_near

P, Q = 3, 2
DIVIDING = [
    GCN(),
    GCN(norm="target"),
    GCN(add_self_loops=False),
    GCN("target", add_self_loops=False),
    *(Walk(2, norm) for norm in ("source", "target", "sym", "both")),
    Walk(2, "source", direction="both", add_self_loops=True),
    Diffusion(norm="source", length=3, add_self_loops=False),
    Chebyshev(3),
    Chebyshev(3, norm="source"),
    Directed(GCN("target", add_self_loops=False)),
]
of_each = pytest.mark.parametrize("family", DIVIDING, ids=str)


def drawn(seed, nodes=7, edges=16):
    """A connected graph whose nodes send and receive weights of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    ring = torch.arange(nodes)
    index = torch.randint(nodes, (2, edges), generator=generator)
    index = torch.cat([torch.stack([ring, (ring + 1) % nodes]), index], 1)
    weight = torch.rand(index.size(1), generator=generator, dtype=torch.float64) + 0.1
    return index, weight, torch.randn(nodes, P, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("size", [(7, 7), (7, 9)], ids=str)
@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_edges_without_weights_have_those_of_weights_of_one(norm, size):
    index, weight, _ = drawn(0)
    bare, ones = (
        Graph.read(index, edge_weight, size=size) for edge_weight in (None, torch.ones_like(weight))
    )
    actual, expected = (transition(edges, norm, weight.dtype, False) for edges in (bare, ones))
    assert_near(actual.weight(weight.dtype), expected.weight(weight.dtype))


def test_every_norm_has_numbers_and_a_formula_of_its_own():
    index, weight, _ = drawn(0)
    edges = Graph.read(index, weight, size=(7, 7))
    weights = [transition(edges, norm, weight.dtype, False).weight(weight.dtype) for norm in NORMS]
    same = [torch.allclose(one, other) for one in weights for other in weights]
    assert sum(same) == len(NORMS) == len({GCN(norm).formula for norm in NORMS})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("of_targets", [False, True])
def test_a_norm_is_its_powers(monkeypatch, weighted, of_targets):
    monkeypatch.setitem(NORMS, "skew", Norm(0.7, 0.3, of_targets))
    index, weight, _ = drawn(0)
    weight = weight if weighted else torch.ones_like(weight)
    family = GCN("skew", add_self_loops=False)
    matrix = torch.zeros(7, 7, dtype=weight.dtype).index_put(tuple(index), weight, accumulate=True)
    sent, received = matrix.sum(1), matrix.sum(0)
    powers = (received if of_targets else sent)[:, None] ** 0.7 * received**0.3
    expected = torch.where(matrix > 0, matrix / powers, 0.0)
    edges = Graph.read(index, weight if weighted else None, size=(7, 7))
    actual = family.basis_on(edges, weight.dtype).to_dense()[0]
    assert_near(actual, torch.where(powers > 0, expected, 0.0))
    assert "^-0.7 W D" in family.formula


def gradients(conv, index, weight, x):
    weight = weight.detach().requires_grad_()
    out = conv(x, index, weight)
    direction = torch.linspace(-1, 1, out.numel(), dtype=x.dtype).view_as(out)
    return out, torch.autograd.grad(out, [weight, *conv.parameters()], direction)


@pytest.mark.parametrize(
    ("exponent", "some"), [(-20, False), (-27, False), (-34, False), (-20, True)]
)
@of_each
def test_gradients_of_tiny_degrees_are_those_of_float64(family, some, exponent):
    index, weight, x = drawn(-exponent)
    # All weights, or all that touch two of the nodes. (Beyond 1e-25 true derivatives overflow.)
    tiny = (index < 2).any(0) if some else torch.ones_like(weight, dtype=torch.bool)
    weight = torch.where(tiny, weight * 10.0**exponent, weight).float()
    conv = OuterConv(P, Q, family)
    actual, actual_gradients = gradients(conv, index, weight, x.float())
    expected, expected_gradients = gradients(conv.double(), index, weight.double(), x)
    assert_near(actual.double(), expected, 1e-5)
    for gradient, reference in zip(actual_gradients, expected_gradients, strict=True):
        assert gradient.isfinite().all()
        assert_near(gradient.double(), reference, 5e-5)


def test_nodes_without_weight_give_and_take_nothing():
    index = torch.tensor([[0, 1, 2], [1, 2, 3]])
    weight = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
    for family in (GCN(add_self_loops=False), GCN("target", add_self_loops=False), Walk(1)):
        dense = family.basis(index, weight).to_dense()[-1]
        assert dense.isfinite().all()
        (gradient,) = torch.autograd.grad(dense.sum(), weight)
        assert gradient.isfinite().all()
        assert dense[1, 2] == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("family", "norm", "loops"),
    [
        (GCN(), "sym", True),
        (GCN("target"), "target", True),
        (GCN(add_self_loops=False), "sym", False),
        (Walk(1, "source", powers=(1,)), "source", False),
        (Walk(1, "target", powers=(1,), add_self_loops=True), "target", True),
        (Walk(1, "sym", powers=(1,)), "sym", False),
        (GCN("both", add_self_loops=False), "both", False),
        (Walk(1, "both", powers=(1,), add_self_loops=True), "both", True),
    ],
    ids=str,
)
def test_negative_weights_whose_sums_stay_positive_are_divided_by_them(family, norm, loops, seed):
    index, weight, _ = drawn(seed)
    first = torch.arange(weight.numel()) < 7  # a ring, so that every node has a sum
    weight = torch.where(first, weight + 4, -weight / 4).requires_grad_()
    actual = family.basis(index, weight).to_dense()[0]
    graph = formulas.Graph(*index, weight, index[0], (7, 7), False)
    expected = formulas.gcn(graph, norm, loops).dense[0]
    assert_same(actual, expected, [weight])


@pytest.mark.parametrize("weights", [(1.0, -2.0), (1.0, -1.0)], ids=["negative", "cancelling"])
@pytest.mark.parametrize(
    "family",
    [
        GCN(add_self_loops=False),
        GCN("target", add_self_loops=False),
        *(Walk(1, norm) for norm in ("source", "target", "sym", "both")),
        Chebyshev(2, "exact"),
        Chebyshev(2, 1.5, "source"),
    ],
    ids=str,
)
def test_sums_that_nothing_can_be_divided_by_are_refused(family, weights):
    # Nodes 0 and 2 receive, and send, both weights.
    index = torch.tensor([[1, 3, 0, 0, 2, 2, 1, 3], [0, 0, 1, 3, 1, 3, 2, 2]])
    weight = torch.tensor([*weights, *weights, *weights, *weights])
    said = rf"divides by degrees.*Walk\(norm=None\).*add up to {sum(weights):g} at node 0"
    with pytest.raises(ValueError, match=said):
        family.basis(index, weight)


def test_an_exact_laplacian_takes_negative_weights_and_the_bound_refuses_them():
    index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    weight = torch.tensor([3.0, 3.0, -1.0, -1.0, 2.0, 2.0], dtype=torch.float64)
    matrix = torch.zeros(3, 3, dtype=torch.float64).index_put(tuple(index), weight)
    laplacian = matrix.sum(1).diag() - matrix
    largest = float(torch.linalg.eigvalsh(laplacian).abs().max())
    actual = Chebyshev(2, "exact", None).basis(index, weight).to_dense()[1]
    assert_near(actual, 2 * laplacian / largest - torch.eye(3).double())
    with pytest.raises(ValueError, match=r"lambda_max='bound' needs.*or lambda_max='exact'"):
        Chebyshev(2, norm=None).basis(index, weight)


OF_COUNTS = [GCN(add_self_loops=False), GCN(), Walk(2), Relation(1)]


@pytest.mark.parametrize("family", OF_COUNTS, ids=str)
def test_degrees_are_counted_within_transforms_too(family):
    edge_index, weight = torch.randint(6, (2, 14)), torch.randn(3, 2)
    conv = OuterConv(3, 2, family, theta="shared", bias=False, cached=False)

    def total(weight, x):
        named = {name: weight for name, _ in conv.named_parameters()}
        return torch.func.functional_call(conv, named, (x, edge_index)).square().sum()

    x = torch.randn(4, 6, 3)
    item_gradients = torch.func.vmap(torch.func.grad(total), (None, 0))(weight, x)
    for one, gradient in zip(x, item_gradients, strict=True):
        leaf = weight.clone().requires_grad_()
        (wanted,) = torch.autograd.grad(total(leaf, one), leaf)
        torch.testing.assert_close(gradient, wanted)


def test_degrees_in_the_order_of_edges_are_those_of_any_order():
    nodes = torch.tensor([3, 0, 3, 3, 1, 0])
    weight = torch.randn(6, dtype=torch.float64, requires_grad=True)
    actual = sums_in_order(weight, nodes, 5)
    expected = torch.zeros(5, dtype=torch.float64).index_add(0, nodes, weight)
    assert_near(actual.detach(), expected.detach())
    above = torch.randn(5, dtype=torch.float64)
    both = [torch.autograd.grad(out, weight, above)[0] for out in (actual, expected)]
    assert_near(*both)
    assert torch.autograd.gradgradcheck(lambda x: sums_in_order(x, nodes, 5).square(), weight)
