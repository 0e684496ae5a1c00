"""What has no edge never arrives, forwards and backwards; what has one does, of weight 0 too."""

from contextlib import nullcontext
from dataclasses import replace
from math import inf, nan

import pytest
import torch
from attention_bases import SHARES, pattern_of
from cases import ALL_PAIRS, CELLS, STRUCTURES, over, structure_for
from contractions import random_edges

from pyg_outerconv.attention import NORMALISERS
from pyg_outerconv.basis import EdgeBasis, Pattern
from pyg_outerconv.basis.attention_basis import AttentionBasis
from pyg_outerconv.contract import contract
from pyg_outerconv.families import (
    Chebyshev,
    Compose,
    Directed,
    Grid,
    HighPass,
    Identity,
    Relation,
    Reverse,
    Scale,
    Select,
    Stack,
    Walk,
)
from pyg_outerconv.kernels import use_backend
from pyg_outerconv.testing import (
    assert_edges_alone_carry,
    assert_near,
    assert_seen_alone,
    dense_contraction,
)
from pyg_outerconv.testing.basis_laws import legal_orders
from pyg_outerconv.theta import Theta, as_theta

SELECTIONS = [
    Walk(3, norm="sym", powers=(1, 3)),
    Walk(2, None, powers=(2,)),
    Select(Chebyshev(3), (2, 0)),
    Select(Stack(Identity(), HighPass(), Relation(3)), (4, 1)),
    Select(Grid((3, 3), padding=1), (4, 0)),
    Select(Compose(Walk(1), Relation(3)), (1, 5, 4)),
    Select(Directed(Walk(2)), (2,)),
    Select(Scale(Relation(3), 2.0), (1,)),
    Select(Reverse(Walk(3)), (2,)),
]
SELECTED = [
    (family, name)
    for family in SELECTIONS
    for name in (CELLS if "Grid" in repr(family) else STRUCTURES)
    if name in CELLS or not STRUCTURES[name].bipartite
]


def positive(*shape):
    return torch.rand(shape, dtype=torch.float64) + 0.5


def basis_with_zeros(family, name):
    """Every third weight is 0, which is an edge all the same."""
    structure = structure_for(family, name)
    weight = getattr(structure, "edge_weight", None)
    if weight is not None:
        weight = weight.detach().clone()
        weight[::3] = 0.0
        structure = replace(structure, edge_weight=weight)
    return family.basis(structure, dtype=torch.float64)


FORMS = {
    "to fewer": (nan, lambda count: positive(count, 1, 3, 2)),
    "to more": (inf, lambda count: positive(count, 1, 2, 3)),
    "mixed": (nan, lambda count: Theta(positive(2, 1, 2, 3), positive(count, 2))),
    "identity": (inf, lambda count: Theta.identity(count, 2, positive(1))),
}


@pytest.mark.parametrize("form", FORMS)
@over([*ALL_PAIRS, *SELECTED])
def test_every_family_by_every_order(family, name, form):
    basis, (number, make_theta) = basis_with_zeros(family, name), FORMS[form]
    theta = make_theta(basis.num_bases)
    x = positive(basis.size[0], as_theta(theta).shape[1] * as_theta(theta).shape[2])
    assert_edges_alone_carry(basis, x, theta, number)


@pytest.mark.parametrize("number", [nan, inf], ids=str)
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("backend", [None, "native", "scatter", "reference"])
def test_every_backend_and_reduction(backend, aggr, number):
    edges = random_edges(7, 14, 2, dtype=torch.float64)
    value = edges.value.detach().abs()
    value[::3] = 0.0
    basis = edges.with_values(value)
    with nullcontext() if backend is None else use_backend(backend):
        for widths in ((3, 2), (2, 3)):
            x, theta = positive(7, widths[0]), positive(2, 1, *widths)
            assert_edges_alone_carry(basis, x, theta, number, aggr)


def half_filled(nodes):
    """Four fifths of all pairs; the last node has no edge."""
    index = torch.rand(nodes - 1, nodes - 1).lt(0.8).nonzero().t()
    return EdgeBasis(Pattern.build(index, size=(nodes, nodes)), positive(index.size(1)))


@pytest.mark.parametrize("widths", [(16, 8), (8, 16)], ids=str)
def test_a_node_without_edges_beside_a_filled_graph(widths):
    basis, theta = half_filled(40), positive(1, 1, *widths)
    x = positive(40, widths[0])
    x[-1] = nan
    x.requires_grad_()
    for order in (None, "dense"):
        out = contract(basis, x, theta, order)
        assert out[:-1].isfinite().all()
        above = torch.ones_like(out)
        above[-1] = nan
        (grad,) = torch.autograd.grad(out, x, above)
        assert grad[:-1].isfinite().all()


@pytest.mark.parametrize("widths", [(3, 2), (2, 3)], ids=str)
def test_where_numbers_cannot_be_looked_at_edges_are_taken(widths):
    basis, theta = half_filled(6), positive(1, 1, *widths)
    x = positive(4, 6, widths[0])
    x[2, -1] = nan
    expected = torch.stack([contract(basis, item, theta, "transform_first") for item in x])

    def run(x):
        return contract(basis, x, theta, "dense")

    for actual in (
        torch.vmap(run)(x),
        torch.vmap(torch.func.jvp, (None, 0, 0))(run, (x,), (x,))[0],
    ):
        assert torch.equal(actual.isnan(), expected.isnan())


def test_second_derivatives_of_a_gradient_that_is_not_finite():
    basis, theta = half_filled(6), positive(1, 1, 2, 3)
    x = positive(6, 2).requires_grad_()
    for order in ("dense", "transform_first"):
        weight = torch.ones(6, 3, dtype=torch.float64).index_fill(0, torch.tensor(5), nan)
        weight.requires_grad_()
        (grad,) = torch.autograd.grad(
            contract(basis, x, theta, order), x, weight, create_graph=True
        )
        (again,) = torch.autograd.grad(grad[:-1].sum(), weight)
        assert_near(
            again,
            dense_contraction(basis, torch.ones_like(x).index_fill(0, torch.tensor(5), 0.0), theta),
        )


def test_large_numbers_whose_squares_overflow_are_no_infinity():
    basis, theta = half_filled(8), positive(1, 1, 2, 3)
    x = 1e200 * positive(8, 2)
    assert_near(contract(basis, x, theta, "dense"), dense_contraction(basis, x, theta))


def seen_by_heads(pattern, bias):
    """(M, N) whether some head has an edge whose bias is not -inf."""
    there = (bias > -inf).flatten(1).any(1)
    seen = torch.zeros(pattern.size, dtype=torch.bool)
    return seen.index_put((pattern.source.long(), pattern.target.long()), there, accumulate=True)


def hidden_edges(labels, heads, batch):
    """A pattern, queries, keys, and a bias that is -inf at about half of the edges."""
    pattern = pattern_of("multi-edge", labels)
    (sources, targets), shared = pattern.size, heads // labels
    query, key = positive(targets, *batch, heads, 2), positive(sources, *batch, heads, 2)
    hidden = torch.rand(pattern.num_edges, *(1,) * len(batch), 1) < 0.5
    bias = positive(pattern.num_edges, *batch, shared).masked_fill(hidden, -inf)
    return pattern, query, key, bias


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(("batch", "number"), [((), nan), ((2,), inf)], ids=str)
@pytest.mark.parametrize(("labels", "heads"), SHARES)
@pytest.mark.parametrize("name", NORMALISERS)
def test_a_bias_of_minus_infinity_says_that_there_is_no_edge(name, labels, heads, batch, number):
    """By every order of attention and of heads, for values, keys and queries."""
    pattern, query, key, bias = hidden_edges(labels, heads, batch)
    x, theta = positive(pattern.size[0], *batch, 3), positive(heads, 1, 3, 2)
    seen, own = seen_by_heads(pattern, bias), torch.eye(pattern.size[1], dtype=torch.bool)

    def basis(query=query, key=key):
        normalise = NORMALISERS[name]()
        return AttentionBasis(pattern.with_values(None), query, key, normalise, 0.7, bias)

    reasons = legal_orders(basis(), x, theta)
    orders = [order for order in reasons if not reasons[order]]
    assert {"heads_transform_first", "heads_propagate_first"} <= set(orders)
    for order in (None, *orders):
        for run, tensor, sees, arrives in (
            (lambda x: contract(basis(), x, theta, order), x, seen, True),  # noqa: B023
            (lambda k: contract(basis(key=k), x, theta, order), key, seen, False),  # noqa: B023
            (lambda q: contract(basis(query=q), x, theta, order), query, own, False),  # noqa: B023
        ):
            assert_seen_alone(run, tensor, sees, number, arrives, arrives)
