"""GraphGym builds, configures and trains the layers that ``pyg_outerconv.graphgym`` adds."""

import json
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Data

from pyg_outerconv.families import GCN, Chebyshev, Relation
from pyg_outerconv.testing import assert_near

pytest.importorskip("yacs", reason="the configuration of GraphGym needs yacs")
pytestmark = [
    pytest.mark.slow,  # GraphGym imports Lightning
    pytest.mark.filterwarnings("ignore:'pin_memory':UserWarning", "ignore:.*LeafSpec"),
]

CONFIG = """
accelerator: cpu
dataset: {{name: Cora, dir: {folder}}}
train: {{batch_size: 1, enable_ckpt: false}}
gnn: {{layers_mp: 2, dim_inner: 16, l2norm: false, batchnorm: false}}
optim: {{base_lr: 0.02, max_epoch: 12, scheduler: none}}
"""


@pytest.fixture
def gym():
    """GraphGym with its default configuration, before and after."""
    from torch_geometric import graphgym

    import pyg_outerconv.graphgym  # noqa: F401

    graphgym.set_cfg(graphgym.cfg)
    yield graphgym
    graphgym.set_cfg(graphgym.cfg)


@pytest.fixture
def cora(gym, tmp_path, shared_data):
    """A function that runs GraphGym on Cora with options, and gives the model and its figures."""
    pytest.importorskip("pytorch_lightning", reason="GraphGym trains by pytorch-lightning")
    from torch_geometric.graphgym.model_builder import create_model
    from torch_geometric.graphgym.train import GraphGymDataModule, train

    (tmp_path / "Cora" / "Cora").mkdir(parents=True)
    (tmp_path / "Cora" / "Cora" / "raw").symlink_to(shared_data / "Planetoid" / "Cora" / "raw")
    file = tmp_path / "run.yaml"
    file.write_text(CONFIG.format(folder=tmp_path))
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}

    def run(*options, begin=None):
        cfg = gym.cfg
        gym.set_cfg(cfg)
        gym.load_cfg(cfg, SimpleNamespace(cfg_file=str(file), opts=list(options)))
        gym.set_out_dir(str(tmp_path / "results"), str(file))
        gym.set_run_dir(cfg.out_dir)
        torch.manual_seed(0)
        data, model = GraphGymDataModule(), create_model()
        if begin is not None:
            begin(model)
        cfg.params = gym.params_count(model)
        train(model, data, trainer_config=quiet)
        lines = {
            split: (tmp_path / "results" / "run" / "0" / split / "stats.json").read_text()
            for split in ("train", "val", "test")
        }
        return model, {
            split: [json.loads(line) for line in text.splitlines()] for split, text in lines.items()
        }

    return run


def test_a_run_of_gcn_is_that_of_graphgyms_own(cora):
    """The same initial parameters, trained, give the same figures epoch by epoch."""
    initial = {}

    def remember(model):
        initial.update({name: value.clone() for name, value in model.state_dict().items()})

    def begin(model):
        for name, value in initial.items():
            if name.endswith("lin.weight"):
                initial[name] = value.t()[None]  # (K = 1, P, Q)
        model.load_state_dict(
            {name.replace("lin.weight", "theta.weight"): v for name, v in initial.items()}
        )

    _, theirs = cora("gnn.layer_type", "gcnconv", begin=remember)
    _, ours = cora("gnn.layer_type", "outerconv", "outerconv.family", "gcn", begin=begin)
    for split in ("train", "val", "test"):
        for mine, its in zip(ours[split], theirs[split], strict=True):
            assert mine["loss"] == pytest.approx(its["loss"], abs=2e-3)
            assert mine["accuracy"] == pytest.approx(its["accuracy"], abs=0.01)
    assert ours["train"][0]["params"] == theirs["train"][0]["params"]
    assert ours["train"][-1]["loss"] < 0.5 * ours["train"][0]["loss"]


def test_attention_learns_cora(cora):
    model, stats = cora(
        *("gnn.layer_type", "outerattention"),
        *("outerconv.heads", 4, "outerconv.score", "additive"),
        *("outerconv.support", "hops(add_self_loops=True)"),
    )
    layer = model.model.mp.layer0.layer.model
    assert (layer.heads, layer.family.score.name) == (4, "additive")
    assert stats["train"][-1]["loss"] < 0.5 * stats["train"][0]["loss"]
    assert stats["test"][0]["accuracy"] > 0.7


def general_layer(gym, name, **options):
    from torch_geometric.graphgym.models.layer import GeneralLayer, LayerConfig

    for option, value in options.items():
        gym.cfg.merge_from_list([f"outerconv.{option}", value])
    config = LayerConfig(dim_in=4, dim_out=6, edge_dim=2, has_act=False, has_l2norm=False)
    return GeneralLayer(name, config)


def graph():
    return Data(
        x=torch.randn(5, 4),
        edge_index=torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]),
        edge_type=torch.tensor([0, 1, 2, 0, 1]),
        edge_weight=torch.rand(5) + 0.1,
        edge_attr=torch.randn(5, 2),
        batch=torch.tensor([0, 0, 0, 0, 1]),
    )


@pytest.mark.parametrize(
    ("family", "read"),
    [
        (GCN(), ("edge_weight",)),
        (Relation(3), ("edge_weight", "edge_type")),
        (Chebyshev(3, "exact"), ("edge_weight", "batch")),
    ],
    ids=str,
)
def test_a_layer_reads_of_the_batch_what_its_family_reads(gym, family, read):
    layer, data = general_layer(gym, "outerconv", family=repr(family)), graph()
    conv = layer.layer.model
    assert conv.family == family
    expected = conv(data.x, data.edge_index, **{name: data[name] for name in read})
    assert_near(layer(data).x, expected)


def test_options_reach_the_layer(gym):
    options = {"theta": "low-rank(rank=2)", "aggr": "mean", "root_weight": True, "cached": False}
    conv = general_layer(gym, "outerconv", family="walk(2)", **options).layer.model
    assert (conv.theta.name, conv.aggr, conv.root_weight, conv.cached) == (
        *("low-rank", "mean", True, False),
    )
    conv = general_layer(gym, "outerattention", heads=2, combine="mean", theta=None).layer.model
    assert (conv.heads, conv.combine) == (2, "mean")


def test_edge_features_reach_attention(gym):
    layer, data = general_layer(gym, "outerattention", heads=2, edge_features=True), graph()
    conv = layer.layer.model
    expected = conv(data.x, data.edge_index, edge_attr=data.edge_attr)
    assert_near(layer(data).x, expected)


def test_transposed_adjacency_matrices_are_read(gym):
    layer, data = general_layer(gym, "outerconv", family="gcn"), graph()
    expected = layer.layer.model(data.x, data.edge_index)
    matrix = torch.sparse_coo_tensor(data.edge_index.flip(0), torch.ones(5), (5, 5))
    assert_near(layer(Data(x=data.x, adj_t=matrix.to_sparse_csr())).x, expected)


def test_a_wrong_option_is_refused_where_the_layer_is_made(gym):
    with pytest.raises(ValueError, match="a well-known layer: expected gcn"):
        general_layer(gym, "outerconv", family="gcnconv")


def test_what_is_missing_is_named(fresh):
    done = fresh(
        "import sys\n"
        "sys.modules |= {'yacs': None, 'pytorch_lightning': None, 'lightning': None}\n"
        "import pyg_outerconv.graphgym\n"
    )
    assert done.returncode == 1
    assert "ImportError: the configuration of GraphGym needs yacs" in done.stderr
