"""A classifier layer by layer is the classifier on the whole graph."""

import pytest
import torch

from pyg_outerconv.lab.data import load
from pyg_outerconv.lab.train import Settings
from pyg_outerconv.lab.train.classifiers import logits_by_layers
from pyg_outerconv.lab.train.model import ours

MODELS = [
    ("gcn", {}),
    ("walk(2)", {"depth": 3, "skip": "residual"}),
    ("stack(gcn, identity)", {"skip": "concat", "layer_norm": "layer"}),
    ("directed(gcn)", {"layer_norm": "batch", "depth": 4, "skip": "residual"}),
    ("gat(heads=2)", {"activation": "elu"}),
    ("chebyshev(3)", {"architecture": "blocks", "layer_norm": "layer"}),
    ("identity", {"propagation": "diffusion(ppr, alpha=0.1)"}),
]


@pytest.mark.parametrize(("family", "options"), MODELS, ids=[name for name, _ in MODELS])
def test_classifier(family, options):
    dataset = load("KarateClub")
    settings = Settings(
        dataset="KarateClub", family=family, split="random", hidden=8, **{"depth": 2, **options}
    )
    torch.manual_seed(0)
    made = ours(dataset, settings)
    model, x, structure = made.model(4, settings), made.inputs.x, made.inputs.structure
    model(x, structure)  # statistics of batch norms
    with pytest.raises(ValueError, match="training mode"):
        logits_by_layers(model, x, structure)
    model.eval()
    for most in (7, 1000):
        found = logits_by_layers(model, x, structure, most_edges=most)
        torch.testing.assert_close(found, model(x, structure), rtol=1e-5, atol=1e-6)
