"""Recurrences of channels: FavardGNN's learned one, and OptBasisGNN's of a signal."""

import copy

import formulas
import pytest
import torch
from families.test_polynomials import N, normalised, undirected

from pyg_outerconv import OuterConv, compose
from pyg_outerconv.basis import ChannelPolynomial, EdgeBasis
from pyg_outerconv.contract import contract
from pyg_outerconv.families import GCN, Compose, Favard, Identity, OptBasis, Stack
from pyg_outerconv.nn import SparseFeatures
from pyg_outerconv.testing import assert_near, assert_same_gradients
from pyg_outerconv.theta import Theta, ThetaOfChannels

K, P, Q = 4, 5, 3
BOTH = ("favard", "opt_basis")
of_both = pytest.mark.parametrize("name", BOTH)


def layer(name, *options, channels=(P, Q), **more):
    """A layer with random parameters."""
    family = {"favard": Favard, "opt_basis": OptBasis}[name](K, *options, **more)
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
        h = torch.einsum("kqmn,mq->kqn", dense.unflatten(0, (K, Q)), z / z.norm(dim=0))
        products = torch.einsum("jqn,kqn->qjk", h, h)
        assert_near(products.detach(), torch.eye(K).double().expand(Q, K, K))


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
        assert [one[-1] for one in products] == [Q] * (K - 1)
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
    """By messages, for other Θ, from sparse features, in a batch, and copied."""
    edge_index, _ = undirected()
    conv = layer(name)
    x = torch.randn(N, P, dtype=torch.float64)
    expected = conv(x, edge_index)
    assert conv.contraction_path(x, edge_index).chosen == ["channel_recurrence"]
    basis = conv.basis(x, edge_index)
    assert_near(conv(x.clone(), basis), expected)  # whose terms are not known
    assert_near(conv(SparseFeatures.of(x.to_sparse_csr()), edge_index), expected)
    assert_near(conv(torch.stack([x, 2 * x]), edge_index)[0], expected)
    twin = copy.deepcopy(conv)
    assert_near(twin(x, edge_index), expected)
    if name == "favard":
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
    part = {"favard": Favard, "opt_basis": OptBasis}[name](K)
    conv = OuterConv(P, Q, Stack(Identity(), part, GCN())).double()
    assert conv.family.num_bases == K * Q + 2
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
        conv = OuterConv(P, Q, Favard(K, shared=True), theta=theta).double()
        own = conv.family.coefficients
        assert own.root.shape == (K, 1)
        torch.nn.init.uniform_(own.root, 0.5, 1.5)
        torch.nn.init.uniform_(own.center, -0.5, 0.5)
        matrices = conv.theta.parameter().full()[:, 0]
        matrix, eye = normalised(edge_index, weight), torch.eye(K, dtype=torch.float64)
        terms = [
            formulas.favard_gnn(matrix, x, unit[:, None], own.center, own.root) for unit in eye
        ]
        actual = conv(x, edge_index, torch.cat([weight, weight]))
        expected = torch.einsum("knp,kpq->nq", torch.stack(terms), matrices) + conv.bias
        assert_near(actual, expected)
        assert_same_gradients(actual, expected, [x, weight, *conv.parameters()])
    inside = OuterConv(P, Q, Compose(Favard(K), GCN()))
    assert inside.family.first.shared
    assert inside.theta.num_labels == K
    assert inside.theta.weight.shape == (K, P, Q)


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


@of_both
def test_channels_may_be_learned_from_the_first_input_and_are_loaded(name):
    edge_index, _ = undirected()
    x = torch.randn(N, P)
    lazy, other = OuterConv(-1, Q, name), OuterConv(P, Q, name)
    lazy(x, edge_index)
    assert {key: one.shape for key, one in lazy.state_dict().items()} == {
        key: one.shape for key, one in other.state_dict().items()
    }
    lazy.load_state_dict(other.state_dict())
    assert_near(lazy(x, edge_index), other(x, edge_index))


@pytest.mark.parametrize("theta", ["low-rank(rank=1)", "shared"])
def test_another_theta_is_refused(theta):
    with pytest.raises(ValueError, match="values of their own, and no other theta"):
        OuterConv(P, Q, Favard(K), theta=theta)
    OuterConv(P, Q, Favard(K), theta="channelwise")
    with pytest.raises(ValueError, match="label_aggr='sum'"):
        OuterConv(P, Q, OptBasis(K), label_aggr="max")


def test_a_contraction_of_channels_is_that_of_their_matrices():
    edge_index, _ = undirected()
    operator = layer("favard").basis(torch.zeros(N, P).double(), edge_index).operator
    numbers = [torch.randn(K, Q, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    basis = ChannelPolynomial(operator, *numbers)
    theta = ThetaOfChannels(torch.randn(P, Q).double(), torch.randn(K, Q).double())
    x = torch.randn(N, P, dtype=torch.float64, requires_grad=True)
    conv = OuterConv(P, Q, Favard(K), bias=False).double()
    actual = conv.message_and_aggregate(basis, x, theta)
    matrices = theta.full()[:, 0]
    expected = torch.einsum("kmn,mp,kpq->nq", basis.to_dense(), x, matrices)
    assert_near(actual, expected)
    assert_same_gradients(actual, expected, [x, *numbers])
