"""What a layer of PyG is made of, looked at again at each call: its modules, hooks and methods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from ..kernels.index_checks import is_exporting

# Methods of messages: a subclass or an object with one of its own is run by PyG.
STEPS = ("message", "aggregate", "message_and_aggregate", "update", "propagate", "edge_update")
HOOKS = tuple(
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)
_PYGS = ("_orig_propagate", "_jinja_propagate")
OF_CALLS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Watch:
    """The modules of a layer when its contraction was made, and what sees calls that it skips.

    Args:
        layer: a layer of PyG.
        skipped: the modules that PyG's ``forward`` calls and the contraction does not.
    """

    def __init__(self, layer: Module, skipped: Iterable[Module]) -> None:
        parts = list(dict.fromkeys(skipped))
        self._places = [
            (part._modules, list(part._modules.values()))
            for part in layer.modules()
            if part._modules
        ]
        self._hooks = [getattr(part, name) for part in parts for name in OF_CALLS]
        self._hooks += [vars(layer)[name] for name in HOOKS]
        self._parts = parts
        self._biases = [
            (part._parameters, part._parameters["bias"] is None)
            for part in parts
            if "bias" in part._parameters
        ]

    def is_changed(self) -> bool:
        """Whether a module, or a bias of one, was put in, replaced or removed since."""
        for place, parts in self._places:
            if list(place.values()) != parts:
                return True
        return any((own.get("bias") is None) is not without for own, without in self._biases)

    def is_seen(self) -> bool:
        """Whether a hook, or a ``forward`` of its own, sees a call that the contraction skips."""
        for part in self._parts:
            if "forward" in part.__dict__:
                return True
        return any(self._hooks)


def own_methods(layer: Module) -> list[str]:
    """The methods that were put onto a layer, in the place of those of its class.

    PyG puts methods of its own there, for explainers and for decomposed layers.
    """
    kind = type(layer)
    pygs = generated(kind)
    return [
        name
        for name, value in vars(layer).items()
        if name != "forward" and callable(getattr(kind, name, None))
        if getattr(value, "__func__", value) not in pygs
    ]


def generated(kind: type) -> list[Any]:
    """The functions that PyG puts in the place of ``propagate``, in a class and in its bases."""
    pygs: list[Any] = [MessagePassing.propagate]
    for base in kind.__mro__:
        pygs += [vars(base)[name] for name in _PYGS if name in vars(base)]
    return pygs


def is_recorded() -> bool:
    """Whether torch.export or torch.jit records a call, to run it again with other inputs."""
    return is_exporting() or torch.jit.is_tracing()
