"""Check that a layer can be converted, and copy its weights."""

from __future__ import annotations

from inspect import isfunction
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from ...errors import RefusedType, RefusedValue

LIBRARIES = ("torch.nn.modules.", "torch_geometric.nn.", "pyg_outerconv.")


def require(rule: str, *conditions: tuple[Any, Any, Any]) -> None:
    """Raise ValueError for the first of (holds, expected, got) that does not hold."""
    for holds, expected, got in conditions:
        if not holds:
            raise RefusedValue(rule, expected, got)


def require_weights(module: nn.Module, unused: str | None = None) -> None:
    """Raise ValueError if a layer has no weights before its first input.

    Args:
        module: the layer.
        unused: the beginning of the names of parameters that may be missing.
    """
    names = [name for name, parameter in module.named_parameters() if is_lazy(parameter)]
    waiting = [name for name in names if unused is None or not name.startswith(unused)]
    rule = "a layer is converted with its weights"
    require(rule, (not waiting, "weights, which the first input makes", f"none yet of {waiting}"))


def require_plain(module: nn.Module) -> None:
    """Check that every part of a layer computes what its class does.

    A conversion copies options and weights. It would silently lose parametrizations
    (``weight_norm``, ``spectral_norm``, …), pruning, hooks and methods set on an object.
    Activations are passed on, and may be any module.

    Raises:
        TypeError: a submodule with weights is of a class outside torch and this package.
        ValueError: a part is parametrised, hooked, or has methods set on the object.
    """
    for name, part in module.named_modules():
        if "activation" in name.split("."):
            continue
        where = f"{name or 'the layer'} ({type(part).__name__})"
        if is_parametrized(part):
            rule = "weights are converted as they are, not what they are made of"
            expected = "torch.nn.utils.parametrize.remove_parametrizations before"
            names = ", ".join(part.parametrizations)  # type: ignore[arg-type]
            raise RefusedValue(rule, expected, f"a parametrised {names} of {where}")
        waiting = any(is_lazy(parameter) for parameter in part.parameters(recurse=False))
        hooks = [] if waiting else _hooks(part)  # lazy parts wait for an input by a hook
        methods = [key for key in vars(part) if isfunction(getattr(type(part), key, None))]
        hooks += [f"a {key} of its own" for key in methods]
        if hooks:
            rule = "a layer is converted that computes what its class does"
            expected = "no hooks: remove them (remove_spectral_norm, prune.remove, handle.remove)"
            raise RefusedValue(rule, expected, f"{', '.join(hooks)} on {where}")
        holds = name and any(True for _ in part.parameters(recurse=False))
        if holds and not f"{type(part).__module__}.".startswith(LIBRARIES):
            rule = "a layer is converted whose parts are the library's"
            raise RefusedType(rule, "none replaced", where)


def _hooks(part: nn.Module) -> list[str]:
    """The names of the hooks of a module, forwards and backwards."""
    found: list[Any] = []
    for name, value in vars(part).items():
        if name.endswith("_hooks") and "state_dict" not in name and isinstance(value, dict):
            found += value.values()
    return [getattr(hook, "__name__", type(hook).__name__) for hook in found]


def copy_weight(parameter: Any, value: Tensor, like: Tensor | None = None) -> None:
    """Copy a value to a parameter, with the ``requires_grad`` of ``like``, or of the value."""
    with torch.no_grad():
        parameter.copy_(value)
    parameter.requires_grad_((value if like is None else like).requires_grad)


def copy_parameters(into: Any, module: nn.Module) -> None:
    """Copy all parameters of a module to the parameters of the same names."""
    for name, parameter in module.named_parameters():
        copy_weight(getattr(into, name), parameter)


def copy_to_heads(parameter: Any, weight: Tensor) -> None:
    """Copy the weight (H·D, P) of one linear map for all heads to a parameter (H, P, D)."""
    copy_weight(parameter, weight.t().unflatten(1, (parameter.size(0), -1)).transpose(0, 1), weight)
