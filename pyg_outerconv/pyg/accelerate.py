"""Accelerate a model in place: its layers of PyG become those of this room, parameters and all."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn import Module
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.nn import MessagePassing

from ..errors import RefusedValue
from ..signatures import typed
from .layer import MARK, OURS, THEIRS, WAITING, DropIn, become_pygs, in_place_of
from .sample import Sample, beyond_rounding, differences, gains
from .table import why_absent
from .tie import HOOKS, OF_CALLS, own_methods


@dataclass(frozen=True)
class Row:
    """One layer of a model.

    Attributes:
        name: its name in the model.
        kind: the name of its class in PyG.
        became: the name of the class that it has now, None if it was left.
        reason: why it was left.
        gain: how many times as fast as PyG's it was on the sample; None if it was not timed.
    """

    name: str
    kind: str
    became: str | None = None
    reason: str = ""
    gain: float | None = None


@dataclass(frozen=True)
class Report:
    """What :func:`accelerate` did; printed, a table.

    Attributes:
        rows: the layers of PyG, in the order of the model.
        verified: whether results and gradients were compared.
    """

    rows: list[Row]
    verified: bool = False

    @property
    def replaced(self) -> list[str]:
        """The names of the layers that were replaced."""
        return [row.name for row in self.rows if row.became is not None]

    @property
    def left(self) -> dict[str, str]:
        """The reason for each layer that was left."""
        return {row.name: row.reason for row in self.rows if row.became is None}

    def __str__(self) -> str:
        if not self.rows:
            return "the model has no layers of PyG"
        head = ("layer", "class", "now", "gain")
        lines = [head, *(self._line(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        text = [
            "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if self.verified and self.replaced:
            text.append("values and gradients on the sample are equal")
        return "\n".join(text)

    @staticmethod
    def _line(row: Row) -> tuple[str, str, str, str]:
        now = row.became or f"left: {row.reason}"
        gain = "" if row.gain is None else f"{row.gain:.2f}x"
        return row.name or "(the model)", row.kind, now, gain


@typed
def accelerate(model: Module, *sample: Any, verify: bool = False, **named: Any) -> Report:
    """Replace the layers of PyG in a model by the equal ones of :mod:`pyg_outerconv.pyg`.

    A layer stays the same object, with the same parameters, buffers and ``state_dict``: its class
    becomes ours, which derives from PyG's. So optimizers, ``DistributedDataParallel`` and other
    references to it keep working, before and after :meth:`torch.nn.Module.to` and
    :func:`torch.compile`. Subclasses, parametrised layers, layers with hooks and those without an
    equal form, or with options that have none, are left, and named in the report.

    If you also pass a sample, the arguments of one call of the model, each layer is timed on the
    inputs that it gets in this call, copied to new tensors each time. It stays PyG's if ours is not
    faster, or would run PyG's code.

    >>> from torch_geometric.nn import GCN
    >>> model = GCN(16, 32, num_layers=2, out_channels=4)
    >>> print(accelerate(model))
    layer    class    now                        gain
    convs.0  GCNConv  pyg_outerconv.pyg.GCNConv
    convs.1  GCNConv  pyg_outerconv.pyg.GCNConv

    Args:
        model: any module, also a single layer.
        *sample, **named: the arguments of one call of the model.
        verify: whether to run the model on the sample before and after, in evaluation mode, and to
            compare values and gradients.

    Returns:
        Each layer of PyG with its class now, or why it was left, and the gain on the sample.

    Raises:
        TypeError: ``model`` is not a module.
        ValueError: ``verify`` without a sample; or results differ, and the model is as before.
    """
    call = Sample(sample, named) if sample or named else None
    if verify and call is None:
        raise RefusedValue(
            "a sample is what results are compared on", "verify=True, x, ...", "none"
        )
    layers = dict(model.named_modules())
    kinds = {name: _kind_of(layer).__name__ for name, layer in layers.items()}
    reasons = {name: reason for name, layer in layers.items() if (reason := why_left(layer))}
    ours = {name: one for name, one in layers.items() if _kind_of(one) in OURS}
    ours = {name: one for name, one in ours.items() if name not in reasons}
    reasons |= _without_equal(ours)
    timed = {name: layer for name, layer in ours.items() if name not in reasons}
    measured = {} if call is None else gains(model, timed, call)
    before = call.results(model) if call is not None and verify else None
    for name, layer in timed.items():
        outcome = measured.get(name)
        if outcome is not None and outcome.reason:
            reasons[name] = outcome.reason
        else:
            layer.__class__ = in_place_of(type(layer), OURS)
            layer.__dict__[MARK] = True
            if hasattr(layer, "why_not"):
                layer.why_not()  # makes the contraction, before a compiler looks at the layer
    if call is not None and before is not None:
        after = call.results(model)
        apart = differences(before, after)
        if apart and any(one.dtype == torch.float32 for one in before.values()):
            exact = copy.deepcopy(model)
            restore(exact)
            apart = beyond_rounding(apart, before, after, call.double().results(exact.double()))
        if apart:
            restore(model)
            raise RefusedValue("an accelerated model has equal results", "no difference", apart[0])
    rows = []
    for name, kind in kinds.items():
        if name in ours or name in reasons:
            reason, outcome = reasons.get(name, ""), measured.get(name)
            now = None if reason else f"pyg_outerconv.pyg.{kind}"
            rows.append(Row(name, kind, now, reason, None if outcome is None else outcome.gain))
    return Report(rows, verify)


def _kind_of(layer: Module) -> type[Module]:
    """The class of a layer; of one that is sharded, the class that it had before."""
    kind = type(layer)
    return kind.__bases__[1] if kind.__bases__[0] is FSDPModule else kind


def _without_equal(layers: Mapping[str, Module]) -> dict[str, str]:
    """The reasons of the layers whose options or modules have no equal: PyG's code always runs.

    Parts come first: a layer that is made of others asks them.
    """
    reasons: dict[str, str] = {}
    before: dict[str, type[Module]] = {}
    layer: Any  # of a class of ours from here on
    try:
        for name, layer in reversed(list(layers.items())):
            before[name] = layer.__class__
            layer.__class__ = in_place_of(type(layer), OURS)
            layer_reasons = layer._of_options() if isinstance(layer, DropIn) else layer.lacks()
            if lacking := [one for one in layer_reasons if one != WAITING]:
                reasons[name], layer.__class__ = "; ".join(lacking), before[name]
    finally:
        for name, kind in before.items():
            layers[name].__class__ = kind
    return reasons


@typed
def restore(model: Module) -> list[str]:
    """Undo :func:`accelerate`: its layers become PyG's again, with their parameters.

    Returns:
        The names of these layers.
    """
    layers = {name: one for name, one in model.named_modules() if vars(one).get(MARK)}
    become_pygs(layers.values())
    return list(layers)


def why_left(layer: Module) -> str | None:
    """Why a layer stays as it is; None if it need not, or is no layer of PyG."""
    kind = _kind_of(layer)
    if kind in THEIRS:
        return "is of pyg_outerconv.pyg"
    equal = kind if kind in OURS else next((one for one in OURS if isinstance(layer, one)), None)
    if equal is None:
        reason = why_absent(kind)
        if reason is None and isinstance(layer, MessagePassing):
            reason = "is a layer of its own"
        return reason
    return next(_reasons(layer, equal), None)


def _reasons(layer: Module, equal: type[Module]) -> Iterator[str]:
    """Why a layer with an equal class cannot have it."""
    for name, part in layer.named_modules():
        where = f" of {name}" if name else ""
        if is_parametrized(part):
            yield f"the parameters{where} are parametrised"
        if hooks := _hooks(part, of_calls=part is not layer):  # a layer's own see what they saw
            yield f"has hooks{where}: {', '.join(hooks)}"
    if _kind_of(layer) is not equal:
        yield f"is a subclass of {equal.__name__}"
    own = own_methods(layer) + ["forward"] * ("forward" in vars(layer))
    if own:
        yield f"has a {own[0]} of its own"


def _hooks(part: Module, of_calls: bool) -> list[str]:
    """The names of hooks on messages, and on calls, but for those of lazy parameters."""
    names = (*(OF_CALLS if of_calls else ()), *HOOKS)
    hooks = [hook for name in names for hook in (vars(part).get(name) or {}).values()]
    labels = [getattr(hook, "__name__", type(hook).__name__) for hook in hooks]
    return [label for label in labels if label != "initialize_parameters"]
