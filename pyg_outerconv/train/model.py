"""The model that is trained: a stack of convolutions, one structure shared by all of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList

from ..nn import dropout_features
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
            out: Tensor = F.relu(norm(conv(x, structure)))
            if self.skip == "residual" and x is not None and x.shape == out.shape and outputs:
                out = out + x
            x = F.dropout(out, self.dropout, self.training)
            outputs.append(x)
        if self.head is not None:
            logits: Tensor = self.head(torch.cat(outputs, dim=-1))
        else:
            logits = self.convs[-1](x, structure)
        return logits

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
