"""Layers with a matrix for each kind of edge."""

import torch
from pyg.cases_gcn import FLOWS
from pyg.parity import Case, P, Q, R


def relations(cls, in_channels=P, **options):
    return cls(in_channels, Q, R, **options)


def embeddings(d):
    """Indices of nodes, rows of Θ, for one set of nodes or for both."""
    count = d.graph.size
    return (
        torch.randint(P, count[:1])
        if not d.graph.is_pair
        else tuple(torch.randint(P, (number,)) for number in count)
    )


RELATIONS = {
    "features": lambda d: (d.x(), d.graph.edge_index, d.types()),
    "embeddings": lambda d: (embeddings(d), d.graph.edge_index, d.types()),
    "untyped": lambda d: (d.x(), d.graph.edge_index),
}
FORMS = {
    "num_bases": (None, 2),
    "num_blocks": (None, 2),
    "root_weight": (True, False),
    "is_sorted": (False, True),
    "bias": (True, False),
    "flow": FLOWS,
}


def one_form(options):
    return not (options.get("num_bases") and options.get("num_blocks"))


def nobody(d):
    """No features: the nodes of a small graph are the rows of Θ."""
    return None, d.graph.edge_index % P, d.types()


def two_lists(d):
    """Two lists of edges between the same nodes."""
    edges = d.graph.edge_index
    cut = edges.size(1) // 3
    return d.x(), edges[:, :cut], edges[:, cut:]


CASES = [
    Case(
        "RGCNConv",
        relations,
        {**RELATIONS, "no features": nobody},
        {**FORMS, "aggr": ("mean", "add", "max", "min", "median"), "in_channels": (P, (P, P))},
        pairs=True,
        by_pyg=(("aggr", "median"),),
        allowed=one_form,
    ),
    Case(
        "FastRGCNConv",
        relations,
        {**RELATIONS, "no features": nobody},
        {**FORMS, "aggr": ("mean", "add", "max")},
        pairs=True,
        by_pyg=(("aggr", "max"),),
        allowed=one_form,
    ),
    Case(
        "SignedConv",
        lambda cls, first_aggr=True, **options: cls(
            P if first_aggr else P // 2, Q, first_aggr, **options
        ),
        {"two lists": two_lists},
        {
            "first_aggr": (True, False),
            "aggr": ("mean", "add", "max", "median"),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "median"),),
    ),
]
