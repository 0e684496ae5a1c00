"""Check that the arguments of a call and the parameters of the layer are on one device."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import RefusedValue, refusal
from ..graph import Cells

RULE = "what a layer is called with is where its parameters are"


def check_devices(
    layer: Module, given: Any, source: Any, target: Any = None, *beside: tuple[str, Any]
) -> None:
    """Check the devices of a call before it runs.

    Kernels would not notice a mix of CPU and ``meta``, and would return uninitialised memory.

    Args:
        layer: the layer, all of whose parameters and buffers are checked.
        given: the argument ``edge_index``.
        source, target: features, or None.
        *beside: names and values of further arguments: a tensor, a pair of tensors, or None.

    Raises:
        ValueError: two of them are on different devices, or all are on ``meta``.
    """
    if torch.compiler.is_compiling():
        return  # tracers check devices themselves
    known = target if source is None else source
    device = _device_of(layer) if known is None else known.device
    if device is None:
        return
    if target is not None and target.device != device:
        raise RefusedValue(refusal("sources and targets are in one place", device, target.device))
    if _is_elsewhere(layer, device):
        tensors = chain(layer.named_parameters(), layer.named_buffers())
        name, part = next((name, part) for name, part in tensors if part.device != device)
        raise RefusedValue(refusal(RULE, f"{name} on {device}{_hint(part)}", part.device))
    for name, parts in beside:
        for part in parts if isinstance(parts, tuple | list) else (parts,):
            if isinstance(part, Tensor) and part.device != device:
                raise RefusedValue(
                    refusal(f"{name} is where the features are", device, part.device)
                )
    if not isinstance(given, Tensor) or given.device != device or device.type == "meta":
        check_given(given, device)


def check_given(given: Any, device: torch.device) -> None:
    """Raise ValueError if edges or a basis are not on ``device``, or if that is ``meta``."""
    is_shape = isinstance(given, Cells) and given.index is None  # a shape has no device
    where = device if is_shape else getattr(given, "device", device)
    if where != device:
        raise RefusedValue(
            refusal(
                "edges, or the basis in their place, are where the features are",
                f"{device}: .to(x.device), which a FixedBasis in a module follows",
                where,
            )
        )
    if device.type == "meta":
        raise RefusedValue(
            refusal(
                "a layer runs on values, and meta has none",
                "for shapes alone a real basis within FakeTensorMode(allow_non_fake_inputs=True)",
                device,
            )
        )


def _device_of(layer: Module) -> torch.device | None:
    """The device of the first parameter of a layer."""
    return next((parameter.device for parameter in layer.parameters()), None)


def _is_elsewhere(module: Module, device: torch.device) -> bool:
    """Whether any tensor of a module is on another device; faster than iterating parameters()."""
    waiting: list[Module | None] = [module]
    for one in waiting:
        if one is None:
            continue
        for held in (one._parameters, one._buffers):
            for part in held.values() if held else ():
                if part is not None and part.device != device:
                    return True
        if one._modules:
            waiting += one._modules.values()
    return False


def _hint(part: Tensor) -> str:
    """How to allocate parameters that are on ``meta``."""
    lost = part.device.type == "meta"
    return " (layer.to_empty(device=...), and load_state_dict)" if lost else ""
