"""The model that is trained, and its contenders: a kind of layer with structure and features."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList
from torch_geometric.data import Data

from ..basis import Basis
from ..data import Dataset
from ..errors import RefusedValue, unknown
from ..families import Family, parse_family
from ..families.multi_head import HeadsByName
from ..families.options import nested
from ..kernels import record, use_backend
from ..nn import OuterConv, dropout_features
from ..nn.layer import layer_of, structure_of
from ..own_code import require_imported
from .blocks import ACTIVATION, BlockClassifier, Propagated, Structures, groups_of
from .family_options import short_name
from .features import kept_features
from .inputs import Inputs, WholeGraph
from .sampled import sampled
from .settings import Settings

MakeLayer = Callable[[int, int], Module]

_NORMS: dict[str, Callable[[int], Module]] = {
    "none": lambda channels: Identity(),
    "batch": BatchNorm1d,
    "layer": LayerNorm,
}


class NodeClassifier(Module):
    """Convolution, norm, activation, dropout, repeated; the last convolution gives the logits.

    Args:
        in_channels: number of features; of nodes where there are none, and then the first layer's
            parameters are an embedding of the nodes.
        num_classes: number of outputs.
        make_layer: makes a convolution of given input and output channels, to be called with
            features (N, P), dense or CSR, or None, and whatever structure :meth:`forward` is called
            with.
        settings: depth, hidden, dropouts, activation, layer_norm and skip.
        make_last: makes the convolution that gives the logits, if it is of another kind.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: MakeLayer,
        settings: Settings,
        make_last: MakeLayer | None = None,
    ) -> None:
        super().__init__()
        self.skip, self.activation = settings.skip, ACTIVATION[settings.activation]
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        concat = settings.skip == "concat"
        num_hidden = settings.depth if concat else settings.depth - 1
        hidden = [settings.hidden] * num_hidden
        widths = [in_channels, *hidden] if concat else [in_channels, *hidden, num_classes]
        ends = list(pairwise(widths))
        makers = [make_layer] * len(ends)
        if make_last is not None and not concat:
            makers[-1] = make_last
        self.convs = ModuleList(make(p, q) for make, (p, q) in zip(makers, ends, strict=True))
        self.norms = ModuleList(_NORMS[settings.layer_norm](width) for width in hidden)
        self.head = Linear(sum(hidden), num_classes) if concat else None

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), or of None where the graph has none."""
        if x is not None:
            x = dropout_features(x, self.input_dropout, self.training)
        outputs: list[Tensor] = []
        for conv, norm in zip(self.convs, self.norms, strict=False):  # the last may have no norm
            out = self.activated(norm, conv(x, structure), x if outputs else None)
            x = F.dropout(out, self.dropout, self.training)
            outputs.append(x)
        if self.head is not None:
            logits: Tensor = self.head(torch.cat(outputs, dim=-1))
        else:
            logits = self.convs[-1](x, structure)
        return logits

    def activated(self, norm: Module, out: Tensor, x: Tensor | None) -> Tensor:
        """Norm, activation, skip of the rows of a hidden layer; x: its input, if that is hidden."""
        out = self.activation(norm(out))
        adds = self.skip == "residual" and x is not None and x.shape == out.shape
        return out + x if adds and x is not None else out

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the first convolution."""
        return groups_of(self, self.convs[0], settings)


Classifier = NodeClassifier | BlockClassifier | Propagated

OURS = "outerconv"
PEER = "peer"


@dataclass(frozen=True)
class Contender:
    """A kind of layer and the structure it works on, made once for all seeds.

    Attributes:
        key: ``'outerconv'`` or ``'peer'``, as ``metrics.json`` has it.
        name: its name in tables.
        make_layer: makes a layer of given input and output channels.
        inputs: what its models are called with.
        in_channels: P, or N where the graph has no features.
        note: a remark on the comparison, or empty.
        make_last: makes the layer that gives the logits; None for ``make_layer``.
        make_propagation: makes what propagates logits, if the settings say that they are.
    """

    key: str
    name: str
    make_layer: MakeLayer
    inputs: Inputs
    in_channels: int
    note: str = ""
    make_last: MakeLayer | None = None
    make_propagation: Callable[[], Module] | None = None

    def model(self, num_classes: int, settings: Settings) -> Classifier:
        """A fresh model, initialised from torch's random state.

        Raises:
            ValueError: a form of Θ, or the number of heads, does not fit the channels.
        """
        model: Classifier
        make_layer, norm = self.make_layer, _NORMS[settings.layer_norm]
        if settings.architecture == "blocks":
            model = BlockClassifier(self.in_channels, num_classes, make_layer, norm, settings)
        else:
            last = self.make_last
            model = NodeClassifier(self.in_channels, num_classes, make_layer, settings, last)
        if settings.propagation:
            assert self.make_propagation is not None  # as contenders are made
            model = Propagated(model, self.make_propagation())
        return model.to(settings.device)


def ours(dataset: Dataset, settings: Settings) -> Contender:
    """The layers of the family, over what of its basis can be built here, once.

    Raises:
        ValueError: a module that the run was made with is not imported, the family refuses the
            graph, or sparse features are asked for and there are
            none.
    """
    require_imported(settings.imports)
    family = parse_family(settings.family)
    structure = structure_on(family, dataset.data, settings)
    check_out_heads(family, settings)
    x = kept_features(dataset, settings)

    options = {
        name: getattr(settings, name) for name in ("theta", "aggr", "label_aggr", "root_weight")
    }

    def make_layer(in_channels: int, out_channels: int) -> Module:
        mine = parse_family(settings.family)  # each layer has modules of its own
        return layer_of(in_channels, out_channels, mine, **options)

    def make_last(in_channels: int, out_channels: int) -> Module:
        mine = parse_family(settings.family).averaged(settings.out_heads)
        return layer_of(in_channels, out_channels, mine, **options)

    in_channels = int(dataset.data.num_nodes or 0) if x is None else x.size(1)
    inputs: Inputs = WholeGraph(x, with_propagation(structure, dataset.data, settings))
    if settings.batches != "none":
        inputs = sampled(x, family, dataset.data, structure, settings)
    return Contender(
        OURS,
        f"OuterConv {short_name(family)}{_then(settings)}",
        make_layer,
        inputs,
        in_channels,
        make_last=make_last,
        make_propagation=lambda: _propagation(settings),
    )


def _propagation(settings: Settings) -> OuterConv:
    """The layer that propagates logits, without parameters."""
    family = parse_family(settings.propagation)
    return OuterConv(-1, -1, family, theta="identity", bias=False)


def structure_on(family: Family, data: Data, settings: Settings) -> Any:
    """What the layers of a family are called with beside the features, on the device of a run.

    Raises:
        ValueError: the family refuses the graph.
    """
    found = structure_of(family, data)
    if isinstance(found, Basis) or settings.device == "cpu":
        return found.to(settings.device) if isinstance(found, Basis) else found
    return structure_of(family, copy(data).to(settings.device))


def with_propagation(structure: Any, data: Data, settings: Settings) -> Any:
    """The structure of a model: that of its layers, and the basis of propagation if there is one.

    Raises:
        ValueError: the family of propagation has several labels, or reads features.
    """
    if not settings.propagation:
        return structure
    family = parse_family(settings.propagation)
    if family.num_bases != 1 or family.makes_use_of("x"):
        raise RefusedValue(
            "predictions are propagated by one matrix",
            "a family of one label, such as diffusion(ppr, alpha=0.1)",
            short_name(family),
        )
    return Structures(structure, family.basis_of(data).to(settings.device))


def _then(settings: Settings) -> str:
    """The propagation of a model, for its name in tables."""
    return (
        f", then {short_name(parse_family(settings.propagation))}" if settings.propagation else ""
    )


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


@torch.no_grad()
def backends_used(contender: Contender, num_classes: int, settings: Settings) -> list[str]:
    """The kernel backends that serve the prediction of one node."""
    model = contender.model(num_classes, settings).eval()
    with on_backend(settings), record() as calls:
        contender.inputs.logits(model, torch.zeros(1, dtype=torch.long, device=settings.device))
    return sorted({call.backend for call in calls})


def check_device(name: str) -> str:
    """A device that torch has here, as torch names it; ``'auto'`` is CUDA if there is any.

    Raises:
        ValueError: the name is unknown, or there is no such device here.
    """
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.split(":")[0]
    try:
        device = torch.device(name)
    except RuntimeError as error:
        known = ("auto", "cpu", "cuda", "mps")
        if kind not in known:
            raise RefusedValue(unknown("device", name, known)) from error
        raise RefusedValue("a device is a kind and a number", "such as cuda:0", name) from error
    present = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if device.type not in present:
        raise RefusedValue(unknown("device", name, ("auto", *present)))
    if (device.index or 0) >= present[device.type]:
        raise RefusedValue(
            f"device {name!r} is not here",
            " or ".join(kind for kind, number in present.items() if number),
            name,
        )
    return name
