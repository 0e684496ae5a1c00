"""A classifier layer by layer is the classifier on the whole graph."""

import pytest
import torch

from pyg_outerconv.data import load
from pyg_outerconv.families import parse_family
from pyg_outerconv.nn import AttentionConv, OuterConv
from pyg_outerconv.train import NodeClassifier, Settings
from pyg_outerconv.train.by_layers import logits_by_layers

MODELS = [
    ("gcn", {}),
    ("walk(2)", {"depth": 3, "skip": "residual"}),
    ("stack(gcn, identity)", {"skip": "concat", "layer_norm": "layer"}),
    ("directed(gcn)", {"layer_norm": "batch", "depth": 4, "skip": "residual"}),
]


@pytest.mark.parametrize(("family", "options"), MODELS, ids=[name for name, _ in MODELS])
def test_classifier(family, options):
    data = load("KarateClub").data
    settings = Settings(
        dataset="KarateClub", family=family, split="random", hidden=8, **{"depth": 2, **options}
    )
    made = parse_family(family)
    torch.manual_seed(0)
    model = NodeClassifier(34, 4, lambda p, q: OuterConv(p, q, made), settings)
    basis = made.basis_of(data)
    model(data.x, basis)  # statistics of batch norms
    with pytest.raises(ValueError, match="training mode"):
        logits_by_layers(model, data.x, basis)
    model.eval()
    for most in (7, 1000):
        ours = logits_by_layers(model, data.x, basis, most_edges=most)
        torch.testing.assert_close(ours, model(data.x, basis), rtol=1e-5, atol=1e-6)


def test_attention():
    data = load("KarateClub").data
    settings = Settings(dataset="KarateClub", family="gcn", split="random", hidden=8)
    support = parse_family("hops(1)").basis_of(data)
    torch.manual_seed(0)
    model = NodeClassifier(34, 4, lambda p, q: AttentionConv(p, q, heads=2), settings).eval()
    ours = logits_by_layers(model, data.x, support, most_edges=7)
    torch.testing.assert_close(ours, model(data.x, support), rtol=1e-5, atol=1e-6)
