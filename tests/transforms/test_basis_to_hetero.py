"""BasisToHetero: a layer with a matrix for each relation computes Σ_k A_kᵀ X Θ_k."""

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, HeteroConv, SimpleConv, to_hetero

from pyg_outerconv import OuterConv
from pyg_outerconv.families import (
    GCN,
    Chebyshev,
    Directed,
    Grid,
    Identity,
    Relation,
    Stack,
    Walk,
)
from pyg_outerconv.graph import from_hetero
from pyg_outerconv.testing import assert_near
from pyg_outerconv.transforms import AddBasis, BasisToHetero

FAMILIES = [
    GCN(),
    Walk(3),
    Walk(2, direction="both", norm=None),
    Chebyshev(3),
    Relation(3),
    Directed(GCN(add_self_loops=False)),
    Stack(GCN(), Identity(), GCN()),
    Grid((3, 3)),
]
of_each_family = pytest.mark.parametrize("family", FAMILIES, ids=str)


def graph(dtype=torch.float64):
    return Data(
        x=torch.randn(6, 4, dtype=dtype),
        y=torch.tensor([1]),
        name="a graph",
        edge_index=torch.randint(6, (2, 9)),
        edge_type=torch.randint(3, (9,)),
        edge_weight=torch.rand(9, dtype=dtype) + 0.1,
        edge_attr=torch.randn(9, 2),
        pos=torch.stack([torch.randperm(9)[:6] // 3, torch.randperm(6)], dim=1),
        train_mask=torch.rand(6) < 0.5,
    )


@of_each_family
def test_a_layer_for_each_relation_is_the_convolution(family):
    data = graph()
    hetero = BasisToHetero(family)(data)
    model = HeteroConv(
        {kind: GraphConv(4, 5, aggr="add", bias=False) for kind in hetero.edge_types}
    ).double()
    conv = OuterConv(4, 5, family, root_weight=True, bias=False).double()
    parts = [model.convs[kind] for kind in hetero.edge_types]
    with torch.no_grad():
        conv.theta.weight.copy_(torch.stack([part.lin_rel.weight.t() for part in parts]))
        conv.root.weight.copy_(sum(part.lin_root.weight.t() for part in parts)[None])
    x = data.x.clone().requires_grad_()
    out = model({"node": x}, hetero.edge_index_dict, hetero.edge_weight_dict)["node"]
    expected = conv(x, family.basis_of(data))
    assert_near(out, expected)
    direction = torch.randn_like(out)
    (gradient,) = torch.autograd.grad(out, x, direction)
    assert_near(gradient, torch.autograd.grad(expected, x, direction)[0])


@of_each_family
def test_simple_layers_propagate_each_label(family):
    data = graph()
    hetero = BasisToHetero(family)(data)
    dense = family.basis_of(data).to_dense(torch.float64)
    for k, kind in enumerate(hetero.edge_types):
        store = hetero[kind]
        actual = SimpleConv(aggr="add")(data.x, store.edge_index, store.edge_weight.double())
        assert_near(actual, dense[k].double().t() @ data.x, 1e-6, at_least=1.0)


def test_the_labels_come_back_by_from_hetero():
    data, family = graph(), Walk(2, direction="both")
    edges, kinds = from_hetero(BasisToHetero(family)(data))
    assert [label for _, label, _ in kinds] == list(family.labels)
    back = Relation(family.num_bases, None).basis_on(edges)
    assert_near(back.to_dense(), family.basis_of(data).to_dense())


def test_attributes_go_where_they_belong():
    data = AddBasis("gcn")(graph())
    hetero = BasisToHetero("walk(1)", node_type="paper")(data)
    assert isinstance(hetero, HeteroData)
    assert hetero.node_types == ["paper"]
    assert set(hetero["paper"].keys()) == {"x", "pos", "train_mask", "num_nodes"}
    assert (hetero.y, hetero.name) == (data.y, "a graph")
    assert "basis" not in hetero
    for kind in hetero.edge_types:
        assert set(hetero[kind].keys()) == {"edge_index", "edge_weight"}
    assert hetero.validate()
    assert set(data.keys()) >= {"edge_attr", "edge_type"}


def test_a_label_without_edges_is_a_relation_without_edges():
    data = graph()
    data.edge_type = torch.zeros(9).long()
    hetero = BasisToHetero(Relation(3))(data)
    assert [hetero[kind].num_edges for kind in hetero.edge_types] == [9, 0, 0]


def test_stored_bases_are_used_and_batches_are_batches():
    graphs = [graph(torch.float32) for _ in range(3)]
    (batch,) = DataLoader([BasisToHetero("walk(2)")(data) for data in graphs], batch_size=3)
    whole = BasisToHetero("walk(2)")(Batch.from_data_list(graphs))
    assert batch.edge_types == whole.edge_types
    assert torch.equal(batch["node"].batch, whole["node"].batch)
    for kind in batch.edge_types:
        assert torch.equal(batch[kind].edge_index, whole[kind].edge_index)
        assert_near(batch[kind].edge_weight, whole[kind].edge_weight)


def test_to_hetero_makes_a_layer_for_each_label():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = GraphConv(-1, 5)

        def forward(self, x, edge_index, edge_weight):
            return self.conv(x, edge_index, edge_weight)

    data = graph(torch.float32)
    hetero = BasisToHetero("walk(2)", labels=["self", "once", "twice"])(data)
    model = to_hetero(Net(), hetero.metadata())
    out = model(hetero.x_dict, hetero.edge_index_dict, hetero.edge_weight_dict)["node"]
    dense = Walk(2).basis_of(data).to_dense()
    parts = [model.conv[f"node__{label}__node"] for label in ("self", "once", "twice")]
    expected = sum(
        matrix.t() @ data.x @ part.lin_rel.weight.t() + part.lin_rel.bias + part.lin_root(data.x)
        for matrix, part in zip(dense, parts, strict=True)
    )
    assert_near(out, expected)


def test_labels_are_different():
    assert BasisToHetero(Stack(GCN(), Identity(), GCN())).labels[2].endswith(" (2)")


def test_repr_and_functional_name():
    from torch_geometric.data.datapipes import DatasetAdapter

    transform = BasisToHetero("gcn", labels=["near"])
    assert repr(transform) == f"BasisToHetero({GCN()}, labels=['near'], node_type='node')"
    (hetero,) = DatasetAdapter([graph()]).basis_to_hetero("gcn", labels=["near"])
    assert hetero.edge_types == [("node", "near", "node")]
