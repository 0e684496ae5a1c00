"""Layers over polynomials of one matrix."""

import torch
from pyg.cases_gcn import FLOWS, STATIC
from pyg.parity import Case, P, Q


def _batch(d):
    """Two graphs, of the first four nodes and of the rest."""
    return (torch.arange(d.graph.size[0]) >= 4).long()


def _cheb(weight=None, batch=None, lambda_max=None):
    """A call of ChebConv with these arguments, each a function of what is drawn."""
    later = (weight, batch, lambda_max)
    return lambda d: (d.x(), d.graph.edge_index, *(each and each(d) for each in later))


CHEB = {
    **{name: call for name, call in STATIC.items() if name not in ("csr", "coo")},
    "number": _cheb(None, None, lambda d: 1.7),
    "tensor": _cheb(lambda d: d.weight(), None, lambda d: d.normal(1).detach() + 3.0),
    "learned": _cheb(lambda d: d.signed(), None, lambda d: d.weight()[:1].sum() + 1.0),
    "batch": _cheb(None, _batch, lambda d: torch.tensor([1.5, 2.5], dtype=d.dtype)),
    "batch-alone": _cheb(None, _batch),
}

CASES = [
    Case(
        "ChebConv",
        lambda cls, K=3, **options: cls(P, Q, K, **options),
        CHEB,
        {
            "K": (3, 1, 2, 5),
            "normalization": ("sym", "rw", None),
            "bias": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"),),
    ),
    Case(
        "SGConv",
        lambda cls, **options: cls(P, Q, **options),
        STATIC,
        {
            "K": (1, 0, 2, 3),
            "cached": (False, True),
            "add_self_loops": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"),),
    ),
    Case(
        "SSGConv",
        lambda cls, alpha=0.2, **options: cls(P, Q, alpha, **options),
        STATIC,
        {
            "alpha": (0.2, 0.0, 1.0, 1.5),
            "K": (1, 0, 3),
            "cached": (False, True),
            "add_self_loops": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"),),
    ),
    Case(
        "TAGConv",
        lambda cls, **options: cls(P, Q, **options),
        STATIC,
        {
            "K": (3, 0, 1, 2),
            "normalize": (True, False),
            "bias": (True, False),
            "aggr": ("add", "max"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "max"),),
    ),
    Case(
        "MixHopConv",
        lambda cls, **options: cls(P, Q, **options),
        STATIC,
        {
            "powers": (None, [1], [0], [2, 0], [1, 1, 3], (3, 1)),
            "add_self_loops": (True, False),
            "bias": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"),),
    ),
    Case(
        "APPNP",
        lambda cls, K=3, alpha=0.2, **options: cls(K, alpha, **options),
        STATIC,
        {
            "K": (3, 0, 1, 10),
            "alpha": (0.2, 0.0, 1.0),
            "dropout": (0.0, 0.4),
            "cached": (False, True),
            "add_self_loops": (True, False),
            "normalize": (True, False),
            "aggr": ("add", "mean"),
            "flow": FLOWS,
        },
        by_pyg=(("aggr", "mean"),),
    ),
]
