"""Trace a model with torch.fx, with its layers as leaves."""

from __future__ import annotations

from typing import Any

import torch
import torch_geometric
from torch.fx import Graph, GraphModule, Tracer

from ..errors import RefusedValue, refusal


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
