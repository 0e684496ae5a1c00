"""A sample call of a model: its results before and after, and the time of each layer in it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from ..nn.models import evaluating
from .layer import OURS, TIED, in_place_of

LEAST, MOST, SECONDS = 5, 200, 2.0
"""Pairs of calls, of which the median ratio counts: so few and many, the former after so long."""

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""max|Δ| over the largest number, through all layers; 2e-2 for narrower types."""

Results = dict[str, Tensor]


@dataclass(frozen=True)
class Sample:
    """The arguments of one call of a model."""

    positional: tuple[Any, ...]
    named: Mapping[str, Any]

    def results(self, model: Module) -> Results:
        """Outputs and gradients of parameters and of inputs that require them, by name.

        The model runs in evaluation mode; its state, its ``.grad`` and random numbers stay.
        """
        with evaluating(model), trying(model):
            torch.manual_seed(0)
            outputs = _tensors(model(*self.positional, **self.named))
            tensors = {f"output {place}": one.detach() for place, one in enumerate(outputs)}
            inputs = enumerate(self.tensors())
            all_named = chain(model.named_parameters(), ((f"input {n}", one) for n, one in inputs))
            wanted = {name: one for name, one in all_named if one.requires_grad}
            gradients = _gradients(outputs, list(wanted.values()))
            for name, gradient in zip(wanted, gradients, strict=True):
                if gradient is not None:
                    tensors[f"gradient of {name}"] = gradient
            return tensors

    def tensors(self) -> list[Tensor]:
        """The floating point tensors among the arguments."""
        return _tensors((self.positional, dict(self.named)))

    def inputs(self, model: Module, layers: Mapping[str, Module]) -> dict[str, Sample]:
        """The arguments of each layer in this call; of the last one, if it is called twice."""
        seen: dict[str, Sample] = {}

        def watch(name: str) -> Callable[..., None]:
            def hook(layer: Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
                seen[name] = Sample(positional, named)

            return hook

        handles = [
            layer.register_forward_pre_hook(watch(name), with_kwargs=True)
            for name, layer in layers.items()
        ]
        try:
            with evaluating(model), trying(model):
                model(*self.positional, **self.named)
        finally:
            for handle in handles:
                handle.remove()
        return seen

    def double(self) -> Sample:
        """The same arguments in float64."""
        return Sample(*tree_map(_doubled, (self.positional, dict(self.named))))

    def fresh(self) -> Sample:
        """The same arguments in new tensors, as a loader hands over a new graph."""
        return Sample(*tree_map(_copied, (self.positional, dict(self.named))))


@contextmanager
def trying(model: Module) -> Iterator[None]:
    """A block of calls with gradients, after which a model and random numbers are as before.

    Layers with ``cached=True`` too: a sample need not have the graph of the calls that follow.
    """
    caches = [
        (vars(layer), {name: value for name, value in vars(layer).items() if "_cached" in name})
        for layer in model.modules()
    ]
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng():
            yield
    finally:
        for attributes, before in caches:
            attributes.update(before)


def differences(before: Results, after: Results) -> list[str]:
    """What differs between two results by more than rounding."""
    descriptions = []
    for name in before.keys() | after.keys():
        one, other = before.get(name), after.get(name)
        if one is None or other is None or one.shape != other.shape:
            descriptions.append(f"{name} exists or has its shape on one side only")
            continue
        largest = float(one.abs().max()) if one.numel() else 0.0
        apart = float((one - other).abs().max()) if one.numel() else 0.0
        is_close = apart <= TOLERANCE.get(one.dtype, 2e-2) * max(largest, 1e-6)
        if not is_close and not torch.allclose(one, other, equal_nan=True):
            descriptions.append(f"{name} differs by {apart:.3g}, of {largest:.3g}")
    return sorted(descriptions)


def beyond_rounding(apart: list[str], before: Results, after: Results, exact: Results) -> list[str]:
    """Those differences whose results are further from those of float64 than PyG's results are.

    Where terms cancel, as in gradients of scores that softmax hardly depends on, results of float32
    are mostly rounding, in PyG's layers too.

    Args:
        apart: what :func:`differences` found.
        before, after, exact: results of PyG's layers, of ours, and of PyG's in float64.
    """

    def error(tensors: Results, name: str) -> float:
        return float((tensors[name].double() - exact[name]).abs().max())

    rounded = set()
    for name in before.keys() & after.keys() & exact.keys():
        if before[name].shape == after[name].shape and before[name].numel():
            allowed = 10 * error(before, name) + 1e-5 * float(exact[name].abs().max())
            if error(after, name) <= allowed:
                rounded.add(name)
    return [text for text in apart if text.partition(" differs by ")[0] not in rounded]


@dataclass(frozen=True)
class Outcome:
    """What a layer gains on its inputs in a sample.

    Attributes:
        gain: how many times as fast it is; None where both sides would run PyG's code.
        reason: why it does not gain; empty if it does.
    """

    gain: float | None = None
    reason: str = ""


def gains(model: Module, layers: Mapping[str, Module], sample: Sample) -> dict[str, Outcome]:
    """How many times as fast each layer is with our class, on its inputs in a call of the model."""
    outcomes = {}
    for name, inputs in sample.inputs(model, layers).items():
        layer = layers[name]
        if any(is_lazy(parameter) for parameter in layer.parameters()):
            continue
        kinds = type(layer), in_place_of(type(layer), OURS)
        try:
            with trying(layer):
                outcomes[name] = _outcome(layer, inputs, kinds)
        finally:
            layer.__class__ = kinds[0]
    return outcomes


def _outcome(layer: Any, inputs: Sample, kinds: tuple[type[Module], type[Module]]) -> Outcome:
    """The gain of a layer by the second of two classes; by ratios of calls in turn."""
    layer.__class__ = kinds[1]
    if reasons := layer.why_not(*inputs.positional, **inputs.named):
        return Outcome(reason=f"would run PyG's code on the sample: {reasons[0]}")
    ratios: list[float] = []
    tied = _tied_attributes(layer)
    begin = time.perf_counter()
    for repeat in range(MOST + 1):
        taken = []
        for kind in kinds:
            layer.__class__ = kind  # ours loses its contraction there, which takes milliseconds
            if kind is kinds[1]:
                vars(layer).update(tied)
            taken.append(_seconds(layer, inputs.fresh()))
        tied = _tied_attributes(layer)
        if repeat:  # the first call of each side warms up
            ratios.append(taken[0] / taken[1])
        if repeat >= LEAST and (is_told(ratios) or time.perf_counter() - begin > SECONDS):
            break
    gain = median(ratios)
    return Outcome(gain, "" if gain >= 1.0 else "not faster on the sample")


def _tied_attributes(layer: Module) -> dict[str, Any]:
    """What a layer of ours makes at its first call, and keeps."""
    return {key: vars(layer)[key] for key in TIED if key in vars(layer)}


def is_told(ratios: Sequence[float]) -> bool:
    """Whether the median of ratios is known to 5 % with 95 % confidence, by their order."""
    ordered, count = sorted(ratios), len(ratios)
    away = 0.98 * count**0.5
    low, high = int(count / 2 - away), math.ceil(count / 2 + away)
    return high < count and ordered[high] <= 1.1 * ordered[low]


def _seconds(layer: Module, sample: Sample) -> float:
    """The time of a call, with its backward pass if anything learns."""
    inputs = sample.tensors()
    device = inputs[0].device if inputs else None
    begin = _now(device)
    outputs = _tensors(layer(*sample.positional, **sample.named))
    _gradients(outputs, [one for one in (*layer.parameters(), *inputs) if one.requires_grad])
    return _now(device) - begin


def _gradients(outputs: list[Tensor], wanted: list[Tensor]) -> Sequence[Tensor | None]:
    """The gradients of outputs times random numbers."""
    learning = [one for one in outputs if one.requires_grad]
    if not learning or not wanted:
        return [None] * len(wanted)
    ahead = [torch.randn(one.shape, device=one.device).to(one.dtype) for one in learning]
    return torch.autograd.grad(learning, wanted, ahead, allow_unused=True)


def _now(device: torch.device | None) -> float:
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _doubled(value: Any) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _copied(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def _tensors(tree: Any) -> list[Tensor]:
    """The floating point tensors in a nest of containers."""
    leaves = tree_leaves(tree)
    return [one for one in leaves if isinstance(one, Tensor) and one.is_floating_point()]
