"""The largest eigenvalue where solvers struggle: directed paths and cycles, no edges, parts."""

import pytest
import torch

from pyg_outerconv.families import Chebyshev
from pyg_outerconv.graph import spectrum
from pyg_outerconv.graph.graph import Graph

N = 160
HERE = torch.arange(N)
PATH = torch.stack([HERE[:-1], HERE[1:]])
CYCLE = torch.stack([HERE, (HERE + 1) % N])
NORMS = pytest.mark.parametrize("norm", ["sym", "source", None])


def largest(edge_index, norm, size=N, batch=None):
    edges = Graph.read(edge_index, size=(size, size), batch=batch)
    return Chebyshev(2, norm=norm)._exact_lambda(edges)


@NORMS
def test_a_long_directed_path_has_the_eigenvalues_of_its_diagonal(norm):
    # Far from normal: an iteration on the whole matrix finds 1.7.
    assert largest(PATH, norm).tolist() == [1.0]


@NORMS
def test_a_directed_cycle_has_many_eigenvalues_of_nearly_one_modulus(norm):
    assert float(largest(CYCLE, norm)) == pytest.approx(2.0)
    odd = torch.stack([HERE[:-1], (HERE[:-1] + 1) % (N - 1)])
    expected = abs(1 - torch.exp(torch.tensor(1j * torch.pi * N / (N - 1)))).item()
    assert float(largest(odd, norm, N - 1)) == pytest.approx(expected)


@NORMS
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
