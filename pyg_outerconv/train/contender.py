"""The contenders of a training run: a kind of layer with its structure and features."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..data import Dataset
from ..errors import RefusedValue, refusal, unknown
from ..families import parse_family
from ..kernels import record, use_backend
from ..nn import OuterConv
from .family_options import short_name
from .features import kept_features
from .model import MakeLayer, NodeClassifier
from .settings import Settings

OURS = "outerconv"
PEER = "peer"


@dataclass(frozen=True)
class Contender:
    """A kind of layer and the structure it works on, made once for all seeds.

    Attributes:
        key: ``'outerconv'`` or ``'peer'``, as ``metrics.json`` has it.
        name: its name in tables.
        make_layer: makes a layer of given input and output channels.
        structure: the argument of the layers beside the features.
        x: (N, P) features, dense or CSR; None where the graph has none.
        in_channels: P, or N where the graph has no features.
        note: a remark on the comparison, or empty.
    """

    key: str
    name: str
    make_layer: MakeLayer
    structure: Any
    x: Tensor | None
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
    return Contender(OURS, f"OuterConv {short_name(family)}", make_layer, basis, x, in_channels)


def on_backend(settings: Settings) -> AbstractContextManager[None]:
    """Serve the kernels of a block by the backend of the settings."""
    return nullcontext() if settings.backend == "auto" else use_backend(settings.backend)


@torch.no_grad()
def backends_used(contender: Contender, num_classes: int, settings: Settings) -> list[str]:
    """The kernel backends that one forward pass uses."""
    model = contender.model(num_classes, settings).eval()
    with on_backend(settings), record() as calls:
        model(contender.x, contender.structure)
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
        raise RefusedValue(
            refusal("a device is a kind and a number", "such as cuda:0", name)
        ) from error
    present = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if device.type not in present:
        raise RefusedValue(unknown("device", name, ("auto", *present)))
    if (device.index or 0) >= present[device.type]:
        raise RefusedValue(
            refusal(
                f"device {name!r} is not here",
                " or ".join(kind for kind, number in present.items() if number),
                name,
            )
        )
    return name
