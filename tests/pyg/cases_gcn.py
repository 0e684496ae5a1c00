"""Layers over the normalised adjacency matrix."""

from pyg.parity import Case, P, Q
from torch.nn import ReLU, Softmax

PLAIN = {
    "plain": lambda d: (d.x(), d.graph.edge_index),
    "EdgeIndex": lambda d: (d.x(), d.edges()),
    "csr": lambda d: (d.x(), d.matrix("csr")),
    "coo": lambda d: (d.x(), d.matrix("coo")),
}
WEIGHTED = {
    **PLAIN,
    "weighted": lambda d: (d.x(), d.graph.edge_index, d.weight()),
    "signed": lambda d: (d.x(), d.graph.edge_index, d.signed()),
    "double": lambda d: (d.x(), d.graph.edge_index, d.weight().detach().double()),
}
STATIC = {
    **WEIGHTED,
    "static": lambda d: (d.normal(3, d.graph.size[0], P), d.graph.edge_index, d.weight()),
}
FLOWS = ("source_to_target", "target_to_source")


def _gcn2(cls, alpha=0.3, theta=None, **options):
    return cls(P, alpha, theta, None if theta is None else 2, **options)


def _with_first(call):
    """The call of a layer that reads the features before the first layer, too."""
    return lambda d: (*(inputs := call(d))[:1], d.x(), *inputs[1:])


CASES = [
    Case(
        "GCNConv",
        lambda cls, **options: cls(P, Q, **options),
        STATIC,
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
    Case(
        "LGConv",
        lambda cls, **options: cls(**options),
        STATIC,
        {"normalize": (True, False), "aggr": ("add", "mean", "max"), "flow": FLOWS},
        by_pyg=(("aggr", "max"),),
    ),
    Case(
        "GCN2Conv",
        _gcn2,
        {name: _with_first(call) for name, call in WEIGHTED.items()},
        {
            "alpha": (0.3, 0.0, 1.0),
            "shared_weights": (True, False),
            "cached": (False, True),
            "add_self_loops": (True, False),
            "normalize": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
            "theta": (None, 0.5),
        },
    ),
    Case(
        "ARMAConv",
        lambda cls, **options: cls(P, Q, **options),
        STATIC,
        {
            "num_stacks": (1, 3),
            "num_layers": (1, 2, 3),
            "shared_weights": (False, True),
            "act": (ReLU(), None, Softmax(-1)),
            "dropout": (0.0, 0.5),
            "bias": (True, False),
            "aggr": ("add", "mean", "max"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "max"),),
    ),
]
