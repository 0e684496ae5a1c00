"""Copies of models with our layers or with PyG's, and of layers as an OuterConv of its own."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import RefusedType, RefusedValue
from ..nn import OuterConv
from ..nn.convert import require_plain
from ..signatures import typed
from .accelerate import accelerate, why_left
from .layer import MARK, OURS, THEIRS, DropIn, become_pygs

Model = TypeVar("Model", bound=Module)


@typed
def from_pyg(model: Model) -> Model:
    """A copy of a model in which the layers of PyG are those of :mod:`pyg_outerconv.pyg`.

    Layers without an equal form stay PyG's; :func:`accelerate` says which, and changes the model
    itself.

    >>> from torch_geometric.nn import GCNConv
    >>> type(from_pyg(GCNConv(16, 8))).__module__
    'pyg_outerconv.pyg.gcn'

    Args:
        model: any module, also a single layer.

    Raises:
        TypeError: no layer of the model has an equal form; the error says why.
    """
    copied = copy.deepcopy(model)
    report = accelerate(copied)
    if not report.replaced and not any(type(layer) in THEIRS for layer in copied.modules()):
        left = "; ".join(
            f"{name or type(model).__name__}: {why}" for name, why in report.left.items()
        )
        raise RefusedType(
            "a model has layers of PyG that have an equal form here",
            ", ".join(sorted(kind.__name__ for kind in OURS)),
            left or type(model).__name__,
        )
    for layer in copied.modules():
        vars(layer).pop(MARK, None)
    return copied


@typed
def to_pyg(model: Model) -> Model:
    """A copy of a model in which the layers of :mod:`pyg_outerconv.pyg` are PyG's own.

    >>> from pyg_outerconv.pyg import GCNConv
    >>> type(to_pyg(GCNConv(16, 8))).__module__
    'torch_geometric.nn.conv.gcn_conv'

    Args:
        model: any module, also a single layer.

    Raises:
        TypeError: there is no such layer in the model.
    """
    copied = copy.deepcopy(model)
    if not become_pygs([layer for layer in copied.modules() if type(layer) in THEIRS]):
        rule = "a model has layers of pyg_outerconv.pyg, which derive from PyG's"
        raise RefusedType(rule, "one or more", type(model).__name__)
    return copied


@typed
def outer_conv(layer: Module) -> OuterConv:
    """A layer of PyG as an OuterConv or AttentionConv, with a copy of its weights.

    Options, ``training``, dtype, device and ``requires_grad`` stay the same. From then on the basis
    can be chosen anew, drawn, composed and made dense.

    >>> from torch_geometric.nn import GCNConv
    >>> outer_conv(GCNConv(16, 8)).family
    GCN(norm='sym', add_self_loops=True, improved=False, as_pyg=True)

    Args:
        layer: a layer of PyG that has an equal form, or one of :mod:`pyg_outerconv.pyg`.

    Raises:
        TypeError: the layer has no equal form.
        ValueError: an option has none, parameters have no shapes yet, the layer is several
            convolutions or does more than one, or it is hooked or parametrised.
    """
    if isinstance(layer, (*OURS, *THEIRS)):
        require_plain(layer)
    ours = copy.copy(as_ours(layer))
    for name, value in vars(ours).items():
        if isinstance(value, Tensor):  # an option, such as the features of self-loops
            vars(ours)[name] = value.clone()
    ours.outer_conv()  # raises where the layer is not one convolution
    if outside := ours.outside():
        raise RefusedValue("an OuterConv is a convolution alone", "nothing beside it", outside[0])
    like = next(iter(layer.parameters()), None)
    with torch.random.fork_rng(devices=[]):
        conv, sources = ours.recipe()
    assert isinstance(conv, OuterConv)
    if like is not None:
        conv.to(like.device, like.dtype)
    tensors = {**dict(conv.named_parameters()), **dict(conv.named_buffers())}
    with torch.enable_grad():
        values = {name: source.of(ours) for name, source in sources.items()}
    for name, value in values.items():
        with torch.no_grad():
            tensors[name].copy_(value)
        tensors[name].requires_grad_(value.requires_grad)
    return conv.train(layer.training)


def as_ours(layer: Module) -> Any:
    """A layer of PyG as one of ours over the same parameters; the layer stays what it is."""
    if isinstance(layer, DropIn) or type(layer) in THEIRS:  # DirGNNConv is no MessagePassing
        return layer
    reason = why_left(layer)
    kind = OURS.get(type(layer))
    if kind is None or reason is not None:
        raise RefusedType(
            "a layer of PyG has an equal form here",
            ", ".join(sorted(kind.__name__ for kind in OURS)),
            f"{type(layer).__name__}: {reason or 'not one of them'}",
        )
    ours = copy.copy(layer)
    ours.__class__ = kind
    return ours
