"""Logits of a node classifier layer by layer, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import Module

from ...basis import Basis
from ...errors import RefusedValue
from ...nn import OuterConv
from ...scale import Scratch, convolve
from ...scale.chunks import MOST_EDGES, rows_of
from .blocks import BlockClassifier, Propagated
from .classifiers import GraphClassifier, NodeClassifier

if TYPE_CHECKING:
    from .model import Classifier


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

    Args:
        model: convolutions of type :class:`OuterConv`, norms and skips; its logits may be
            propagated.
        x: (N, P) features, dense or CSR, in memory or mapped to a file; or None.
        basis: the basis of the whole graph; the support for attention; ``Structures``
            of a model that propagates its logits.
        scratch: where features between layers are held; in memory by default.
        most_edges: the bound on edges and targets of a chunk.

    Raises:
        ValueError: the model is in training mode or classifies graphs, or x cannot be read by rows.
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
