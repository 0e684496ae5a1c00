"""Where a model applies one linear convolution right after another, as ``torch.fx`` sees it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_geometric
from torch.fx import Graph, GraphModule, Node, Tracer

from ..errors import RefusedValue, refusal
from .outer_conv import OuterConv


@dataclass(frozen=True)
class Call:
    """One call of a convolution in a model.

    Attributes:
        node: where.
        conv: which.
        given: its arguments by name, values or other nodes.
    """

    node: Node
    conv: OuterConv
    given: dict[str, Any]

    @property
    def name(self) -> str:
        """What the model calls the layer."""
        return str(self.node.target)

    @property
    def beside(self) -> dict[str, Any]:
        """All arguments but x."""
        return {name: value for name, value in self.given.items() if name != "x"}


class _Tracer(Tracer):
    """Goes into modules of users and containers, and stops at layers."""

    def is_leaf_module(self, module: torch.nn.Module, name: str) -> bool:
        """Whether it is a layer: one of torch or of PyG that is no container, or of messages."""
        if isinstance(module, torch_geometric.nn.Sequential):
            return False
        if isinstance(module, torch_geometric.nn.MessagePassing):
            return True
        of_pyg = module.__module__.startswith("torch_geometric.nn")
        return of_pyg or super().is_leaf_module(module, name)

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """PyG's Sequential takes ``*args``, and says by its signature which they are."""
        if isinstance(self.root, torch_geometric.nn.Sequential):
            names = self.root.signature.param_dict
            made = [self.create_proxy("placeholder", name, (), {}) for name in names]
            return root_fn, [self.root, *made]
        return super().create_args_for_root(root_fn, is_module, concrete_args)


def traced(model: torch.nn.Module) -> GraphModule:
    """The model as a graph of calls, with its layers as they are.

    Raises:
        ValueError: ``torch.fx`` cannot read it; or it is in training mode and calls a function
            whose switch for training would stay as it is now.
    """
    try:
        graph: Graph = _Tracer().trace(model)
    except Exception as error:  # whatever a model does with a symbolic value
        raise RefusedValue(
            refusal(
                "layers are fused in models that torch.fx can trace",
                "a forward without branches on values",
                f"{type(error).__name__}: {error}",
            )
        ) from error
    for node in graph.nodes:
        if node.op == "call_function" and node.kwargs.get("training") is True:
            raise RefusedValue(
                refusal(
                    "a traced model keeps the value of training=, whatever train() and eval() say",
                    "a module such as torch.nn.Dropout, or model.eval() before",
                    f"{node.target.__name__} in training mode",
                )
            )
    return GraphModule(model, graph)


def linear_runs(model: GraphModule) -> list[list[Call]]:
    """Calls of which each one's x is the output of the one before, and nobody else reads it.

    Arguments beside x have to be the same. Of one layer that is called at several places none is
    in a run. Identities, and dropout that is switched off, may lie between.
    """
    calls = {node: call for node in model.graph.nodes if (call := _call(model, node)) is not None}
    times: dict[OuterConv, int] = {}
    for call in calls.values():
        times[call.conv] = times.get(call.conv, 0) + 1
    runs: list[list[Call]] = []
    for call in calls.values():
        before = calls.get(_source(model, call.given.get("x")))
        alone = times[call.conv] == 1
        if before is not None and alone and before.beside == call.beside:
            for run in runs:
                if run[-1] is before and times[before.conv] == 1:
                    run.append(call)
                    break
            else:
                runs.append([call])
        else:
            runs.append([call])
    return [run for run in runs if len(run) > 1]


def _call(model: GraphModule, node: Node) -> Call | None:
    if node.op != "call_module":
        return None
    module = model.get_submodule(str(node.target))
    if not isinstance(module, OuterConv):
        return None
    forward: Callable[..., Any] = module.forward
    bound = inspect.signature(forward).bind(*node.args, **node.kwargs)
    given = {name: value for name, value in bound.arguments.items() if value is not None}
    return Call(node, module, given)


def _source(model: GraphModule, x: Any) -> Any:
    """Whose output x is, past what changes nothing; None where somebody else reads it too."""
    while isinstance(x, Node):
        if len(x.users) != 1:
            return None
        if not _changes_nothing(model, x):
            return x
        x = x.args[0] if x.args else None
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
