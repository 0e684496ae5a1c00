"""Models of families with heads, residual blocks, propagation of predictions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import APPNP, GATConv
from torch_geometric.utils import to_dense_adj

from pyg_outerconv.lab.data import Dataset, entry
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.classifiers import logits_by_layers
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.testing import assert_near


def graph(with_features: bool = True) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(12, (2, 40), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    known = Data(edge_index=edges, y=torch.arange(12) % 3, num_nodes=12)
    if with_features:
        known.x = torch.randn(12, 5, generator=generator)
    return Dataset(entry("KarateClub"), known, None, "")


def made(dataset: Dataset, family: str, **options: Any) -> tuple[Any, Any]:
    settings = Settings("KarateClub", family, "public", **{"hidden": 8, **options})
    contender = ours(dataset, settings)
    torch.manual_seed(0)
    return contender.model(3, settings).eval(), contender


def logits(model: Any, contender: Any) -> Tensor:
    out: Tensor = contender.inputs.logits(model, torch.arange(12))
    return out


@pytest.mark.parametrize("out_heads", [0, 1])
def test_heads_are_concatenated_within_and_averaged_at_the_end(out_heads: int) -> None:
    dataset = graph()
    x, edges = dataset.data.x, dataset.data.edge_index
    model, contender = made(dataset, "gat(heads=4)", out_heads=out_heads, activation="elu")
    last = out_heads or 4
    layers = GATConv(5, 2, heads=4), GATConv(8, 3, heads=last, concat=False)
    with torch.no_grad():
        for conv, peer in zip(model.convs, layers, strict=True):
            heads, p, q = conv.theta.weight.shape
            peer.lin.weight.copy_(conv.theta.weight.transpose(1, 2).reshape(heads * q, p))
            peer.att_src.copy_(conv.family.score.att_source[None])
            peer.att_dst.copy_(conv.family.score.att_target[None])
        wanted = layers[1](F.elu(layers[0](x, edges)), edges)
    assert_near(logits(model, contender), wanted)


def test_propagated_predictions_are_appnp() -> None:
    dataset = graph()
    x, edges = dataset.data.x, dataset.data.edge_index
    model, contender = made(dataset, "identity", propagation="diffusion(ppr, alpha=0.2, length=4)")
    one, two = model.model.convs
    with torch.no_grad():
        hidden = F.relu(x @ one.theta.weight[0] + one.bias) @ two.theta.weight[0] + two.bias
        wanted = APPNP(K=4, alpha=0.2)(hidden, edges)
    assert_near(logits(model, contender), wanted)
    by_layers = logits_by_layers(model, x, contender.inputs.structure, most_edges=7)
    assert_near(by_layers, wanted)


def test_blocks_add_what_is_between_two_linear_layers() -> None:
    dataset = graph()
    x, edges = dataset.data.x, dataset.data.edge_index
    model, contender = made(
        dataset,
        "gcn(norm=target)",
        architecture="blocks",
        layer_norm="layer",
        activation="gelu",
        depth=2,
    )
    adjacency = to_dense_adj(edges, max_num_nodes=12)[0] + torch.eye(12)
    mean = adjacency / adjacency.sum(0)
    with torch.no_grad():
        out = F.gelu(model.first(x))
        for conv, linear, norm in zip(model.convs, model.linears, model.norms, strict=False):
            inner = mean.t() @ norm(out) @ conv.theta.weight[0] + conv.bias
            out = out + linear(F.gelu(inner))
        wanted = model.head(model.norms[-1](out))
    assert_near(logits(model, contender), wanted)
    by_layers = logits_by_layers(model, x, contender.inputs.structure, most_edges=7)
    assert_near(by_layers, wanted)


@pytest.mark.parametrize("options", [{}, {"architecture": "blocks"}, {"propagation": "gcn"}])
@pytest.mark.parametrize(
    "family", ["stack(gat(heads=2), gcn)", "gat(heads=2)", "linear_attention(2, 4)", "high_pass"]
)
def test_every_architecture_trains_every_kind_of_family(
    family: str, options: dict[str, Any]
) -> None:
    dataset = graph()
    model, contender = made(dataset, family, hidden=4, **options)
    before = F.cross_entropy(logits(model, contender), dataset.data.y)
    groups = model.parameter_groups(Settings("KarateClub", family, "public"))
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    optimizer = torch.optim.Adam(groups, lr=0.05)
    for _ in range(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(model, contender), dataset.data.y)
        loss.backward()
        optimizer.step()
    assert loss < before


def test_blocks_read_sparse_features_and_none() -> None:
    dataset = graph()
    dense = made(dataset, "gcn", architecture="blocks", features="dense")
    sparse = made(dataset, "gcn", architecture="blocks", features="sparse")
    assert_near(logits(*sparse), logits(*dense))
    bare = graph(with_features=False)
    model, contender = made(bare, "gcn", architecture="blocks")
    bare.data.x = torch.eye(12)
    wanted, other = made(bare, "gcn", architecture="blocks", features="dense")
    wanted.load_state_dict(model.state_dict())
    assert_near(logits(model, contender), logits(wanted, other))


@pytest.mark.parametrize(
    ("family", "options", "told"),
    [
        ("gcn", {"out_heads": 2}, "out_heads is the number of heads of the last layer"),
        ("gcn", {"propagation": "walk(2)"}, "predictions are propagated by one matrix"),
        ("gcn", {"propagation": "gat"}, "predictions are propagated by one matrix"),
        ("gcn", {"architecture": "block"}, "unknown architecture 'block'"),
        ("gcn", {"activation": "sin"}, "unknown activation 'sin'"),
        ("gcn", {"architecture": "blocks", "skip": "concat"}, "have skips of their own"),
        ("gat(heads=3)", {}, "heads side by side share out_channels evenly"),
    ],
)
def test_what_does_not_fit_is_refused(family: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        made(graph(), family, **options)
    assert told in str(refused.value)
