"""PyG's layers for families of the edges: what each is, and how it begins as ours."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import (
    ARMAConv,
    ChebConv,
    FastRGCNConv,
    GCNConv,
    GraphConv,
    Linear,
    RGCNConv,
    SAGEConv,
    SGConv,
    TAGConv,
)
from torch_geometric.transforms import LaplacianLambdaMax
from torch_geometric.utils import is_undirected

from ....families import (
    GCN,
    Chebyshev,
    Directed,
    Family,
    Identity,
    Relation,
    Reverse,
    Scale,
    Stack,
    Walk,
)
from ....families.heads_by_name import HeadsByName
from ....graph import edge_list_of
from ..settings import Settings
from .directions import directions
from .heads import residual
from .recipe import Recipe, edges_of, no_peer
from .sums import gin, neighbours_and_itself


def _begin_linear(conv: Any, mine: Any) -> None:
    """One matrix, or one for each label."""
    for lin, matrix in zip(
        getattr(conv, "lins", None) or [conv.lin], mine.theta.weight, strict=True
    ):
        lin.weight.copy_(matrix.t())


def _begin_dense(conv: Any, mine: Any) -> None:
    conv.weight.copy_(mine.theta.weight[0].t())
    conv.bias.zero_()


def _begin_simplified(conv: Any, mine: Any) -> None:
    _begin_dense(conv.lin, mine)


def _begin_arma(conv: Any, mine: Any) -> None:
    neighbours, itself = mine.theta.weight
    conv.init_weight.copy_(neighbours[None])
    conv.root_weight.copy_(itself[None, None])


def _begin_with_root(conv: Any, mine: Any) -> None:
    """SAGEConv and GraphConv."""
    mean = isinstance(conv, SAGEConv)
    of_edges, of_root = (conv.lin_l, conv.lin_r) if mean else (conv.lin_rel, conv.lin_root)
    itself = mine.theta.weight[1] if mine.root is None else mine.root.weight[0]
    of_edges.weight.copy_(mine.theta.weight[0].t())
    of_edges.bias.zero_()
    of_root.weight.copy_(itself.t())


def _begin_relational(conv: Any, mine: Any) -> None:
    for name, parameter in mine.theta.named_parameters():
        getattr(conv, name).copy_(parameter)
    if mine.root is not None:
        conv.root.copy_(mine.root.weight[0])


def _gcn(family: GCN, data: Data, settings: Settings) -> Recipe:
    if family.norm == "sym":

        def make(p: int, q: int) -> Module:
            return GCNConv(
                p, q, improved=family.improved, add_self_loops=family.add_self_loops, cached=False
            )

        edges = edges_of(data)
        if edges["edge_weight"] is None:  # without weights PyG ignores `improved`
            edges["edge_weight"] = torch.ones(data.num_edges)
        return Recipe("GCNConv", make, _begin_linear, edges, takes_sparse=True)
    if found := gin(family, data):
        return found
    return Recipe(
        "GCNConv(normalize=False)",
        lambda p, q: GCNConv(p, q, normalize=False),
        _begin_linear,
        _operator(family, data),
        takes_sparse=True,
    )


def _operator(family: Family, data: Data) -> dict[str, Any]:
    """The edges and weights of the family's one matrix, for layers that take them as they are."""
    matrix = family.basis_on(edge_list_of(data)).edges()
    return {"edge_index": matrix.index.long(), "edge_weight": matrix.values()}


def _walk(family: Walk, data: Data, settings: Settings) -> Recipe:
    if _is_simplified(family) and _is_symmetric(data):
        (length,) = family.powers or ()

        def simplified(p: int, q: int) -> Module:
            return SGConv(p, q, K=length, add_self_loops=bool(family.add_self_loops))

        return Recipe(f"SGConv(K={length})", simplified, _begin_simplified, edges_of(data))
    if family.direction == "both" or family.aggr != "sum" or family.powers is not None:
        raise no_peer("all powers of one direction, summed", repr(family))

    def make(p: int, q: int) -> Module:
        return TAGConv(p, q, K=family.length, normalize=False)

    step = replace(family, length=1, powers=(1,))
    return Recipe(f"TAGConv(K={family.length})", make, _begin_linear, _operator(step, data))


def _is_simplified(family: Walk) -> bool:
    """Whether it is one power of the symmetrically normalised adjacency matrix."""
    single = family.powers is not None and len(family.powers) == 1
    return single and (family.norm, family.direction, family.aggr) == ("sym", "forward", "sum")


def _is_symmetric(data: Data) -> bool:
    """Whether both ends of an edge have one degree, as PyG's norm takes it."""
    return is_undirected(data.edge_index, data.get("edge_weight"), data.num_nodes)


def _chebyshev(family: Chebyshev, data: Data, settings: Settings) -> Recipe:
    if family.norm == "target":
        raise no_peer("norm 'sym', 'source' or None", "'target'")
    given, norm = family.lambda_max, "rw" if family.norm == "source" else family.norm
    largest: float | None
    if given == "exact":
        undirected = _is_symmetric(data)
        plain = Data(
            edge_index=data.edge_index, edge_attr=data.get("edge_weight"), num_nodes=data.num_nodes
        )
        largest = LaplacianLambdaMax(norm, is_undirected=undirected)(plain).lambda_max
    elif given == "bound":
        largest = 2.0 if norm else None  # of D − W, PyG's default is the bound
    elif isinstance(given, int | float):
        largest = float(given)
    else:
        raise no_peer("one lambda_max", repr(given))

    def make(p: int, q: int) -> Module:
        return ChebConv(p, q, K=family.num_terms, normalization=norm)

    lambda_max = None if largest is None else torch.tensor(largest)
    arguments = {**edges_of(data), "lambda_max": lambda_max}
    return Recipe(f"ChebConv(K={family.num_terms})", make, _begin_linear, arguments)


def _with_root(family: Relation, data: Data) -> Recipe:
    """One relation and the node itself."""
    if family.norm is None:
        name, kind, arguments = "GraphConv", GraphConv, edges_of(data)
    elif family.norm == "mean" and data.get("edge_weight") is None:
        name, kind, arguments = "SAGEConv", SAGEConv, {"edge_index": data.edge_index}
    else:
        raise no_peer("norm None, or 'mean' of edges without weights", repr(family))
    return Recipe(name, lambda p, q: kind(p, q), _begin_with_root, arguments)


def _relation(family: Relation, data: Data, settings: Settings) -> Recipe:
    if (family.num_relations, settings.theta, settings.root_weight) == (1, "full", True):
        return _with_root(family, data)
    if family.norm == "given":
        raise no_peer("norm 'mean' or None", "'given'")
    form = re.fullmatch(r"(full)|(basis-decomposed|block-diagonal)\D*(\d+)\)?", settings.theta)
    if form is None:
        raise no_peer("theta 'full', 'basis-decomposed' or 'block-diagonal'", repr(settings.theta))
    options: dict[str, Any] = {"aggr": "mean" if family.norm == "mean" else "add"}
    if form[2]:
        options["num_bases" if form[2] == "basis-decomposed" else "num_blocks"] = int(form[3])

    # The same numbers twice: one goes through the relations one by one, the other, which cannot do
    # with wide features, through all edges at once.
    featureless = data.get("x") is None
    if featureless and form[2] == "block-diagonal":
        raise no_peer(
            "theta 'full' or 'basis-decomposed' where there are no features",
            repr(settings.theta),
        )
    layer = FastRGCNConv if featureless else RGCNConv

    def make(p: int, q: int) -> Module:
        return layer(p, q, family.num_relations, root_weight=settings.root_weight, **options)

    types = data.get("edge_type")
    if types is None:
        types = torch.zeros(data.num_edges, dtype=torch.long)
    return Recipe(
        layer.__name__,
        make,
        _begin_relational,
        {"edge_index": data.edge_index, "edge_type": types},
        reads_no_features=True,
    )


def _identity(family: Identity, data: Data, settings: Settings) -> Recipe:
    return Recipe("Linear", lambda p, q: Linear(p, q), _begin_dense, {}, takes_sparse=True)


def _stack(family: Stack, data: Data, settings: Settings) -> Recipe:
    """What PyG has with a linear map of the node itself: ARMA, SAGE, GraphConv, heads."""
    if found := neighbours_and_itself(family, data):
        return found
    first, *rest = family.families
    if rest == [Identity()]:
        if first == GCN(add_self_loops=False):
            name = "ARMAConv(act=None)"
            return Recipe(name, lambda p, q: ARMAConv(p, q, act=None), _begin_arma, edges_of(data))
        if isinstance(first, Relation) and first.num_relations == 1:
            return _with_root(first, data)
        if isinstance(first, HeadsByName):
            return residual(first, data, settings)
    raise no_peer(
        "stack(family, identity) of gcn(add_self_loops=False), relation(1) or heads", repr(family)
    )


LAYERS: dict[type[Family], Callable[[Any, Data, Settings], Recipe]] = {
    GCN: _gcn,
    Identity: _identity,
    Stack: _stack,
    Walk: _walk,
    Chebyshev: _chebyshev,
    Relation: _relation,
    Directed: directions,
    Reverse: directions,
    Scale: directions,
}
