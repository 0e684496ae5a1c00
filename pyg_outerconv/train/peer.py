"""PyG's own layer for the same family, so that both are trained under one protocol."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import ChebConv, DirGNNConv, FastRGCNConv, GCNConv, RGCNConv, TAGConv
from torch_geometric.transforms import LaplacianLambdaMax
from torch_geometric.utils import add_remaining_self_loops, is_undirected

from ..data import Dataset
from ..errors import RefusedValue
from ..families import GCN, Chebyshev, Directed, Family, Relation, Walk, parse_family
from ..graph import edge_list_of
from ..nn import OuterConv
from .features import kept_features
from .inputs import WholeGraph
from .model import PEER, Contender
from .settings import Settings


@dataclass(frozen=True)
class _Recipe:
    """How PyG makes the layer, how it begins as ours, and what it is called with beside x."""

    name: str
    make: Callable[[int, int], Module]
    begin: Callable[[Any, Any], None]
    arguments: dict[str, Any]
    reads_no_features: bool = False
    note: str = ""


class PeerLayer(Module):
    """A PyG layer called as ours is: features, then a structure shared by all layers.

    Args:
        conv: the layer.
        instead: (N, N) what stands for features that the graph has not; None for layers that can do
            without.
    """

    def __init__(self, conv: Module, instead: Tensor | None = None) -> None:
        super().__init__()
        self.conv = conv
        self.register_buffer("instead", instead, persistent=False)

    def forward(self, x: Tensor | None, structure: dict[str, Any]) -> Tensor:
        """(N, Q) of features (N, P), or of None."""
        out: Tensor = self.conv(self.instead if x is None else x, **structure)
        return out


def peer(dataset: Dataset, settings: Settings) -> Contender:
    """The contender that PyG has for the family of these settings.

    It gets the features that ours gets, sparse ones too, and from the same seed it begins as the
    same function, with the same random numbers left for dropout.

    Raises:
        ValueError: PyG has no layer for them, or takes no sparse features, which are asked for.
    """
    family = parse_family(settings.family)
    make = _RECIPES.get(type(family))
    if make is None:
        raise _no_peer(
            settings, f"one of {', '.join(sorted(c.__name__ for c in _RECIPES))}", repr(family)
        )
    if settings.aggr != "sum" or settings.label_aggr != "sum":
        raise _no_peer(
            settings,
            "aggr='sum' and label_aggr='sum'",
            f"{settings.aggr!r} and {settings.label_aggr!r}",
        )
    if settings.theta != "full" and not isinstance(family, Relation):
        raise _no_peer(settings, "theta='full'", repr(settings.theta))
    if settings.root_weight and not isinstance(family, Relation | Directed):
        raise _no_peer(settings, "no root weight", "one")
    recipe = make(family, dataset.data, settings)
    x = kept_features(dataset, replace(settings, peer=True))
    num_nodes = int(dataset.data.num_nodes or 0)
    instead = None
    if x is None and not recipe.reads_no_features:
        instead = torch.eye(num_nodes)  # an embedding of each node

    def make_layer(p: int, q: int) -> Module:
        with torch.random.fork_rng(devices=[]):  # PyG's layer draws other numbers
            conv = recipe.make(p, q)
        mine = OuterConv(p, q, family, theta=settings.theta, root_weight=settings.root_weight)
        with torch.no_grad():
            recipe.begin(conv, mine)
        return PeerLayer(conv, instead)

    structure = {key: _moved(value, settings) for key, value in recipe.arguments.items()}
    in_channels = num_nodes if x is None else x.size(1)
    name = f"PyG {recipe.name}"
    inputs = WholeGraph(x, structure)
    return Contender(PEER, name, make_layer, inputs, in_channels, recipe.note)


def _begin_linear(conv: Any, mine: Any) -> None:
    """One matrix, or one for each label."""
    for lin, matrix in zip(
        getattr(conv, "lins", None) or [conv.lin], mine.theta.weight, strict=True
    ):
        lin.weight.copy_(matrix.t())


def _begin_relational(conv: Any, mine: Any) -> None:
    for name, parameter in mine.theta.named_parameters():
        getattr(conv, name).copy_(parameter)
    if mine.root is not None:
        conv.root.copy_(mine.root.weight[0])


def _begin_directed(conv: Any, mine: Any) -> None:
    """Its result is a half of each direction."""
    for one, matrix in zip((conv.conv_in, conv.conv_out), mine.theta.weight, strict=True):
        one.lin.weight.copy_(2 * matrix.t())
    if mine.root is not None:
        conv.lin.weight.copy_(mine.root.weight[0].t())
        conv.lin.bias.zero_()


def _moved(value: Any, settings: Settings) -> Any:
    return value.to(settings.device) if isinstance(value, Tensor) else value


def _no_peer(settings: Settings, expected: str, got: str) -> RefusedValue:
    return RefusedValue(
        "PyG has no layer that is this convolution, leave --peer out", expected, got
    )


def _edges(data: Data) -> dict[str, Any]:
    return {"edge_index": data.edge_index, "edge_weight": data.get("edge_weight")}


def _gcn(family: GCN, data: Data, settings: Settings) -> _Recipe:
    if family.norm == "sym":

        def make(p: int, q: int) -> Module:
            return GCNConv(
                p, q, improved=family.improved, add_self_loops=family.add_self_loops, cached=False
            )

        edges = _edges(data)
        if edges["edge_weight"] is None:  # without weights PyG ignores `improved`
            edges["edge_weight"] = torch.ones(data.num_edges)
        return _Recipe("GCNConv", make, _begin_linear, edges)
    return _Recipe(
        "GCNConv(normalize=False)",
        lambda p, q: GCNConv(p, q, normalize=False),
        _begin_linear,
        _operator(family, data),
    )


def _operator(family: Family, data: Data) -> dict[str, Any]:
    """The edges and weights of the family's one matrix, for layers that take them as they are."""
    matrix = family.basis_on(edge_list_of(data)).edges()
    return {"edge_index": matrix.index.long(), "edge_weight": matrix.values()}


def _walk(family: Walk, data: Data, settings: Settings) -> _Recipe:
    if family.direction == "both" or family.aggr != "sum" or family.powers is not None:
        raise _no_peer(settings, "all powers of one direction, summed", repr(family))

    def make(p: int, q: int) -> Module:
        return TAGConv(p, q, K=family.length, normalize=False)

    step = replace(family, length=1, powers=(1,))
    return _Recipe(f"TAGConv(K={family.length})", make, _begin_linear, _operator(step, data))


def _chebyshev(family: Chebyshev, data: Data, settings: Settings) -> _Recipe:
    if family.norm == "target":
        raise _no_peer(settings, "norm 'sym', 'source' or None", "'target'")
    given, norm = family.lambda_max, "rw" if family.norm == "source" else family.norm
    largest: float | None
    if given == "exact":
        undirected = is_undirected(data.edge_index, data.get("edge_weight"), data.num_nodes)
        plain = Data(
            edge_index=data.edge_index, edge_attr=data.get("edge_weight"), num_nodes=data.num_nodes
        )
        largest = LaplacianLambdaMax(norm, is_undirected=undirected)(plain).lambda_max
    elif given == "bound":
        largest = 2.0 if norm else None  # of D − W, PyG's default is the bound
    elif isinstance(given, int | float):
        largest = float(given)
    else:
        raise _no_peer(settings, "one lambda_max", repr(given))

    def make(p: int, q: int) -> Module:
        return ChebConv(p, q, K=family.num_terms, normalization=norm)

    lambda_max = None if largest is None else torch.tensor(largest)
    arguments = {**_edges(data), "lambda_max": lambda_max}
    return _Recipe(f"ChebConv(K={family.num_terms})", make, _begin_linear, arguments)


def _relation(family: Relation, data: Data, settings: Settings) -> _Recipe:
    if family.norm == "given":
        raise _no_peer(settings, "norm 'mean' or None", "'given'")
    form = re.fullmatch(r"(full)|(basis-decomposed|block-diagonal)\D*(\d+)\)?", settings.theta)
    if form is None:
        raise _no_peer(
            settings, "theta 'full', 'basis-decomposed' or 'block-diagonal'", repr(settings.theta)
        )
    options: dict[str, Any] = {"aggr": "mean" if family.norm == "mean" else "add"}
    if form[2]:
        options["num_bases" if form[2] == "basis-decomposed" else "num_blocks"] = int(form[3])

    # The same numbers twice: one goes through the relations one by one, the other, which cannot do
    # with wide features, through all edges at once.
    featureless = data.get("x") is None
    if featureless and form[2] == "block-diagonal":
        raise _no_peer(
            settings,
            "theta 'full' or 'basis-decomposed' where there are no features",
            repr(settings.theta),
        )
    layer = FastRGCNConv if featureless else RGCNConv

    def make(p: int, q: int) -> Module:
        return layer(p, q, family.num_relations, root_weight=settings.root_weight, **options)

    types = data.get("edge_type")
    if types is None:
        types = torch.zeros(data.num_edges, dtype=torch.long)
    return _Recipe(
        layer.__name__,
        make,
        _begin_relational,
        {"edge_index": data.edge_index, "edge_type": types},
        reads_no_features=True,
    )


def _directed(family: Directed, data: Data, settings: Settings) -> _Recipe:
    inner = family.family
    if not isinstance(inner, GCN) or inner.norm != "sym":
        raise _no_peer(settings, "directed(gcn)", repr(family))
    if inner.improved or data.get("edge_weight") is not None:
        raise _no_peer(settings, "edges of weight 1, self-loops too", "other weights")

    def make(p: int, q: int) -> Module:
        return DirGNNConv(GCNConv(p, q), root_weight=settings.root_weight)

    edge_index = data.edge_index
    if inner.add_self_loops:  # which PyG's layer never does
        edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=data.num_nodes)
    note = (
        "it adds up a half of each direction; its weights begin twice as large as ours, so that "
        "both begin as the same function, but a step of training moves it half as far"
    )
    name, arguments = "DirGNNConv(GCNConv)", {"edge_index": edge_index}
    return _Recipe(name, make, _begin_directed, arguments, note=note)


_RECIPES: dict[type[Family], Callable[[Any, Data, Settings], _Recipe]] = {
    GCN: _gcn,
    Walk: _walk,
    Chebyshev: _chebyshev,
    Relation: _relation,
    Directed: _directed,
}
