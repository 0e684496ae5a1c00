"""What each label of each layer contributes: the norm of its term, and what is lost without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from ...errors import RefusedValue
from ...nn import OuterConv, label_terms
from ...nn.evaluation import evaluating
from .metrics import accuracy


@dataclass(frozen=True)
class Contribution:
    """The contribution of label k in a layer of a model.

    Attributes:
        layer: the name of the layer in the model, such as ``'convs.0'``.
        label: k.
        name: of the label, as its family calls it.
        norm: ‖A_kᵀ X Θ_k‖, the Frobenius norm over all nodes and channels; over all calls of a
            layer that the model calls several times.
        metric: the metric on the chosen nodes without this label in this layer.
        change: ``metric`` minus the metric of the whole model; negative where the label helps.
        loss: the mean cross entropy on the chosen nodes without this label.
        loss_change: ``loss`` minus that of the whole model; positive where the label helps.
    """

    layer: str
    label: int
    name: str
    norm: float
    metric: float
    change: float
    loss: float
    loss_change: float


def contributions(
    model: Module,
    x: Any,
    structure: Any,
    y: Tensor,
    mask: Tensor,
    metric: Callable[[Tensor, Tensor], float] = accuracy,
) -> list[Contribution]:
    """The contribution of every label of every ``OuterConv`` in a trained model.

    A label is taken out of one layer at a time, in evaluation mode: its matrix A_k has no edge then
    and all else is as it was, attention shares of other heads too. The model runs once for each
    layer and label. One term (N, Q) is held at a time, and no tensor of edges × channels.

    Args:
        model: called as ``model(x, structure)``, it returns logits (N, C).
        x: the features, or None.
        structure: the second argument of the model.
        y: (N,) classes.
        mask: (N,) booleans or node indices, those on which the metric is evaluated, such as the
            validation nodes.
        metric: of logits (n, C) and classes (n,); the larger, the better.

    Returns:
        By layers in the order of the model's modules, then by labels. Layers of other classes, and
        layers that the model does not call, have none.

    Raises:
        ValueError: no node is chosen; or a layer has no terms, see :func:`.nn.label_terms`.
    """
    wanted = y[mask]
    if not wanted.numel():
        raise RefusedValue("contributions are measured on nodes", "at least one", "none")

    def measured() -> tuple[float, float]:
        logits = model(x, structure)[mask]
        return metric(logits, wanted), float(F.cross_entropy(logits, wanted))

    layers = {name: part for name, part in model.named_modules() if isinstance(part, OuterConv)}
    squares: dict[str, list[float]] = {}
    found = []
    with evaluating(model):
        with _watching(
            {layer: partial(_add_squares, squares, name) for name, layer in layers.items()}
        ):
            whole, whole_loss = measured()
        for name, layer in layers.items():
            for label, square in enumerate(squares.get(name, ())):
                with _watching({layer: partial(_without, label)}):
                    without, loss = measured()
                found.append(
                    Contribution(
                        name,
                        label,
                        layer.family.labels[label],
                        square**0.5,
                        without,
                        without - whole,
                        loss,
                        loss - whole_loss,
                    )
                )
    return found


Hook = Callable[[OuterConv, tuple[Any, ...], dict[str, Any], Any], Any]


@contextmanager
def _watching(hooks: dict[OuterConv, Hook]) -> Iterator[None]:
    """A block in which hooks see, or replace, the outputs of layers."""
    handles = [layer.register_forward_hook(hook, with_kwargs=True) for layer, hook in hooks.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _add_squares(
    squares: dict[str, list[float]],
    name: str,
    layer: OuterConv,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    out: Any,
) -> None:
    """Add ‖T_k‖² of a call for each label."""
    terms = label_terms(layer, *args, **kwargs)
    sums = squares.setdefault(name, [0.0] * terms.num_labels)
    for label in range(terms.num_labels):
        sums[label] += float(terms.term(label).double().square().sum())


def _without(
    label: int, layer: OuterConv, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> Any:
    """The output of a call without a label, beside its attention weights if they came with it."""
    terms = label_terms(layer, *args, **kwargs)
    return (
        (terms.without(label, out[0]), *out[1:])
        if isinstance(out, tuple)
        else terms.without(label, out)
    )
