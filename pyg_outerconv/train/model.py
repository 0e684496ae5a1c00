"""The model that is trained, and its contenders: a kind of layer with structure and features."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList

from ..data import Dataset
from ..errors import RefusedValue, unknown
from ..families import parse_family
from ..kernels import record, use_backend
from ..nn import OuterConv, dropout_features
from .family_options import short_name
from .features import kept_features
from .inputs import Inputs, WholeGraph
from .settings import Settings

MakeLayer = Callable[[int, int], Module]

_NORMS: dict[str, Callable[[int], Module]] = {
    "none": lambda channels: Identity(),
    "batch": BatchNorm1d,
    "layer": LayerNorm,
}


class NodeClassifier(Module):
    """Convolution, norm, ReLU, dropout, again and again; the last convolution gives the logits.

    Args:
        in_channels: number of features; of nodes where there are none, and then the first layer's
            parameters are an embedding of the nodes.
        num_classes: number of outputs.
        make_layer: makes a convolution of given input and output channels, to be called with
            features (N, P), dense or CSR, or None, and whatever structure :meth:`forward` is called
            with.
        settings: depth, hidden, dropouts, layer_norm and skip.
    """

    def __init__(
        self, in_channels: int, num_classes: int, make_layer: MakeLayer, settings: Settings
    ) -> None:
        super().__init__()
        self.skip = settings.skip
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        concat = settings.skip == "concat"
        num_hidden = settings.depth if concat else settings.depth - 1
        hidden = [settings.hidden] * num_hidden
        widths = [in_channels, *hidden] if concat else [in_channels, *hidden, num_classes]
        self.convs = ModuleList(make_layer(p, q) for p, q in pairwise(widths))
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
        """Norm, ReLU and skip of the rows of a hidden layer; x: its input, if that is hidden."""
        out = F.relu(norm(out))
        adds = self.skip == "residual" and x is not None and x.shape == out.shape
        return out + x if adds and x is not None else out

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the first convolution."""
        first = list(self.convs[0].parameters())
        chosen = {id(parameter) for parameter in first}
        others = [parameter for parameter in self.parameters() if id(parameter) not in chosen]
        decay = settings.weight_decay
        return [
            {"params": first, "weight_decay": decay},
            {"params": others, "weight_decay": decay if settings.decay == "all" else 0.0},
        ]


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
    """

    key: str
    name: str
    make_layer: MakeLayer
    inputs: Inputs
    in_channels: int
    note: str = ""

    def model(self, num_classes: int, settings: Settings) -> NodeClassifier:
        """A fresh model, initialised from torch's random state.

        Raises:
            ValueError: a form of Θ does not fit the channels.
        """
        model = NodeClassifier(self.in_channels, num_classes, self.make_layer, settings)
        return model.to(settings.device)


def ours(dataset: Dataset, settings: Settings) -> Contender:
    """OuterConv over the family's basis, which is built here, once.

    Raises:
        ValueError: the family refuses the graph, or sparse features are asked for and there are
            none.
    """
    family = parse_family(settings.family)
    basis = family.basis_of(dataset.data).to(settings.device)
    x = kept_features(dataset, settings)

    def make_layer(in_channels: int, out_channels: int) -> Module:
        return OuterConv(
            in_channels,
            out_channels,
            family,
            theta=settings.theta,
            aggr=settings.aggr,
            label_aggr=settings.label_aggr,
            root_weight=settings.root_weight,
        )

    in_channels = int(dataset.data.num_nodes or 0) if x is None else x.size(1)
    inputs = WholeGraph(x, basis)
    return Contender(OURS, f"OuterConv {short_name(family)}", make_layer, inputs, in_channels)


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
