"""Layers over the adjacency matrix and its mean."""

from pyg.cases_gcn import FLOWS, PLAIN, WEIGHTED
from pyg.parity import Case, P, Q
from torch_geometric.nn import MeanAggregation, MultiAggregation, VarAggregation

SEMI = VarAggregation(semi_grad=True)
PAIRED = {
    **{name: call for name, call in WEIGHTED.items() if name != "plain"},
    "plain": lambda d: (d.x(), d.graph.edge_index),
    "no targets": lambda d: (
        (d.x()[0], None) if d.graph.is_pair else d.x(),
        *(d.graph.edge_index, None, d.graph.size),
    ),
}


def _sum_of_both():
    """Mean and variance, added up."""
    return MultiAggregation(["mean", "var"], mode="sum")


CASES = [
    Case(
        "GraphConv",
        lambda cls, **options: cls(P, Q, **options),
        WEIGHTED,
        {
            "aggr": ("add", "mean", "max", "min", "median", _sum_of_both()),
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
            "aggr": (
                *("mean", "sum", "max", "min", MeanAggregation(), "lstm", "std"),
                *(["mean", "max"], ["sum", "min", "var", "mean"], ["std"], ["mean", "median"]),
                SEMI,
            ),
            "normalize": (False, True),
            "root_weight": (True, False),
            "project": (False, True),
            "bias": (True, False),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", ["mean", "median"]), ("aggr", "lstm"), ("aggr", SEMI)),
        allowed=lambda options: (
            not (options.get("aggr") == "lstm" and options.get("flow") == FLOWS[1])
        ),
    ),
    Case(
        "SimpleConv",
        lambda cls, **options: cls(**options),
        PAIRED,
        {
            "aggr": ("sum", "mean", "max", "min", "median", ["sum", "std"]),
            "combine_root": (None, "sum", "cat", "self_loop"),
            "flow": FLOWS,
        },
        pairs=True,
        by_pyg=(("aggr", "median"),),
    ),
]
