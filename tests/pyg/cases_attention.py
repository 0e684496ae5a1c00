"""Attention over edges."""

from pyg.cases_gcn import FLOWS
from pyg.parity import Case, D, P, Q

CASES = [
    Case(
        "GATConv",
        lambda cls, in_channels=P, **options: cls(in_channels, Q, **options),
        {
            "plain": lambda d: (d.x(), d.graph.edge_index),
            "attributes": lambda d: (d.x(), d.graph.edge_index, d.attributes()),
            "shares": lambda d: (d.x(), d.graph.edge_index, None, None, True),
        },
        {
            "in_channels": (P, (P, P)),
            "heads": (1, 2),
            "concat": (True, False),
            "negative_slope": (0.2, 0.5),
            "add_self_loops": (True, False),
            "edge_dim": (None, D),
            "fill_value": ("mean", 2.0),
            "bias": (True, False),
            "residual": (False, True),
            "flow": FLOWS,
        },
        pairs=True,
    ),
]
