"""Find the places of a traced model where one convolution reads the output of another."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from .outer_conv import OuterConv


@dataclass(frozen=True)
class LayerCall:
    """One call of a convolution in a traced model.

    Attributes:
        node: the node of the call in the graph.
        conv: the layer that is called.
        given: the arguments by name; each a value or the node that computes it.
    """

    node: Node
    conv: OuterConv
    given: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the layer in the model."""
        return str(self.node.target)

    @property
    def beside(self) -> dict[str, Any]:
        """All arguments except x."""
        return {name: value for name, value in self.given.items() if name != "x"}


class Left(NamedTuple):
    """Two calls of which the second reads the first, with the reasons why they are not fused."""

    first: LayerCall
    second: LayerCall
    reasons: tuple[str, ...]


def linear_runs(model: GraphModule) -> list[list[LayerCall]]:
    """Runs of calls: the x of each is the output of the call before, which nothing else reads.

    All other arguments must be equal. A layer that is called at several places is in no run.
    Identity modules and inactive dropout may be between two calls.
    """
    calls = _calls(model)
    times = Counter(call.conv for call in calls.values())
    runs: list[list[LayerCall]] = []
    run_of: dict[Node, list[LayerCall]] = {}
    for call in calls.values():
        before = calls.get(_source(model, call.given.get("x")))
        follows = before is not None and times[call.conv] == times[before.conv] == 1
        if before is not None and follows and _is_same(before.beside, call.beside):
            run = run_of[before.node]
        else:
            run = []
            runs.append(run)
        run.append(call)
        run_of[call.node] = run
    return [run for run in runs if len(run) > 1]


def left_pairs(model: GraphModule, runs: list[list[LayerCall]]) -> list[Left]:
    """Pairs of successive calls that are in no run together, with every reason."""
    calls = _calls(model)
    times = Counter(call.conv for call in calls.values())
    in_runs = {(a.node, b.node) for run in runs for a, b in pairwise(run)}
    left = []
    for second in calls.values():
        for first, between in _nearest(calls, second):
            if (first.node, second.node) not in in_runs:
                reasons = _operations_between(model, between)
                reasons += _different_inputs(model, first, second, between)
                for conv, name in {first.conv: first.name, second.conv: second.name}.items():
                    if times[conv] > 1:
                        reasons.append(f"{name} is used at {times[conv]} places")
                left.append(Left(first, second, tuple(reasons)))
    return left


def remove_unread(model: GraphModule) -> None:
    """Remove unused attributes and identities; other calls may have side effects, and stay."""

    def is_kept(node: Node) -> bool:
        free = node.op == "get_attr" or _reads_part(node) or _changes_nothing(model, node)
        return not free

    model.graph.eliminate_dead_code(is_kept)
    model.delete_all_unused_submodules()
    model.recompile()


def _calls(model: GraphModule) -> dict[Node, LayerCall]:
    return {node: call for node in model.graph.nodes if (call := _call(model, node)) is not None}


def _call(model: GraphModule, node: Node) -> LayerCall | None:
    if node.op != "call_module":
        return None
    module = model.get_submodule(str(node.target))
    if not isinstance(module, OuterConv):
        return None
    forward: Callable[..., Any] = module.forward
    bound = inspect.signature(forward).bind(*node.args, **node.kwargs)
    given = {name: value for name, value in bound.arguments.items() if value is not None}
    return LayerCall(node, module, given)


def _source(model: GraphModule, x: Any) -> Any:
    """The node whose output x is, identities skipped; None if another node reads it too."""
    while isinstance(x, Node):
        if len(x.users) != 1:
            return None
        if not _changes_nothing(model, x):
            return x
        x = next(iter(x.all_input_nodes), None)
    return None


def _changes_nothing(model: GraphModule, node: Node) -> bool:
    if node.op == "call_function":
        return node.target is torch.nn.functional.dropout and node.kwargs.get("training") is False
    if node.op != "call_module":
        return False
    module = model.get_submodule(str(node.target))
    if isinstance(module, torch.nn.Dropout):
        return not module.training or module.p == 0.0
    return isinstance(module, torch.nn.Identity)


def _nearest(
    calls: dict[Node, LayerCall], call: LayerCall
) -> list[tuple[LayerCall, tuple[Node, ...]]]:
    """The calls from which x is computed in the fewest steps, each with the nodes between."""
    starts: dict[Node, None] = {}
    map_arg(call.given.get("x"), starts.setdefault)
    seen = set(starts)
    paths: list[tuple[Node, ...]] = [(node,) for node in starts]
    while paths:
        found = [(calls[path[0]], path[1:]) for path in paths if path[0] in calls]
        if found:
            return found
        longer = []
        for path in paths:
            for node in path[0].all_input_nodes:
                if node not in seen:
                    seen.add(node)
                    longer.append((node, *path))
        paths = longer
    return []


def _operations_between(model: GraphModule, between: tuple[Node, ...]) -> list[str]:
    """The reason that names the operations between two calls, other than identities."""
    names = [_title(model, node) for node in between if not _changes_nothing(model, node)]
    more = [f"{len(names) - 4} more"] if len(names) > 4 else []
    lies = "lies" if len(names) == 1 else "lie"
    return [f"{', '.join(names[:4] + more)} {lies} between them"] if names else []


def _title(model: GraphModule, node: Node) -> str:
    if node.op != "call_module":
        return str(getattr(node.target, "__name__", node.target))
    module = model.get_submodule(str(node.target))
    if isinstance(module, torch.nn.Dropout):
        return "dropout in training mode"
    return type(module).__name__


def _different_inputs(
    model: GraphModule, first: LayerCall, second: LayerCall, between: tuple[Node, ...]
) -> list[str]:
    """Reasons if the first output has other readers, or the arguments of the calls differ."""
    reasons, node = [], first.node
    for after in between:
        if len(node.users) != 1 or not _changes_nothing(model, after):
            break
        node = after
    if len(node.users) != 1:
        reasons.append("the first one's output is read elsewhere too")
    if not isinstance(second.given["x"], Node):
        reasons.append("the second reads a pair of features")
    ours, theirs = first.beside, second.beside
    for name in dict.fromkeys([*ours, *theirs]):
        if not _is_same(ours.get(name), theirs.get(name)):
            what = "edges" if name == "edge_index" else name
            reasons.append(f"they are not seen to be given the same {what}")
    return reasons


def _is_same(one: Any, other: Any) -> bool:
    """Whether two arguments are the same value; an attribute has a node for each access."""
    if isinstance(one, Node) and isinstance(other, Node):
        if one is other:
            return True
        if one.op == other.op == "get_attr":
            return one.target == other.target
        parts = _is_part(one) and _is_part(other) and one.target is other.target
        return parts and _is_same(one.args, other.args)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_same(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    return bool(one == other)


def _is_part(node: Node) -> bool:
    """Whether a node reads an attribute or item of an object that no call can have changed."""
    return _reads_part(node) and all(
        _reads_part(user) or user.op == "output"
        for parent in node.all_input_nodes
        for user in parent.users
    )


def _reads_part(node: Node) -> bool:
    return node.op == "call_function" and node.target in (getattr, operator.getitem)
