"""Polynomials of a graph: those of the eigenvalues of its matrix, values and gradients."""

import math

import formulas
import numpy as np
import pytest
import scipy.special
import torch

from pyg_outerconv import OuterConv, parse_family
from pyg_outerconv.basis import CHEBYSHEV, Polynomial, Recurrence
from pyg_outerconv.families import (
    FAMILIES,
    GCN,
    Bernstein,
    ChebyshevFirst,
    ChebyshevNodes,
    ChebyshevSecond,
    Gegenbauer,
    Identity,
    Jacobi,
    Legendre,
    Monomial,
    Stack,
)
from pyg_outerconv.testing import assert_near, assert_same_gradients

N, K, P, Q = 9, 6, 3, 4

# Of each family its polynomials of numbers, by scipy.
OF_NUMBERS = {
    Monomial(K): lambda k, t: t**k,
    ChebyshevFirst(K): scipy.special.eval_chebyt,
    ChebyshevSecond(K): scipy.special.eval_chebyu,
    Legendre(K): scipy.special.eval_legendre,
    Gegenbauer(K, 0.7): lambda k, t: scipy.special.eval_gegenbauer(k, 0.7, t),
    Gegenbauer(K, -0.2): lambda k, t: scipy.special.eval_gegenbauer(k, -0.2, t),
    Jacobi(K, 1.0, -0.5): lambda k, t: scipy.special.eval_jacobi(k, 1.0, -0.5, t),
    Jacobi(K, -0.5, -0.5): lambda k, t: scipy.special.eval_jacobi(k, -0.5, -0.5, t),
    Jacobi(K, 0.3, 2.5): lambda k, t: scipy.special.eval_jacobi(k, 0.3, 2.5, t),
}
each_family = pytest.mark.parametrize("family", OF_NUMBERS, ids=repr)


def undirected(seed=0):
    """Edges both ways, and one weight for both; the eigenvalues differ from each other."""
    generator = torch.Generator().manual_seed(seed)
    path = torch.stack([torch.arange(N - 1), torch.arange(1, N)])
    more = torch.randint(N, (2, N), generator=generator)
    one_way = torch.cat([path, more[:, more[0] != more[1]]], 1)
    weight = torch.rand(one_way.size(1), generator=generator, dtype=torch.float64) + 0.1
    return torch.cat([one_way, one_way.flip(0)], 1), weight.requires_grad_()


def normalised(edge_index, weight, norm="sym", add_self_loops=False):
    """Â (N, N), dense."""
    both = torch.cat([weight, weight])
    adjacency = torch.zeros(N, N, dtype=torch.float64)
    adjacency = adjacency.index_put(tuple(edge_index), both, accumulate=True)
    if add_self_loops:
        adjacency = adjacency + torch.eye(N, dtype=torch.float64)
    degree = adjacency.sum(0)
    if norm == "target":
        return adjacency / degree
    return adjacency / degree.sqrt() / degree.sqrt()[:, None]


def by_eigenvalues(matrix, function):
    """f(S) of a symmetric S, as U f(λ) Uᵀ, with gradients."""
    value, vector = torch.linalg.eigh(matrix)
    return vector @ torch.diag(function(value)) @ vector.T


def value_of(family, k, value):
    """p_k of eigenvalues, by coefficients of the powers, which autograd knows."""
    nodes = np.cos(np.arange(1, K + 2) * np.pi / (K + 2))
    fitted = np.polynomial.Polynomial.fit(nodes, OF_NUMBERS[family](k, nodes), k, domain=[-1, 1])
    return sum(float(c) * value**power for power, c in enumerate(fitted.coef))


@each_family
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("of", ["adjacency", "laplacian"])
def test_it_is_the_polynomial_of_the_eigenvalues(family, of, loops):
    edge_index, weight = undirected()
    options = f"{family!r}".replace("of='adjacency'", f"of='{of}'")
    made = parse_family(options.replace("add_self_loops=False", f"add_self_loops={loops}"))
    adjacency = normalised(edge_index, weight, add_self_loops=loops)
    s = adjacency
    if of == "laplacian":
        s = (torch.eye(N) if isinstance(family, Monomial) else 0.0) - adjacency
    terms = [by_eigenvalues(s, lambda value, k=k: value_of(family, k, value)) for k in range(K)]
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    for channels in (Q, P - 1):  # Θ last, and first
        conv = OuterConv(P, channels, made).double()
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        theta = conv.theta.weight
        expected = torch.einsum("kmn,mp,kpq->nq", torch.stack(terms), x, theta) + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()], 1e-8)


@each_family
def test_the_formula_without_a_recurrence_is_the_same_on_directed_edges(family):
    torch.manual_seed(1)
    source, target = torch.randint(N, (2, 3 * N))
    weight = torch.rand(3 * N, dtype=torch.float64) + 0.1
    graph = formulas.Graph(source, target, weight, torch.zeros_like(source), (N, N), False)
    p = getattr(formulas, f"{FAMILIES.name_of(type(family))}_of")
    extra = {one: getattr(family, one) for one in ("a", "b", "lam") if hasattr(family, one)}
    expected = formulas.polynomials(graph, p, K, **extra).dense
    basis = family.basis(torch.stack([source, target]), weight, size=(N, N))
    assert_near(basis.to_dense(), expected)
    assert_near(basis.edges().to_dense(), expected)
    assert_near(basis.transpose().to_dense(), expected.mT)


def test_families_of_special_numbers_are_one():
    edge_index, _ = undirected()

    def dense(family):
        return family.basis(edge_index, size=(N, N), dtype=torch.float64).to_dense()

    assert_near(dense(Jacobi(K, 0.0, 0.0)), dense(Legendre(K)))
    assert_near(dense(Gegenbauer(K, 0.5)), dense(Legendre(K)))
    assert_near(dense(Gegenbauer(K, 1.0)), dense(ChebyshevSecond(K)))
    mirrored = dense(Jacobi(K, 0.5, 2.0, of="laplacian"))  # P^(a,b)(−s) = (−1)^k P^(b,a)(s)
    signs = (-1.0) ** torch.arange(K, dtype=torch.float64)
    assert_near(mirrored, signs[:, None, None] * dense(Jacobi(K, 2.0, 0.5)))


def test_many_terms_stay_bounded_and_are_made_without_powers():
    edge_index, _ = undirected()
    conv = OuterConv(P, Q, ChebyshevFirst(200)).double()
    basis = conv.basis(torch.zeros(N, P, dtype=torch.float64), edge_index)
    assert isinstance(basis, Polynomial)
    x = torch.randn(N, P, dtype=torch.float64)
    s = normalised(edge_index, torch.ones(edge_index.size(1) // 2, dtype=torch.float64))
    terms = [
        by_eigenvalues(s, lambda value, k=k: torch.cos(k * value.clamp(-1, 1).acos()))
        for k in range(200)
    ]
    expected = torch.einsum("kmn,mp,kpq->nq", torch.stack(terms), x, conv.theta.weight)
    assert_near(conv(x, edge_index), expected + conv.bias, 1e-9)


def test_jacobi_is_the_convolution_of_its_paper():
    edge_index, weight = undirected()
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    for channels in (Q, P - 1):
        conv = OuterConv(P, channels, Jacobi(K, 1.0, -0.5), theta="channelwise").double()
        start = math.tanh(1.0) ** torch.arange(K, dtype=torch.float64)
        assert_near(conv.theta.comp, start[:, None].expand(-1, channels), 1e-6)
        torch.nn.init.normal_(conv.theta.comp)
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        adjacency, h = normalised(edge_index, weight), x @ conv.theta.weight
        expected = formulas.jacobi_conv(adjacency, h, conv.theta.comp, 1.0, -0.5) + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()])
    path = conv.contraction_path(x, edge_index)
    assert path.chosen == ["recurrence_clenshaw_mixed"]


@pytest.mark.parametrize("form", ["channelwise", "basis-decomposed(num_bases=1)"])
def test_one_matrix_has_the_numbers_of_the_family_first(form):
    ranks = [0.1, 0.09, 0.9**2]
    powers = OuterConv(-1, Q, Monomial(3), theta=form)
    powers(torch.randn(N, P), undirected()[0])
    both = OuterConv(P, Q, Stack(Identity(), Monomial(3), GCN()), theta=form)
    for conv, expected in ((powers, ranks), (both, [1.0, *ranks, 1.0])):
        for _ in range(2):
            found = conv.theta.comp
            assert_near(found.detach(), torch.tensor(expected)[:, None].expand_as(found))
            torch.nn.init.zeros_(found)
            conv.reset_parameters()
    drawn = OuterConv(P, Q, Monomial(3), theta="basis-decomposed(num_bases=2)").theta.comp
    assert drawn.unique().numel() == drawn.numel(), "several matrices are told apart"
    assert OuterConv(P, Q, Legendre(3), theta="channelwise").theta.comp.eq(1.0).all()


# Known by their values ----------------------------------------------------------------------------


PAPERS = {Bernstein: formulas.bern_net, ChebyshevNodes: formulas.cheb_net_2}
each_paper = pytest.mark.parametrize("kind", PAPERS, ids=lambda kind: kind.__name__)


@each_paper
def test_one_filter_for_all_channels_is_that_of_the_paper(kind):
    edge_index, weight = undirected()
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    laplacian = torch.eye(N) - normalised(edge_index, weight)
    for channels in (Q, P - 1):
        conv = OuterConv(P, channels, kind(K), theta="basis-decomposed(num_bases=1)").double()
        assert conv.theta.comp.eq(1.0).all(), "all begin as ones"
        torch.nn.init.uniform_(conv.theta.comp)
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        filtered = PAPERS[kind](laplacian, x, conv.theta.comp[:, 0])
        expected = filtered @ conv.theta.weight[0] + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()])


@each_paper
@pytest.mark.parametrize("theta", ["full", "channelwise"])
def test_it_is_a_polynomial_of_the_eigenvalues_too(kind, theta):
    edge_index, weight = undirected()
    graph = formulas.Graph(*edge_index, torch.cat([weight, weight]), edge_index[0], (N, N), False)
    p = getattr(formulas, f"{FAMILIES.name_of(kind)}_of")
    terms = formulas.polynomials(graph, p, K, of="laplacian").dense
    value, vector = torch.linalg.eigh(torch.eye(N) - normalised(edge_index, weight))
    diagonal = torch.stack([p(j, torch.diag(value) - torch.eye(N), K) for j in range(K)])
    assert_near(vector @ diagonal @ vector.T, terms)
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    conv = OuterConv(P, Q, kind(K), theta=theta).double()
    actual = conv(x, edge_index, torch.cat([weight, weight]))
    matrices = conv.theta.parameter().full()[:, 0]
    expected = torch.einsum("kmn,mp,kpq->nq", terms, x, matrices) + conv.bias
    assert_near(actual, expected)
    assert_same_gradients(actual, expected, [x, weight, *conv.parameters()])


@each_paper
def test_filters_of_equal_values_are_the_identity(kind):
    basis = kind(40).basis(undirected()[0], size=(N, N), dtype=torch.float64)
    assert_near(basis.to_dense().sum(0), torch.eye(N, dtype=torch.float64))


# Recurrences of one's own -------------------------------------------------------------------------


def test_a_recurrence_may_have_numbers_for_each_term():
    rule = Recurrence("mine", 0.5, (2.0, -1.0), (0.3, 0.0), shift=1.0, beta=(0.0, 0.7))
    edge_index, _ = undirected()
    operator = Monomial(2).basis(edge_index, size=(N, N), dtype=torch.float64).operator
    a, eye = operator.to_dense()[0], torch.eye(N, dtype=torch.float64)
    one = 0.5 * a + eye
    two = 2.0 * a @ one - 0.3 * eye
    three = -a @ two + 0.7 * two
    basis = Polynomial(operator, rule, 4)
    expected = torch.stack([eye, one, two, three])
    assert_near(basis.to_dense(), expected)
    assert_near(basis.edges().to_dense(), expected)
    assert_near(Polynomial(operator, rule, 4, kept=(1, 3)).to_dense(), expected[[1, 3]])
    with pytest.raises(ValueError, match=r"'mine' has numbers for some terms.*<= 4, got 5"):
        Polynomial(operator, rule, 5)


def test_a_recurrence_of_another_argument():
    t = np.linspace(-1, 1, 7)
    rule = CHEBYSHEV.at(0.5, -0.25, 5)
    last, here = np.zeros_like(t), np.ones_like(t)
    for k in range(1, 5):
        alpha, beta, gamma = rule.factors(k)
        last, here = here, (alpha * t + beta) * here - gamma * last
        np.testing.assert_allclose(here, scipy.special.eval_chebyt(k, 0.5 * t - 0.25), atol=1e-13)
