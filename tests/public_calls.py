"""A valid call of every public function and class, by room and name.

``CALLS`` has one entry for each name that ``public_names.py`` finds, made anew by each look-up, so
that no call sees what another one changed. What a call needs is found by the names of its
arguments; a new public name needs an entry of ``OWN`` where these do not say it.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp
import torch
from public_names import public_names, why_apart
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import pyg_outerconv as po
from pyg_outerconv import (
    attention,
    basis,
    families,
    graph,
    kernels,
    nn,
    pyg,
    scale,
    transforms,
)
from pyg_outerconv.scale.mapped import open_mapped


class Call(NamedTuple):
    """What is called, with its arguments; those of any number first."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    several: tuple[Any, ...] = ()

    def __call__(self) -> Any:
        return self.function(*self.several, **self.arguments)


EDGE_INDEX = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 2]])
CPU = torch.device("cpu")


def x(*shape: int) -> Tensor:
    """Features: by default (4, 3)."""
    return torch.linspace(-1.0, 1.0, 12).view(4, 3) if not shape else torch.ones(shape)


def edges() -> graph.Graph:
    return graph.Graph.read(EDGE_INDEX, size=(4, 4))


def pattern() -> po.Pattern:
    return po.Pattern.build(EDGE_INDEX, size=(4, 4))


def edge_basis(num_labels: int = 1) -> po.EdgeBasis:
    label = torch.arange(4) % num_labels
    return po.EdgeBasis(
        po.Pattern.build(EDGE_INDEX, label, size=(4, 4), num_labels=num_labels), torch.ones(4)
    )


def matrix() -> kernels.CSR:
    return pattern().by_target


def conv(out: int = 4, family: str = "gcn", **options: Any) -> po.OuterConv:
    return po.OuterConv(3, out, family, **options)


def data() -> Data:
    return Data(x=x(), edge_index=EDGE_INDEX, num_nodes=4)


def hetero() -> HeteroData:
    nodes: Any = {"a": {"x": x()}, "b": {"x": x()}}
    return HeteroData(nodes | {("a", "to", "b"): {"edge_index": EDGE_INDEX}})


def carried() -> scale.Carried:
    return scale.Carried(families.GCN(), edges())


def entered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a context manager that enters it."""

    def enter(*args: Any, **options: Any) -> None:
        with function(*args, **options):
            pass

    enter.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return enter


@cache
def mapped_folder() -> Path:
    folder = Path(tempfile.mkdtemp()) / "graph"
    scale.generate(folder, nodes=40, edges=80, features=4, classes=2, log=lambda line: None)
    return folder


# What an argument of this name is, where a call needs one. Modules and tensors are made anew.
PLAIN: dict[str, Any] = {
    **dict.fromkeys(("in_channels", "num_entries", "num_terms", "num_functions", "reach"), 3),
    **dict.fromkeys(("out_channels", "hidden_channels", "channels", "embed_dim", "rank"), 4),
    **dict.fromkeys(("heads", "num_heads", "num_layers", "num_labels", "num_queries"), 2),
    **dict.fromkeys(("window", "stride", "count", "k", "length", "dim", "parts"), 2),
    "batch_size": 2,
    **dict.fromkeys(("left", "right", "tokens", "seed"), 1),
    "alpha": 0.1,
    "edge_index": EDGE_INDEX,
    "family": families.GCN(),
    "fan_outs": [2],
    "kernel_size": (2, 2),
    "name": "reference",
    "num_features": 6,
    "num_sources": 4,
    "num_targets": 5,
    "on": CPU,
    "device": CPU,
    "shape": (4, 5),
    "size": (4, 4),
    "text": "walk(length=2)",
}
MADE: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("basis", "base", "operator"), edge_basis),
    **dict.fromkeys(("first", "second", "third", "fourth"), edge_basis),
    "carried": carried,
    "conv": conv,
    "csr": matrix,
    "data": data,
    "edges": edges,
    "model": lambda: pyg.to_pyg(pyg.GCNConv(3, 4)),
    "pattern": pattern,
    "structure": edges,
    "theta": lambda: torch.ones(2, 1, 3, 5),
    "value": lambda: torch.ones(4),
    "x": x,
}


def _double(basis: po.EdgeBasis) -> po.EdgeBasis:
    return basis.to(torch.float64)


def _numbers(*names: str, like: tuple[int, ...] = (4, 2, 3)) -> dict[str, Tensor]:
    return {name: torch.ones(like) for name in names}


def _on_disk(**more: Any) -> dict[str, Any]:
    return {"graph": open_mapped(mapped_folder()), **more}


_BLOCKS = {"source_block": torch.tensor([0, 0, 1]), "target_block": torch.tensor([0, 1])}
_NODES = {"sources": torch.tensor([0, 1]), "targets": None}
_QKV = ("query", "key", "value")

# By the name of a call, what differs in it: arguments, made anew, or plain ones.
OWN: dict[str, Callable[[], dict[str, Any]]] = {
    "Cells": lambda: {"index": torch.tensor([[0, 1], [2, 0]]), "shape": (3, 3)},
    "EdgeBasis": lambda: {"value": torch.ones(4)},
    "Grid": lambda: {"window": (3, 3)},
    "Pool": lambda: {"window": (2, 2)},
    "compose": lambda: {"first": conv(4), "second": po.OuterConv(4, 2, "gcn")},
    "flatten_grid": lambda: {"images": torch.ones(2, 3, 4, 4)},
    "unflatten_grid": lambda: {"nodes": torch.ones(2, 12, 3), "shape": (3, 4)},
    "attention.EdgeFeatures": lambda: {"in_channels": 2},
    "attention.GraphPositions": lambda: {"kind": "random-walk"},
    "attention.LearnedPositions": lambda: {"shape": 5},
    "attention.Projection": lambda: {"in_channels": 2},
    "attention.make_normaliser": lambda: {"spec": "softmax"},
    "attention.make_score": lambda: {"spec": "gatv2", "channels": 3},
    "attention.sinusoidal": lambda: {"position": torch.arange(4)},
    "basis.Band": lambda: {"left": 1, "right": 1},
    "basis.ChannelPolynomial": lambda: _numbers("alpha", "beta", "gamma", like=(3, 2)),
    "basis.Mixed": lambda: {"base": edge_basis(2), "matrix": torch.ones(3, 2)},
    "basis.MultiHeadEdges": lambda: {"value": torch.ones(4, 2)},
    "basis.Polynomial": lambda: {"recurrence": basis.MONOMIAL},
    "basis.Recurrence": lambda: {"name": "chebyshev", "first": 1.0, "alpha": 2.0, "gamma": 1.0},
    "basis.Repeated": lambda: {"before": 2},
    "basis.Restricted": lambda: dict(_NODES),
    "basis.SameBlock": lambda: dict(_BLOCKS),
    "basis.Stacked": lambda: {"parts": (edge_basis(), edge_basis())},
    "basis.to_edge_index": lambda: {"basis": edge_basis(2)},
    **dict.fromkeys(
        ("contract.contract", "contract.contraction_path", "testing.assert_edges_alone_carry"),
        lambda: {"basis": edge_basis(2)},
    ),
    **dict.fromkeys(
        ("testing.dense_contraction", "testing.legal_orders"), lambda: {"basis": edge_basis(2)}
    ),
    "families.Attention": lambda: {
        "score": attention.make_score("gatv2", 2, 3),
        "support": families.Hops(),
        "normalise": attention.Softmax(),
    },
    "families.Kernel": lambda: {"fn": nn.GaussianMixture(2, 3)},
    "graph.Assignment": lambda: {
        "criteria": graph.Assignment.read(torch.tensor([0, 1, 0])).criteria,
        "size": (3, 2),
    },
    "graph.Graph": lambda: {"size": (4, 4)},
    "graph.NodeSet": lambda: {"num_nodes": (3, 3)},
    "graph.fold": lambda: {"matrix": torch.ones(3, 8), "mode": 0, "shape": (3, 4, 2)},
    "graph.from_hetero": lambda: {"data": hetero()},
    "graph.from_networkx": lambda: {"graph": basis.to_networkx(edge_basis())},
    "graph.from_scipy": lambda: {"matrices": sp.eye_array(4).tocsr()},
    "graph.places_within": lambda: {"group": torch.tensor([0, 0, 1])},
    "graph.positions_of": lambda: {"structure": po.Cells.of_shape((2, 2))},
    "graph.relative_positions": lambda: {"positions": (x(), x())},
    "graph.unfold": lambda: {"x": torch.ones(3, 4, 2), "mode": 0},
    "kernels.CSR": lambda: {"ptr": matrix().ptr, "index": matrix().index, "num_columns": 4},
    "kernels.additive": lambda: {**_numbers("a", "b"), "weight": torch.ones(2, 3)},
    **dict.fromkeys(("kernels.attend", "kernels.attend_all"), lambda: _numbers(*_QKV)),
    "kernels.attend_band": lambda: {**_numbers(*_QKV), "left": 1, "right": 1},
    "kernels.attend_blocks": lambda: {
        **_numbers(*_QKV),
        "blocks": kernels.blocks_of(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 0])),
    },
    "kernels.blocks_of": lambda: dict(_BLOCKS),
    "kernels.grouped_matmul": lambda: {
        "ptr": torch.tensor([0, 2, 4]),
        "theta": torch.ones(2, 3, 5),
    },
    "kernels.sddmm": lambda: {"a": x(), "b": x()},
    "kernels.segment_softmax": lambda: {"score": torch.ones(4, 2)},
    "nn.BSpline": lambda: {"kernel_size": 4},
    "nn.BlockStack": lambda: {"blocks": [nn.EncoderBlock(4, 2)]},
    "nn.ComposedConv": lambda: {"family": families.Compose()},
    "nn.EncoderDecoder": lambda: {
        "encoder": nn.BlockStack([nn.EncoderBlock(4, 2)]),
        "decoder": nn.BlockStack([nn.DecoderBlock(4, 2)]),
    },
    "nn.OuterGNN": lambda: {"family": families.GCN()},
    "nn.GridConv": lambda: {"kernel_size": (3, 3)},
    **dict.fromkeys(
        ("nn.fold_output", "nn.factor_output"), lambda: {"conv": nn.transformer_conv(3, 4)}
    ),
    "nn.long_sequence_block": lambda: {"window": 3},
    "nn.make_theta": lambda: {"spec": "full"},
    "nn.unroll": lambda: {"cell": nn.ConvGRUCell(3, 4, "gcn"), "xs": torch.ones(2, 4, 3)},
    "nn.attention.GraphAttention": lambda: {"edge_dim": None},
    "nn.convert.from_torch": lambda: {"module": torch.nn.Conv2d(3, 4, 3)},
    "pyg.DirGNNConv": lambda: {"conv": pyg.GCNConv(3, 4)},
    "pyg.explain": lambda: {"layer": pyg.GCNConv(3, 4)},
    "pyg.outer_conv": lambda: {"layer": pyg.to_pyg(pyg.GCNConv(3, 4))},
    "pyg.restore": lambda: {"model": torch.nn.Sequential(pyg.GCNConv(3, 4))},
    "pyg.to_pyg": lambda: {"model": pyg.GCNConv(3, 4)},
    "scale.Clusters": lambda: {"cluster": torch.tensor([0, 0, 1, 1])},
    **dict.fromkeys(("scale.carried_by", "scale.clusters_of"), _on_disk),
    "scale.generate": lambda: {
        "folder": Path(tempfile.mkdtemp()) / "graph",
        "nodes": 40,
        "edges": 80,
        "features": 4,
        "classes": 2,
        "log": lambda line: None,
    },
    "testing.assert_backend_equals_reference": lambda: {
        "backend": "native",
        "dtype": torch.float64,
        "channels": 2,
        "tolerance": 1e-6,
    },
    "testing.assert_batch_equals_graphs": lambda: {"graphs": [data(), data()]},
    "testing.assert_contraction": lambda: {
        "basis": _double(edge_basis(2)),
        "x": x().double(),
        "theta": torch.ones(2, 1, 3, 5, dtype=torch.float64),
    },
    "testing.assert_is_dense": lambda: {"dense": edge_basis().to_dense()},
    "testing.assert_learned_queries_invariant": lambda: {"conv": nn.set_pooling(3, 4)},
    "testing.assert_mix": lambda: {"basis": edge_basis(2), "matrix": torch.ones(3, 2)},
    "testing.assert_near": lambda: {"actual": x(), "reference": x()},
    "testing.assert_permutation_equivariant": lambda: {"edges": edges()},
    "testing.assert_restrict": lambda: dict(_NODES),
    "testing.assert_same_gradients": lambda: {
        "actual": (z := x().requires_grad_()),
        "reference": 1 * z,
        "inputs": [z],
    },
    "testing.assert_seen_alone": lambda: {
        "run": lambda rows: rows * 2,
        "x": x().requires_grad_(),
        "seen": torch.eye(4, dtype=torch.bool),
        "number": float("nan"),
    },
    "testing.assert_stochastic": lambda: {
        "basis": basis.MultiHeadEdges(pattern(), torch.tensor([1.0, 0.5, 0.5, 1.0])[:, None])
    },
    "testing.assert_translation_equivariant": lambda: {
        "conv": conv(family="grid(3,padding=1,padding_mode='circular',dim=2)"),
        "x": torch.ones(12, 3),
        "shape": (3, 4),
        "by": (1, 1),
    },
    "testing.primitive_calls": lambda: {"channels": 2},
    "transforms.BasisToHetero": lambda: {"family": "relation(2)"},
    "transforms.basis_of": lambda: {"data": transforms.AddBasis("gcn")(data())},
}
SEVERAL: dict[str, tuple[Any, ...]] = {
    "families.Stack": (families.GCN(), families.Identity()),
    "families.Union": (families.Hops(), families.Causal()),
    "nn.EdgeNetwork": (2, 3, 4),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    # Methods that are called with what users have.
    "Pattern": po.Pattern.build,
    "graph.Graph.read": graph.Graph.read,
    "nn.label_terms": lambda conv, x, edge_index: nn.label_terms(conv, x, edge_index),
    "pyg.accelerate": lambda model, verify=False: pyg.accelerate(
        model, x(), EDGE_INDEX, verify=verify
    ),
    "record": entered(po.record),
    "use_backend": entered(po.use_backend),
}


def call_of(name: str) -> Call:
    """A valid call of a public name: what it needs, by the names of its arguments."""
    function, own = FUNCTIONS[name], OWN.get(name, dict)()
    named = () if name in SEVERAL else inspect.signature(function).parameters.values()
    needed = [
        one.name
        for one in named
        if one.default is one.empty
        and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        and one.name not in own
    ]
    if missing := [key for key in needed if key not in MADE and key not in PLAIN]:
        raise LookupError(f"{name} needs {missing}: say what they are in OWN, MADE or PLAIN")
    arguments = {key: MADE[key]() if key in MADE else PLAIN[key] for key in needed}
    return Call(function, arguments | own, SEVERAL.get(name, ()))


FUNCTIONS = {
    name: one for name, one in public_names().items() if why_apart(one) is None
} | FUNCTIONS
CALLS = {name: partial(call_of, name) for name in FUNCTIONS}
