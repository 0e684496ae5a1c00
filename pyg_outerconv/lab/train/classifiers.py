"""Classifiers of nodes and of graphs, called on the whole graph at once or layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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


KNOWLEDGE: dict[str, Callable[[Sequence[Tensor]], Tensor]] = {
    "concat": lambda outputs: torch.cat(list(outputs), dim=-1),
    "max": lambda outputs: torch.stack(list(outputs), dim=-1).max(dim=-1).values,
    "sum": lambda outputs: torch.stack(list(outputs), dim=-1).sum(dim=-1),
    "last": lambda outputs: outputs[-1],
}
"""What a linear layer reads of the outputs of hidden layers, as the `"Representation Learning on
Graphs with Jumping Knowledge Networks" <https://arxiv.org/abs/1806.03536>`_ paper has it."""


class FirstLayer(Linear):
    """A linear layer of features (N, P), dense or CSR, or of None where the graph has none."""

    def forward(self, x: Tensor | None) -> Tensor:
        """(N, Q)."""
        return (self.weight.t() if x is None else x @ self.weight.t()) + self.bias


class Convolutions(Module):
    """Hidden layers: convolution, norm, activation, dropout, repeated; a linear layer before them,
    if the settings have one.

    Args:
        in_channels: number of features; of nodes where there are none, and then the first layer's
            parameters are an embedding of the nodes.
        num_hidden: number of layers.
        make_layer: makes a convolution of given input and output channels, to be called with
            features (N, P), dense or CSR, or None, and whatever structure the model is called with.
        settings: hidden, dropouts, activation, input_layer, layer_norm, update and skip.
    """

    first: FirstLayer | None

    def __init__(
        self, in_channels: int, num_hidden: int, make_layer: MakeLayer, settings: Settings
    ) -> None:
        super().__init__()
        self.skip, self.activation = settings.skip, ACTIVATION[settings.activation]
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        widths = [in_channels, *[settings.hidden] * num_hidden]
        self.first, self.entered = None, settings.input_layer == "activated"
        if settings.input_layer != "none":
            self.first, widths[0] = FirstLayer(in_channels, settings.hidden), settings.hidden
        self.convs = ModuleList(make_layer(p, q) for p, q in pairwise(widths))
        self.norms = ModuleList(_after(settings) for _ in range(num_hidden))

    def features(self, x: Tensor | None) -> Tensor | None:
        """The features after dropout, and after the layer before the convolutions."""
        x = None if x is None else dropout_features(x, self.input_dropout, self.training)
        if self.first is None:
            return x
        return F.dropout(self.activated_first(self.first(x)), self.dropout, self.training)

    def activated_first(self, out: Tensor) -> Tensor:
        """The output of the first layer, after its activation if it has one."""
        return self.activation(out) if self.entered else out

    def hidden(self, x: Tensor | None, structure: Any) -> list[Tensor]:
        """The output (N, hidden) of each hidden layer."""
        outputs: list[Tensor] = []
        for conv, norm in zip(self.convs, self.norms, strict=False):  # the last may have no norm
            before = x if outputs or self.first is not None else None
            out = self.activated(norm, conv(x, structure), before)
            x = F.dropout(out, self.dropout, self.training)
            outputs.append(x)
        return outputs

    def activated(self, norm: Module, out: Tensor, x: Tensor | None) -> Tensor:
        """Norm, activation, skip of the rows of a hidden layer; x: its input, if that is hidden."""
        out = self.activation(norm(out))
        adds = self.skip == "residual" and x is not None and x.shape == out.shape
        return out + x if adds and x is not None else out

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on those of the first
        layer.
        """
        return groups_of(self, self.first or self.convs[0], settings)


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
    """Hidden layers; one more convolution gives the logits, or a linear layer that reads of hidden
    layers what ``skip`` says.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: MakeLayer,
        settings: Settings,
        make_last: MakeLayer | None = None,
    ) -> None:
        width, reads = settings.hidden, settings.skip in KNOWLEDGE
        num_hidden = settings.depth if reads else settings.depth - 1
        super().__init__(in_channels, num_hidden, make_layer, settings)
        self.head = None
        if reads:
            read = num_hidden if settings.skip == "concat" else 1
            self.head = Linear(read * width, num_classes)
        else:
            make, is_hidden = make_last or make_layer, num_hidden or self.first is not None
            self.convs.append(make(width if is_hidden else in_channels, num_classes))

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), or of None where the graph has none."""
        x = self.features(x)
        outputs = self.hidden(x, structure)
        if self.head is not None:
            logits: Tensor = self.head(KNOWLEDGE[self.skip](outputs))
        else:
            logits = self.convs[-1](outputs[-1] if outputs else x, structure)
        return logits


class GraphClassifier(Convolutions):
    """Hidden layers, a readout of the last one, or of all and of these what ``skip`` says, and a
    linear layer.
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
        read = outputs if self.skip in KNOWLEDGE else outputs[-1:]
        pooled = [self.readout(out, structure.members) for out in read]
        logits: Tensor = self.head(KNOWLEDGE.get(self.skip, KNOWLEDGE["last"])(pooled))
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
        self.first = FirstLayer(in_channels, width)
        self.convs = ModuleList(make_layer(width, width) for _ in range(settings.depth))
        self.linears = ModuleList(Linear(width, width) for _ in range(settings.depth))
        self.norms = ModuleList(make_norm(width) for _ in range(settings.depth + 1))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), dense or CSR, or of None where the graph has none."""
        x = None if x is None else dropout_features(x, self.input_dropout, self.training)
        out = self.activation(self._dropped(self.first(x)))
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


class GCNII(Module):
    """A linear layer, layers with an initial residual and identity mapping, a linear layer.

    Layer l: H ← σ(M ((1 − β) I + β Θ)), with M = (1 − α) Σ_k A_kᵀ H C_k + α H₀, β = log(λ/l + 1),
    and H₀ the output of the first layer, from the `"Simple and Deep Graph Convolutional Networks"
    <https://arxiv.org/abs/2007.02133>`_ paper (equation 5), whose basis is that of GCN, with C = I.

    Args:
        make_mix: makes Σ_k A_kᵀ H C_k, which is called with H and whatever structure the model is
            called with.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_mix: Callable[[int], Module],
        make_norm: Callable[[int], Module],
        settings: Settings,
    ) -> None:
        super().__init__()
        width, depth = settings.hidden, settings.depth
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        self.activation, self.alpha = ACTIVATION[settings.activation], settings.initial_residual
        self.betas = [math.log(settings.identity_mapping / n + 1) for n in range(1, depth + 1)]
        self.first = FirstLayer(in_channels, width)
        self.mixes = ModuleList(make_mix(width) for _ in range(depth))
        self.linears = ModuleList(Linear(width, width, bias=False) for _ in range(depth))
        self.norms = ModuleList(make_norm(width) for _ in range(depth))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), dense or CSR, or of None where the graph has none."""
        x = None if x is None else dropout_features(x, self.input_dropout, self.training)
        out = initial = self.activation(self.first(x))
        for beta, mix, linear, norm in zip(
            self.betas, self.mixes, self.linears, self.norms, strict=True
        ):
            mixed = (1 - self.alpha) * mix(self._dropped(out), structure) + self.alpha * initial
            out = self.activation(norm((1 - beta) * mixed + beta * linear(mixed)))
        logits: Tensor = self.head(self._dropped(out))
        return logits

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the first layer."""
        return groups_of(self, self.first, settings)


class LINKX(Module):
    """A convolution of the nodes themselves beside a linear layer of the features, then ``depth``
    linear layers.

    H_A = Σ_k A_kᵀ Θ_k, H_X = X W, and the layers read σ(H_A + H_A W_A + H_X + H_X W_X), from the
    `"Large Scale Learning on Non-Homophilous Graphs" <https://arxiv.org/abs/2110.14446>`_ paper,
    whose basis is the adjacency matrix.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_nodes: int,
        make_layer: MakeLayer,
        make_norm: Callable[[int], Module],
        settings: Settings,
    ) -> None:
        super().__init__()
        width = settings.hidden
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout
        self.activation = ACTIVATION[settings.activation]
        self.nodes = make_layer(num_nodes, width)
        self.first = FirstLayer(in_channels, width)
        self.beside_nodes, self.beside_features = Linear(width, width), Linear(width, width)
        self.linears = ModuleList(Linear(width, width) for _ in range(settings.depth - 1))
        self.norms = ModuleList(make_norm(width) for _ in range(settings.depth - 1))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any) -> Tensor:
        """Logits (N, C) of features (N, P), dense or CSR, or of None where the graph has none."""
        of_nodes = self.nodes(None, structure)
        out: Tensor = of_nodes + self.beside_nodes(of_nodes)
        if x is not None:
            own = self.first(dropout_features(x, self.input_dropout, self.training))
            out = out + own + self.beside_features(own)
        out = self.activation(out)
        for linear, norm in zip(self.linears, self.norms, strict=True):
            out = norm(self.activation(linear(out)))
            out = F.dropout(out, self.dropout, self.training)
        logits: Tensor = self.head(out)
        return logits

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on the convolution."""
        return groups_of(self, self.nodes, settings)


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


Classifier = NodeClassifier | GraphClassifier | BlockClassifier | GCNII | LINKX | Propagated


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
    if isinstance(model, GCNII | LINKX):
        rule = "layer-wise inference goes from layer to layer"
        raise RefusedValue(rule, "architecture layers or blocks", type(model).__name__)
    scratch = scratch or Scratch()
    if isinstance(model, BlockClassifier):
        return _of_blocks(model, x, basis, scratch, most_edges)
    return _of_layers(model, x, basis, scratch, most_edges)


def _of_layers(
    model: NodeClassifier, x: Tensor | None, basis: Basis, scratch: Scratch, most_edges: int
) -> Tensor:
    outputs: list[Tensor] = []  # for the head alone
    is_hidden = model.first is not None  # whether x is hidden, not the features
    if model.first is not None:
        finish_first = model.activated_first
        x = _first_layer(model.first, finish_first, x, basis.size[1], scratch, most_edges)

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
    head, read = model.head, KNOWLEDGE[model.skip]
    places = torch.arange(basis.size[1], device=basis.device).split(most_edges)
    return torch.cat([head(read([out[place] for out in outputs])) for place in places])


def _first_layer(
    first: FirstLayer,
    finish: Activation,
    x: Tensor | None,
    count: int,
    scratch: Scratch,
    most_edges: int,
) -> Tensor:
    weight = first.weight
    out = scratch.empty(count, weight.size(0), like=weight)
    for place in torch.arange(count, device=weight.device).split(most_edges):
        rows = weight.t()[place] if x is None else rows_of(x, place, weight.dtype) @ weight.t()
        out[place] = finish(rows + first.bias)
    return out


def _of_blocks(
    model: BlockClassifier, x: Tensor | None, basis: Basis, scratch: Scratch, most_edges: int
) -> Tensor:
    count, weight = basis.size[1], model.first.weight
    places = torch.arange(count, device=basis.device).split(most_edges)
    out = _first_layer(model.first, model.activation, x, count, scratch, most_edges)
    inside = scratch.empty(count, weight.size(0), like=weight)
    for conv, linear, norm in zip(model.convs, model.linears, model.norms, strict=False):
        for place in places:
            inside[place] = norm(out[place])

        def finish(y: Tensor, place: slice, before: Tensor = out, last: Module = linear) -> Tensor:
            after: Tensor = before[place] + last(model.activation(y))
            return after

        made = cast(OuterConv, conv)
        out = convolve(made, inside, basis, finish=finish, scratch=scratch, most_edges=most_edges)
    return torch.cat([model.head(model.norms[-1](out[place])) for place in places])
