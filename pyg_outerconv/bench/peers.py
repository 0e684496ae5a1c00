"""The peers: import them where installed, and helpers that several cases share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.utils import to_torch_csr_tensor

from .context import Context
from .names import DGL, PYG_COMPILED, SCATTER

_MODULES = {SCATTER: "torch_scatter", DGL: "dgl"}


def load_peer(name: str, absent: dict[str, str]) -> Any:
    """The module of a peer, or None with the reason put into ``absent``."""
    try:
        return importlib.import_module(_MODULES[name])
    except Exception as error:  # an extension built for another torch fails in its own ways
        missing = isinstance(error, ModuleNotFoundError) and error.name == _MODULES[name]
        absent[name] = "not installed" if missing else f"{type(error).__name__}: {error}"
        return None


def compiled(
    step: Callable[..., Tensor], context: Context, absent: dict[str, str]
) -> Callable[..., Tensor] | None:
    """PyG's layer under ``torch.compile``, or None with the reason put into ``absent``."""
    if context.quick:
        absent[PYG_COMPILED] = "left out of a quick run, which compiling would take most of"
        return None
    torch.compiler.reset()  # layers of one class share a bound on how often they are compiled
    return torch.compile(step)


def adjacency(edge_index: Tensor, weight: Tensor | None, nodes: int) -> Tensor:
    """The transposed matrix of some edges as torch CSR, which PyG's layers take as ``adj_t``."""
    matrix: Tensor = to_torch_csr_tensor(edge_index.flip(0), weight, size=(nodes, nodes))
    return matrix


def set_parameter(parameter: Tensor, value: Tensor) -> None:
    """Give one layer the weights of another."""
    with torch.no_grad():
        parameter.copy_(value)
