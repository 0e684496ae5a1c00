"""All of PyG's convolutions: which are equal to a class here, and what the others have."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import Module
from torch_geometric import nn as pyg
from torch_geometric.nn import conv as convolutions

from ..errors import RefusedValue, unknown
from .equivalents import ABSENT
from .layer import OURS, THEIRS

EQUAL, TRICK, NONE = "equal", "equal with a trick", "no equal form"


@dataclass(frozen=True)
class Entry:
    """A convolution of PyG.

    Attributes:
        name: its class.
        kind: ``'equal'``, ``'equal with a trick'`` or ``'no equal form'``.
        text: its equation and the trick, or the term that has no counterpart.
    """

    name: str
    kind: str
    text: str


def entries() -> list[Entry]:
    """Every class of ``torch_geometric.nn.conv``, in PyG's order."""
    return [_entry(name) for name in convolutions.__all__ if name != "MessagePassing"]


def _entry(name: str) -> Entry:
    ours = OURS.get(getattr(pyg, name, Module))
    if ours is None:
        return Entry(name, NONE, ABSENT.get(name, "not known to this version"))
    trick = getattr(ours, "trick", "")
    text = (inspect.getdoc(ours) or "").split("\n\n")[0].replace("\n", " ")
    text = re.sub(r":class:`([^`]+)`", r"\1", text).replace("``", "")
    return Entry(name, TRICK if trick else EQUAL, f"{text} {trick}".strip())


_ARGUMENTS: dict[str, Any] = {
    "in_channels": 16,
    "out_channels": 8,
    "channels": 16,
    "num_relations": 3,
    "K": 3,
    "alpha": 0.1,
    "dim": 2,
    "kernel_size": 3,
    "edge_dim": 4,
    "hidden_channels": 8,
    "num_layers": 2,
    "first_aggr": True,
}


def example(name: str) -> Module:
    """A layer of ours of that class, with small numbers for the arguments it needs.

    Raises:
        ValueError: there is no such class here; the error says why.
    """
    kinds = {kind.__name__: kind for kind in THEIRS}
    if name not in kinds:
        if name in ABSENT:
            raise RefusedValue(f"{name} has no equal form: {ABSENT[name]}")
        raise RefusedValue(unknown("convolution of PyG", name, sorted({*kinds, *ABSENT})))
    given = dict(_ARGUMENTS)
    given["nn"] = torch.nn.Linear(4 if name == "NNConv" else 16, 128 if name == "NNConv" else 8)
    if name == "DirGNNConv":
        given["conv"] = pyg.GCNConv(16, 8)
    parameters = inspect.signature(kinds[name]).parameters.values()
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]
    return kinds[name](**{one: given[one] for one in needed})
