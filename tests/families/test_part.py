"""A part is a rectangular identity, and alignments make queries of features."""

import pytest
import torch
from torch_geometric.data import Data

from pyg_outerconv import OuterConv
from pyg_outerconv.basis import Band
from pyg_outerconv.families import Cluster, Identity, Mean, Part, Relation, Stack
from pyg_outerconv.testing import assert_adjoint, assert_near, assert_transpose


@pytest.mark.parametrize(
    ("family", "sources", "wanted"),
    [
        (Part(), 4, range(4)),
        (Part(2), 4, range(2)),
        (Part(start=1), 4, range(1, 4)),
        (Part(2, start=1), 4, range(1, 3)),
        (Part(start=-3), 4, range(1, 4)),
        (Part(1, start=-3), 4, range(1, 2)),
        (Part(0, start=4), 4, range(4, 4)),
        (Part(), 0, range(0)),
        (Part(), 1, range(1)),
    ],
    ids=str,
)
def test_targets_are_consecutive_sources(family, sources, wanted):
    x = torch.randn(sources, 3, dtype=torch.float64)
    basis = family.basis(None, size=(sources, None))
    assert isinstance(basis, Band)
    assert torch.equal(basis.to_dense(torch.float64)[0].t() @ x, x[list(wanted)])
    conv = OuterConv(3, 3, family, theta="identity", bias=False).double()
    assert_near(conv(x, None), x[list(wanted)])
    assert_near(conv(x, (sources,)), x[list(wanted)])
    assert_adjoint(basis)
    assert_transpose(basis)


def test_the_structure_says_how_many_targets_there_are():
    assert Part(start=2).basis(None, size=(5, 3)).size == (5, 3)
    assert Part(start=1).basis(None, size=(5, 3)).size == (5, 3)
    edges = torch.tensor([[0, 4], [1, 0]])
    assert Part().basis(edges, size=(5, 2)).size == (5, 2)
    pair = torch.randn(5, 2), torch.randn(2, 2)
    assert OuterConv(2, 2, Part(start=3))(pair, None).shape == (2, 2)


def test_heads_may_have_parts_of_their_own():
    dense = Stack(Part(2), Part(2, start=-2), Part(2, start=1)).basis(None, size=(5, 2)).to_dense()
    for k, start in enumerate((0, 3, 1)):
        assert_near(dense[k], torch.eye(5)[:, start : start + 2])


def test_a_graph_has_no_place_for_targets_that_are_some_of_its_nodes():
    data = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 3], [1, 2]]))
    assert Part(2).basis_of(data).size == (4, 2)


def test_alignments_are_made_of_families_that_there_are():
    """Cluster means, soft and weighted alignments, and all nodes: TᵀX, one sparse product each."""
    x = torch.randn(4, 3, dtype=torch.float64)

    def queries(basis):
        return basis.to_dense(torch.float64)[0].t() @ x

    cluster = torch.tensor([1, 0, 1, 1])
    means = torch.stack([x[cluster == n].mean(0) for n in range(2)])
    assert_near(queries(Mean(Cluster()).basis(cluster, dtype=torch.float64)), means)
    soft = torch.rand(4, 2, dtype=torch.float64)
    assert_near(queries(Cluster().basis(soft)), soft.t() @ x)
    edges, weight = torch.tensor([[0, 3, 2], [1, 1, 0]]), torch.tensor([0.5, 2.0, -1.0]).double()
    weighted = Relation(1, None).basis(edges, weight, size=(4, 2))
    assert_near(queries(weighted), torch.stack([-x[2], 0.5 * x[0] + 2 * x[3]]))
    assert_near(queries(Identity().basis(None, size=(4, 4))), x)
