"""Collapsing linear runs of convolutions in a model, where that is cheaper."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from .compose import compose, why_not_composed
from .linear_runs import LayerCall, left_pairs, linear_runs, remove_unread
from .outer_conv import OuterConv
from .tracing import traced


@dataclass(frozen=True)
class Decision:
    """Whether one convolution was made one with those before it, and why.

    Attributes:
        first, second: the layers' names in the model.
        reasons: why they are no run, or have no composition; empty if they have one.
        chained, composed: predicted seconds of one after the other, and of both in one.
    """

    first: str
    second: str
    reasons: tuple[str, ...] = ()
    chained: float = 0.0
    composed: float = 0.0

    @property
    def is_fused(self) -> bool:
        """Whether they are one now."""
        return not self.reasons and self.composed < self.chained

    def __str__(self) -> str:
        pair = f"{self.first}, {self.second}"
        if self.reasons:
            return f"{pair}: left, {'; '.join(self.reasons)}"
        what = "fused" if self.is_fused else "left"
        return f"{pair}: {what}, {_ms(self.chained)} in a chain, {_ms(self.composed)} composed"


@dataclass(frozen=True)
class FusionReport:
    """What :func:`fuse` did to a model; printed, a line for each pair of layers.

    A pair is an ``OuterConv`` and one that its x comes from, through anything but another.

    Attributes:
        decisions: in the order of the model's calls.
        has_convolutions: whether there is any ``OuterConv`` in the model.
    """

    decisions: tuple[Decision, ...]
    has_convolutions: bool = True

    @property
    def num_fused(self) -> int:
        """How many layers there are less than before."""
        return sum(decision.is_fused for decision in self.decisions)

    def __str__(self) -> str:
        if not self.has_convolutions:
            return "the model has no OuterConv"
        lines = [str(decision) for decision in self.decisions]
        return "\n".join(lines or ["no convolution is seen to follow another"])


class Fused(NamedTuple):
    """A model with fewer layers, and what became of the others."""

    model: torch.nn.Module
    report: FusionReport


def fuse(model: torch.nn.Module, *example_inputs: Any, **example_options: Any) -> Fused:
    """A copy of a model in which convolutions that follow each other are one, where that pays.

    Layers are in a run where nothing but the identity, or dropout that is switched off, lies
    between them, nobody else reads what passes, and their other arguments are the same. Whether
    :func:`~pyg_outerconv.nn.compose` makes them cheaper is asked of the cost model, for the given
    inputs: of a forward pass in evaluation mode, of both passes in training mode.

    In evaluation mode dropout that is taken away does not come back: what was fused there is for
    inference.

    Args:
        model: ``torch.nn.Sequential``, PyG's ``Sequential``, or any module that ``torch.fx`` can
            trace with layers as leaves. It is left as it is.
        *example_inputs, **example_options: what it is called with, of the sizes to be fast for.

    Returns:
        The copy, a ``GraphModule`` if anything was fused; and the report.

    Raises:
        ValueError: the model cannot be traced.
    """
    copied = copy.deepcopy(model)
    graph = traced(copied)
    runs, place = linear_runs(graph), {node: at for at, node in enumerate(graph.graph.nodes)}
    decided = [
        (place[left.second.node], Decision(left.first.name, left.second.name, left.reasons))
        for left in left_pairs(graph, runs)
    ]
    with torch.set_grad_enabled(model.training):
        names = [call.name for run in runs for call in run]
        inputs = _inputs_of(copy.deepcopy(model), names, example_inputs, example_options)
        for run in runs:
            places = [place[call.node] for call in run[1:]]
            decided += zip(places, _fuse_run(graph, run, inputs), strict=True)
    ordered = [decision for _, decision in sorted(decided, key=lambda pair: pair[0])]
    has_convolutions = any(isinstance(module, OuterConv) for module in model.modules())
    report = FusionReport(tuple(dict.fromkeys(ordered)), has_convolutions)
    if report.num_fused == 0:
        return Fused(copied, report)
    remove_unread(graph)
    return Fused(graph, report)


Given = tuple[tuple[Any, ...], dict[str, Any]]


def _inputs_of(
    model: torch.nn.Module, names: list[str], args: tuple[Any, ...], options: dict[str, Any]
) -> dict[str, Given]:
    """What layers are called with when the model is, which a run may change (its statistics)."""
    found: dict[str, Given] = {}
    if not names:
        return found
    for name in names:

        def note(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = name) -> None:
            found[name] = (args, kwargs)

        model.get_submodule(name).register_forward_pre_hook(note, with_kwargs=True)
    model(*args, **options)
    return found


def _fuse_run(graph: GraphModule, run: list[LayerCall], inputs: dict[str, Given]) -> list[Decision]:
    """Take each layer of a run into the one before, if that pays; else begin anew with it."""
    decisions, start, here = [], run[0], run[0].conv
    given = inputs[start.name]
    spent, names = _seconds(here, given), start.name
    for call in run[1:]:
        alone = _seconds(call.conv, inputs[call.name])
        reasons = tuple(why_not_composed(here, call.conv))
        decision = Decision(names, call.name, reasons)
        if not reasons:
            both = compose(here, call.conv)
            composed = _seconds(both, given)
            decision = Decision(names, call.name, (), spent + alone, composed)
        decisions.append(decision)
        if decision.is_fused:
            here, spent, names = both, composed, f"{names} + {call.name}"
            _replace(graph, start.node, call.node, both)
        else:
            start, here, given = call, call.conv, inputs[call.name]
            spent, names = alone, call.name
    return decisions


def _seconds(conv: OuterConv, given: Given) -> float:
    args, options = given
    return conv.contraction_path(*args, **options).seconds


def _replace(graph: GraphModule, first: Node, second: Node, conv: OuterConv) -> None:
    """Let the first call be one of ``conv``, whose output is read for the second's."""
    parent, _, name = str(first.target).rpartition(".")
    setattr(graph.get_submodule(parent), name, conv)
    second.replace_all_uses_with(first)
    graph.graph.erase_node(second)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
