"""Bases that a data set's pre_transform stored, after files, workers and other transforms."""

import torch
from torch_geometric import transforms as T
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import TUDataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GraphConv, HeteroConv

from pyg_outerconv.families import GCN, Relation, Walk
from pyg_outerconv.nn import OuterConv
from pyg_outerconv.testing import assert_near
from pyg_outerconv.transforms import AddBasis, BasisToHetero, basis_of

BASES = {"near": GCN(), "far": Walk(2)}
add_all = T.Compose([AddBasis(family, name=name) for name, family in BASES.items()])


class Drawn(InMemoryDataset):
    """Three graphs, written to files and read again."""

    @property
    def processed_file_names(self):
        return ["data.pt"]

    def __init__(self, root, **transforms):
        super().__init__(root, **transforms)
        self.load(self.processed_paths[0])

    def process(self):
        graphs = [
            Data(x=torch.randn(n, 3), edge_index=torch.randint(n, (2, 2 * n))) for n in (4, 7, 1)
        ]
        self.save([self.pre_transform(graph) for graph in graphs], self.processed_paths[0])


def assert_stored(data, monkeypatch):
    """Each basis is that of the edges, and is read, not made anew."""
    for name, family in BASES.items():
        expected = family.basis(data.edge_index, size=(data.num_nodes,) * 2)
        bare_flags, basis_on = [], type(family).basis_on

        def noted(self, structure, *dtype, bare_flags=bare_flags, basis_on=basis_on):
            bare_flags.append(structure.is_bare)
            return basis_on(self, structure, *dtype)

        with monkeypatch.context() as patch:
            patch.setattr(type(family), "basis_on", noted)
            basis = basis_of(data, name)
        assert all(bare_flags)
        assert_near(basis.to_dense(), expected.to_dense())


def test_files_of_a_data_set_keep_bases(tmp_path, monkeypatch):
    Drawn(str(tmp_path), pre_transform=add_all)
    dataset = Drawn(str(tmp_path), pre_transform=add_all)
    for data in dataset:
        assert_stored(data, monkeypatch)
    for data in dataset[[2, 0]]:
        assert_stored(data, monkeypatch)
    (batch,) = DataLoader(dataset, batch_size=3)
    assert_stored(batch, monkeypatch)
    for data in batch.to_data_list():
        assert_stored(data, monkeypatch)


def test_workers_hand_bases_over(tmp_path, monkeypatch):
    dataset = Drawn(str(tmp_path), pre_transform=AddBasis("gcn", name="near"))
    dataset.transform = AddBasis("walk(2)", name="far")
    for batch in DataLoader(dataset, batch_size=2, num_workers=1):
        assert_stored(batch, monkeypatch)


def test_real_graphs_are_read_with_the_basis_that_was_stored(tmp_path, shared_data):
    (tmp_path / "MUTAG").mkdir()
    (tmp_path / "MUTAG" / "raw").symlink_to(shared_data / "TUDataset" / "MUTAG" / "raw")
    dataset = TUDataset(str(tmp_path), "MUTAG", pre_transform=AddBasis("walk(2)"))
    conv = OuterConv(dataset.num_features, 8, "walk(2)")
    batch = next(iter(DataLoader(dataset, batch_size=188)))
    assert_near(conv(batch.x, basis_of(batch)), conv(batch.x, batch.edge_index))


def test_labels_are_edge_types_of_a_homogeneous_graph_again():
    data = Data(x=torch.randn(6, 3), edge_index=torch.randint(6, (2, 15)))
    hetero = BasisToHetero("walk(2)")(data)
    back = hetero.to_homogeneous()
    conv = OuterConv(3, 4, Walk(2))
    other = OuterConv(3, 4, Relation(3, None))
    other.load_state_dict(conv.state_dict())
    expected = conv(data.x, data.edge_index)
    assert_near(
        other(back.x, back.edge_index, back.edge_weight, edge_type=back.edge_type), expected
    )
    model = HeteroConv({kind: GraphConv(3, 4, bias=False) for kind in hetero.edge_types})
    with torch.no_grad():
        for kind, theta in zip(hetero.edge_types, conv.theta.weight, strict=True):
            model.convs[kind].lin_rel.weight.copy_(theta.t())
            model.convs[kind].lin_root.weight.zero_()
        conv.bias.zero_()
    out = model(hetero.x_dict, hetero.edge_index_dict, hetero.edge_weight_dict)["node"]
    assert_near(out, conv(data.x, data.edge_index))
