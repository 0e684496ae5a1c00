"""Layers over the adjacency matrix and its mean."""

from pyg.cases_gcn import FLOWS, PLAIN, WEIGHTED
from pyg.parity import Case, P, Q
from torch_geometric.nn import MeanAggregation

CASES = [
    Case(
        "GraphConv",
        lambda cls, **options: cls(P, Q, **options),
        WEIGHTED,
        {
            "aggr": ("add", "mean", "max", "min", "median"),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "median"),),
    ),
    Case(
        "SAGEConv",
        lambda cls, **options: cls(P, Q, **options),
        PLAIN,
        {
            "aggr": ("mean", "sum", "max", "min", MeanAggregation(), ["mean", "max"], "lstm"),
            "normalize": (False, True),
            "root_weight": (True, False),
            "project": (False, True),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", ["mean", "max"]), ("aggr", "lstm")),
        allowed=lambda options: (
            not (options.get("aggr") == "lstm" and options.get("flow") == FLOWS[1])
        ),
    ),
]
