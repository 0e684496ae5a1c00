"""Lightning trains our layers, over PyG's data modules, and saves, loads and shards them."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import Planetoid
from torch_geometric.nn import global_mean_pool

from pyg_outerconv.nn import AttentionConv, AttentionGNN, OuterConv, OuterGNN
from pyg_outerconv.testing import assert_near
from pyg_outerconv.transforms import AddBasis, basis_of

pl = pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
pytestmark = [
    pytest.mark.slow(cases=1),  # it takes seconds to import Lightning
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore:.*LeafSpec"),
]

QUIET = {
    "accelerator": "cpu",
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "logger": False,
}


class NodeClassifier(pl.LightningModule):
    """Classes of the nodes of one graph, or of the seeds of a sample."""

    def __init__(self, gnn, lr=0.02):
        super().__init__()
        self.gnn, self.lr, self.seen = gnn, lr, {}

    def forward(self, data):
        return self.gnn(data.x, data.edge_index)

    def step(self, data, split):
        kept = data.get(f"{split}_mask")
        out, y = self(data), data.y
        if "batch_size" in data:
            out, y = out[: data.batch_size], y[: data.batch_size]
        else:
            out, y = out[kept], y[kept]
        loss = torch.nn.functional.cross_entropy(out, y)
        self.seen.setdefault(split, []).append(
            (loss.item(), (out.argmax(-1) == y).float().mean().item())
        )
        return loss

    def training_step(self, data, number):
        return self.step(data, "train")

    def validation_step(self, data, number):
        self.step(data, "val")

    def test_step(self, data, number):
        self.step(data, "test")

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr, weight_decay=5e-4)


@pytest.fixture
def cora(tmp_path, shared_data):
    """Cora, with files of its own for what PyG writes."""
    (tmp_path / "Cora").mkdir()
    (tmp_path / "Cora" / "raw").symlink_to(shared_data / "Planetoid" / "Cora" / "raw")
    return Planetoid(str(tmp_path), "Cora")[0]


GNNS = {
    "convolution": lambda: OuterGNN(1433, 16, 2, 7, dropout=0.5, family="walk(2, norm=sym)"),
    "attention": lambda: AttentionGNN(1433, 16, 2, 7, dropout=0.5, heads=4, score="additive"),
}


@pytest.mark.parametrize("kind", GNNS)
def test_a_trainer_fits_tests_and_loads_on_cora(kind, cora, tmp_path):
    data = pl_data(cora, loader="full")
    model = NodeClassifier(GNNS[kind]())
    trainer = pl.Trainer(max_epochs=12, enable_checkpointing=False, **QUIET)
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    assert len(model.seen["train"]) == 12
    assert model.seen["test"][0][1] > 0.7
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    other = NodeClassifier.load_from_checkpoint(
        tmp_path / "last.ckpt", gnn=GNNS[kind](), weights_only=True
    )
    assert_near(other.eval()(cora), model.eval()(cora))


def pl_data(data, **options):
    from torch_geometric.data.lightning import LightningNodeData

    return LightningNodeData(data, **options)


def test_a_trainer_samples_neighbours(cora):
    from torch_geometric import typing as pyg

    if not (pyg.WITH_TORCH_SPARSE or pyg.WITH_PYG_LIB):
        pytest.skip("the sampler needs torch-sparse or pyg-lib, neither of which is installed")
    data = pl_data(cora, loader="neighbor", num_neighbors=[10, 10], batch_size=70)
    gnn = OuterGNN(1433, 16, 2, 7, dropout=0.5, family="relation(1)", root_weight=True)
    model = NodeClassifier(gnn)
    trainer = pl.Trainer(
        max_epochs=8, enable_checkpointing=False, limit_val_batches=1, limit_test_batches=4, **QUIET
    )
    trainer.fit(model, datamodule=data)
    trainer.test(model, datamodule=data, verbose=False)
    accuracies = [right for _, right in model.seen["test"]]
    assert sum(accuracies) / len(accuracies) > 0.65


# Many graphs -------------------------------------------------------------------------------------


class GraphClassifier(pl.LightningModule):
    """Classes of graphs, by a basis that a transform stored and by attention."""

    def __init__(self):
        super().__init__()
        self.first = OuterConv(4, 16, "walk(2)")
        self.second = AttentionConv(16, 16, heads=2)
        self.out, self.losses = torch.nn.Linear(16, 2), []

    def forward(self, batch):
        hidden = self.first(batch.x, basis_of(batch, "walks")).relu()
        hidden = self.second(hidden, batch.edge_index).relu()
        return self.out(global_mean_pool(hidden, batch.batch))

    def training_step(self, batch, number):
        loss = torch.nn.functional.cross_entropy(self(batch), batch.y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


def rings_and_stars():
    """Rings (class 0) and stars (class 1), whose features are noise and degrees."""
    graphs = []
    for number in range(40):
        nodes, star = 5 + number % 4, number % 2
        around = torch.arange(nodes)
        ends = torch.zeros(nodes).long() if star else around.roll(1)
        index = torch.stack([around, ends])[:, star:]
        index = torch.cat([index, index.flip(0)], dim=1)
        degree = torch.bincount(index[1], minlength=nodes)[:, None]
        x = torch.cat([degree.float(), 0.1 * torch.randn(nodes, 3)], dim=1)
        graphs.append(AddBasis("walk(2)", name="walks")(Data(x=x, edge_index=index, y=star)))
    return graphs


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_data_module_of_graphs_trains_in_every_precision(precision):
    from torch_geometric.data.lightning import LightningDataset

    graphs = rings_and_stars()
    model = GraphClassifier()
    data = LightningDataset(graphs, batch_size=10)
    trainer = pl.Trainer(max_epochs=8, enable_checkpointing=False, precision=precision, **QUIET)
    trainer.fit(model, datamodule=data)
    assert sum(model.losses[-4:]) < 0.6 * sum(model.losses[:4])
    assert all(bool(parameter.isfinite().all()) for parameter in model.parameters())
