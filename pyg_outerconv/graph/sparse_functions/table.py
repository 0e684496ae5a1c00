"""Which of torch's functions sparse features have a rule for, and what happens to the others."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import resolve_name

from ...errors import RefusedType

Rule = TypeVar("Rule", bound=Callable[..., Any])

RULES: dict[Callable[..., Any], Callable[..., Any]] = {}
"""What computes a function of torch; it returns NotImplemented where it cannot without X dense."""

OF_THE_SHELL: set[Callable[..., Any]] = {
    Tensor.__len__,
    Tensor._is_view,
    Tensor.data_ptr,
    Tensor.dim,
    Tensor.element_size,
    Tensor.get_device,
    Tensor.is_complex,
    Tensor.is_conj,
    Tensor.is_contiguous,
    Tensor.is_floating_point,
    Tensor.is_inference,
    Tensor.is_neg,
    Tensor.is_same_size,
    Tensor.is_signed,
    Tensor.ndimension,
    Tensor.nelement,
    Tensor.numel,
    Tensor.size,
    Tensor.storage_offset,
    Tensor.stride,
    torch.is_complex,
    torch.is_floating_point,
    torch.is_same_size,
    torch.numel,
    torch.result_type,
}
"""Functions of size, type and place, which torch answers without numbers; so are all attributes."""


class BecameDense(UserWarning):
    """A function has no sparse rule, so that it runs on a dense copy of sparse features.

    Given once for each function. Filter it as any warning:
    ``warnings.simplefilter("ignore", BecameDense)``.
    """


def rule_for(*functions: Callable[..., Any]) -> Callable[[Rule], Rule]:
    """Register what computes these functions of torch for sparse features."""

    def register(rule: Rule) -> Rule:
        for function in functions:
            RULES[function] = rule
        return rule

    return register


def named(*names: str) -> list[Callable[..., Any]]:
    """The functions of these names in torch, in ``torch.nn.functional`` and of tensors."""
    homes = (torch, torch.nn.functional, torch.special, Tensor)
    found = [getattr(home, name) for name in names for home in homes if hasattr(home, name)]
    return [function for function in found if callable(function)]


def getter(name: str) -> Callable[..., Any]:
    """What reads this attribute of a tensor, as torch passes it to ``__torch_function__``."""
    return getattr(Tensor, name).__get__  # type: ignore[no-any-return]


def setter(name: str) -> Callable[..., Any]:
    """What sets it."""
    return getattr(Tensor, name).__set__  # type: ignore[no-any-return]


def deleter(name: str) -> Callable[..., Any]:
    """What deletes it."""
    return getattr(Tensor, name).__delete__  # type: ignore[no-any-return]


def name_of(function: Callable[..., Any]) -> str:
    """The name of a function of torch, as messages show it."""
    return resolve_name(function) or getattr(function, "__name__", repr(function))


_said: set[str] = set()


def say_dense(name: str, shape: Iterable[int], dtype: torch.dtype) -> None:
    """Warn, once for each name, that sparse features became dense."""
    if name in _said:
        return
    _said.add(name)
    rows, columns = shape
    size = rows * columns * dtype.itemsize / 2**20
    warnings.warn(
        f"{name} has no rule for sparse features and runs on a dense copy of "
        f"{rows} x {columns} ({size:.3g} MiB)",
        BecameDense,
        stacklevel=4,
    )


_AUGMENTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor")
_WRITES = {f"__i{name}__" for name in _AUGMENTED} | {"__setitem__", "__set__", "__delete__"}


def refuse_write(name: str, why: str = "it would write to a copy") -> RefusedType:
    """The exception for a function that changes sparse features in place and cannot."""
    return RefusedType(
        f"{name} does not change sparse features in place, for {why}",
        "the function that returns a new tensor, or x.to_dense() first",
        "SparseFeatures",
    )


def writes(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a function would change its first argument in place."""
    name = getattr(function, "__name__", "")
    if name in _WRITES or (name.endswith("_") and not name.endswith("__")):
        return True
    signature = _signature(function)
    if signature is None or "inplace" not in signature.parameters:
        return False
    return bool(signature.bind(*args, **kwargs).arguments.get("inplace"))


@cache
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function in Python; None for torch's own in C++."""
    if not inspect.isfunction(function):
        return None
    return inspect.signature(function, follow_wrapped=False)
