"""How PyG's layer for a family is made, begins, and is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.nn import Module
from torch_geometric.data import Data

from ....errors import RefusedValue


@dataclass(frozen=True)
class Recipe:
    """How PyG makes the layer, how it begins as ours, and what it is called with beside x.

    Attributes:
        name: of the layer.
        make: makes it from its input and output channels.
        begin: gives it the parameters of our layer, its second argument.
        arguments: of its ``forward`` beside x.
        reads_no_features: whether x may be None.
        takes_sparse: whether x may be a CSR matrix, which it multiplies with its weights first.
        note: a remark on the comparison, or empty.
    """

    name: str
    make: Callable[[int, int], Module]
    begin: Callable[[Any, Any], None]
    arguments: dict[str, Any]
    reads_no_features: bool = False
    takes_sparse: bool = False
    note: str = ""


def no_peer(expected: str, got: str) -> RefusedValue:
    """The refusal of a family or of settings that no layer of PyG's has."""
    rule = "PyG has no layer that is this convolution, leave --peer out"
    return RefusedValue(rule, expected, got)


def edges_of(data: Data) -> dict[str, Any]:
    """The edges of a graph, with their weights if there are any."""
    return {"edge_index": data.edge_index, "edge_weight": data.get("edge_weight")}
