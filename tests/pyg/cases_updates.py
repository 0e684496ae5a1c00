"""Layers that update nodes after a sum, and layers with degrees as a diagonal."""

import torch
from pyg.cases_gcn import FLOWS, PLAIN, WEIGHTED
from pyg.parity import Case, P, Q
from torch import nn


def _gin(cls, **options):
    network = nn.Sequential(nn.Linear(P, Q), nn.Tanh(), nn.Linear(Q, Q))
    return cls(network, **options)


def _with_size(call):
    """The call with ``size``; the second of a pair of features is missing."""
    return lambda d: ((d.x()[0], None) if d.graph.is_pair else d.x(), *call(d)[1:], d.graph.size)


CASES = [
    Case(
        "GINConv",
        _gin,
        {**PLAIN, "no targets": _with_size(PLAIN["plain"])},
        {
            "eps": (0.0, 0.5),
            "train_eps": (False, True),
            "aggr": ("add", "mean", "max", "median"),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "median"),),
    ),
    Case(
        "GatedGraphConv",
        lambda cls, channels=P, num_layers=2, **options: cls(channels, num_layers, **options),
        WEIGHTED,
        {
            "channels": (P, P + 2, P - 1),
            "num_layers": (2, 1, 0),
            "aggr": ("add", "mean", "max", "median"),
            "bias": (True, False),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "median"),),
    ),
    Case(
        "ClusterGCNConv",
        lambda cls, **options: cls(P, Q, **options),
        {**PLAIN, "static": lambda d: (d.normal(2, d.graph.size[0], P), d.graph.edge_index)},
        {
            "diag_lambda": (0.0, 1.0, -0.5),
            "add_self_loops": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"), ("add_self_loops", False), ("flow", FLOWS[1])),
        widest=torch.float32,  # PyG counts degrees in float32
    ),
    Case(
        "LEConv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        WEIGHTED,
        {
            "in_channels": (P, (P, P)),
            "bias": (True, False),
            "aggr": ("add", "max"),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "max"),),
    ),
]
