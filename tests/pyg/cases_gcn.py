"""Layers over the normalised adjacency matrix."""

from pyg.parity import Case, P, Q

PLAIN = {"plain": lambda d: (d.x(), d.graph.edge_index)}
WEIGHTED = {**PLAIN, "weighted": lambda d: (d.x(), d.graph.edge_index, d.weight())}
FLOWS = ("source_to_target", "target_to_source")

CASES = [
    Case(
        "GCNConv",
        lambda cls, **options: cls(P, Q, **options),
        {
            **WEIGHTED,
            "static": lambda d: (d.normal(3, d.graph.size[0], P), d.graph.edge_index),
        },
        {
            "improved": (False, True),
            "cached": (False, True),
            "add_self_loops": (None, False, True),
            "normalize": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean", "max"),
            "flow": FLOWS,
            "decomposed_layers": (1, 2),
        },
        by_pyg=(("aggr", "max"),),
        allowed=lambda options: options.get("normalize", True) or not options.get("add_self_loops"),
    ),
]
