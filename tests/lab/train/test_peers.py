"""PyG's layer for a family is the same convolution: with its weights ours gives its output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from pyg_outerconv import OuterConv
from pyg_outerconv.families import parse_family
from pyg_outerconv.lab.data import Dataset, entry
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.model import ours
from pyg_outerconv.lab.train.peers.contender import PeerLayer, peer
from pyg_outerconv.testing import assert_near


def graph() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(12, (2, 40), generator=generator)
    edges = edges[:, edges[0] != edges[1]].unique(dim=1)
    types = torch.randint(3, (edges.size(1),), generator=generator)
    x = torch.randn(12, 5, generator=generator)
    known = Data(x=x, edge_index=edges, edge_type=types, y=torch.arange(12) % 2)
    return Dataset(entry("KarateClub"), known, None, "")


def weights(layer: PeerLayer, family: str) -> Tensor:
    """Θ (K, P, Q) of a PyG layer."""
    conv = layer.conv
    if hasattr(conv, "conv_in") and family.startswith("reverse"):
        return conv.conv_out.lin.weight.T[None]
    if hasattr(conv, "conv_in"):
        halves = 2 if family.startswith("directed") else 1  # PyG's layer halves both parts
        return torch.stack([conv.conv_in.lin.weight.T, conv.conv_out.lin.weight.T]) / halves
    if hasattr(conv, "lins"):
        return torch.stack([lin.weight.T for lin in conv.lins])
    if hasattr(conv, "lin"):
        return conv.lin.weight.T[None]
    return conv.weight


@pytest.mark.parametrize(
    "family",
    [
        "gcn",
        "gcn(improved=True)",
        "gcn(add_self_loops=False)",
        "gcn(norm='target')",
        "walk(2)",
        "walk(3, norm='target')",
        "walk(2, norm='sym')",
        "walk(2, norm=None)",
        "walk(2, direction='backward')",
        "walk(2, add_self_loops=True)",
        "chebyshev(3, lambda_max='bound')",
        "chebyshev(3, lambda_max=1.7)",
        "chebyshev(2, norm='source', lambda_max='bound')",
        "relation(3)",
        "relation(3, norm=None)",
        "directed(gcn(add_self_loops=False))",
        "directed(gcn)",
        "reverse(gcn)",
        "reverse(gcn(add_self_loops=False))",
        "scale(directed(gcn), 0.5)",
        "scale(directed(gcn(add_self_loops=False)), (0.25, 0.75))",
    ],
)
def test_a_peer_is_the_same_convolution(family: str) -> None:
    dataset = graph()
    settings = Settings("KarateClub", family, "public")
    contender = peer(dataset, settings)
    layer = contender.make_layer(5, 4)
    ours = OuterConv(5, 4, family, bias=False)
    with torch.no_grad():
        bias = torch.zeros(4)
        assert isinstance(layer, PeerLayer)
        for name, value in layer.named_parameters():
            if name.endswith("bias"):
                value.normal_()
                if "conv_in" in name:
                    bias = bias + (1 - layer.conv.alpha) * value
                elif "conv_out" in name:
                    bias = bias + layer.conv.alpha * value
                else:
                    bias = value
        ours.theta.weight.copy_(weights(layer, family))
        wanted = layer(dataset.data.x, contender.inputs.structure)
        got = ours(dataset.data.x, parse_family(family).basis_of(dataset.data)) + bias
    assert torch.allclose(got, wanted, atol=1e-5)


SAME = [
    ("gcn", {}),
    ("gcn(norm='target')", {}),
    ("walk(2, norm='sym')", {}),
    ("chebyshev(3)", {}),
    ("relation(3)", {"root_weight": True}),
    ("relation(3, norm=None)", {"theta": "basis-decomposed:2", "root_weight": True}),
    ("relation(3)", {"theta": "block-diagonal(num_blocks=1)"}),
    ("directed(gcn)", {}),
    ("directed(gcn(add_self_loops=False))", {"root_weight": True}),
    ("reverse(gcn(add_self_loops=False))", {"root_weight": True}),
    ("scale(directed(gcn), 0.5)", {}),
    ("identity", {}),
    ("identity", {"propagation": "diffusion(ppr, alpha=0.1, length=3)"}),
    ("gcn", {"architecture": "blocks", "layer_norm": "layer"}),
    ("relation(1, norm=mean)", {"root_weight": True}),
    ("relation(1, norm=None)", {"root_weight": True}),
    ("walk(2, norm=sym, powers=(2,), add_self_loops=True)", {}),
    ("stack(gcn(add_self_loops=False), identity)", {}),
    ("stack(relation(1, norm=mean), identity)", {}),
    ("stack(relation(1, norm=None), identity)", {}),
    ("gat(heads=4)", {}),
    ("stack(gat(heads=4), identity)", {"out_heads": 2}),
    ("stack(gatv2(heads=2), identity)", {}),
    ("stack(transformer(heads=2), identity)", {}),
    ("gat(heads=4, add_self_loops=False)", {"out_heads": 1, "activation": "elu"}),
    ("gatv2(heads=2)", {}),
    ("gatv2(heads=2, share_weights=True)", {}),
    ("transformer(heads=2)", {"root_weight": True}),
    ("transformer(heads=2, combine=mean)", {}),
]


@pytest.mark.parametrize("featureless", [False, True])
@pytest.mark.parametrize(("family", "options"), SAME, ids=str)
def test_from_a_seed_both_begin_as_the_same_function(
    family: str, options: dict[str, Any], featureless: bool
) -> None:
    dataset = graph()
    if "relation(1" in family or "powers" in family:
        del dataset.data.edge_type
    if "powers" in family:  # PyG has one degree for both ends
        dataset.data.edge_index = to_undirected(dataset.data.edge_index)
    if featureless:
        del dataset.data.x
        dataset.data.num_nodes = 12
        needs_features = "gatv2" in family or "transformer" in family
        if "block" in options.get("theta", "") or needs_features:
            return  # which is refused
    settings = Settings("KarateClub", family, "public", input_dropout=0.5, **options)
    models, left = [], []
    for contender in (ours(dataset, settings), peer(dataset, settings)):
        torch.manual_seed(7)
        models.append(contender.model(2, settings).train())
        out = models[-1](contender.inputs.x, contender.inputs.structure)
        left.append((out, torch.rand(3)))
    assert_near(left[1][0], left[0][0], 1e-5)  # with the same numbers dropped
    assert torch.equal(left[0][1], left[1][1])


@pytest.mark.parametrize(
    "family", ["gcn", "gcn(norm='target')", "directed(gcn)", "identity", "gat(2)", "gatv2(2)"]
)
def test_both_get_the_same_sparse_features(family: str) -> None:
    dataset = graph()
    dataset.data.x = (dataset.data.x > 0.7).float()
    settings = Settings("KarateClub", family, "public", features="sparse", peer=True)
    outs = []
    for contender in (ours(dataset, settings), peer(dataset, settings)):
        assert contender.inputs.x is not None
        assert contender.inputs.x.layout == torch.sparse_csr
        torch.manual_seed(7)
        model = contender.model(2, settings).eval()
        out = model(contender.inputs.x, contender.inputs.structure)
        out.square().sum().backward()
        assert_near(out, model(contender.inputs.x.to_dense(), contender.inputs.structure), 1e-5)
        outs.append(out)
    assert_near(outs[1], outs[0], 1e-5)


@pytest.mark.parametrize("family", ["walk(2)", "chebyshev(3)", "relation(3)"])
def test_a_peer_that_takes_no_sparse_features_gets_the_same_ones_dense(family: str) -> None:
    dataset = graph()
    dataset.data.x = (dataset.data.x > 0.7).float()
    settings = Settings("KarateClub", family, "public", features="sparse", peer=True)
    outs = []
    for contender in (ours(dataset, settings), peer(dataset, settings)):
        torch.manual_seed(7)
        model = contender.model(2, settings).eval()
        outs.append(contender.inputs.logits(model, torch.arange(12)))
    assert contender.inputs.x.layout == torch.strided
    assert "stored dense" in contender.note
    assert_near(outs[1], outs[0], 1e-5)


def test_what_the_halves_of_directions_mean_is_told() -> None:
    assert "half as far" in peer(graph(), Settings("KarateClub", "directed(gcn)", "public")).note


@pytest.mark.parametrize("norm", ["mean", None])
def test_relations_without_features(norm: str) -> None:
    dataset = graph()
    del dataset.data.x
    dataset.data.num_nodes = 12
    contender = peer(dataset, Settings("KarateClub", f"relation(3, norm={norm!r})", "public"))
    layer = contender.make_layer(12, 4)
    ours = OuterConv(12, 4, f"relation(3, norm={norm!r})", bias=False)
    with torch.no_grad():
        ours.theta.weight.copy_(weights(layer, "relation"))
        got = ours(None, ours.family.basis_of(dataset.data))
        assert contender.name == "PyG FastRGCNConv"
        assert torch.allclose(got, layer(None, contender.inputs.structure), atol=1e-5)


def test_relations_with_a_root_weight_and_bases() -> None:
    settings = Settings(
        "KarateClub", "relation(3)", "public", theta="basis-decomposed:2", root_weight=True
    )
    conv = peer(graph(), settings).make_layer(5, 4).conv
    assert (conv.num_bases, conv.num_blocks, conv.root.shape) == (2, None, (5, 4))
    conv = (
        peer(graph(), replace(settings, theta="block-diagonal(num_blocks=1)", root_weight=False))
        .make_layer(5, 4)
        .conv
    )
    assert (conv.num_bases, conv.num_blocks, conv.root) == (None, 1, None)


@pytest.mark.parametrize(
    "change",
    [
        {"family": "high_pass"},
        {"family": "gat(2, combine=sum)"},
        {"family": "gat(2)", "root_weight": True},
        {"family": "transformer(2, add_self_loops=True)"},
        {"family": "identity", "propagation": "gcn"},
        {"family": "relation(1, norm=given)", "root_weight": True},
        {"family": "stack(gcn, identity)"},
        {"family": "directed(walk(2))"},
        {"family": "scale(directed(gcn), 0.4)"},
        {"family": "scale(directed(gcn), (2.0, -1.0))"},
        {"family": "scale(reverse(gcn), 0.5)"},
        {"family": "scale(gcn, 0.5)"},
        {"family": "walk(2, direction='both')"},
        {"family": "walk(2, powers=(2,))"},
        {"family": "walk(2, aggr='mean')"},
        {"family": "relation(3, norm='given')"},
        {"family": "gcn", "theta": "shared"},
        {"family": "gcn", "aggr": "mean"},
        {"family": "gcn", "root_weight": True},
        {"family": "relation(3)", "theta": "low-rank:2"},
    ],
)
def test_what_pyg_has_not_is_refused(change: dict[str, str]) -> None:
    settings = Settings(**{"dataset": "KarateClub", "split": "public", **change})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="leave --peer out"):
        peer(graph(), settings)
