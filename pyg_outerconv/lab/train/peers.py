"""PyG's own layer for a family, so that both are trained under one protocol.

Which of our parameters is which of PyG's is said by the recipes of :mod:`pyg_outerconv.pyg`, which
are read backwards here: PyG's class, unmodified, begins with our values.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.nn.resolver import aggregation_resolver
from torch_geometric.transforms import LaplacianLambdaMax
from torch_geometric.utils import add_remaining_self_loops, is_undirected

from ...errors import RefusedValue
from ...families import (
    GCN,
    Chebyshev,
    Diffusion,
    Directed,
    Family,
    Identity,
    Relation,
    Reverse,
    Scale,
    Stack,
    Walk,
    parse_family,
)
from ...families.multi_head import GAT, GATv2, Transformer
from ...graph import edge_list_of
from ...nn import OuterConv
from ...nn.recipes import layer_of
from ...pyg.convert import as_ours
from ...pyg.layer import OURS
from ...pyg.tie import Source, linear
from ..data import Dataset
from ..settings import Settings
from .classifiers import Structures
from .inputs import Graphs, Inputs, check_task, induced, kept_features, whole_graph
from .model import PEER, Contender, check_out_heads

HEADS = (GAT, GATv2, Transformer)
# Of which families PyG has a layer, with which options.
HAS: dict[type[Family], str] = {
    GCN: "no root weight",
    Identity: "no root weight",
    Walk: "all powers of one direction, summed",
    Chebyshev: "norm 'sym', 'source' or None, and one lambda_max",
    Relation: "norm 'mean' or None, theta full, of bases or in blocks; of one relation with a root "
    "weight norm None, or 'mean' of edges without weights; without features no blocks",
    **dict.fromkeys(
        (Directed, Reverse, Scale),
        "directed(gcn), alone or scaled by 1 - α and α with α in [0, 1], or reverse(gcn); edges of "
        "weight 1, self-loops too",
    ),
    **dict.fromkeys(
        HEADS,
        "heads side by side, or their mean; of transformer no added self-loops, of others no root "
        "weight",
    ),
    Stack: "stack(family, identity) of gcn(add_self_loops=False), relation or heads",
}
WITH_ROOT = (Relation, Directed, Reverse, Scale, Transformer)


@dataclass(frozen=True)
class Peer:
    """A class of PyG's with its options, and what it is called with beside x.

    Attributes:
        kind: the class.
        arguments: of its ``forward`` beside x.
        options: of its constructor, after the channels.
        said: the options that its name in tables has.
        around: makes the layer that the constructor takes in the place of channels.
        note: a remark on the comparison, or empty.
    """

    kind: type[Module]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    around: Callable[[int, int], Module] | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"PyG {self.kind.__name__}{f'({self.said})' if self.said else ''}"

    @property
    def takes_sparse(self) -> bool:
        """Whether x may be a CSR matrix, which it multiplies with its weights first."""
        return getattr(OURS.get(self.kind), "transforms_first", True)

    def layer(self, mine: OuterConv, p: int, q: int) -> Module:
        """PyG's layer, which begins as ours does and leaves torch's random numbers as they are."""
        width = q // self.options["heads"] if self.options.get("concat") else q
        with torch.random.fork_rng(devices=[]):
            constructor_arguments = (p, width) if self.around is None else (self.around(p, q),)
            layer: Module = self.kind(*constructor_arguments, **self.options)
        begin_as(layer, mine)
        return layer


def begin_as(theirs: Module, mine: OuterConv) -> None:
    """Give a layer of PyG the parameters of ours.

    Each source of a recipe puts PyG's numbers in another order, so its transpose is its inverse.
    What none of ours is, such as a bias of values, becomes zero, as the bias of both is.
    """
    values, sources = _by_recipe(mine), _sources(theirs, mine)
    parameters = list(theirs.parameters())
    with torch.enable_grad():
        read = [sources[name].of(theirs) for name in values]
        parameter_values = torch.autograd.grad(
            read, parameters, list(values.values()), allow_unused=True, materialize_grads=True
        )
    with torch.no_grad():
        for parameter, value in zip(parameters, parameter_values, strict=True):
            parameter.copy_(value)


def _by_recipe(mine: OuterConv) -> dict[str, Tensor]:
    """Our parameters by the names of recipes, which have a root weight for a stacked identity."""
    values = {name: one.detach() for name, one in mine.named_parameters() if name != "bias"}
    if isinstance(mine.family, Stack):
        parts = [values.pop(name) for name in list(values) if name.startswith("theta.")]
        if len(parts) == 1:
            parts = list(parts[0].split([one.num_bases for one in mine.family.families]))
        if isinstance(mine.family.families[0], Identity):
            parts.reverse()
        values["theta.weight"], values["root.weight"] = parts
    if isinstance(mine.family, Directed):  # PyG's layer adds up a half of each direction
        values["theta.weight"] = 2 * values["theta.weight"]
    return values


def _sources(theirs: Module, mine: OuterConv) -> dict[str, Source]:
    """Our parameters as functions of PyG's: the recipe, or where it has several steps, or none."""
    match theirs:
        case pyg.Linear():
            return {"theta.weight": Source("weight.T", lambda lin: lin.weight.t()[None])}
        case pyg.GINConv():
            return {"theta.weight": linear("nn")}
        case pyg.ARMAConv():
            root = Source("root_weight[0]", lambda arma: arma.root_weight[0])
            return {"theta.weight": Source("init_weight", lambda arma: arma.init_weight)} | {
                "root.weight": root
            }
        case pyg.DirGNNConv():
            ways = ("conv_in.lin", "conv_out.lin")[-mine.family.num_bases :]
            return {"theta.weight": linear(*ways), "root.weight": linear("lin")}
    with torch.device("meta"):  # the convolution of a recipe is not needed here
        sources: dict[str, Source] = as_ours(theirs).recipe()[1]
    if isinstance(theirs, pyg.TransformerConv):  # whose skip is a layer of its own
        sources["root.weight"] = linear("lin_skip")
    return sources


def peer_of(
    family: Family | str,
    data: Data,
    theta: str = "full",
    root_weight: bool = False,
    aggr: str = "sum",
    label_aggr: str = "sum",
) -> Peer:
    """PyG's layer for ``OuterConv(P, Q, family, **options)``, and what it is called with."""
    family = parse_family(family)
    if type(family) not in HAS:
        family_names = ", ".join(sorted(kind.__name__ for kind in HAS))
        raise no_peer(f"one of {family_names}", repr(family))
    if aggr != "sum" or label_aggr != "sum":
        raise no_peer("aggr='sum' and label_aggr='sum'", f"{aggr!r} and {label_aggr!r}")
    if theta != "full" and not isinstance(family, Relation):
        raise no_peer("theta='full'", repr(theta))
    if root_weight and not isinstance(family, WITH_ROOT):
        raise no_peer("no root weight", "one")
    part = family
    if isinstance(family, Stack) and len(family.families) == 2:
        others = [one for one in family.families if one != Identity()]
        if len(others) == 1 and isinstance(others[0], (GCN, Relation, *HEADS)):
            (part,) = others
    is_stack = part is not family
    pyg_peer = _peer_of(part, data, theta, root_weight or is_stack)
    if pyg_peer is None:
        got = f"{family!r}, theta={theta!r}, root_weight={root_weight}"
        raise no_peer(HAS[type(family)], got)
    if is_stack and isinstance(part, HEADS):
        return replace(pyg_peer, said=f"{pyg_peer.said}, residual")
    return pyg_peer


def _peer_of(family: Family, data: Data, theta: str, has_root: bool) -> Peer | None:
    """The table of peers: families, with the node itself beside or not, and PyG's classes."""
    row = partial(_row, family)
    bare, edges = {"edge_index": data.edge_index}, edges_of(data)
    weight = edges["edge_weight"]
    plain = weight is None
    match family:
        case Identity() if not has_root:
            return row(pyg.Linear, {})
        case GCN("sym", add_self_loops=False, improved=False) if has_root:
            return row(pyg.ARMAConv, edges, "act=None", act=None)
        case GCN(None, add_self_loops=False) if has_root and plain:
            return row(pyg.GraphConv, bare)
        case GCN("target", add_self_loops=False) if has_root and plain:
            return row(pyg.SAGEConv, bare)
        case GCN() if has_root:
            return None
        case GCN("sym"):
            ones = torch.ones(data.num_edges)  # without weights PyG ignores `improved`
            return row(pyg.GCNConv, {**bare, "edge_weight": ones if plain else weight})
        case GCN(None, add_self_loops=True, improved=False) if plain and not data.has_self_loops():
            return replace(row(pyg.GINConv, bare), around=pyg.Linear)
        case GCN():
            own = matrix_of(family, data)
            return row(pyg.GCNConv, own, "normalize=False", normalize=False, add_self_loops=False)
        case Relation(1, None) if has_root and theta == "full":
            return row(pyg.GraphConv, edges)
        case Relation(1, "mean") if has_root and theta == "full":
            return row(pyg.SAGEConv, bare) if plain else None
        case Relation(norm="mean" | None):
            return _relational(family, data, theta, has_root)
        case Walk(norm="sym", direction="forward", aggr="sum", powers=(power,)):
            loops = bool(family.add_self_loops)
            if not is_symmetric(data):
                return None
            return row(pyg.SGConv, edges, f"K={power}", K=power, add_self_loops=loops)
        case Walk(steps, aggr="sum", powers=None, direction="forward" | "backward"):
            step = matrix_of(replace(family, length=1, powers=(1,)), data)
            return row(pyg.TAGConv, step, f"K={steps}", K=steps, normalize=False)
        case Chebyshev(terms, str() | int() | float() as largest, "sym" | "source" | None as norm):
            name = "rw" if norm == "source" else norm
            arguments = {**edges, "lambda_max": _lambda_max(largest, name, data)}
            return row(pyg.ChebConv, arguments, f"K={terms}", K=terms, normalization=name)
        case Directed() | Reverse() | Scale():
            return _directions(family, data, has_root)
        case GAT(heads, "concat" | "mean" as combine) | GATv2(heads, "concat" | "mean" as combine):
            kind = pyg.GATConv if isinstance(family, GAT) else pyg.GATv2Conv
            concat = combine == "concat"
            return row(kind, bare, f"heads={heads}", concat=concat, residual=has_root)
        case Transformer(heads, "concat" | "mean" as combine, add_self_loops=False):
            kind, concat = pyg.TransformerConv, combine == "concat"
            return row(kind, bare, f"heads={heads}", concat=concat, root_weight=has_root)
    return None


def _row(
    family: Family, kind: type[Module], arguments: Mapping[str, Any], said: str = "", **options: Any
) -> Peer:
    """A class of PyG's with the options that both call by one name, and some others."""
    theirs = inspect.signature(kind).parameters
    shared = {name: value for name, value in vars(family).items() if name in theirs}
    return Peer(kind, arguments, {**shared, **options}, said)


def _relational(family: Relation, data: Data, theta: str, has_root: bool) -> Peer | None:
    """R-GCN in one of two classes that give the same numbers.

    One goes through the relations one by one, the other, which cannot do with wide features,
    through all edges at once.
    """
    form = re.fullmatch(r"(full)|(basis-decomposed|block-diagonal)\D*(\d+)\)?", theta)
    featureless = data.get("x") is None
    if form is None or (featureless and form[2] == "block-diagonal"):
        return None
    options: dict[str, Any] = {"aggr": "mean" if family.norm == "mean" else "add"}
    if form[2]:
        options["num_bases" if form[2] == "basis-decomposed" else "num_blocks"] = int(form[3])
    types = data.get("edge_type")
    if types is None:
        types = torch.zeros(data.num_edges, dtype=torch.long)
    kind = pyg.FastRGCNConv if featureless else pyg.RGCNConv
    arguments = {"edge_index": data.edge_index, "edge_type": types}
    return _row(family, kind, arguments, root_weight=has_root, **options)


def _directions(family: Family, data: Data, has_root: bool) -> Peer | None:
    """DirGNNConv, (1 − α) Aᵀ X Θ_0 + α A X Θ_1, with the α that a family has.

    ``scale(directed(gcn), (1 - α, α))`` is this layer, and ``reverse(gcn)`` with α = 1. Without
    factors ``directed(gcn)`` is the same function with α = 1/2 and twice the weights. Its two
    GCNConv have no bias where the root has one, so that both layers have the same parameters.
    """
    note = ""
    match family:
        case Reverse(GCN("sym", improved=False) as gcn):
            alpha = 1.0
        case Directed(GCN("sym", improved=False) as gcn):
            alpha = 0.5
            note = (
                "it adds up a half of each direction; its weights begin twice as large as ours, so "
                "that both begin as the same function, but a step of training moves it half as far"
            )
        case Scale(Directed(GCN("sym", improved=False) as gcn), factor):
            forward, alpha = factor if isinstance(factor, tuple) else (factor, factor)
            if forward + alpha != 1 or not 0 <= alpha <= 1:
                return None
        case _:
            return None
    if data.get("edge_weight") is not None:
        return None
    edge_index = data.edge_index
    if gcn.add_self_loops:  # which PyG's layer never does
        edge_index, _ = add_remaining_self_loops(edge_index, num_nodes=data.num_nodes)
    said = f"GCNConv{', bias=False' if has_root else ''}"
    said += "" if alpha == 0.5 else f", alpha={alpha:g}"
    options = {"alpha": alpha, "root_weight": has_root}
    inner = partial(pyg.GCNConv, bias=not has_root)
    return Peer(pyg.DirGNNConv, {"edge_index": edge_index}, options, said, inner, note)


def _lambda_max(largest: Any, normalization: str | None, data: Data) -> Tensor | None:
    """What PyG's Chebyshev layer is told; its default is the bound of D − W."""
    if largest == "exact":
        plain = Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
        plain.edge_attr = data.get("edge_weight")
        find = LaplacianLambdaMax(normalization, is_undirected=is_symmetric(data))
        return torch.tensor(find(plain).lambda_max)
    if largest == "bound":
        return torch.tensor(2.0) if normalization else None
    return torch.tensor(float(largest))


def matrix_of(family: Family, data: Data) -> dict[str, Any]:
    """The edges and weights of the family's one matrix, for layers that take them as they are."""
    matrix = family.basis_on(edge_list_of(data)).edges()
    return {"edge_index": matrix.index.long(), "edge_weight": matrix.values()}


def is_symmetric(data: Data) -> bool:
    """Whether both ends of an edge have one degree, as PyG's norm takes it."""
    return is_undirected(data.edge_index, data.get("edge_weight"), data.num_nodes)


def edges_of(data: Data) -> dict[str, Any]:
    """The edges of a graph, with their weights if there are any."""
    return {"edge_index": data.edge_index, "edge_weight": data.get("edge_weight")}


def no_peer(expected: str, got: str) -> RefusedValue:
    """The refusal of a family or of settings that no layer of PyG's has."""
    rule = "PyG has no layer that is this convolution, leave --peer out"
    return RefusedValue(rule, expected, got)


# In training -------------------------------------------------------------------------------------


class PeerLayer(Module):
    """A PyG layer called as ours is: features, then a structure shared by all layers."""

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

    It gets the features that ours gets, stored sparse only if its layer multiplies them with its
    weights before all else. From the same seed it begins as the same function, with the same random
    numbers left for dropout.
    """
    if settings.architecture not in ("layers", "blocks"):
        raise no_peer("architecture layers or blocks", settings.architecture)
    family = parse_family(settings.family)
    check_out_heads(family, settings)
    options = {name: getattr(settings, name) for name in ("theta", "root_weight")}
    reductions = {name: getattr(settings, name) for name in ("aggr", "label_aggr")}
    pyg_peer = peer_of(family, dataset.data, **options, **reductions)
    kept = settings.features if pyg_peer.takes_sparse else "dense"
    x = kept_features(dataset, replace(settings, features=kept))
    num_nodes = int(dataset.data.num_nodes or 0)
    instead = None
    if x is None and pyg_peer.kind is not pyg.FastRGCNConv:
        instead = torch.eye(num_nodes)  # an embedding of each node

    def make_layer(p: int, q: int, family: Family = family, pyg_peer: Peer = pyg_peer) -> Module:
        return PeerLayer(pyg_peer.layer(layer_of(p, q, family, **options), p, q), instead)

    last = family.averaged(settings.out_heads)
    make_last = make_layer
    if last != family:
        make_last = partial(
            make_layer, family=last, pyg_peer=peer_of(last, dataset.data, **options)
        )

    structure: Any = _moved(pyg_peer.arguments, settings)
    name, make_propagation = pyg_peer.name, None
    if settings.propagation:
        make_propagation = _appnp(settings)
        structure = Structures(structure, _moved(edges_of(dataset.data), settings))
        name += f", then {make_propagation()}"
    inputs: Inputs = whole_graph(x, structure, settings)
    make_readout: Callable[[int], Module] | None = None
    if check_task(dataset.entry, settings) == "graphs":

        def members(batch: Tensor, num_graphs: int) -> dict[str, Any]:
            return {"index": batch, "dim_size": num_graphs}

        inputs = Graphs.of(dataset, settings, x, structure, partial(induced, structure), members)

        def make_readout(channels: int) -> Module:
            return PeerLayer(aggregation_resolver(settings.pool))

    notes = [pyg_peer.note]
    if settings.features == "sparse" and not pyg_peer.takes_sparse:
        notes += [
            "its features are the same numbers, stored dense: it sends them along edges first"
        ]
    return Contender(
        PEER,
        name,
        make_layer,
        inputs,
        num_nodes if x is None else x.size(1),
        "; ".join(filter(None, notes)),
        make_last=make_last,
        make_propagation=make_propagation and (lambda: PeerLayer(make_propagation())),
        make_readout=make_readout,
    )


def _appnp(settings: Settings) -> Callable[[], Module]:
    """Makes PyG's propagation of predictions."""
    family = parse_family(settings.propagation)
    match family:
        case Diffusion("ppr", alpha, length=length, norm="sym", remainder="keep"):
            loops = family.add_self_loops
            return lambda: pyg.APPNP(length, alpha, add_self_loops=loops)
    raise no_peer("propagation by diffusion(ppr, alpha=..., length=...)", repr(family))


def _moved(arguments: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        name: value.to(settings.device) if isinstance(value, Tensor) else value
        for name, value in arguments.items()
    }
