"""Layers whose structure is a hypergraph, the degrees of nodes, or edges in both directions."""

import torch
from pyg.cases_gcn import FLOWS, PLAIN
from pyg.parity import Case, P, Q
from torch_geometric import nn as theirs


def incidences(d, *beside, **named):
    """Nodes and hyperedges; a pair of sets of nodes has as many of each as it says."""
    return d.normal(d.graph.size[0], P), d.graph.edge_index, *beside


def sources_alone(d):
    """Features of the sources, none of the targets."""
    return (d.normal(d.graph.size[0], P), None), d.graph.edge_index, d.graph.size


def positive(d):
    """Weights (M,) of hyperedges."""
    return (torch.rand(d.graph.size[1], dtype=d.dtype) + 0.2).requires_grad_()


def directed(cls, conv="GCNConv", options=(), **of_both):
    """Both directions of a layer."""
    return cls(getattr(theirs, conv)(P, Q, **dict(options)), **of_both)


CASES = [
    Case(
        "HypergraphConv",
        lambda cls, **options: cls(P, Q, **options),
        {
            "plain": incidences,
            "weights": lambda d: incidences(d, positive(d)),
            "counted": lambda d: incidences(d, None, None, d.graph.size[1] + 2),
            "attributes": lambda d: incidences(d, None, d.normal(d.graph.size[1], P)),
            "both": lambda d: incidences(d, positive(d), d.normal(d.graph.size[1], P)),
        },
        {
            "use_attention": (False, True),
            "attention_mode": ("node", "edge"),
            "heads": (1, 2),
            "concat": (True, False),
            "negative_slope": (0.2, 0.5),
            "dropout": (0.0, 0.4),
            "bias": (True, False),
            "aggr": ("add", "max"),
        },
        pairs=True,
        by_pyg=(("aggr", "max"),),
        allowed=lambda options: options.get("use_attention") or options.get("heads", 1) == 1,
    ),
    Case(
        "MFConv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        {
            **PLAIN,
            "static": lambda d: (d.normal(3, d.graph.size[0], P), d.graph.edge_index),
            "sources": sources_alone,
        },
        {
            "in_channels": (P, (P, P)),
            "max_degree": (10, 2),
            "bias": (True, False),
            "aggr": ("add", "mean", "max", "median"),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "median"),),
    ),
    Case(
        "DirGNNConv",
        directed,
        PLAIN,
        {
            "conv": ("GCNConv", "SAGEConv", "GATConv", "ResGatedGraphConv"),
            "alpha": (0.5, 0.2),
            "root_weight": (True, False),
        },
        by_pyg=(("conv", "ResGatedGraphConv"),),
    ),
]
