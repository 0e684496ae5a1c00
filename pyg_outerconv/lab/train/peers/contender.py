"""PyG's own layer for the same family, so that both are trained under one protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.nn import APPNP, global_add_pool, global_max_pool, global_mean_pool

from ....families import Diffusion, Directed, Family, Relation, Reverse, Scale, parse_family
from ....families.multi_head import Transformer
from ....nn.layer import layer_of
from ...data import Dataset
from ..blocks import Structures
from ..features import kept_features
from ..graphs import Graphs, check_task, induced
from ..inputs import Inputs, WholeGraph
from ..model import PEER, Contender, check_out_heads
from ..settings import Settings
from .heads import HEADS
from .layers import LAYERS
from .recipe import Recipe, edges_of, no_peer

RECIPES: dict[type[Family], Callable[[Any, Any, Settings], Recipe]] = {**LAYERS, **HEADS}
WITH_ROOT = (Relation, Directed, Reverse, Scale, Transformer)


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

    It gets the features that ours gets, stored sparse only if its layer multiplies them with its
    weights before all else. From the same seed it begins as the same function, with the same random
    numbers left for dropout.

    Raises:
        ValueError: PyG has no layer for them.
    """
    family = parse_family(settings.family)
    check_out_heads(family, settings)
    recipe = recipe_for(family, dataset, settings)
    last = recipe_for(family.averaged(settings.out_heads), dataset, settings)
    kept = settings.features if recipe.takes_sparse else "dense"
    x = kept_features(dataset, replace(settings, features=kept))
    num_nodes = int(dataset.data.num_nodes or 0)
    instead = None
    if x is None and not recipe.reads_no_features:
        instead = torch.eye(num_nodes)  # an embedding of each node

    def maker(recipe: Recipe, family: Family) -> Callable[[int, int], Module]:
        def make_layer(p: int, q: int) -> Module:
            with torch.random.fork_rng(devices=[]):  # PyG's layer draws other numbers
                conv = recipe.make(p, q)
            mine = layer_of(p, q, family, theta=settings.theta, root_weight=settings.root_weight)
            with torch.no_grad():
                recipe.begin(conv, mine)
            return PeerLayer(conv, instead)

        return make_layer

    structure: Any = {key: _moved(value, settings) for key, value in recipe.arguments.items()}
    name, make_propagation = f"PyG {recipe.name}", None
    if settings.propagation:
        make_propagation = _appnp(settings)
        edges = {key: _moved(value, settings) for key, value in edges_of(dataset.data).items()}
        structure, name = Structures(structure, edges), f"{name}, then {make_propagation()}"
    inputs: Inputs = WholeGraph(x, structure)
    make_readout = None
    if check_task(dataset.entry, settings) == "graphs":
        part, members = partial(induced, structure), PyGReadout.members
        inputs = Graphs.of(dataset, settings, x, structure, part, members)
        make_readout = partial(PyGReadout, aggr=settings.pool)
    return Contender(
        PEER,
        name,
        maker(recipe, family),
        inputs,
        num_nodes if x is None else x.size(1),
        "; ".join(filter(None, (recipe.note, _stored_note(recipe, settings)))),
        make_last=maker(last, family.averaged(settings.out_heads)),
        make_propagation=make_propagation and (lambda: PeerLayer(make_propagation())),
        make_readout=make_readout,
    )


class PyGReadout(Module):
    """PyG's global pooling."""

    def __init__(self, channels: int, aggr: str) -> None:
        super().__init__()
        pools = {"sum": global_add_pool, "mean": global_mean_pool, "max": global_max_pool}
        self.pool = pools[aggr]

    def forward(self, x: Tensor, members: dict[str, Any]) -> Tensor:
        """(G, H) of (N, H)."""
        return self.pool(x, **members)

    @staticmethod
    def members(batch: Tensor, num_graphs: int) -> dict[str, Any]:
        """The arguments of PyG's functions."""
        return {"batch": batch, "size": num_graphs}


def recipe_for(family: Family, dataset: Dataset, settings: Settings) -> Recipe:
    """How PyG makes the layer of a family.

    Raises:
        ValueError: PyG has no layer for the family and the settings.
    """
    make = RECIPES.get(type(family))
    if make is None:
        known = ", ".join(sorted(kind.__name__ for kind in RECIPES))
        raise no_peer(f"one of {known}", repr(family))
    if settings.aggr != "sum" or settings.label_aggr != "sum":
        got = f"{settings.aggr!r} and {settings.label_aggr!r}"
        raise no_peer("aggr='sum' and label_aggr='sum'", got)
    if settings.theta != "full" and not isinstance(family, Relation):
        raise no_peer("theta='full'", repr(settings.theta))
    if settings.root_weight and not isinstance(family, WITH_ROOT):
        raise no_peer("no root weight", "one")
    return make(family, dataset.data, settings)


def _stored_note(recipe: Recipe, settings: Settings) -> str:
    """A remark if only our layers get sparse features."""
    if settings.features != "sparse" or recipe.takes_sparse:
        return ""
    return "its features are the same numbers, stored dense: it sends them along edges first"


def _appnp(settings: Settings) -> Callable[[], Module]:
    """Makes PyG's propagation of predictions."""
    family = parse_family(settings.propagation)
    plain = Diffusion("ppr", as_pyg=True)
    if not isinstance(family, Diffusion) or family != replace(
        plain,
        alpha=family.alpha,
        length=family.length,
        add_self_loops=family.add_self_loops,
        as_pyg=family.as_pyg,
    ):
        raise no_peer("propagation by diffusion(ppr, alpha=..., length=...)", repr(family))
    return lambda: APPNP(family.length, family.alpha, add_self_loops=family.add_self_loops)


def _moved(value: Any, settings: Settings) -> Any:
    return value.to(settings.device) if isinstance(value, Tensor) else value
