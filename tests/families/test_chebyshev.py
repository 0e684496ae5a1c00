"""Chebyshev: what each graph of a batch gives alone, and largest eigenvalues that are hard."""

import formulas
import pytest
import torch
from torch_geometric.data import Batch, Data

from pyg_outerconv import OuterConv
from pyg_outerconv.families import Chebyshev
from pyg_outerconv.graph import spectrum
from pyg_outerconv.graph.graph import Graph
from pyg_outerconv.testing import assert_near, assert_same_gradients

P, Q = 3, 2
SEEDS = range(3)
NORMS = ("sym", "source", "target", None)
of_each_norm = pytest.mark.parametrize("norm", NORMS)


def drawn_graphs(seed, dtype=torch.float64):
    """Graphs of one to seven nodes: loops, parallel edges, isolated nodes, weights of zero."""
    generator = torch.Generator().manual_seed(seed)

    def below(count):
        return int(torch.randint(count, (), generator=generator))

    graphs = []
    for _ in range(2 + below(4)):
        nodes = 1 + below(7)
        edges = below(3 * nodes)
        index = torch.randint(nodes, (2, edges), generator=generator)
        weight = torch.rand(edges, generator=generator, dtype=dtype) * 10.0 ** (below(5) - 2)
        weight[torch.rand(edges, generator=generator) < 0.1] = 0
        if below(2):
            index, weight = torch.cat([index, index.flip(0)], 1), torch.cat([weight, weight])
        x = torch.randn(nodes, P, generator=generator, dtype=dtype)
        graphs.append(Data(x=x, edge_index=index, edge_weight=weight))
    return graphs


def dense_terms(graph, weight, num_terms, lambda_max, norm):
    """(K, N, N): the recurrence of T_k(2L/λ − I), of one graph."""
    index, nodes = graph.edge_index, graph.num_nodes
    drawn = formulas.Graph(*index, weight, index[0], (nodes, nodes), False)
    if lambda_max == "exact":
        laplacian = formulas.chebyshev(drawn, 2, 2.0, norm).dense[1] + torch.eye(nodes)
        lambda_max = float(torch.linalg.eigvals(laplacian.detach()).abs().max()) or 2.0
    return formulas.chebyshev(drawn, num_terms, lambda_max, norm).dense


def given_lambda(option, graphs):
    return {"numbers": tuple(1.0 + i for i in range(len(graphs))), "number": 1.7}.get(
        option, option
    )


def assert_layer_is_its_graphs(option, norm, seed, with_batch):
    graphs = drawn_graphs(seed)
    batch = Batch.from_data_list(graphs)
    lambda_max = given_lambda(option, graphs)
    family = Chebyshev(1 + seed % 4, lambda_max, norm) if option else Chebyshev(3)
    conv = OuterConv(P, Q, family).double()
    x, weight = batch.x.requires_grad_(), batch.edge_weight.requires_grad_()
    graph_of = batch.batch if with_batch else None
    actual = conv(x, batch.edge_index, weight, size=(len(x),) * 2, batch=graph_of)
    weights = weight.split([graph.num_edges for graph in graphs])
    expected = []
    for i, (graph, own) in enumerate(zip(graphs, weights, strict=True)):
        number = lambda_max[i] if option == "numbers" else family.lambda_max
        terms = dense_terms(graph, own, family.num_terms, number, family.norm)
        features = x[batch.ptr[i] : batch.ptr[i + 1]]
        expected.append(torch.einsum("kmn,mp,kpq->nq", terms, features, conv.theta.weight))
    expected = torch.cat(expected) + conv.bias
    assert_near(actual, expected, 1e-8 if option == "exact" else None)
    wanted = [x, weight, *conv.parameters()]
    assert_same_gradients(actual, expected, wanted, 1e-7 if option == "exact" else 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("option", ["bound", "exact", "number", "numbers"])
@of_each_norm
def test_a_batch_is_convolved_as_its_graphs(norm, option, seed):
    assert_layer_is_its_graphs(option, norm, seed, with_batch=True)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("option", "norm"), [(None, "sym"), ("bound", "sym"), ("bound", "source"), ("number", None)]
)
def test_what_does_not_depend_on_the_batch_needs_none(option, norm, seed):
    assert_layer_is_its_graphs(option, norm, seed, with_batch=False)


@pytest.mark.parametrize("option", ["bound", "exact"])
def test_without_batch_the_bound_of_degrees_and_exact_values_are_of_one_graph(option):
    batch = Batch.from_data_list(drawn_graphs(2))
    whole = Data(edge_index=batch.edge_index, num_nodes=batch.num_nodes)
    family = Chebyshev(3, option, None)
    basis = family.basis(batch.edge_index, batch.edge_weight, size=(batch.num_nodes,) * 2)
    assert_near(basis.to_dense(), dense_terms(whole, batch.edge_weight, 3, option, None), 1e-8)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("option", ["bound", "exact", "number", "numbers"])
@of_each_norm
def test_edges_between_graphs_are_refused(norm, option, seed):
    graphs = drawn_graphs(seed)
    batch = Batch.from_data_list(graphs)
    generator = torch.Generator().manual_seed(seed)
    one, other = torch.randperm(len(graphs), generator=generator)[:2].tolist()
    edge = torch.stack([batch.ptr[one], batch.ptr[other + 1] - 1])
    at = int(torch.randint(batch.num_edges + 1, (), generator=generator))
    index = torch.cat([batch.edge_index[:, :at], edge[:, None], batch.edge_index[:, at:]], 1)
    family = Chebyshev(2, given_lambda(option, graphs), norm)
    said = rf"edges within a graph, got {edge[0]} -> {edge[1]}, from graph {one} to {other}"
    with pytest.raises(ValueError, match=said):
        family.basis(index, size=(batch.num_nodes,) * 2, batch=batch.batch)
    family.basis(batch.edge_index, size=(batch.num_nodes,) * 2, batch=batch.batch)


def test_graphs_may_be_numbered_by_short_integers():
    batch = Batch.from_data_list(drawn_graphs(1))
    family, size = Chebyshev(3, norm=None), (batch.num_nodes,) * 2
    actual, expected = (
        family.basis(batch.edge_index, batch.edge_weight, size=size, batch=graph_of).to_dense()
        for graph_of in (batch.batch.int(), batch.batch)
    )
    assert_near(actual, expected)


@pytest.mark.parametrize("batched", [False, True])
@of_each_norm
def test_vmap_over_weights_has_a_rule_for_exact_eigenvalues(norm, batched):
    enabled = torch._C._functorch._is_vmap_fallback_enabled()
    batch = Batch.from_data_list(drawn_graphs(1))
    weight = torch.rand(3, batch.num_edges, dtype=torch.float64) + 0.1
    conv = OuterConv(P, Q, Chebyshev(3, "exact", norm)).double()

    def of(weight):
        graph = batch.batch if batched else None
        return conv(batch.x, batch.edge_index, weight, batch=graph)

    torch._C._functorch._set_vmap_fallback_enabled(False)  # it warns, and asks for an issue
    try:
        actual = torch.func.vmap(of)(weight)
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(enabled)
    assert_near(actual, torch.stack([of(one) for one in weight]), 1e-8)


N = 160
HERE = torch.arange(N)
PATH = torch.stack([HERE[:-1], HERE[1:]])
CYCLE = torch.stack([HERE, (HERE + 1) % N])
of_some_norms = pytest.mark.parametrize("norm", ["sym", "source", None])


def largest(edge_index, norm, size=N, batch=None):
    edges = Graph.read(edge_index, size=(size, size), batch=batch)
    return Chebyshev(2, norm=norm)._exact_lambda(edges)


@of_some_norms
def test_a_long_directed_path_has_the_eigenvalues_of_its_diagonal(norm):
    # Far from normal: an iteration on the whole matrix finds 1.7.
    assert largest(PATH, norm).tolist() == [1.0]


@of_some_norms
def test_a_directed_cycle_has_many_eigenvalues_of_nearly_one_modulus(norm):
    assert float(largest(CYCLE, norm)) == pytest.approx(2.0)
    odd = torch.stack([HERE[:-1], (HERE[:-1] + 1) % (N - 1)])
    expected = abs(1 - torch.exp(torch.tensor(1j * torch.pi * N / (N - 1)))).item()
    assert float(largest(odd, norm, N - 1)) == pytest.approx(expected)


@of_some_norms
def test_strongly_connected_parts_are_taken_one_by_one(norm):
    # Two cycles with a one-way bridge between them, and a tail.
    two = torch.tensor([[0, 1, 2, 1, 3, 4, 4], [1, 2, 0, 3, 4, 3, 5]])
    edges = torch.cat([two, 6 + PATH[:, : N - 7]], dim=1)
    dense = Chebyshev(2, norm=norm)._laplacian(Graph.read(edges, size=(N, N)), None)
    matrix = torch.zeros(N, N).index_put(
        (dense.source, dense.target), dense.edge_weight, accumulate=True
    )
    expected = torch.linalg.eigvals(matrix.double()).abs().max()
    assert float(largest(edges, norm)) == pytest.approx(float(expected))


@pytest.mark.parametrize("loops", [HERE.expand(2, -1), HERE.new_zeros(2, 0)], ids=["loops", "none"])
def test_a_laplacian_of_zeros_has_the_eigenvalue_zero(loops):
    assert largest(loops, None).tolist() == [0.0]
    basis = Chebyshev(2, norm=None).basis(loops, size=(N, N))
    assert torch.equal(basis.to_dense()[1], -torch.eye(N))


def test_a_graph_number_without_nodes_has_the_eigenvalue_zero():
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    assert largest(edges, None, 4, torch.tensor([0, 0, 2, 2])).tolist() == [2.0, 0.0, 2.0]


def test_what_does_not_converge_is_solved_densely_or_refused(monkeypatch):
    monkeypatch.setattr(spectrum, "_RESTARTS", 1)
    assert float(largest(torch.cat([PATH, PATH.flip(0)], 1), "sym")) == pytest.approx(2.0)
    monkeypatch.setattr(spectrum, "DENSE_RESCUE", 10)
    with pytest.raises(ValueError, match="did not converge.*lambda_max='bound'"):
        largest(torch.cat([PATH, PATH.flip(0)], 1), "sym")
