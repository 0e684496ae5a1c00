"""Polynomials of a graph, of each channel too: those of the eigenvalues of its matrix."""

import copy
import math

import formulas
import numpy as np
import pytest
import scipy.special
import torch

from pyg_outerconv import OuterConv, compose, families
from pyg_outerconv.basis import CHEBYSHEV, ChannelPolynomial, EdgeBasis, Polynomial, Recurrence
from pyg_outerconv.contract import contract
from pyg_outerconv.families import (
    GCN,
    Bernstein,
    ChebyshevFirst,
    ChebyshevNodes,
    Compose,
    Favard,
    Identity,
    Jacobi,
    Legendre,
    Monomial,
    OptBasis,
    Stack,
)
from pyg_outerconv.nn import SparseFeatures
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.theta import Theta

N, K, P, Q = 9, 6, 3, 4

# Of each family its polynomials of numbers, by scipy.


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


DRAWN = [
    (kind, {name: numbers[at % len(numbers)] for name, numbers in choices.items()})
    for kind, (_, choices) in formulas.POLYNOMIALS.items()
    for at in range(max(map(len, choices.values()), default=1))
]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("of", ["adjacency", "laplacian"])
@pytest.mark.parametrize(("kind", "options"), DRAWN)
def test_each_term_is_its_formula(kind, options, of, loops):
    edge_index, weight = undirected()
    both, options = torch.cat([weight, weight]), {**options, "of": of, "add_self_loops": loops}
    graph = formulas.Graph(*edge_index, both, edge_index[0], (N, N), False)
    terms = formulas.polynomials(graph, formulas.POLYNOMIALS[kind][0], K, **options).dense
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    for channels in (Q, P - 1):  # Θ last, and first
        conv = OuterConv(P, channels, getattr(families, kind)(K, **options)).double()
        actual = conv(x, edge_index, both)
        expected = torch.einsum("kmn,mp,kpq->nq", terms, x, conv.theta.weight) + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()], 1e-8)


def test_many_terms_stay_bounded_and_are_made_without_powers():
    edge_index, _ = undirected()
    conv = OuterConv(P, Q, ChebyshevFirst(200)).double()
    basis = conv.basis(torch.zeros(N, P, dtype=torch.float64), edge_index)
    assert isinstance(basis, Polynomial)
    x = torch.randn(N, P, dtype=torch.float64)
    s = normalised(edge_index, torch.ones(edge_index.size(1) // 2, dtype=torch.float64))
    value, vector = torch.linalg.eigh(s)
    terms = torch.cos(torch.arange(200)[:, None] * value.clamp(-1, 1).acos())
    dense = torch.einsum("mi,ki,ni->kmn", vector, terms, vector)
    expected = torch.einsum("kmn,mp,kpq->nq", dense, x, conv.theta.weight)
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
            comp = conv.theta.comp
            assert_near(comp.detach(), torch.tensor(expected)[:, None].expand_as(comp))
            torch.nn.init.zeros_(comp)
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


TERMS = 4
BOTH = ("favard", "opt_basis")
of_both = pytest.mark.parametrize("name", BOTH)


def layer(name, *options, channels=(P, Q), **more):
    """A layer with random parameters."""
    family = {"favard": Favard, "opt_basis": OptBasis}[name](TERMS, *options, **more)
    conv = OuterConv(*channels, family).double()
    with torch.no_grad():
        for parameter in conv.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return conv


def expected_of(conv, matrix, x):
    """The papers' filters of the channels of X W."""
    theta, family = conv.theta, conv.family
    h = x @ theta.weight
    if isinstance(family, OptBasis):
        return formulas.opt_basis_gnn(matrix, h, theta.comp) + conv.bias
    own = family.coefficients
    return formulas.favard_gnn(matrix, h, theta.comp, own.center, own.root) + conv.bias


@of_both
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("of", ["adjacency", "laplacian"])
def test_it_is_the_filter_of_its_paper(name, of, loops):
    edge_index, weight = undirected()
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    matrix = normalised(edge_index, weight, add_self_loops=loops)
    for channels in ((P, Q), (P, P + 2)):
        conv = layer(name, of=of, add_self_loops=loops, channels=channels)
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        expected = expected_of(conv, -matrix if of == "laplacian" else matrix, x)
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()], 1e-8)


@of_both
def test_each_matrix_is_a_polynomial_of_the_eigenvalues(name):
    edge_index, _ = undirected()
    conv = layer(name)
    x = torch.randn(N, P, dtype=torch.float64)
    basis = conv.basis(x, edge_index)
    assert isinstance(basis, ChannelPolynomial)
    matrix = normalised(edge_index, torch.ones(edge_index.size(1) // 2, dtype=torch.float64))
    value, vector = torch.linalg.eigh(matrix)
    last, here = torch.zeros(N, Q).double(), basis.alpha[0].expand(N, Q)
    terms = [here]
    for alpha, beta, gamma in zip(basis.alpha[1:], basis.beta[1:], basis.gamma[1:], strict=True):
        last, here = here, (alpha * value[:, None] + beta) * here - gamma * last
        terms.append(here)
    diagonal = torch.stack(terms).movedim(1, -1).flatten(0, 1)  # (K·Q, N)
    dense = torch.einsum("in,kn,jn->kij", vector, diagonal, vector)
    assert_near(basis.to_dense(), dense)
    assert_near(basis.edges().to_dense(), dense)
    if name == "opt_basis":
        z = x @ conv.theta.weight
        h = torch.einsum("kqmn,mq->kqn", dense.unflatten(0, (TERMS, Q)), z / z.norm(dim=0))
        products = torch.einsum("jqn,kqn->qjk", h, h)
        assert_near(products.detach(), torch.eye(TERMS).double().expand(Q, TERMS, TERMS))


@of_both
def test_it_begins_as_in_its_paper(name):
    edge_index, _ = undirected()
    conv = OuterConv(P, Q, name).double()
    x = torch.randn(N, P, dtype=torch.float64)
    h = x @ conv.theta.weight
    assert_near(conv(x, edge_index), h + conv.bias)
    conv.theta.comp.detach().zero_()[1] = 1.0
    matrix = normalised(edge_index, torch.ones(edge_index.size(1) // 2, dtype=torch.float64))
    if name == "favard":
        assert_near(conv(x, edge_index), matrix @ h)  # η = 0, √β = 1


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_features_of_another_unit_change_outputs_alone(factor):
    edge_index, _ = undirected()
    conv, x = layer("opt_basis"), torch.randn(N, P, dtype=torch.float64)
    basis, other = conv.basis(x, edge_index), conv.basis(factor * x, edge_index)
    assert_near(other.to_dense(), basis.to_dense())
    out = conv(x, edge_index) - conv.bias
    assert_near(conv(factor * x, edge_index) - conv.bias, factor * out)


@of_both
def test_outputs_are_as_large_on_many_copies_of_a_graph(name):
    edge_index, _ = undirected()
    conv, x = layer(name), torch.randn(N, P, dtype=torch.float64)
    copies = torch.cat([edge_index + N * i for i in range(50)], 1)
    assert_near(conv(x.repeat(50, 1), copies), conv(x, edge_index).repeat(50, 1))


def test_the_signal_takes_as_few_sparse_products_as_terms(monkeypatch):
    products = []
    true = EdgeBasis.propagate_rows

    def counted(self, x, *args, **options):
        products.append(x.shape)
        return true(self, x, *args, **options)

    monkeypatch.setattr(EdgeBasis, "propagate_rows", counted)
    for shape in ((N, P), (2, N, P)):
        x = torch.randn(shape, dtype=torch.float64)
        layer("opt_basis")(x, undirected()[0])
        assert [one[-1] for one in products] == [Q] * (TERMS - 1)
        products.clear()


@pytest.mark.parametrize("changed", ["x", "weight"])
@torch.no_grad()
def test_a_basis_of_a_signal_keeps_no_terms_of_what_was_changed_since(changed):
    x, edge_index = (
        torch.randn(4, 5, dtype=torch.float64),
        torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]),
    )
    conv = OuterConv(5, 3, "opt_basis(3)").double()
    basis = conv.basis(x, edge_index)
    (x if changed == "x" else conv.theta.weight).mul_(2.0)
    other = ChannelPolynomial(basis.operator, basis.alpha, basis.beta, basis.gamma)
    assert_near(conv(x, basis), conv(x, other))


@of_both
def test_other_ways_give_the_same(name):
    """For other Θ, from sparse features, by messages of a basis whose terms are not known."""
    edge_index, _ = undirected()
    conv = layer(name)
    x = torch.randn(N, P, dtype=torch.float64)
    expected = conv(x, edge_index)
    assert conv.contraction_path(x, edge_index).chosen == ["channel_recurrence"]
    basis = conv.basis(x, edge_index)
    assert_near(conv(x.clone(), basis), expected)  # whose terms are not known
    assert_near(conv(SparseFeatures.of(x.to_sparse_csr()), edge_index), expected)
    if name == "favard":
        twin = copy.deepcopy(conv)
        assert twin.family.coefficients is twin.functions[0]
    other = Theta(conv.theta.parameter().full())
    assert_near(other.combine(basis.propagate(x).flatten(0, 1), N) + conv.bias, expected)
    assert_near(contract(basis, x, other) + conv.bias, expected)
    conv.fuse = False
    assert_near(conv(x, edge_index), expected)


@of_both
def test_in_a_stack_it_stands_beside_other_labels(name):
    edge_index, _ = undirected()
    x = torch.randn(N, P, dtype=torch.float64)
    part = {"favard": Favard, "opt_basis": OptBasis}[name](TERMS)
    conv = OuterConv(P, Q, Stack(Identity(), part, GCN())).double()
    assert conv.family.num_bases == TERMS * Q + 2
    torch.nn.init.normal_(conv.theta.parts[1].comp)
    alone = OuterConv(P, Q, conv.family.families[1], bias=False).double()
    alone.theta.load_state_dict(conv.theta.parts[1].state_dict())
    first, _, last = conv.theta.parts
    gcn = formulas.gcn(formulas.Graph(*edge_index, None, edge_index[0], (N, N), False)).dense[0]
    expected = x @ first.weight[0] + alone(x, edge_index) + gcn.T @ x @ last.weight[0]
    assert_near(conv(x, edge_index), expected + conv.bias)


def test_one_recurrence_for_all_channels_is_of_any_theta():
    edge_index, weight = undirected()
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    for theta in ("full", "channelwise", "basis-decomposed(num_bases=1)"):
        conv = OuterConv(P, Q, Favard(TERMS, shared=True), theta=theta).double()
        own = conv.family.coefficients
        assert own.root.shape == (TERMS, 1)
        torch.nn.init.uniform_(own.root, 0.5, 1.5)
        torch.nn.init.uniform_(own.center, -0.5, 0.5)
        matrices = conv.theta.parameter().full()[:, 0]
        matrix, eye = normalised(edge_index, weight), torch.eye(TERMS, dtype=torch.float64)
        terms = [
            formulas.favard_gnn(matrix, x, unit[:, None], own.center, own.root) for unit in eye
        ]
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        expected = torch.einsum("knp,kpq->nq", torch.stack(terms), matrices) + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()])
    inside = OuterConv(P, Q, Compose(Favard(TERMS), GCN()))
    assert inside.family.first.shared
    assert inside.theta.num_labels == TERMS
    assert inside.theta.weight.shape == (TERMS, P, Q)


def test_a_learned_recurrence_is_composed_with_another_layer():
    edge_index, _ = undirected()
    x = torch.randn(N, P, dtype=torch.float64)
    first, second = layer("favard"), OuterConv(Q, 2, GCN()).double()
    assert_near(compose(first, second)(x, edge_index), second(first(x, edge_index), edge_index))


def test_directed_edges_have_learned_polynomials_but_no_signal_basis():
    edge_index = undirected()[0][:, : N + 3]
    x = torch.randn(N, P, dtype=torch.float64)
    conv = layer("favard")
    graph = formulas.Graph(*edge_index, None, edge_index[0], (N, N), False)
    matrix = formulas._step(graph, "sym", False)
    assert_near(conv(x, edge_index), expected_of(conv, matrix.T, x))
    with pytest.raises(ValueError, match=r"needs a symmetric matrix.*undirected.*differ by way"):
        layer("opt_basis")(x, edge_index)
    both = torch.cat([edge_index, edge_index.flip(0)], 1)
    layer("opt_basis")(x, both)
    with pytest.raises(ValueError, match=r"symmetric.*norm='target'"):
        layer("opt_basis", norm="target")(x, both)
    with pytest.raises(ValueError, match=r"one graph.*without batch"):
        layer("opt_basis")(x, both, batch=torch.zeros(N, dtype=torch.long))


def test_terms_without_a_direction_of_their_own_are_zero():
    path = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    conv = OuterConv(2, 2, OptBasis(6), bias=False).double()
    x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]]).double().requires_grad_()
    with torch.no_grad():
        conv.theta.weight.copy_(torch.eye(2))
        conv.theta.comp.fill_(1.0)
    basis = conv.basis(x, path)
    *_, terms = basis.terms_of
    norms = torch.stack([term.norm(dim=0) for term in terms])
    squares = torch.tensor([[6, 6, 6, 0, 0, 0], [0] * 6], dtype=torch.float64)
    assert_near(norms.detach(), squares.sqrt().T)
    out = conv(x, path)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert torch.equal(out[:, 1], torch.zeros(3).double())


@pytest.mark.parametrize("theta", ["low-rank(rank=1)", "shared"])
def test_another_theta_is_refused(theta):
    with pytest.raises(ValueError, match="values of their own, and no other theta"):
        OuterConv(P, Q, Favard(TERMS), theta=theta)
    OuterConv(P, Q, Favard(TERMS), theta="channelwise")
    with pytest.raises(ValueError, match="label_aggr='sum'"):
        OuterConv(P, Q, OptBasis(TERMS), label_aggr="max")
