"""Logits of a node classifier layer by layer, in bounded memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..nn import OuterConv
from ..scale import Scratch, convolve
from ..scale.chunks import MOST_EDGES
from .blocks import Propagated
from .model import Classifier, NodeClassifier


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
        ValueError: the model is in training mode or of residual blocks, or x cannot be read by
            rows.
    """
    if model.training:
        raise RefusedValue(
            "layer-wise inference has no dropout", "model.eval()", "a model in training mode"
        )
    if isinstance(model, Propagated):
        logits = logits_by_layers(
            model.model, x, basis.convs, scratch=scratch, most_edges=most_edges
        )
        return convolve(
            model.propagation, logits, basis.propagation, scratch=scratch, most_edges=most_edges
        )
    if not isinstance(model, NodeClassifier):
        rule = "layer-wise inference goes from convolution to convolution"
        raise RefusedValue(rule, "architecture='layers'", type(model).__name__)
    outputs: list[Tensor] = []  # for the head alone
    is_hidden = False  # whether x is the output of a hidden layer

    def layer(conv: OuterConv, x: Tensor | None, norm: torch.nn.Module | None) -> Tensor:
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
