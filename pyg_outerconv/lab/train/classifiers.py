"""Classifiers of nodes and of graphs, called on the whole graph at once or layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import BatchNorm1d, Identity, LayerNorm, Linear, Module, ModuleList, Sequential

from ...errors import RefusedValue
from ...nn import SparseFeatures, dropout_features
from ...scale import Scratch, convolve
from ...scale.layerwise import MOST_EDGES, rows_of
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


# All nodes at once, or layer by layer in bounded memory -------------------------------------------

Place = slice | None
"""Some rows that follow one another; None for all."""
Finish = Callable[[Tensor, Place], Tensor]
"""A function of rows that a layer gives, and of their place."""


class AtOnce:
    """Calls what a model is made of on all nodes at once."""

    def conv(
        self, conv: Any, x: Tensor | None, structure: Any, finish: Finish | None = None
    ) -> Tensor:
        """The rows of a convolution, each finished by a function of it."""
        y: Tensor = conv(x, structure)
        return y if finish is None else finish(y, None)

    def rows(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """A function of the rows of its inputs."""
        return function(*inputs)


@dataclass(frozen=True)
class InChunks(AtOnce):
    """Calls it on a chunk of nodes at a time, with results that ``scratch`` allocates."""

    scratch: Scratch
    most_edges: int

    def conv(
        self, conv: Any, x: Tensor | None, structure: Any, finish: Finish | None = None
    ) -> Tensor:
        scratch, most = self.scratch, self.most_edges
        return convolve(conv, x, structure, finish=finish, scratch=scratch, most_edges=most)

    def rows(self, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        out: Tensor | None = None
        nodes = torch.arange(inputs[0].size(0), device=inputs[0].device)
        for place in nodes.split(self.most_edges):
            y = function(*(rows_of(one, place, one.dtype) for one in inputs))
            if out is None:
                out = self.scratch.empty(nodes.numel(), y.size(1), like=y)
            out[place] = y
        assert out is not None  # a graph has nodes
        return out


AT_ONCE = AtOnce()


@torch.no_grad()
def logits_by_layers(
    model: Module,
    x: Tensor | None,
    structure: Any,
    *,
    scratch: Scratch | None = None,
    most_edges: int = MOST_EDGES,
) -> Tensor:
    """The logits (N, C) of every node: ``model(x, structure)`` up to rounding, in evaluation mode.

    Each layer is computed for all nodes before the next one, chunk by chunk of targets, from the
    features that ``scratch`` holds of the layer before; see :func:`pyg_outerconv.scale.convolve`.
    """
    if model.training:
        raise RefusedValue(
            "layer-wise inference has no dropout", "model.eval()", "a model in training mode"
        )
    logits: Tensor = model(x, structure, InChunks(scratch or Scratch(), most_edges))
    return logits


# Models -------------------------------------------------------------------------------------------


class FirstLayer(Linear):
    """A linear layer of features (N, P), dense or CSR, or of None where the graph has none."""

    def forward(
        self, x: Tensor | None, way: AtOnce = AT_ONCE, finish: Activation = ACTIVATION["none"]
    ) -> Tensor:
        """(N, Q), each row finished by a function of it."""
        weight, bias = self.weight.t(), self.bias
        if x is None:
            return way.rows(lambda rows: finish(rows + bias), weight)
        if x.layout != torch.strided:
            x = SparseFeatures.of(x)  # torch would sort the entries anew for each gradient
        return way.rows(lambda rows: finish(rows.to(weight.dtype) @ weight + bias), x)


class Classifier(Module):
    """What all classifiers have: dropouts, an activation, a part whose parameters always decay.

    They are called with features (N, P), dense or CSR, or with None where the graph has none; with
    a structure, which they hand to their convolutions; and with a way, all nodes at once or not.
    """

    begins = "first"
    """The name of the first layer."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.activation = ACTIVATION[settings.activation]
        self.dropout, self.input_dropout = settings.dropout, settings.input_dropout

    def features(self, x: Tensor | None) -> Tensor | None:
        """The features after dropout."""
        return None if x is None else dropout_features(x, self.input_dropout, self.training)

    def dropped(self, x: Tensor) -> Tensor:
        """Hidden features after dropout."""
        return F.dropout(x, self.dropout, self.training)

    def parameter_groups(self, settings: Settings) -> list[dict[str, Any]]:
        """Parameter groups of Adam: weight decay on all parameters, or on those of the first
        layer.
        """
        chosen = list(self.get_submodule(self.begins).parameters())
        chosen_ids = {id(parameter) for parameter in chosen}
        others = [parameter for parameter in self.parameters() if id(parameter) not in chosen_ids]
        decay = settings.weight_decay
        return [
            {"params": chosen, "weight_decay": decay},
            {"params": others, "weight_decay": decay if settings.decay == "all" else 0.0},
        ]


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


class NodeClassifier(Classifier):
    """Hidden layers: convolution, norm, activation, dropout, repeated; a linear layer before them,
    if the settings have one. One more convolution gives the logits; or a linear layer that reads of
    hidden layers what ``skip`` says, of a set of graphs after a readout.

    Args:
        in_channels: number of features; of nodes where there are none, and then the first layer's
            parameters are an embedding of the nodes.
        make_layer: makes a convolution of given input and output channels, to be called with
            features (N, P), dense or CSR, or None, and whatever structure the model is called with.
        make_last: makes the last one; as others by default.
        readout: from nodes to their graphs, for logits (G, C).
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_layer: MakeLayer,
        settings: Settings,
        make_last: MakeLayer | None = None,
        readout: Module | None = None,
    ) -> None:
        super().__init__(settings)
        self.skip, self.readout = settings.skip, readout
        self.reads_all = self.skip in KNOWLEDGE and self.skip != "last"
        width, reads = settings.hidden, readout is not None or self.skip in KNOWLEDGE
        num_hidden = settings.depth if reads else settings.depth - 1
        widths = [in_channels, *[width] * num_hidden]
        self.first: FirstLayer | None = None
        if settings.input_layer == "none":
            self.begins = "convs.0"
        else:
            self.first, widths[0] = FirstLayer(in_channels, width), width
        self.entered = ACTIVATION["none"]
        if settings.input_layer == "activated":
            self.entered = self.activation
        self.convs = ModuleList(make_layer(p, q) for p, q in pairwise(widths))
        self.norms = ModuleList(_after(settings) for _ in range(num_hidden))
        self.head: Linear | None = None
        if reads:
            self.head = Linear((num_hidden if self.skip == "concat" else 1) * width, num_classes)
        else:
            self.convs.append((make_last or make_layer)(widths[-1], num_classes))

    def forward(self, x: Tensor | None, structure: Any, way: AtOnce = AT_ONCE) -> Tensor:
        """Logits (N, C), or (G, C) of graphs."""
        layers = structure.layers if isinstance(structure, OfGraphs) else structure
        x, is_hidden = self.features(x), self.first is not None
        if self.first is not None:
            x = self.dropped(self.first(x, way, self.entered))
        outputs: list[Tensor] = []  # for the head alone
        for conv, norm in zip(self.convs, self.norms, strict=False):  # the last may have no norm
            finish = partial(self._finish, norm, x if is_hidden else None)
            x, is_hidden = self.dropped(way.conv(conv, x, layers, finish)), True
            outputs = [*outputs, x] if self.reads_all else [x]
        if self.head is None:
            return way.conv(self.convs[-1], x, layers)
        head, read = self.head, KNOWLEDGE.get(self.skip, KNOWLEDGE["last"])
        if self.readout is not None:
            outputs = [self.readout(out, structure.members) for out in outputs]
        return way.rows(lambda *rows: head(read(rows)), *outputs)

    def _finish(self, norm: Module, before: Tensor | None, y: Tensor, place: Place) -> Tensor:
        """Norm, activation, skip of rows; ``before``: the input of the layer, if it is hidden."""
        out = self.activation(norm(y))
        return out + _at(before, place) if self.skip == "residual" and before is not None else out


def _at(x: Tensor, place: Place) -> Tensor:
    return x if place is None else x[place]


class BlockClassifier(Classifier):
    """A linear layer, residual blocks over convolutions, a norm, and a linear layer.

    Block: X ← X + dropout(W dropout(σ(conv(norm(X))))), the blocks of the `"A Critical Look at the
    Evaluation of GNNs under Heterophily" <https://arxiv.org/abs/2302.11640>`_ paper (appendix on
    models), whose first linear layer is the convolution's Θ.
    """

    def __init__(
        self, in_channels: int, num_classes: int, make_layer: MakeLayer, settings: Settings
    ) -> None:
        super().__init__(settings)
        width, make_norm = settings.hidden, NORMS[settings.layer_norm]
        self.first = FirstLayer(in_channels, width)
        self.convs = ModuleList(make_layer(width, width) for _ in range(settings.depth))
        self.linears = ModuleList(Linear(width, width) for _ in range(settings.depth))
        self.norms = ModuleList(make_norm(width) for _ in range(settings.depth + 1))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any, way: AtOnce = AT_ONCE) -> Tensor:
        """Logits (N, C)."""
        out = self.first(self.features(x), way, lambda y: self.activation(self.dropped(y)))
        for conv, linear, norm in zip(self.convs, self.linears, self.norms, strict=False):
            finish = partial(self._finish, linear, out)
            out = way.conv(conv, way.rows(norm, out), structure, finish)
        return way.rows(lambda rows: self.head(self.norms[-1](rows)), out)

    def _finish(self, linear: Module, before: Tensor, y: Tensor, place: Place) -> Tensor:
        inside = self.dropped(self.activation(y))
        return _at(before, place) + self.dropped(linear(inside))


class GCNII(Classifier):
    """A linear layer, layers with an initial residual and identity mapping, a linear layer.

    Layer l: H ← σ(M ((1 − β) I + β Θ)), with M = (1 − α) Σ_k A_kᵀ H C_k + α H₀, β = log(λ/l + 1),
    and H₀ the output of the first layer, from the `"Simple and Deep Graph Convolutional Networks"
    <https://arxiv.org/abs/2007.02133>`_ paper (equation 5), whose basis is that of GCN, with C = I.
    ``make_mix`` makes Σ_k A_kᵀ H C_k.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        make_mix: Callable[[int], Module],
        settings: Settings,
    ) -> None:
        super().__init__(settings)
        width, depth, make_norm = settings.hidden, settings.depth, NORMS[settings.layer_norm]
        self.alpha = settings.initial_residual
        self.betas = [math.log(settings.identity_mapping / n + 1) for n in range(1, depth + 1)]
        self.first = FirstLayer(in_channels, width)
        self.mixes = ModuleList(make_mix(width) for _ in range(depth))
        self.linears = ModuleList(Linear(width, width, bias=False) for _ in range(depth))
        self.norms = ModuleList(make_norm(width) for _ in range(depth))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any, way: AtOnce = AT_ONCE) -> Tensor:
        """Logits (N, C)."""
        out = initial = self.first(self.features(x), way, self.activation)
        for layer in zip(self.betas, self.mixes, self.linears, self.norms, strict=True):
            beta, mix, linear, norm = layer
            finish = partial(self._finish, beta, linear, norm, initial)
            out = way.conv(mix, self.dropped(out), structure, finish)
        return way.rows(lambda rows: self.head(self.dropped(rows)), out)

    def _finish(
        self, beta: float, linear: Any, norm: Module, initial: Tensor, y: Tensor, place: Place
    ) -> Tensor:
        mixed = torch.add((1 - self.alpha) * y, _at(initial, place), alpha=self.alpha)
        weight = linear.weight
        unit = torch.eye(len(weight), dtype=weight.dtype, device=weight.device)
        # One product: the sum of the two terms would pass over all nodes three times more.
        return self.activation(norm(F.linear(mixed, unit.lerp(weight, beta))))


class LINKX(Classifier):
    """A convolution of the nodes themselves beside a linear layer of the features, then ``depth``
    linear layers.

    H_A = Σ_k A_kᵀ Θ_k, H_X = X W, and the layers read σ(H_A + H_A W_A + H_X + H_X W_X), from the
    `"Large Scale Learning on Non-Homophilous Graphs" <https://arxiv.org/abs/2110.14446>`_ paper,
    whose basis is the adjacency matrix.
    """

    begins = "nodes"

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        num_nodes: int,
        make_layer: MakeLayer,
        settings: Settings,
    ) -> None:
        super().__init__(settings)
        width, make_norm = settings.hidden, NORMS[settings.layer_norm]
        self.nodes = make_layer(num_nodes, width)
        self.first = FirstLayer(in_channels, width)
        self.beside_nodes, self.beside_features = Linear(width, width), Linear(width, width)
        self.linears = ModuleList(Linear(width, width) for _ in range(settings.depth - 1))
        self.norms = ModuleList(make_norm(width) for _ in range(settings.depth - 1))
        self.head = Linear(width, num_classes)

    def forward(self, x: Tensor | None, structure: Any, way: AtOnce = AT_ONCE) -> Tensor:
        """Logits (N, C)."""
        of_nodes, x = way.conv(self.nodes, None, structure), self.features(x)
        return way.rows(self._of_rows, of_nodes, *([] if x is None else [self.first(x, way)]))

    def _of_rows(self, of_nodes: Tensor, *of_features: Tensor) -> Tensor:
        out: Tensor = of_nodes + self.beside_nodes(of_nodes)
        for own in of_features:
            out = out + own + self.beside_features(own)
        out = self.activation(out)
        for linear, norm in zip(self.linears, self.norms, strict=True):
            out = self.dropped(norm(self.activation(linear(out))))
        logits: Tensor = self.head(out)
        return logits


@dataclass(frozen=True)
class Structures:
    """The structure of the convolutions, and the basis by which predictions are propagated."""

    convs: Any
    propagation: Any


class Propagated(Classifier):
    """Z = Σ_k A_kᵀ H(X): logits of a model, propagated by a family of one label with Θ = I.

    With MLP layers (``family="identity"``) and ``diffusion(ppr, alpha=0.1)`` it is APPNP, equation
    4 of the `"Predict then Propagate" <https://arxiv.org/abs/1810.05997>`_ paper.
    """

    def __init__(self, model: Classifier, propagation: Module, settings: Settings) -> None:
        super().__init__(settings)
        self.model, self.propagation = model, propagation
        self.begins = f"model.{model.begins}"

    def forward(self, x: Tensor | None, structure: Structures, way: AtOnce = AT_ONCE) -> Tensor:
        """Logits (N, C)."""
        logits = self.model(x, structure.convs, way)
        return way.conv(self.propagation, logits, structure.propagation)
