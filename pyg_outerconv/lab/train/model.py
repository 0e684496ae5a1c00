"""The model that is trained, and its contenders: a kind of layer with structure and features."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data

from ...basis import Basis
from ...basis.products import diagonal_block
from ...errors import RefusedValue, unknown
from ...families import Cluster, Family, parse_family
from ...families.multi_head import HeadsByName
from ...families.options import nested
from ...kernels import record, use_backend
from ...nn import OuterConv
from ...nn.models import evaluating
from ...nn.recipes import layer_of, structure_of
from ..data import Dataset, Entry
from ..family_options import make_family, short_name
from ..own_code import require_imported
from ..settings import Settings, resolve
from . import classifiers
from .inputs import Graphs, Inputs, check_task, kept_features, some_graphs, whole_graph
from .sampled import check_mapped, mapped_inputs, sampled
from .splits import check_protocol

OURS = "outerconv"
PEER = "peer"


@dataclass(frozen=True)
class Contender:
    """A kind of layer and the structure it works on, made once for all seeds."""

    key: str
    name: str
    make_layer: classifiers.MakeLayer
    inputs: Inputs
    in_channels: int  # or the number of nodes, where they have no features
    note: str = ""
    make_last: classifiers.MakeLayer | None = None
    make_propagation: Callable[[], Module] | None = None
    make_readout: Callable[[int], Module] | None = None
    make_mix: Callable[[int], Module] | None = None
    num_nodes: int = 0

    def model(self, num_classes: int, settings: Settings) -> classifiers.Classifier:
        """A fresh model, initialised from torch's random state."""
        model: classifiers.Classifier
        columns = num_classes if settings.labels_as_features else 0
        ends = self.in_channels + columns, num_classes
        if settings.architecture == "blocks":
            model = classifiers.BlockClassifier(*ends, self.make_layer, settings)
        elif settings.architecture == "gcnii":
            assert self.make_mix is not None  # as contenders are made
            model = classifiers.GCNII(*ends, self.make_mix, settings)
        elif settings.architecture == "linkx":
            model = classifiers.LINKX(*ends, self.num_nodes, self.make_layer, settings)
        else:
            readout = self.make_readout and self.make_readout(settings.hidden)
            model = classifiers.NodeClassifier(
                *ends, self.make_layer, settings, self.make_last, readout
            )
        if settings.propagation:
            assert self.make_propagation is not None  # as contenders are made
            model = classifiers.Propagated(model, self.make_propagation(), settings)
        return model.to(settings.device)


def ours(dataset: Dataset, settings: Settings) -> Contender:
    """The layers of the family, over what of its basis can be built here, once."""
    require_imported(settings.imports)
    family = parse_family(settings.family)
    check_out_heads(family, settings)
    if settings.architecture in ("gcnii", "linkx") and family.makes_use_of("x"):
        rule = f"the matrices of architecture {settings.architecture!r} are made of the graph alone"
        raise RefusedValue(rule, "a family whose values read no features", short_name(family))
    if dataset.mapped is not None:
        check_task(dataset.entry, settings)
        check_mapped(dataset, settings)
        in_channels = dataset.mapped.x.size(1)
        inputs: Inputs = mapped_inputs(dataset.mapped, family, settings)
    else:
        in_channels, inputs = _in_memory(dataset, family, settings)

    options = {
        name: getattr(settings, name) for name in ("theta", "aggr", "label_aggr", "root_weight")
    }

    def make_layer(in_channels: int, out_channels: int) -> Module:
        mine = parse_family(settings.family)  # each layer has modules of its own
        return layer_of(in_channels, out_channels, mine, **options)

    def make_last(in_channels: int, out_channels: int) -> Module:
        mine = parse_family(settings.family).averaged(settings.out_heads)
        return layer_of(in_channels, out_channels, mine, **options)

    def make_mix(channels: int) -> Module:
        mine = parse_family(settings.family)
        return mixing(mine, channels, settings.aggr)

    def make_propagation() -> Module:  # of logits, without parameters
        mine = parse_family(settings.propagation)
        return OuterConv(-1, -1, mine, theta="identity", bias=False)

    then = f", then {short_name(parse_family(named))}" if (named := settings.propagation) else ""
    return Contender(
        OURS,
        f"OuterConv {short_name(family)}{then}",
        make_layer,
        inputs,
        in_channels,
        make_last=make_last,
        make_propagation=make_propagation,
        make_readout=None if settings.pool == "none" else partial(pooling, aggr=settings.pool),
        make_mix=make_mix,
        num_nodes=dataset.num_nodes,
    )


def _in_memory(dataset: Dataset, family: Family, settings: Settings) -> tuple[int, Inputs]:
    """P, or N where the graph has no features, and what models are called with."""
    structure = structure_on(family, dataset.data, settings)
    x = kept_features(dataset, settings)

    def part(nodes: Tensor) -> Any:
        if isinstance(structure, Basis):
            return diagonal_block(structure, nodes)
        return structure_on(family, some_graphs(dataset.data, nodes), settings)

    inputs: Inputs
    if check_task(dataset.entry, settings) == "graphs":
        inputs = Graphs.of(dataset, settings, x, structure, part)
    elif settings.batches != "none":
        inputs = sampled(x, family, dataset.data, structure, settings)
    else:
        structure = with_propagation(structure, dataset.data, settings)
        inputs = whole_graph(x, structure, settings)
    return dataset.num_nodes if x is None else x.size(1), inputs


def mixing(family: Family, channels: int, aggr: str = "sum") -> OuterConv:
    """Σ_k A_kᵀ X C_k with a diagonal C_k that learns and begins as I / K; of one label Aᵀ X."""
    count = family.num_bases
    theta = "identity" if count == 1 else "depthwise"
    layer = OuterConv(channels, channels, family, theta=theta, bias=False, aggr=aggr)
    for weight in layer.parameters():
        torch.nn.init.constant_(weight, 1 / count)
    return layer


def pooling(channels: int, aggr: str) -> OuterConv:
    """Global pooling: Y = Aᵀ X with the pooling basis from nodes to graphs, and Θ = I."""
    return OuterConv(channels, channels, Cluster(), theta="identity", bias=False, aggr=aggr)


def structure_on(family: Family, data: Data, settings: Settings) -> Any:
    """What the layers of a family are called with beside the features, on the device of a run."""
    structure = structure_of(family, data)
    if isinstance(structure, Basis) or settings.device == "cpu":
        return structure.to(settings.device) if isinstance(structure, Basis) else structure
    return structure_of(family, copy(data).to(settings.device))


def with_propagation(structure: Any, data: Data, settings: Settings) -> Any:
    """The structure of a model: that of its layers, and the basis that propagates its logits."""
    if not settings.propagation:
        return structure
    family = parse_family(settings.propagation)
    if family.num_bases != 1 or family.makes_use_of("x"):
        raise RefusedValue(
            "predictions are propagated by one matrix",
            "a family of one label, such as diffusion(ppr, alpha=0.1)",
            short_name(family),
        )
    return classifiers.Structures(structure, family.basis_of(data).to(settings.device))


def check_out_heads(family: Family, settings: Settings) -> None:
    """Raise ValueError if ``out_heads`` is set for a family without heads."""
    if settings.out_heads and not any(isinstance(part, HeadsByName) for part in nested(family)):
        raise RefusedValue(
            "out_heads is the number of heads of the last layer",
            "a family with heads, such as gat(heads=8), or out_heads=0",
            f"{settings.out_heads} and {short_name(family)}",
        )


def on_backend(settings: Settings) -> AbstractContextManager[None]:
    """Serve the kernels of a block by the backend of the settings."""
    return nullcontext() if settings.backend == "auto" else use_backend(settings.backend)


def backends_used(contender: Contender, num_classes: int, settings: Settings) -> list[str]:
    """The kernel backends that serve a call of the model."""
    model = contender.model(num_classes, settings)
    none = torch.empty(0, dtype=torch.long, device=settings.device)
    inputs = contender.inputs.with_classes(none, none, num_classes)
    with evaluating(model), on_backend(settings), record() as calls:
        inputs.try_out(model)
    return sorted({call.backend for call in calls})


def new_settings(entry: Entry, asked: dict[str, Any], directed: bool = False) -> Settings:
    """The settings of a new run on a dataset: its split and family by default, and its device."""
    split = check_protocol(entry, asked.get("split") or entry.splits[0])
    entry = entry.for_split(split)
    text = asked.get("family", entry.defaults.get("family", "gcn"))
    family = make_family(text, directed, entry.counts["relations"] or 1)
    device = check_device(asked.get("device", "auto"))
    named = {"dataset": entry.name, "family": repr(family), "split": split, "device": device}
    return resolve(entry, asked | named)


def check_device(name: str) -> str:
    """A device that torch has here, as torch names it; ``'auto'`` is CUDA if there is any."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    present = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    kind, colon, number = name.partition(":")
    if kind not in present:
        raise RefusedValue(unknown("device", name, ("auto", *present)))
    if colon and not re.fullmatch("0|[1-9][0-9]{0,3}", number):
        raise RefusedValue("a device is a kind and a number", "such as cuda:0", name)
    if int(number or 0) >= present[kind]:
        here = " or ".join(kind for kind, count in present.items() if count)
        raise RefusedValue(f"device {name!r} is not here", here, name)
    return name
