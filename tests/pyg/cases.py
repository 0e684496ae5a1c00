"""All classes of ``pyg_outerconv.pyg`` with their options and inputs, as one table."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from pyg.parity import FLOWS, ByPyG, D, Drawn, P, Q, R, case, graphs, layers, reseed
from torch import nn
from torch_geometric import nn as theirs

# What layers are called with ----------------------------------------------------------------------


def plain(d):
    return d.x(), d.graph.edge_index


def typed(d):
    return *plain(d), d.types()


def attributed(d):
    return *plain(d), d.attributes()


def sources_alone(*beside):
    """Features of sources, none of the targets of a pair, and the size that tells their number."""
    return lambda d: (
        (d.x()[0], None) if d.graph.is_pair else d.x(),
        *(d.graph.edge_index, *beside, d.graph.size),
    )


def embeddings(d):
    """Indices of nodes, rows of Θ, for one set of nodes or for both."""
    rows = [torch.randint(P, (count,)) for count in d.graph.size]
    return tuple(rows) if d.graph.is_pair else rows[0]


def two_lists(d):
    """Two lists of edges between the same nodes."""
    cut = d.graph.num_edges // 3
    return d.x(), d.graph.edge_index[:, :cut], d.graph.edge_index[:, cut:]


def incidences(*beside):
    """Nodes and hyperedges, as many of each as the two sets of nodes of a pair."""
    return lambda d: (
        d.normal(d.graph.size[0], P),
        d.graph.edge_index,
        *(one and one(d) for one in beside),
    )


def of_hyperedges(d):
    """Weights (M,)."""
    return (torch.rand(d.graph.size[1], dtype=d.dtype) + 0.2).requires_grad_()


def with_first(call):
    """The call of a layer that reads the features before the first layer, too."""
    return lambda d: (*(inputs := call(d))[:1], d.x(), *inputs[1:])


def halves(d):
    """The number of the graph of each node: the first four, and the rest."""
    return (torch.arange(d.graph.size[0]) >= 4).long()


def cheb(weight=None, batch=None, lambda_max=None):
    """A call of ChebConv with these arguments, each a function of what is drawn."""
    later = (weight, batch, lambda_max)
    return lambda d: (*plain(d), *(each and each(d) for each in later))


PLAIN = {
    "plain": plain,
    "EdgeIndex": lambda d: (d.x(), d.edges()),
    "csr": lambda d: (d.x(), d.matrix("csr")),
    "coo": lambda d: (d.x(), d.matrix("coo")),
}
WEIGHTED = {
    **PLAIN,
    "weighted": lambda d: (*plain(d), d.weight()),
    "signed": lambda d: (*plain(d), d.signed()),
    "double": lambda d: (*plain(d), d.weight().detach().double()),
}
STATIC = {
    **WEIGHTED,
    "static": lambda d: (d.normal(3, d.graph.size[0], P), d.graph.edge_index, d.weight()),
}
CHEB = {
    **{name: call for name, call in STATIC.items() if name not in ("csr", "coo")},
    "number": cheb(None, None, lambda d: 1.7),
    "tensor": cheb(lambda d: d.weight(), None, lambda d: d.normal(1).detach() + 3.0),
    "learned": cheb(lambda d: d.signed(), None, lambda d: d.weight()[:1].sum() + 1.0),
    "batch": cheb(None, halves, lambda d: torch.tensor([1.5, 2.5], dtype=d.dtype)),
    "batch-alone": cheb(None, halves),
}
RELATIONS = {
    "features": typed,
    "embeddings": lambda d: (embeddings(d), d.graph.edge_index, d.types()),
    "untyped": plain,
    "no features": lambda d: (None, d.graph.edge_index % P, d.types()),  # rows of Θ are nodes
}
ATTENTION = {
    "plain": plain,
    "attributes": attributed,
    "shares": lambda d: (*plain(d), None, True),
}


# How layers are made ------------------------------------------------------------------------------


def alone(cls, **options):
    """A layer without channels."""
    return cls(**options)


def relational(cls, in_channels=P, **options):
    return cls(in_channels, Q, R, **options)


def relational_attention(cls, **options):
    """A layer whose l2 is set: PyG leaves it as the memory was."""
    layer = cls(P, Q, R, **options)
    with torch.no_grad():
        layer.l2.fill_(1 / Q)
    return layer


def directed(cls, conv="GCNConv", options=(), **of_both):
    """Both directions of a layer."""
    return cls(getattr(theirs, conv)(P, Q, **dict(options)), **of_both)


def mean_and_variance():
    """Both, added up."""
    return theirs.MultiAggregation(["mean", "var"], mode="sum")


NETWORKS = {
    "hidden": lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), nn.Linear(5, P * Q)),
    "linear": lambda: nn.Linear(D, P * Q),
    "linear of PyG": lambda: theirs.Linear(D, P * Q, bias=False),
    "deep": lambda: nn.Sequential(
        *(nn.Linear(D, 5), nn.Tanh(), nn.Linear(5, 3), nn.ReLU(), theirs.Linear(3, P * Q))
    ),
    "bounded": lambda: nn.Sequential(nn.Linear(D, P * Q), nn.Tanh()),
    "of PyG": lambda: theirs.MLP([D, 5, P * Q], norm=None),
}

# Options that several classes have ----------------------------------------------------------------

SWITCH, OFF = (True, False), (False, True)
SUM_OR_MEAN = {"aggr": ("add", "mean", ByPyG("max"))}
SUM_ALONE = {"aggr": ("add", ByPyG("mean"))}
BIAS = {"bias": SWITCH}
LOOPS = {"add_self_loops": SWITCH}
NORM = {"normalize": SWITCH}
CACHED = {"cached": OFF}
ENDS = {"in_channels": (P, (P, P))}
FORMS = {
    "num_bases": (None, 2),
    "num_blocks": (None, 2),
    "root_weight": SWITCH,
    "is_sorted": OFF,
    **BIAS,
}
HEADS = {"heads": (1, 2), "concat": SWITCH}
SHARES = {**HEADS, "dropout": (0.0, ByPyG(1.0))}
SLOPE = {"negative_slope": (0.2, 0.5)}
EDGES = {"edge_dim": (None, D)}
GAT = {
    **SLOPE,
    **LOOPS,
    **EDGES,
    "fill_value": ("mean", 2.0, "add", "min", "max", torch.tensor([0.5])),
    "residual": OFF,
}
OF_ATTENTION = {**BIAS, "aggr": ("add", ByPyG("max"))}
SEMI = theirs.VarAggregation(semi_grad=True)


def one_form(options):
    return not (options.get("num_bases") and options.get("num_blocks"))


TABLE = [
    # Normalised adjacency, and polynomials of it
    case(
        "GCNConv",
        STATIC,
        {
            "improved": OFF,
            **CACHED,
            "add_self_loops": (None, False, True),
            **NORM,
            **BIAS,
            **SUM_OR_MEAN,
            "decomposed_layers": (1, 2),
        },
        allowed=lambda options: options.get("normalize", True) or not options.get("add_self_loops"),
    ),
    case("LGConv", STATIC, {**NORM, **SUM_OR_MEAN}, alone),
    case(
        "GCN2Conv",
        {name: with_first(call) for name, call in WEIGHTED.items()},
        {
            "alpha": (0.3, 0.0, 1.0),
            "shared_weights": SWITCH,
            **CACHED,
            **LOOPS,
            **NORM,
            "aggr": ("add", "mean"),
            "theta": (None, 0.5),
        },
        lambda cls, alpha=0.3, theta=None, **options: cls(
            P, alpha, theta, None if theta is None else 2, **options
        ),
    ),
    case(
        "ARMAConv",
        STATIC,
        {
            "num_stacks": (1, 3),
            "num_layers": (1, 2, 3),
            "shared_weights": OFF,
            "act": (nn.ReLU(), None, nn.Softmax(-1)),
            "dropout": (0.0, 0.5),
            **BIAS,
            **SUM_OR_MEAN,
        },
    ),
    case(
        "ChebConv",
        CHEB,
        {"K": (3, 1, 2, 5), "normalization": ("sym", "rw", None), **BIAS, **SUM_ALONE},
        lambda cls, K=3, **options: cls(P, Q, K, **options),
    ),
    case("SGConv", STATIC, {"K": (1, 0, 2, 3), **CACHED, **LOOPS, **BIAS, **SUM_ALONE}),
    case(
        "SSGConv",
        STATIC,
        {"alpha": (0.2, 0.0, 1.0, 1.5), "K": (1, 0, 3), **CACHED, **LOOPS, **BIAS, **SUM_ALONE},
        lambda cls, alpha=0.2, **options: cls(P, Q, alpha, **options),
    ),
    case("TAGConv", STATIC, {"K": (3, 0, 1, 2), **NORM, **BIAS, "aggr": ("add", ByPyG("max"))}),
    case(
        "MixHopConv",
        STATIC,
        {"powers": (None, [1], [0], [2, 0], [1, 1, 3], (3, 1)), **LOOPS, **BIAS, **SUM_ALONE},
    ),
    case(
        "APPNP",
        STATIC,
        {
            "K": (3, 0, 1, 10),
            "alpha": (0.2, 0.0, 1.0),
            "dropout": (0.0, 0.4),
            **CACHED,
            **LOOPS,
            **NORM,
            **SUM_ALONE,
        },
        lambda cls, K=3, alpha=0.2, **options: cls(K, alpha, **options),
    ),
    # The adjacency matrix, its reductions and its degrees
    case(
        "GraphConv",
        WEIGHTED,
        {"aggr": ("add", "mean", "max", "min", ByPyG("median"), mean_and_variance()), **BIAS},
        pairs=True,
    ),
    case(
        "SAGEConv",
        PLAIN,
        {
            "aggr": (
                *("mean", "sum", "max", "min", theirs.MeanAggregation(), ByPyG("lstm"), "std"),
                *(["mean", "max"], ["sum", "min", "var", "mean"], ["std"]),
                *(ByPyG(["mean", "median"]), ByPyG(SEMI)),
            ),
            "normalize": OFF,
            "root_weight": SWITCH,
            "project": OFF,
            **BIAS,
        },
        pairs=True,
        allowed=lambda options: (
            not (options.get("aggr") == "lstm" and options.get("flow") == FLOWS[1])
        ),
    ),
    case(
        "SimpleConv",
        {**WEIGHTED, "no targets": sources_alone(None)},
        {
            "aggr": ("sum", "mean", "max", "min", ByPyG("median"), ["sum", "std"]),
            "combine_root": (None, "sum", "cat", "self_loop"),
        },
        alone,
        pairs=True,
    ),
    case(
        "GINConv",
        {**PLAIN, "no targets": sources_alone()},
        {
            "eps": (0.0, 0.5),
            "train_eps": OFF,
            "aggr": ("add", "mean", "max", ByPyG("median")),
        },
        lambda cls, **options: cls(
            nn.Sequential(nn.Linear(P, Q), nn.Tanh(), nn.Linear(Q, Q)), **options
        ),
        pairs=True,
    ),
    case(
        "GatedGraphConv",
        WEIGHTED,
        {
            "channels": (P, P + 2, P - 1),
            "num_layers": (2, 1, 0),
            "aggr": ("add", "mean", "max", ByPyG("median")),
            **BIAS,
        },
        lambda cls, channels=P, num_layers=2, **options: cls(channels, num_layers, **options),
    ),
    case(
        "ClusterGCNConv",
        {**PLAIN, "static": lambda d: (d.normal(2, d.graph.size[0], P), d.graph.edge_index)},
        {
            "diag_lambda": (0.0, 1.0, -0.5),
            "add_self_loops": (True, ByPyG(False)),
            **BIAS,
            **SUM_ALONE,
            "flow": (FLOWS[0], ByPyG(FLOWS[1])),
        },
        flows=False,
        widest=torch.float32,  # PyG counts degrees in float32
    ),
    case("LEConv", WEIGHTED, {**ENDS, **BIAS, "aggr": ("add", ByPyG("max"))}, pairs=True),
    case(
        "MFConv",
        {
            **PLAIN,
            "static": lambda d: (d.normal(3, d.graph.size[0], P), d.graph.edge_index),
            "sources": sources_alone(),
        },
        {
            **ENDS,
            "max_degree": (10, 2),
            **BIAS,
            "aggr": ("add", "mean", "max", ByPyG("median")),
        },
        pairs=True,
    ),
    # Several structures
    case(
        "HypergraphConv",
        {
            "plain": incidences(),
            "weights": incidences(of_hyperedges),
            "counted": incidences(None, None, lambda d: d.graph.size[1] + 2),
            "attributes": incidences(None, lambda d: d.normal(d.graph.size[1], P)),
            "both": incidences(of_hyperedges, lambda d: d.normal(d.graph.size[1], P)),
        },
        {
            "use_attention": OFF,
            "attention_mode": ("node", "edge"),
            **HEADS,
            **SLOPE,
            "dropout": (0.0, 0.4),
            **OF_ATTENTION,
        },
        flows=False,
        pairs=True,
        allowed=lambda options: options.get("use_attention") or options.get("heads", 1) == 1,
    ),
    case(
        "DirGNNConv",
        PLAIN,
        {
            "conv": ("GCNConv", "SAGEConv", "GATConv", ByPyG("ResGatedGraphConv")),
            "alpha": (0.5, 0.2),
            "root_weight": SWITCH,
        },
        directed,
        flows=False,
    ),
    case(
        "RGCNConv",
        RELATIONS,
        {**FORMS, "aggr": ("mean", "add", "max", "min", ByPyG("median")), **ENDS},
        relational,
        pairs=True,
        allowed=one_form,
    ),
    case(
        "FastRGCNConv",
        RELATIONS,
        {**FORMS, "aggr": ("mean", "add", ByPyG("max"))},
        relational,
        pairs=True,
        allowed=one_form,
    ),
    case(
        "SignedConv",
        {"two lists": two_lists},
        {"first_aggr": SWITCH, "aggr": ("mean", "add", "max", ByPyG("median")), **BIAS},
        lambda cls, first_aggr=True, **options: cls(
            P if first_aggr else P // 2, Q, first_aggr, **options
        ),
        pairs=True,
    ),
    # Functions of edge attributes, and messages that are not linear in the features
    case(
        "GMMConv",
        {"attributes": attributed},
        {
            **ENDS,
            "kernel_size": (2, 1),
            "separate_gaussians": (False, ByPyG(True)),
            "aggr": ("mean", "add", ByPyG("max")),
            **BIAS,
        },
        lambda cls, in_channels=P, kernel_size=2, **options: cls(
            in_channels, Q, D, kernel_size, **options
        ),
        pairs=True,
    ),
    case(
        "NNConv",
        {"attributes": attributed},
        {
            **ENDS,
            "nn": tuple(
                ByPyG(name) if name in ("bounded", "of PyG") else name for name in NETWORKS
            ),
            **SUM_OR_MEAN,
            "root_weight": SWITCH,
            **BIAS,
        },
        lambda cls, in_channels=P, nn="hidden", **options: cls(
            in_channels, Q, NETWORKS[nn](), **options
        ),
        pairs=True,
    ),
    case(
        "PDNConv",
        {"attributes": attributed, "plain": plain},
        {**LOOPS, **NORM, **BIAS, **SUM_OR_MEAN},
        lambda cls, **options: cls(P, Q, D, 5, **options),
    ),
    case(
        "GINEConv",
        {
            "as wide": lambda d: (*plain(d), d.attributes(P)),
            "other width": attributed,
            "no attributes": plain,
            "sources": lambda d: (
                (d.normal(d.graph.size[0], P), None),
                *(d.graph.edge_index, d.attributes(P), d.graph.size),
            ),
        },
        {"eps": (0.0, 0.3), "train_eps": OFF, "edge_dim": (None, D, P), **SUM_OR_MEAN},
        lambda cls, **options: cls(
            nn.Sequential(nn.Linear(P, 5), nn.ReLU(), nn.Linear(5, Q)), **options
        ),
        pairs=True,
    ),
    case(
        "FiLMConv",
        {"typed": typed, **PLAIN},
        {
            **ENDS,
            "num_relations": (1, R),
            "nn": OFF,
            "act": (
                *(nn.ReLU(), None, nn.LeakyReLU(0.3), F.gelu, nn.ReLU(inplace=True), nn.Tanh()),
                nn.PReLU(),
            ),
            "aggr": ("mean", "add", ByPyG("max")),
        },
        lambda cls, in_channels=P, nn=False, **options: cls(
            in_channels, Q, nn=torch.nn.Linear(P, 2 * Q) if nn else None, **options
        ),
        pairs=True,
        allowed=lambda options: not isinstance(options.get("act"), nn.PReLU),
    ),
    # Attention
    case(
        "GATConv",
        {
            "plain": plain,
            "attributes": attributed,
            "sources alone": sources_alone(None),
            "shares": lambda d: (*plain(d), None, None, True),
            "no shares": lambda d: (*plain(d), None, None, False),
        },
        {**ENDS, **SHARES, **GAT, **OF_ATTENTION},
        pairs=True,
    ),
    case(
        "GATv2Conv",
        ATTENTION,
        {**ENDS, "share_weights": OFF, **SHARES, **GAT, **OF_ATTENTION},
        pairs=True,
    ),
    case(
        "TransformerConv",
        {**ATTENTION, "no shares": lambda d: (*attributed(d), False)},
        {**ENDS, **SHARES, "beta": OFF, **EDGES, "root_weight": SWITCH, **OF_ATTENTION},
        pairs=True,
    ),
    case(
        "SuperGATConv",
        {"plain": plain, "negative": lambda d: (*plain(d), d.graph.edge_index[:, :3].flip(0))},
        {
            **SHARES,
            **SLOPE,
            **LOOPS,
            "attention_type": ("MX", "SD"),
            "neg_sample_ratio": (0.5, 1.0),
            "edge_sample_ratio": (1.0, 0.6),
            "is_undirected": OFF,
            **OF_ATTENTION,
        },
    ),
    case(
        "AGNNConv",
        {"plain": plain},
        {"requires_grad": SWITCH, **LOOPS, "aggr": OF_ATTENTION["aggr"]},
        alone,
    ),
    case(
        "FAConv",
        {
            "plain": with_first(plain),
            "weighted": with_first(WEIGHTED["weighted"]),
            "shares": lambda d: (*with_first(plain)(d), None, False),
        },
        {
            "eps": (0.1, 0.0),
            "dropout": (0.0, 1.0),
            **CACHED,
            **LOOPS,
            **NORM,
            "aggr": OF_ATTENTION["aggr"],
        },
        lambda cls, **options: cls(P, **options),
    ),
    case(
        "RGATConv",
        {
            "typed": typed,
            "attributes": lambda d: (*typed(d), d.attributes()),
            "sized": lambda d: (*typed(d), None, d.graph.size),
            "shares": lambda d: (*typed(d), None, None, True),
        },
        {
            "num_bases": (None, 2),
            "num_blocks": (None, 2),
            "mod": (None, "additive", "scaled", "f-additive", "f-scaled"),
            "attention_mechanism": ("across-relation", "within-relation"),
            "attention_mode": ("additive-self-attention", "multiplicative-self-attention"),
            "dim": (1, 2),
            **HEADS,
            **SLOPE,
            "dropout": (0.0, 1.0),
            **EDGES,
            **OF_ATTENTION,
        },
        relational_attention,
        allowed=lambda options: (
            one_form(options)
            and not (options.get("dropout") and options.get("mod"))
            and not (
                options.get("dim", 1) > 1
                and options.get("attention_mode", "additive").startswith("additive")
            )
        ),
    ),
]
CASES = {row.name: row for row in TABLE}
GRAPH = graphs()["directed"]


def arguments(name, dtype=torch.float64, call=None, graph=GRAPH):
    """The first call of a class, or another, on a graph."""
    reseed(8)
    calls = CASES[name].calls
    return calls[call or next(iter(calls))](Drawn(graph, dtype))


def pair(name, dtype=torch.float64, **options):
    """PyG's layer and ours, with equal weights."""
    return layers(CASES[name], options, dtype)
