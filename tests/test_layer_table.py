"""Each row of the README's table of layers is one layer, in PyG and here."""

import re
from pathlib import Path

import pytest
import torch
from oracle import assert_same
from peers import OURS_OF, D, H, K, P, Q, R
from torch import nn
from torch.func import functional_call
from torch_geometric import nn as pyg

from pyg_outerconv import families
from pyg_outerconv import nn as ours

README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
NODES, EDGES = 7, torch.tensor([[0, 1, 2, 3, 4, 5, 0, 0, 6, 2], [1, 2, 3, 4, 5, 0, 1, 3, 5, 0]])
ROWS = dict(re.findall(r"^\| `(\w+(?:Conv\(.*|NP\(.*|_pool))` \| `(.*)` \|$", README, re.MULTILINE))


def evaluated(expression, *modules):
    network = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, P * Q))
    sizes = {"P": P, "Q": Q, "K": K, "R": R, "D": D, "H": H, "alpha": 0.2, "mlp": network}
    known = {name: one for module in modules for name, one in vars(module).items()}
    return eval(expression, known | sizes)


@pytest.fixture
def _means_within_a_relation(monkeypatch):
    """RGCNConv's other code path averages over all relations at once, unlike its paper."""
    monkeypatch.setattr("torch_geometric.backend.use_segment_matmul", False)


def test_the_table_has_a_row_for_each_layer_that_is_compared():
    assert {re.match(r"\w+", row)[0] for row in ROWS} == set(OURS_OF)
    assert len(ROWS) == len(re.findall(r"^\| `.*` \| `.*` \|$", README, re.MULTILINE))


@pytest.mark.usefixtures("_means_within_a_relation")
@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_table_is_one_layer_in_two_libraries(row):
    """In the result, and in the gradient with respect to the features."""
    name = re.match(r"\w+", row)[0]
    x = torch.randn(NODES, P, dtype=torch.float64, requires_grad=True)
    conv, extra = evaluated(ROWS[row], families, ours).double(), {}
    if name == "global_max_pool":
        graphs = torch.tensor([0, 0, 1, 1, 1, 2, 2])
        expected, actual = pyg.global_max_pool(x, graphs), conv(x, graphs)
    else:
        peer = evaluated(row, pyg).double()
        with torch.no_grad():
            for parameter in peer.parameters():
                parameter.add_(0.3 * torch.rand_like(parameter))
        if name == "RGCNConv":
            extra["edge_type"] = torch.arange(EDGES.size(1)) % R
        elif name in ("NNConv", "GMMConv"):
            extra["edge_attr"] = torch.rand(EDGES.size(1), D, dtype=torch.float64)
        parameters = OURS_OF[name](peer)
        assert set(parameters) == {name for name, _ in conv.named_parameters()}
        expected = peer(x, EDGES, *extra.values())
        actual = functional_call(conv, parameters, (x, EDGES), extra)
    assert_same(actual, expected, [x], 1e-10)
