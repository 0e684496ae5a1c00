"""Classifiers of nodes and of graphs, called on the whole graph at once or layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList, Sequential

from ...basis import Basis
from ...errors import RefusedValue
from ...nn import OuterConv, dropout_features
from ...scale import Scratch, convolve
from ...scale.chunks import MOST_EDGES, rows_of
from ..settings import Settings
from .inputs import OfGraphs

Activation = Callable[[Tensor], Tensor]

ACTIVATION: dict[str, Activation] = {
    "relu": F.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "none": lambda x: x,
}
MakeLayer = Callable[[int, int], Module]

NORMS: dict[str, Callable[[int], Module]] = {
    "none": lambda channels: Identity(),
    "batch": BatchNorm1d,
    "layer": LayerNorm,
}


class Convolutions(Module):
    """Hidden layers: convolution, norm, activation, dropout, repeated.

    Args:
        in_channels: number of features; of nodes where there are none, and then the first layer's
            parameters are an embedding of the nodes.
        num_hidden: number of layers.
        make_layer: makes a convolution of given input and output channels, to be called with
            features (N, P), dense or CSR, or None, and whatever structure the model is called with.
        settings: hidden, dropouts, activation, layer_norm, update and skip.
    """

    def __init__(
        self, in_channels: int, num_hidden: int, make_layer: MakeLayer, settings: Settings
    ) -> None:
        super().__init__()
        self.skip, self.activation = settings.skip, ACTIVATION[settings.activation]
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        widths = [in_channels, *[settings.hidden] * num_hidden]
        self.convs = ModuleList(make_layer(p, q) for p, q in pairwise(widths))
        self.norms = ModuleList(_after(settings) for _ in range(num_hidden))

    def features(self, x: Tensor | None) -> Tensor | None:
        """The features after dropout."""
        return None if x is None else dropout_features(x, self.input_dropout, self.training)

    def hidden(self, x: Tensor | None, structure: Any) -> list[Tensor]:
        """The output (N, hidden) of each hidden layer."""
        outputs: list[Tensor] = []
        for conv, norm in zip(self.convs, self.norms, strict=False):  # the last may have no norm
            out = self.activated(norm, conv(x, structure), x if outputs else None)
            x = F.dropout(out, self.dropout, self.training)
            outputs.append(x)
        return outputs

    def activated(self, norm: Module, out: Tensor, x: Tensor | None) -> Tensor:
        """Norm, activation, skip of the rows of a hidden layer; x: its input, if that is hidden."""
        out = self.activation(norm(out))
        adds = self.skip == "residual" and x is not None and x.shape == out.shape
        return out + x if adds and x is not None else out

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the first convolution."""
        return groups_of(self, self.convs[0], settings)


class SecondLayer(Module):
    """Norm, activation and a linear layer: with the Θ before them, a network of two layers."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.norm = NORMS[settings.layer_norm](settings.hidden)
        self.activation = ACTIVATION[settings.activation]
        self.linear = Linear(settings.hidden, settings.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(N, H) of (N, H)."""
        out: Tensor = self.linear(self.activation(self.norm(x)))
        return out


def _after(settings: Settings) -> Module:
    """Whatever stands between a hidden convolution and its activation."""
    norm = NORMS[settings.layer_norm](settings.hidden)
    return norm if settings.update == "none" else Sequential(SecondLayer(settings), norm)


class NodeClassifier(Convolutions):
    """Hidden layers; one more convolution gives the logits, or a linear layer if layers are
    concatenated.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: MakeLayer,
        settings: Settings,
        make_last: MakeLayer | None = None,
    ) -> None:
        concat, width = settings.skip == "concat", settings.hidden
        num_hidden = settings.depth if concat else settings.depth - 1
        super().__init__(in_channels, num_hidden, make_layer, settings)
        if not concat:
            make = make_last or make_layer
            self.convs.append(make(width if num_hidden else in_channels, num_classes))
        self.head = Linear(num_hidden * width, num_classes) if concat else None

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), or of None where the graph has none."""
        x = self.features(x)
        outputs = self.hidden(x, structure)
        if self.head is not None:
            logits: Tensor = self.head(torch.cat(outputs, dim=-1))
        else:
            logits = self.convs[-1](outputs[-1] if outputs else x, structure)
        return logits


class GraphClassifier(Convolutions):
    """Hidden layers, a readout of the last one, or of all if layers are concatenated, and a linear
    layer.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: MakeLayer,
        settings: Settings,
        readout: Module,
    ) -> None:
        super().__init__(in_channels, settings.depth, make_layer, settings)
        self.readout = readout
        read = settings.depth if settings.skip == "concat" else 1
        self.head = Linear(read * settings.hidden, num_classes)

    def forward(self, x: Tensor, structure: OfGraphs) -> Tensor:
        """Logits (G, C) of features (N, P)."""
        outputs = self.hidden(self.features(x), structure.layers)
        read = outputs if self.skip == "concat" else outputs[-1:]
        pooled = [self.readout(out, structure.members) for out in read]
        logits: Tensor = self.head(torch.cat(pooled, dim=-1))
        return logits


# Residual blocks, and propagation of predictions --------------------------------------------------


class BlockClassifier(Module):
    """A linear layer, residual blocks over convolutions, a norm, and a linear layer.

    Block: X ← X + dropout(W dropout(σ(conv(norm(X))))), the blocks of the `"A Critical Look at the
    Evaluation of GNNs under Heterophily" <https://arxiv.org/abs/2302.11640>`_ paper (appendix on
    models), whose first linear layer is the convolution's Θ.
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


Classifier = NodeClassifier | GraphClassifier | BlockClassifier | Propagated


# Layer by layer, in bounded memory ----------------------------------------------------------------


@torch.no_grad()
def logits_by_layers(
    model: Classifier,
    x: Tensor | None,
    basis: Any,
    *,
    scratch: Scratch | None = None,
    most_edges: int = MOST_EDGES,
) -> Tensor:
    """The logits (N, C) of every node: ``model(x, basis)`` up to rounding, in evaluation mode.

    Each layer is computed for all nodes before the next one, chunk by chunk of targets, from the
    features that ``scratch`` holds of the layer before; see :func:`pyg_outerconv.scale.convolve`.
    """
    if model.training:
        raise RefusedValue(
            "layer-wise inference has no dropout", "model.eval()", "a model in training mode"
        )
    if isinstance(model, Propagated):
        logits = logits_by_layers(
            model.model, x, basis.convs, scratch=scratch, most_edges=most_edges
        )
        last = cast(OuterConv, model.propagation)
        return convolve(last, logits, basis.propagation, scratch=scratch, most_edges=most_edges)
    if isinstance(model, GraphClassifier):
        raise RefusedValue(
            "layer-wise inference gives logits of nodes", "a classifier of nodes", "one of graphs"
        )
    scratch = scratch or Scratch()
    if isinstance(model, BlockClassifier):
        return _of_blocks(model, x, basis, scratch, most_edges)
    return _of_layers(model, x, basis, scratch, most_edges)


def _of_layers(
    model: NodeClassifier, x: Tensor | None, basis: Basis, scratch: Scratch, most_edges: int
) -> Tensor:
    outputs: list[Tensor] = []  # for the head alone
    is_hidden = False  # whether x is the output of a hidden layer

    def layer(conv: OuterConv, x: Tensor | None, norm: Module | None) -> Tensor:
        def finish(y: Tensor, place: slice) -> Tensor:
            before = x[place] if is_hidden and x is not None else None
            return y if norm is None else model.activated(norm, y, before)

        return convolve(conv, x, basis, finish=finish, scratch=scratch, most_edges=most_edges)

    for conv, norm in zip(model.convs, model.norms, strict=False):  # the last may have no norm
        x = layer(cast(OuterConv, conv), x, norm)
        if model.head is not None:
            outputs.append(x)
        is_hidden = True
    if model.head is None:
        return layer(cast(OuterConv, model.convs[-1]), x, None)
    head = model.head
    places = torch.arange(basis.size[1], device=basis.device).split(most_edges)
    parts = [head(torch.cat([out[place] for out in outputs], dim=-1)) for place in places]
    return torch.cat(parts)


def _of_blocks(
    model: BlockClassifier, x: Tensor | None, basis: Basis, scratch: Scratch, most_edges: int
) -> Tensor:
    count, weight = basis.size[1], model.first.weight
    places = torch.arange(count, device=basis.device).split(most_edges)
    out = scratch.empty(count, weight.size(0), like=weight)
    inside = scratch.empty(count, weight.size(0), like=weight)
    for place in places:
        rows = weight.t()[place] if x is None else rows_of(x, place, weight.dtype) @ weight.t()
        out[place] = model.activation(rows + model.first.bias)
    for conv, linear, norm in zip(model.convs, model.linears, model.norms, strict=False):
        for place in places:
            inside[place] = norm(out[place])

        def finish(y: Tensor, place: slice, before: Tensor = out, last: Module = linear) -> Tensor:
            after: Tensor = before[place] + last(model.activation(y))
            return after

        made = cast(OuterConv, conv)
        out = convolve(made, inside, basis, finish=finish, scratch=scratch, most_edges=most_edges)
    return torch.cat([model.head(model.norms[-1](out[place])) for place in places])
