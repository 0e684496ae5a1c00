"""Attention over edges."""

import torch
from pyg.cases_gcn import FLOWS
from pyg.parity import Case, D, P, Q, R


def plain(d):
    return d.x(), d.graph.edge_index


def attributed(d):
    return d.x(), d.graph.edge_index, d.attributes()


def sources_alone(d):
    """A pair without features of the targets, and the size that says how many there are."""
    x = d.x()
    if not d.graph.is_pair:
        return x, d.graph.edge_index, None, d.graph.size
    return (x[0], None), d.graph.edge_index, None, d.graph.size


def relational(cls, **options):
    """A layer whose l2 is set: PyG leaves it as the memory was."""
    layer = cls(P, Q, R, **options)
    with torch.no_grad():
        layer.l2.fill_(1 / Q)
    return layer


HEADS = {
    "heads": (1, 2),
    "concat": (True, False),
    "dropout": (0.0, 1.0),
}
GAT = {
    "negative_slope": (0.2, 0.5),
    "add_self_loops": (True, False),
    "edge_dim": (None, D),
    "fill_value": ("mean", 2.0, "add", "min", "max", torch.tensor([0.5])),
    "residual": (False, True),
}
COMMON = {"bias": (True, False), "aggr": ("add", "max"), "flow": FLOWS}
BY_PYG = (("dropout", 1.0), ("aggr", "max"))

CASES = [
    Case(
        "GATConv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        {
            "plain": plain,
            "attributes": attributed,
            "sources alone": sources_alone,
            "shares": lambda d: (d.x(), d.graph.edge_index, None, None, True),
            "no shares": lambda d: (d.x(), d.graph.edge_index, None, None, False),
        },
        {"in_channels": (P, (P, P)), **HEADS, **GAT, **COMMON},
        pairs=True,
        by_pyg=BY_PYG,
    ),
    Case(
        "GATv2Conv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        {
            "plain": plain,
            "attributes": attributed,
            "shares": lambda d: (d.x(), d.graph.edge_index, None, True),
        },
        {
            "in_channels": (P, (P, P)),
            "share_weights": (False, True),
            **HEADS,
            **GAT,
            **COMMON,
        },
        pairs=True,
        by_pyg=BY_PYG,
    ),
    Case(
        "TransformerConv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        {
            "plain": plain,
            "attributes": attributed,
            "shares": lambda d: (d.x(), d.graph.edge_index, None, True),
            "no shares": lambda d: (d.x(), d.graph.edge_index, d.attributes(), False),
        },
        {
            "in_channels": (P, (P, P)),
            **HEADS,
            "beta": (False, True),
            "edge_dim": (None, D),
            "root_weight": (True, False),
            **COMMON,
        },
        pairs=True,
        by_pyg=BY_PYG,
    ),
    Case(
        "SuperGATConv",
        lambda cls, **options: cls(P, Q, **options),
        {"plain": plain, "negative": lambda d: (*plain(d), d.graph.edge_index[:, :3].flip(0))},
        {
            **HEADS,
            "negative_slope": (0.2, 0.5),
            "add_self_loops": (True, False),
            "attention_type": ("MX", "SD"),
            "neg_sample_ratio": (0.5, 1.0),
            "edge_sample_ratio": (1.0, 0.6),
            "is_undirected": (False, True),
            **COMMON,
        },
        by_pyg=BY_PYG,
    ),
    Case(
        "AGNNConv",
        lambda cls, **options: cls(**options),
        {"plain": plain},
        {
            "requires_grad": (True, False),
            "add_self_loops": (True, False),
            "aggr": COMMON["aggr"],
            "flow": FLOWS,
        },
        by_pyg=BY_PYG,
    ),
    Case(
        "FAConv",
        lambda cls, **options: cls(P, **options),
        {
            "plain": lambda d: (d.x(), d.x(), d.graph.edge_index),
            "weighted": lambda d: (d.x(), d.x(), d.graph.edge_index, d.weight()),
            "shares": lambda d: (d.x(), d.x(), d.graph.edge_index, None, False),
        },
        {
            "eps": (0.1, 0.0),
            "dropout": (0.0, 1.0),
            "cached": (False, True),
            "add_self_loops": (True, False),
            "normalize": (True, False),
            "aggr": COMMON["aggr"],
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "max"),),
    ),
    Case(
        "RGATConv",
        relational,
        {
            "typed": lambda d: (*plain(d), d.types()),
            "attributes": lambda d: (*plain(d), d.types(), d.attributes()),
            "sized": lambda d: (*plain(d), d.types(), None, d.graph.size),
            "shares": lambda d: (*plain(d), d.types(), None, None, True),
        },
        {
            "num_bases": (None, 2),
            "num_blocks": (None, 2),
            "mod": (None, "additive", "scaled", "f-additive", "f-scaled"),
            "attention_mechanism": ("across-relation", "within-relation"),
            "attention_mode": ("additive-self-attention", "multiplicative-self-attention"),
            "heads": HEADS["heads"],
            "dim": (1, 2),
            "concat": HEADS["concat"],
            "negative_slope": GAT["negative_slope"],
            "dropout": HEADS["dropout"],
            "edge_dim": GAT["edge_dim"],
            **COMMON,
        },
        by_pyg=(("aggr", "max"),),
        allowed=lambda options: (
            not (
                (options.get("num_bases") and options.get("num_blocks"))
                or (options.get("dropout") and options.get("mod"))
                or (
                    options.get("dim", 1) > 1
                    and options.get("attention_mode", "additive").startswith("additive")
                )
            )
        ),
    ),
]
