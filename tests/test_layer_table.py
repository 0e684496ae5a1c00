"""Each row of the README's table of layers is one layer, in PyG and here."""

import re
from pathlib import Path

import pytest
import torch
from oracle import assert_same
from torch import nn
from torch.func import functional_call
from torch_geometric import nn as pyg

from pyg_outerconv import families
from pyg_outerconv import nn as ours
from pyg_outerconv.pyg import outer_conv

P, Q, K, R, D, H = 4, 6, 3, 3, 2, 2
README = (Path(__file__).resolve().parents[1] / "README.md").read_text()
NODES, EDGES = 7, torch.tensor([[0, 1, 2, 3, 4, 5, 0, 0, 6, 2], [1, 2, 3, 4, 5, 0, 1, 3, 5, 0]])
ROWS = dict(re.findall(r"^\| `(\w+(?:Conv\(.*|NP\(.*|_pool))` \| `(.*)` \|$", README, re.MULTILINE))


def evaluated(expression, *modules):
    network = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, P * Q))
    sizes = {"P": P, "Q": Q, "K": K, "R": R, "D": D, "H": H, "alpha": 0.2, "mlp": network}
    namespace = {name: one for module in modules for name, one in vars(module).items()}
    return eval(expression, namespace | sizes)


@pytest.fixture
def _means_within_a_relation(monkeypatch):
    """RGCNConv's other code path averages over all relations at once, unlike its paper."""
    monkeypatch.setattr("torch_geometric.backend.use_segment_matmul", False)


def of_lins(*lins):
    return torch.stack([lin.weight.t() for lin in lins])


def of_directed(peer):
    there, back = peer.conv_in, peer.conv_out
    return {
        "theta.weight": of_lins(there.lin, back.lin) / 2,
        "root.weight": of_lins(peer.lin),
        "bias": (there.bias + back.bias) / 2 + peer.lin.bias,
    }


def of_edge_network(peer):
    first, second = peer.nn[0], peer.nn[2]
    return {
        "theta.weight": torch.cat([second.weight.t(), second.bias[None]]).view(-1, P, Q),
        "functions.0.layers.0.weight": first.weight,
        "functions.0.layers.0.bias": first.bias,
        "root.weight": of_lins(peer.lin),
        "bias": peer.bias,
    }


# Our parameters by name, made of those of PyG's layers that ``outer_conv`` does not convert.
OURS_OF = {"APPNP": lambda peer: {}, "DirGNNConv": of_directed, "NNConv": of_edge_network}


def test_every_row_of_the_table_is_compared():
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
        converted = lambda peer: dict(outer_conv(peer).named_parameters())  # noqa: E731
        parameters = OURS_OF.get(name, converted)(peer)
        assert set(parameters) == {name for name, _ in conv.named_parameters()}
        expected = peer(x, EDGES, *extra.values())
        actual = functional_call(conv, parameters, (x, EDGES), extra)
    assert_same(actual, expected, [x], 1e-10)
