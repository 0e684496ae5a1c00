"""Which modules are public, the functions and classes that they list, and those never called."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import pyg_outerconv as po
from pyg_outerconv import attention, contract, families, graph, kernels, nn, pyg, scale
from pyg_outerconv.attention import IndexTerm
from pyg_outerconv.families import EdgeFunction
from pyg_outerconv.nn.recurrent import RecurrentCell

ROOMS = (
    "pyg_outerconv",
    *(
        f"pyg_outerconv.{room}"
        for room in [
            "attention",
            "basis",
            "contract",
            "families",
            "graph",
            "kernels",
            "nn",
            "nn.attention",
            "nn.convert",
            "nn.recurrent",
            "plot",
            "pyg",
            "scale",
            "testing",
            "transforms",
        ]
    ),
)


def public_names() -> dict[str, Any]:
    """Every function and class that a room lists, by the first of its names."""
    objects: dict[int, str] = {}
    listed: dict[str, Any] = {}
    for room in ROOMS:
        module = import_module(room)
        for name in module.__all__:
            one = getattr(module, name)
            callable_ = inspect.isclass(one) or inspect.isroutine(one)
            if callable_ and id(one) not in objects:
                objects[id(one)] = listed_name = f"{room}.{name}".removeprefix("pyg_outerconv.")
                listed[listed_name] = one
    return listed


RECORDS = (
    attention.Dot,
    attention.EdgeContext,
    attention.PerHead,
    contract.ContractionPath,
    contract.Cost,
    contract.Problem,
    graph.SparseMatrix,
    kernels.Call,
    kernels.NodeBlocks,
    kernels.Request,
    nn.LabelTerms,
    pyg.Explanation,
    pyg.Report,
    scale.Sample,
)
PROTOCOLS = (IndexTerm, EdgeFunction)
BASES = (
    attention.AddedPositions,
    attention.FeatureMap,
    attention.QueryModule,
    contract.Order,
    families.ContentFamily,
    families.Family,
    graph.Structure,
    kernels.Backend,
    nn.ThetaModule,
    po.Basis,
    pyg.DropIn,
    RecurrentCell,
    scale.Sampler,
)


def why_apart(one: Any) -> str | None:
    """Why a public name is not called; None if it is."""
    if one in RECORDS:
        return "a record that calls return, or hand to code of one's own"
    if one in PROTOCOLS:
        return "a protocol"
    if one in BASES:
        return "a base class"
    if inspect.isclass(one) and issubclass(one, pyg.DropIn):
        return "its constructor is PyG's, and refuses as PyG's does"
    if inspect.isclass(one) and issubclass(one, Warning):
        return "a warning"
    return None
