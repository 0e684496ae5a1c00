"""Replace runs of linear convolutions in a model by one, if that is predicted to be cheaper."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch_geometric
from torch.fx import Graph, GraphModule, Node, Tracer

from ..errors import RefusedValue
from .compose import compose, why_not_composed
from .linear_runs import LayerCall, left_pairs, linear_runs, remove_unread
from .outer_conv import OuterConv


@dataclass(frozen=True)
class Decision:
    """Whether a convolution was fused with those before it, and why.

    Attributes:
        first, second: the names of the layers in the model.
        reasons: why they cannot be fused; empty if they can.
        chained, composed: predicted seconds of both in turn, and of their composition.
    """

    first: str
    second: str
    reasons: tuple[str, ...] = ()
    chained: float = 0.0
    composed: float = 0.0

    @property
    def is_fused(self) -> bool:
        """Whether the two layers were fused."""
        return not self.reasons and self.composed < self.chained

    def __str__(self) -> str:
        pair = f"{self.first}, {self.second}"
        if self.reasons:
            return f"{pair}: left, {'; '.join(self.reasons)}"
        what = "fused" if self.is_fused else "left"
        return f"{pair}: {what}, {_ms(self.chained)} in a chain, {_ms(self.composed)} composed"


@dataclass(frozen=True)
class FusionReport:
    """The decisions of :func:`fuse`; printed, a line for each pair of layers.

    A pair is an ``OuterConv`` and the nearest ``OuterConv`` from which its x is computed.

    Attributes:
        decisions: one for each pair, in the order of the model's calls.
        has_convolutions: whether the model contains an ``OuterConv``.
    """

    decisions: tuple[Decision, ...]
    has_convolutions: bool = True

    @property
    def num_fused(self) -> int:
        """The number of layers that were removed."""
        return sum(decision.is_fused for decision in self.decisions)

    def __str__(self) -> str:
        if not self.has_convolutions:
            return "the model has no OuterConv"
        lines = [str(decision) for decision in self.decisions]
        return "\n".join(lines or ["no convolution is seen to follow another"])


class Fused(NamedTuple):
    """The result of :func:`fuse`: the model, and the report of its decisions."""

    model: torch.nn.Module
    report: FusionReport


def fuse(model: torch.nn.Module, *example_inputs: Any, **example_options: Any) -> Fused:
    """A copy of a model in which successive linear convolutions are composed, if that is cheaper.

    Layers are composed if only identities or inactive dropout are between them, no other module
    reads the intermediate result, and their other arguments are equal. The cost model compares the
    chain with :func:`~pyg_outerconv.nn.compose` for the given inputs: the forward pass in
    evaluation mode, both passes in training mode.

    In evaluation mode dropout between fused layers is removed for good: the result is for
    inference.

    Args:
        model: ``torch.nn.Sequential``, PyG's ``Sequential``, or any module that ``torch.fx`` can
            trace with layers as leaves. It is not changed.
        *example_inputs, **example_options: arguments of a call, of typical sizes.

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
    """The arguments of each layer in one call of the model. The call may change its buffers."""
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
    """Compose each layer of a run with those before it, if that is cheaper; else start with it."""
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
    """Replace the layer of the first call by ``conv``, and read its output for the second's."""
    parent, _, name = str(first.target).rpartition(".")
    setattr(graph.get_submodule(parent), name, conv)
    second.replace_all_uses_with(first)
    graph.graph.erase_node(second)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


class _Tracer(Tracer):
    """Traces into users' modules and containers, and treats layers as leaves."""

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        """Whether a module is a layer of torch or PyG, not a container, or a MessagePassing."""
        if isinstance(module, torch_geometric.nn.Sequential):
            return False
        if isinstance(module, torch_geometric.nn.MessagePassing):
            return True
        of_pyg = module.__module__.startswith("torch_geometric.nn")
        return of_pyg or super().is_leaf_module(module, name)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """Name the arguments of PyG's Sequential, whose forward takes ``*args``."""
        if isinstance(self.root, torch_geometric.nn.Sequential):
            names = self.root.signature.param_dict
            made = [self.create_proxy("placeholder", name, (), {}) for name in names]
            return root_fn, [self.root, *made]
        return super().create_args_for_root(root_fn, is_module, concrete_args)


def traced(model: torch.nn.Module) -> GraphModule:
    """The model as a graph of calls of its layers.

    Raises:
        ValueError: ``torch.fx`` cannot trace it; or it calls a function with ``training=True``,
            which the graph would keep after ``eval()``.
    """
    try:
        graph: Graph = _Tracer().trace(model)
    except Exception as error:  # a model can fail in any way on symbolic values
        raise RefusedValue(
            "layers are fused in models that torch.fx can trace",
            "a forward without branches on values",
            f"{type(error).__name__}: {error}",
        ) from error
    for node in graph.nodes:
        if node.op == "call_function" and node.kwargs.get("training") is True:
            raise RefusedValue(
                "a traced model keeps the value of training=, whatever train() and eval() say",
                "a module such as torch.nn.Dropout, or model.eval() before",
                f"{node.target.__name__} in training mode",
            )
    return GraphModule(model, graph)
