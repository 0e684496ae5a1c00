"""Layers whose matrices are functions of edge attributes."""

from pyg.cases_gcn import FLOWS
from pyg.parity import Case, D, P, Q
from torch.nn import Linear, ReLU, Sequential, Tanh
from torch_geometric.nn import MLP
from torch_geometric.nn import Linear as OfPyG

ATTRIBUTES = {"attributes": lambda d: (d.x(), d.graph.edge_index, d.attributes())}

NETWORKS = {
    "hidden": lambda: Sequential(Linear(D, 5), ReLU(), Linear(5, P * Q)),
    "linear": lambda: Linear(D, P * Q),
    "linear of PyG": lambda: OfPyG(D, P * Q, bias=False),
    "deep": lambda: Sequential(Linear(D, 5), Tanh(), Linear(5, 3), ReLU(), OfPyG(3, P * Q)),
    "bounded": lambda: Sequential(Linear(D, P * Q), Tanh()),
    "of PyG": lambda: MLP([D, 5, P * Q], norm=None),
}

CASES = [
    Case(
        "GMMConv",
        lambda cls, in_channels=P, kernel_size=2, **options: cls(
            in_channels, Q, D, kernel_size, **options
        ),
        ATTRIBUTES,
        {
            "in_channels": (P, (P, P)),
            "kernel_size": (2, 1),
            "separate_gaussians": (False, True),
            "aggr": ("mean", "add", "max"),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "max"), ("separate_gaussians", True)),
    ),
    Case(
        "NNConv",
        lambda cls, in_channels=P, nn="hidden", **options: cls(
            in_channels, Q, NETWORKS[nn](), **options
        ),
        ATTRIBUTES,
        {
            "in_channels": (P, (P, P)),
            "nn": tuple(NETWORKS),
            "aggr": ("add", "mean", "max"),
            "root_weight": (True, False),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "max"), ("nn", "bounded"), ("nn", "of PyG")),
    ),
    Case(
        "PDNConv",
        lambda cls, **options: cls(P, Q, D, 5, **options),
        {**ATTRIBUTES, "plain": lambda d: (d.x(), d.graph.edge_index)},
        {
            "add_self_loops": (True, False),
            "normalize": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean", "max"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "max"),),
    ),
]
