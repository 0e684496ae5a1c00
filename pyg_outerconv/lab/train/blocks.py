"""Residual blocks with linear layers around convolutions, and propagation of predictions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, ModuleList

from ...nn import dropout_features
from .settings import Settings

Activation = Callable[[Tensor], Tensor]

ACTIVATION: dict[str, Activation] = {
    "relu": F.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "none": lambda x: x,
}


class BlockClassifier(Module):
    """A linear layer, residual blocks over convolutions, a norm, and a linear layer.

    Block: X ← X + dropout(W dropout(σ(conv(norm(X))))), the blocks of the `"A Critical Look at the
    Evaluation of GNNs under Heterophily" <https://arxiv.org/abs/2302.11640>`_ paper (appendix on
    models), whose first linear layer is the convolution's Θ.

    Args:
        in_channels: number of features; of nodes where there are none.
        num_classes: number of outputs.
        make_layer: see :class:`.classifiers.NodeClassifier`.
        make_norm: makes a norm of some channels.
        settings: depth, the number of blocks; hidden, dropouts and activation.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: Callable[[int, int], Module],
        make_norm: Callable[[int], Module],
        settings: Settings,
    ) -> None:
        super().__init__()
        width = settings.hidden
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        self.activation = ACTIVATION[settings.activation]
        self.first = Linear(in_channels, width)
        self.convs = ModuleList(make_layer(width, width) for _ in range(settings.depth))
        self.linears = ModuleList(Linear(width, width) for _ in range(settings.depth))
        self.norms = ModuleList(make_norm(width) for _ in range(settings.depth + 1))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), dense or CSR, or of None where the graph has none."""
        if x is None:
            out: Tensor = self.first.weight.t() + self.first.bias
        else:
            x = dropout_features(x, self.input_dropout, self.training)
            out = x @ self.first.weight.t() + self.first.bias
        out = self.activation(self._dropped(out))
        for conv, linear, norm in zip(self.convs, self.linears, self.norms, strict=False):
            inside = self._dropped(self.activation(conv(norm(out), structure)))
            out = out + self._dropped(linear(inside))
        logits: Tensor = self.head(self.norms[-1](out))
        return logits

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the first layer."""
        return groups_of(self, self.first, settings)


@dataclass(frozen=True)
class Structures:
    """The structure of the convolutions, and the basis by which predictions are propagated."""

    convs: Any
    propagation: Any


class Propagated(Module):
    """Z = Σ_k A_kᵀ H(X): logits of a model, propagated by a family of one label with Θ = I.

    With MLP layers (``family="identity"``) and ``diffusion(ppr, alpha=0.1)`` it is APPNP, equation
    4 of the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_ paper.

    Args:
        model: called with features and a structure; it returns logits.
        propagation: a layer of one label with Θ = I.
    """

    def __init__(self, model: Any, propagation: Module) -> None:
        super().__init__()
        self.model = model
        self.propagation = propagation

    def forward(self, x: Tensor | None, structure: Structures) -> Tensor:
        """Logits (N, C)."""
        logits = self.model(x, structure.convs)
        out: Tensor = self.propagation(logits, structure.propagation)
        return out

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Those of the model."""
        groups: list[dict[str, Any]] = self.model.parameter_groups(settings)
        return groups


def groups_of(model: Module, first: Module, settings: Settings) -> list[dict[str, Any]]:
    """Parameter groups of Adam: weight decay on all parameters, or on those of the first layer."""
    chosen = list(first.parameters())
    known = {id(parameter) for parameter in chosen}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    decay = settings.weight_decay
    return [
        {"params": chosen, "weight_decay": decay},
        {"params": others, "weight_decay": decay if settings.decay == "all" else 0.0},
    ]
