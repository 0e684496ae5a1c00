"""Layers whose messages are not linear in the features."""

import torch.nn.functional as F
from pyg.cases_gcn import FLOWS, PLAIN
from pyg.parity import Case, D, P, Q, R
from torch.nn import LeakyReLU, Linear, PReLU, ReLU, Sequential, Tanh


def gine(cls, **options):
    return cls(Sequential(Linear(P, 5), ReLU(), Linear(5, Q)), **options)


def film(cls, in_channels=P, nn=False, **options):
    return cls(in_channels, Q, nn=Linear(P, 2 * Q) if nn else None, **options)


CASES = [
    Case(
        "GINEConv",
        gine,
        {
            "as wide": lambda d: (d.x(), d.graph.edge_index, d.attributes(P)),
            "other width": lambda d: (d.x(), d.graph.edge_index, d.attributes()),
            "no attributes": lambda d: (d.x(), d.graph.edge_index),
            "sources": lambda d: (
                (d.normal(d.graph.size[0], P), None),
                d.graph.edge_index,
                d.attributes(P),
                d.graph.size,
            ),
        },
        {
            "eps": (0.0, 0.3),
            "train_eps": (False, True),
            "edge_dim": (None, D, P),
            "aggr": ("add", "mean", "max"),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "max"),),
    ),
    Case(
        "FiLMConv",
        film,
        {"typed": lambda d: (d.x(), d.graph.edge_index, d.types()), **PLAIN},
        {
            "in_channels": (P, (P, P)),
            "num_relations": (1, R),
            "nn": (False, True),
            "act": (ReLU(), None, LeakyReLU(0.3), F.gelu, ReLU(inplace=True), Tanh(), PReLU()),
            "aggr": ("mean", "add", "max"),
            "flow": FLOWS,
        },
        pairs=True,
        allowed=lambda options: not isinstance(options.get("act"), PReLU),
        by_pyg=(("aggr", "max"),),
    ),
]
