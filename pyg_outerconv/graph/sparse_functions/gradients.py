"""Gradients of sparse features: those of their values, on the same pattern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...errors import RefusedType
from ..sparse_features import SparseFeatures, features_of
from .table import deleter, getter, rule_for, setter


def _value(x: Any) -> Any:
    return x.value if isinstance(x, SparseFeatures) else x


def _like(x: SparseFeatures, grad: Tensor | None) -> SparseFeatures | None:
    return None if grad is None else features_of(x.matrix.with_values(grad))


@rule_for(getter("requires_grad"))
def requires_grad(x: SparseFeatures) -> bool:
    """Whether the values require gradients."""
    return x.value.requires_grad


@rule_for(setter("requires_grad"))
def set_requires_grad(x: SparseFeatures, wanted: bool) -> None:
    """Whether the values shall require gradients."""
    x.value.requires_grad = wanted


@rule_for(Tensor.requires_grad_)
def requires_grad_(x: SparseFeatures, requires_grad: bool = True) -> SparseFeatures:
    """The same, as a method."""
    x.value.requires_grad_(requires_grad)
    return x


@rule_for(getter("grad"))
def grad(x: SparseFeatures) -> SparseFeatures | None:
    """The gradient of the values, on the same pattern."""
    return _like(x, x.value.grad)


@rule_for(setter("grad"))
def set_grad(x: SparseFeatures, grad: Any) -> None:
    """The same pattern, or None."""
    if grad is not None and not (isinstance(grad, SparseFeatures) and grad.sparsity is x.sparsity):
        raise RefusedType(
            "a gradient of sparse features has their pattern", "x.grad, or None", grad
        )
    x.value.grad = _value(grad)


@rule_for(deleter("grad"))
def delete_grad(x: SparseFeatures) -> None:
    """No gradient."""
    x.value.grad = None


def _of_values(name: str) -> Callable[[SparseFeatures], Any]:
    def attribute(x: SparseFeatures) -> Any:
        return getattr(x.value, name)

    return attribute


for _name in ("grad_fn", "is_leaf", "retains_grad", "_version", "output_nr"):
    rule_for(getter(_name))(_of_values(_name))


@rule_for(Tensor.retain_grad)
def retain_grad(x: SparseFeatures) -> None:
    """Keep the gradient of values that are no leaf."""
    x.value.retain_grad()


@rule_for(Tensor.register_hook)
def register_hook(x: SparseFeatures, hook: Callable[[Any], Any]) -> Any:
    """Call the hook with the gradient, on the same pattern."""
    return x.value.register_hook(lambda grad: _value(hook(_like(x, grad))))


@rule_for(torch.autograd.grad)
def autograd_grad(outputs: Any, inputs: Any, grad_outputs: Any = None, **kwargs: Any) -> Any:
    """Gradients of sparse features among the inputs have their patterns."""
    asked = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    found = torch.autograd.grad(
        _values(outputs), [_value(x) for x in asked], _values(grad_outputs), **kwargs
    )
    pairs = zip(asked, found, strict=True)
    return tuple([_like(x, g) if isinstance(x, SparseFeatures) else g for x, g in pairs])


@rule_for(torch.autograd.backward)
def autograd_backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
    """Accumulate gradients; those of sparse features are in the values."""
    if kwargs.get("inputs") is not None:
        kwargs["inputs"] = _values(kwargs["inputs"])
    torch.autograd.backward(_values(tensors), _values(grad_tensors), *args, **kwargs)


@rule_for(Tensor.backward)
def backward(x: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
    """The same, of one tensor."""
    if kwargs.get("inputs") is not None:
        kwargs["inputs"] = _values(kwargs["inputs"])
    _value(x).backward(_value(gradient), *args, **kwargs)


def _values(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return [_value(x) for x in given]
    return _value(given)
