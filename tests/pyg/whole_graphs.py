"""Which classes torch.compile makes one graph of, PyG's and ours."""

from __future__ import annotations

from typing import Any

import torch
from pyg.cases import CASES
from pyg.parity import Drawn, graphs, layers, tensors

FAILURES = (torch._dynamo.exc.TorchDynamoException, torch._dynamo.exc.UserError)


def example(name: str) -> tuple[Any, ...]:
    """The first call of a case, on a graph with self-loops and parallel edges."""
    torch.manual_seed(5)
    return next(iter(CASES[name].calls.values()))(Drawn(graphs()["multi-edge"], torch.float32))


def whole(layer: Any, arguments: tuple[Any, ...]) -> Any:
    """What a layer gives compiled as one graph for all sizes; None if it cannot be one."""
    torch._dynamo.reset()
    try:
        out = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")(*arguments)
    except FAILURES:
        return None
    losses = [one.sum() for one in tensors(out) if one.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    return out


def recorded(layer: Any, **options: Any) -> tuple[Any, list[str]]:
    """A layer compiled as one graph, and a list of what each graph that is made of it calls."""
    called: list[str] = []

    def backend(module: Any, inputs: Any) -> Any:
        called.extend(str(node.target) for node in module.graph.nodes)
        return module

    torch._dynamo.reset()
    return torch.compile(layer, backend=backend, fullgraph=True, **options), called


def compiles(name: str) -> tuple[str, ...]:
    """For PyG's class and ours, by the contraction and by itself: ``'yes'`` or ``'no'``."""
    answers = []
    for kind in ("theirs", "ours", "small"):
        their_layer, our_layer = layers(CASES[name], {}, torch.float32)
        layer = their_layer if kind == "theirs" else our_layer.eval()
        layer.eval()
        if kind == "ours":
            our_layer.least = our_layer.least_of_matrices = 0
        answers.append("no" if whole(layer, example(name)) is None else "yes")
    return tuple(answers)


def line(name: str) -> str:
    """The row of a class in the table."""
    theirs, ours, small = compiles(name)
    return f"| `{name}` | {theirs} | {ours} | {small} |\n"
