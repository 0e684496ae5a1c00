"""A valid call of every public function and class, by room and name.

``CALLS`` has one entry for each name that ``public_names.py`` finds, made anew by each look-up, so
that no call sees what another one changed. A new public name needs an entry.
"""

from __future__ import annotations

import dataclasses
import inspect
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import pyg_outerconv as po
from pyg_outerconv import (
    attention,
    basis,
    contract,
    families,
    graph,
    kernels,
    nn,
    pyg,
    scale,
    testing,
    transforms,
)
from pyg_outerconv.nn.attention import GraphAttention, Skip
from pyg_outerconv.nn.convert import from_torch
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


def parts_of_pattern() -> dict[str, Any]:
    whole = pattern()
    names = [field.name for field in dataclasses.fields(whole) if field.init]
    return {name: getattr(whole, name) for name in names if not name.startswith("_")}


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


def _of(function: Callable[..., Any], *several: Any, **arguments: Any) -> Callable[[], Call]:
    """An entry whose arguments are plain values."""
    return lambda: Call(function, arguments, several)


def _made(function: Callable[..., Any], arguments: Callable[[], dict[str, Any]]) -> Any:
    """An entry whose arguments are made anew."""
    return lambda: Call(function, arguments())


_LAYER = {"in_channels": 3, "out_channels": 4}
_HEADS = {"heads": 2, "channels": 3}


def _two() -> dict[str, Any]:
    return {"first": edge_basis(), "second": edge_basis()}


def _contraction() -> dict[str, Any]:
    return {"basis": edge_basis(2), "x": x(), "theta": torch.ones(2, 1, 3, 5)}


def _attended(**options: Any) -> dict[str, Any]:
    wide = {name: torch.ones(4, 2, 3) for name in ("query", "key", "value")}
    return {**wide, **options}


def _on_basis(function: Callable[..., Any], num_labels: int = 1) -> Any:
    return _made(function, lambda: {"basis": edge_basis(num_labels)})


CALLS: dict[str, Callable[[], Call]] = {
    # pyg_outerconv
    "AttentionConv": _of(po.AttentionConv, **_LAYER),
    "Cells": _of(po.Cells, index=torch.tensor([[0, 1], [2, 0]]), shape=(3, 3)),
    "EdgeBasis": _made(po.EdgeBasis, lambda: {"pattern": pattern(), "value": torch.ones(4)}),
    "Grid": _of(po.Grid, window=(3, 3)),
    "OuterConv": _of(po.OuterConv, **_LAYER, family="gcn"),
    "Pattern": _made(po.Pattern, parts_of_pattern),
    "Pool": _of(po.Pool, window=(2, 2)),
    "ToSparseFeatures": _of(po.ToSparseFeatures),
    "backends": _of(po.backends),
    "clear_caches": _of(po.clear_caches),
    "compose": _made(po.compose, lambda: {"first": conv(4), "second": po.OuterConv(4, 2, "gcn")}),
    "flatten_grid": _of(po.flatten_grid, images=torch.ones(2, 3, 4, 4)),
    "parse_family": _of(po.parse_family, text="walk(length=2)"),
    "record": _of(entered(po.record)),
    "unflatten_grid": _of(po.unflatten_grid, nodes=torch.ones(2, 12, 3), shape=(3, 4)),
    "use_backend": _of(entered(po.use_backend), name="reference"),
    # attention
    **{
        f"attention.{kind.__name__}": _of(kind, **options)
        for kind, options in {
            attention.L1: {},
            attention.ALiBi: {"heads": 2},
            attention.Additive: _HEADS,
            attention.Bahdanau: _HEADS,
            attention.Bilinear: _HEADS,
            attention.Cosine: _HEADS,
            attention.DotProduct: _HEADS,
            attention.EdgeBias: {"heads": 2},
            attention.EdgeFeatures: {"in_channels": 2, **_HEADS},
            attention.EmbeddedGaussian: _HEADS,
            attention.FeatureMapped: _HEADS,
            attention.GATv2: _HEADS,
            attention.GaussianDistance: _HEADS,
            attention.GraphPositions: {"kind": "random-walk", "channels": 4},
            attention.KeyQuery: _HEADS,
            attention.LearnedPositions: {"shape": 5, "channels": 4},
            attention.LearnedQueries: {"num_queries": 2, "channels": 4},
            attention.Normaliser: {},
            attention.PositiveRandom: {"channels": 4, "num_features": 6},
            attention.Projection: {"in_channels": 2, **_HEADS},
            attention.RelativeBias: {"heads": 2, "reach": 3},
            attention.Rotary: {"channels": 4},
            attention.Score: {"heads": 2},
            attention.Sigmoid: {},
            attention.SinusoidalPositions: {"channels": 4},
            attention.Softmax: {},
            attention.SoftmaxPlusOne: {},
            attention.SuperGAT: _HEADS,
            attention.SuperGATMixed: _HEADS,
            attention.Unnormalised: {},
        }.items()
    },
    "attention.make_normaliser": _of(attention.make_normaliser, spec="softmax"),
    "attention.make_score": _of(attention.make_score, spec="gatv2", heads=2, channels=3),
    "attention.sinusoidal": _of(attention.sinusoidal, position=torch.arange(4), channels=4),
    # basis
    "basis.Band": _of(basis.Band, num_sources=4, num_targets=5, left=1, right=1, on=CPU),
    "basis.ChannelPolynomial": _made(
        basis.ChannelPolynomial,
        lambda: {
            "operator": edge_basis(),
            **{name: torch.ones(3, 2) for name in ("alpha", "beta", "gamma")},
        },
    ),
    "basis.Composed": _made(basis.Composed, _two),
    "basis.Eye": _of(basis.Eye, shape=(4, 4), on=CPU),
    "basis.Kronecker": _made(basis.Kronecker, _two),
    "basis.Mixed": _made(basis.Mixed, lambda: {"base": edge_basis(2), "matrix": torch.ones(3, 2)}),
    "basis.MultiHeadEdges": _made(
        basis.MultiHeadEdges, lambda: {"pattern": pattern(), "value": torch.ones(4, 2)}
    ),
    "basis.Polynomial": _made(
        basis.Polynomial,
        lambda: {"operator": edge_basis(), "recurrence": basis.MONOMIAL, "num_terms": 3},
    ),
    "basis.Recurrence": _of(basis.Recurrence, name="chebyshev", first=1.0, alpha=2.0, gamma=1.0),
    "basis.Repeated": _made(basis.Repeated, lambda: {"base": edge_basis(), "before": 2}),
    "basis.Restricted": _made(
        basis.Restricted,
        lambda: {"base": edge_basis(), "sources": torch.tensor([0, 1]), "targets": None},
    ),
    "basis.SameBlock": _of(
        basis.SameBlock,
        source_block=torch.tensor([0, 0, 1]),
        target_block=torch.tensor([0, 1]),
    ),
    "basis.Scaled": _made(
        basis.Scaled, lambda: {"base": edge_basis(), "factor": torch.tensor(2.0)}
    ),
    "basis.Selected": _made(basis.Selected, lambda: {"base": edge_basis(2), "labels": (1,)}),
    "basis.Stacked": _made(basis.Stacked, lambda: {"parts": (edge_basis(), edge_basis())}),
    "basis.Transposed": _made(basis.Transposed, lambda: {"base": edge_basis()}),
    "basis.UnitMatrices": _of(basis.UnitMatrices, shape=(2, 3), on=CPU),
    "basis.drop_edges": _on_basis(basis.drop_edges),
    "basis.to_edge_index": _on_basis(basis.to_edge_index, 2),
    "basis.to_networkx": _on_basis(basis.to_networkx),
    "basis.to_scipy": _on_basis(basis.to_scipy),
    "basis.to_torch_sparse": _on_basis(basis.to_torch_sparse),
    # contract
    "contract.contract": _made(contract.contract, _contraction),
    "contract.contraction_path": _made(contract.contraction_path, _contraction),
    # families
    **{
        f"families.{kind.__name__}": _of(kind, **options)
        for kind, options in {
            families.GAT: {},
            families.GCN: {},
            families.Add: {},
            families.Bernstein: {},
            families.Blocks: {"window": 2},
            families.Causal: {},
            families.Chebyshev: {},
            families.ChebyshevFirst: {},
            families.ChebyshevNodes: {},
            families.ChebyshevSecond: {},
            families.Cluster: {},
            families.Complete: {},
            families.Compose: {},
            families.Diffusion: {},
            families.Directed: {},
            families.Favard: {},
            families.Explicit: {"family": families.GCN()},
            families.Full: {"size": (3, 3)},
            families.GATv2: {},
            families.Gegenbauer: {},
            families.GlobalTokens: {"tokens": 1},
            families.HighPass: {},
            families.Hops: {},
            families.Identity: {},
            families.Jacobi: {},
            families.Kernel: {"fn": nn.GaussianMixture(2, 3)},
            families.Legendre: {},
            families.LinearAttention: _HEADS,
            families.Mean: {},
            families.Monomial: {},
            families.MultiHead: {},
            families.Nearest: {"k": 2},
            families.OptBasis: {},
            families.Part: {},
            families.RandomLinks: {"count": 2},
            families.Relation: {},
            families.Reverse: {},
            families.Scale: {},
            families.Select: {},
            families.SlidingWindow: {"window": 2},
            families.Strided: {"stride": 2},
            families.Sub: {},
            families.Transformer: {},
            families.Walk: {},
        }.items()
    },
    "families.Attention": _made(
        families.Attention,
        lambda: {
            "score": attention.make_score("gatv2", 2, 3),
            "support": families.Hops(),
            "normalise": attention.Softmax(),
        },
    ),
    "families.Stack": _of(families.Stack, families.GCN(), families.Identity()),
    "families.Union": _of(families.Union, families.Hops(), families.Causal()),
    "families.edge_basis": _made(families.edge_basis, lambda: {"edges": edges()}),
    # graph
    "graph.Assignment": _made(
        graph.Assignment,
        lambda: {
            "criteria": graph.Assignment.read(torch.tensor([0, 1, 0])).criteria,
            "size": (3, 2),
        },
    ),
    "graph.Graph": _of(graph.Graph, edge_index=EDGE_INDEX, size=(4, 4)),
    "graph.NodeSet": _of(graph.NodeSet, known=(3, 3), device=CPU),
    "graph.SparseFeatures": _made(
        graph.SparseFeatures, lambda: {"csr": matrix(), "value": torch.ones(4)}
    ),
    "graph.Graph.read": _of(graph.Graph.read, edge_index=EDGE_INDEX),
    "graph.edge_list_of": _made(graph.edge_list_of, lambda: {"data": data()}),
    "graph.fold": _of(graph.fold, matrix=torch.ones(3, 8), mode=0, shape=(3, 4, 2)),
    "graph.from_hetero": _made(graph.from_hetero, lambda: {"data": hetero()}),
    "graph.from_networkx": _made(
        graph.from_networkx, lambda: {"graph": basis.to_networkx(edge_basis())}
    ),
    "graph.from_scipy": _made(graph.from_scipy, lambda: {"matrices": sp.eye_array(4).tocsr()}),
    "graph.places_within": _of(graph.places_within, group=torch.tensor([0, 0, 1])),
    "graph.positions_of": _of(graph.positions_of, structure=po.Cells.of_shape((2, 2))),
    "graph.relative_positions": _of(
        graph.relative_positions, positions=(x(), x()), edge_index=EDGE_INDEX
    ),
    "graph.unfold": _of(graph.unfold, x=torch.ones(3, 4, 2), mode=0),
    # kernels
    "kernels.CSR": _made(
        kernels.CSR,
        lambda: {"ptr": matrix().ptr, "index": matrix().index, "num_columns": 4},
    ),
    "kernels.additive": _made(
        kernels.additive,
        lambda: {
            "csr": matrix(),
            **{name: torch.ones(4, 2, 3) for name in "ab"},
            "weight": torch.ones(2, 3),
        },
    ),
    "kernels.attend": _made(kernels.attend, lambda: _attended(csr=matrix())),
    "kernels.attend_all": _made(kernels.attend_all, _attended),
    "kernels.attend_band": _made(kernels.attend_band, lambda: _attended(left=1, right=1)),
    "kernels.attend_blocks": _made(
        kernels.attend_blocks,
        lambda: _attended(
            blocks=kernels.blocks_of(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 0]))
        ),
    ),
    "kernels.blocks_of": _of(
        kernels.blocks_of,
        source_block=torch.tensor([0, 0, 1]),
        target_block=torch.tensor([0, 1]),
    ),
    "kernels.get_backend": _of(kernels.get_backend, name="reference"),
    "kernels.grouped_matmul": _of(
        kernels.grouped_matmul, x=x(), ptr=torch.tensor([0, 2, 4]), theta=torch.ones(2, 3, 5)
    ),
    "kernels.sddmm": _made(kernels.sddmm, lambda: {"csr": matrix(), "a": x(), "b": x()}),
    "kernels.segment_softmax": _made(
        kernels.segment_softmax, lambda: {"csr": matrix(), "score": torch.ones(4, 2)}
    ),
    "kernels.spmm": _made(
        kernels.spmm, lambda: {"csr": matrix(), "value": torch.ones(4), "x": x()}
    ),
    # nn
    **{
        f"nn.{kind.__name__}": _of(kind, **options)
        for kind, options in {
            nn.AttentionGNN: {"in_channels": 3, "hidden_channels": 4, "num_layers": 2},
            nn.BSpline: {"kernel_size": 4},
            nn.ComposedConv: {**_LAYER, "family": families.Compose()},
            nn.ConvGRUCell: {**_LAYER, "family": "gcn"},
            nn.ConvLSTMCell: {**_LAYER, "family": "gcn"},
            nn.DecoderBlock: {"channels": 4, "heads": 2},
            nn.EncoderBlock: {"channels": 4, "heads": 2},
            nn.FeedForward: {"channels": 4},
            nn.GaussianMixture: {"dim": 2, "num_functions": 3},
            nn.GridConv: {**_LAYER, "kernel_size": (3, 3)},
            nn.GridPool: {"kernel_size": (2, 2)},
            nn.GridUnpool: {"kernel_size": (2, 2)},
            nn.OuterGNN: {"in_channels": 3, "hidden_channels": 4, "num_layers": 2, "family": "gcn"},
            nn.TransformerConv: _LAYER,
            nn.agnn_conv: {},
            nn.appnp: {"length": 2, "alpha": 0.1},
            nn.gat_conv: _LAYER,
            nn.gatv2_conv: _LAYER,
            nn.gdc_conv: _LAYER,
            nn.linear_attention: _LAYER,
            nn.long_sequence_block: {"channels": 4, "heads": 2, "window": 3},
            nn.make_theta: {"spec": "full", "num_labels": 2, **_LAYER},
            nn.mix_hop: _LAYER,
            nn.multi_head_attention: {"embed_dim": 4, "num_heads": 2},
            nn.predicted_share: {"num_entries": 3, "shape": (4, 5)},
            nn.set_pooling: _LAYER,
            nn.sg_conv: _LAYER,
            nn.sparse_pays: {"num_entries": 3, "shape": (4, 5)},
            nn.ssg_conv: {**_LAYER, "alpha": 0.1},
            nn.super_gat_conv: _LAYER,
            nn.windowed_block: {"channels": 4, "heads": 2},
        }.items()
    },
    "nn.BlockStack": _made(nn.BlockStack, lambda: {"blocks": [nn.EncoderBlock(4, 2)]}),
    "nn.EncoderDecoder": _made(
        nn.EncoderDecoder,
        lambda: {
            "encoder": nn.BlockStack([nn.EncoderBlock(4, 2)]),
            "decoder": nn.BlockStack([nn.DecoderBlock(4, 2)]),
        },
    ),
    "nn.EdgeNetwork": _of(nn.EdgeNetwork, 2, 3, 4),
    "nn.FixedBasis": _on_basis(nn.FixedBasis),
    "nn.dropout_features": _made(nn.dropout_features, lambda: {"x": x()}),
    **{
        f"nn.{of.__name__}": lambda of=of: Call(of, {"conv": conv(), "edge_index": EDGE_INDEX})
        for of in (nn.quadri_tensor, nn.phi_hat, nn.phi_check, nn.plot_phi)
    },
    "nn.fold_output": _made(nn.fold_output, lambda: {"conv": nn.transformer_conv(3, 4)}),
    "nn.factor_output": _made(
        nn.factor_output, lambda: {"conv": nn.transformer_conv(3, 4), "rank": 4}
    ),
    "nn.label_terms": lambda: Call(
        lambda conv, x, edge_index: nn.label_terms(conv, x, edge_index),
        {"conv": conv(), "x": x(), "edge_index": EDGE_INDEX},
    ),
    "nn.unroll": _made(
        nn.unroll,
        lambda: {
            "cell": nn.ConvGRUCell(3, 4, "gcn"),
            "xs": torch.ones(2, 4, 3),
            "edge_index": EDGE_INDEX,
        },
    ),
    "nn.attention.GraphAttention": _of(GraphAttention, **_LAYER, edge_dim=None),
    "nn.attention.Skip": _of(Skip, channels=4),
    "nn.convert.from_torch": _made(from_torch, lambda: {"module": torch.nn.Conv2d(3, 4, 3)}),
    # plot
    "plot.check_matplotlib": _of(import_module("pyg_outerconv.plot").check_matplotlib),
    # pyg
    "pyg.DirGNNConv": _made(pyg.DirGNNConv, lambda: {"conv": pyg.GCNConv(3, 4)}),
    "pyg.accelerate": lambda: Call(
        lambda model, verify=False: pyg.accelerate(model, x(), EDGE_INDEX, verify=verify),
        {"model": pyg.to_pyg(pyg.GCNConv(3, 4))},
    ),
    "pyg.explain": _made(pyg.explain, lambda: {"layer": pyg.GCNConv(3, 4)}),
    "pyg.from_pyg": _made(pyg.from_pyg, lambda: {"model": pyg.to_pyg(pyg.GCNConv(3, 4))}),
    "pyg.outer_conv": _made(pyg.outer_conv, lambda: {"layer": pyg.to_pyg(pyg.GCNConv(3, 4))}),
    "pyg.restore": _made(pyg.restore, lambda: {"model": torch.nn.Sequential(pyg.GCNConv(3, 4))}),
    "pyg.to_pyg": _made(pyg.to_pyg, lambda: {"model": pyg.GCNConv(3, 4)}),
    # scale
    "scale.Blocks": _made(scale.Blocks, lambda: {"carried": carried(), "parts": 2}),
    "scale.Carried": _made(scale.Carried, lambda: {"family": families.GCN(), "structure": edges()}),
    "scale.Clusters": _made(
        scale.Clusters, lambda: {"carried": carried(), "cluster": torch.tensor([0, 0, 1, 1])}
    ),
    "scale.Neighbors": _made(
        scale.Neighbors, lambda: {"carried": carried(), "fan_outs": [2], "batch_size": 2}
    ),
    "scale.RandomNodes": _made(scale.RandomNodes, lambda: {"carried": carried(), "parts": 2}),
    "scale.Scratch": _of(scale.Scratch),
    "scale.carried_by": _made(
        scale.carried_by,
        lambda: {"graph": open_mapped(mapped_folder()), "family": families.GCN()},
    ),
    "scale.clusters_of": _made(
        scale.clusters_of, lambda: {"graph": open_mapped(mapped_folder()), "parts": 2}
    ),
    "scale.convolve": _made(
        scale.convolve, lambda: {"conv": conv(), "x": x(), "basis": edge_basis()}
    ),
    "scale.generate": lambda: Call(
        scale.generate,
        {
            "folder": Path(tempfile.mkdtemp()) / "graph",
            "nodes": 40,
            "edges": 80,
            "features": 4,
            "classes": 2,
            "log": lambda line: None,
        },
    ),
    "scale.metis": _made(scale.metis, lambda: {"carried": carried(), "parts": 2}),
    # testing
    **{
        f"testing.{law.__name__}": _on_basis(law)
        for law in (
            testing.assert_adjoint,
            testing.assert_lazy_equals_explicit,
            testing.assert_receptive_field,
            testing.assert_transpose,
        )
    },
    **{
        f"testing.{law.__name__}": _made(law, _two)
        for law in (
            testing.assert_compose,
            testing.assert_kron,
            testing.assert_stack,
            testing.assert_transpose_of_product,
        )
    },
    "testing.assert_associative": _made(
        testing.assert_associative, lambda: {**_two(), "third": edge_basis()}
    ),
    "testing.assert_backend_equals_reference": _made(
        testing.assert_backend_equals_reference,
        lambda: {
            "backend": "native",
            "csr": matrix(),
            "dtype": torch.float64,
            "channels": 2,
            "tolerance": 1e-6,
        },
    ),
    "testing.assert_batch_equals_graphs": _made(
        testing.assert_batch_equals_graphs,
        lambda: {"family": families.GCN(), "graphs": [data(), data()]},
    ),
    "testing.assert_contraction": _made(
        testing.assert_contraction,
        lambda: {
            "basis": edge_basis(2).to(torch.float64),
            "x": x().double(),
            "theta": torch.ones(2, 1, 3, 5, dtype=torch.float64),
        },
    ),
    "testing.assert_declared_laws": _of(
        testing.assert_declared_laws, family=families.GCN(), seed=0
    ),
    "testing.assert_edges_alone_carry": _made(testing.assert_edges_alone_carry, _contraction),
    "testing.assert_is_dense": _made(
        testing.assert_is_dense,
        lambda: {"basis": edge_basis(), "dense": edge_basis().to_dense()},
    ),
    "testing.assert_layer_equals_dense": _made(
        testing.assert_layer_equals_dense,
        lambda: {"conv": conv(), "x": x(), "structure": edges()},
    ),
    "testing.assert_learned_queries_invariant": _made(
        testing.assert_learned_queries_invariant,
        lambda: {"conv": nn.set_pooling(3, 4), "x": x()},
    ),
    "testing.assert_mix": _made(
        testing.assert_mix, lambda: {"basis": edge_basis(2), "matrix": torch.ones(3, 2)}
    ),
    "testing.assert_mixed_product": _made(
        testing.assert_mixed_product,
        lambda: {**_two(), "third": edge_basis(), "fourth": edge_basis()},
    ),
    "testing.assert_near": _made(testing.assert_near, lambda: {"actual": x(), "reference": x()}),
    "testing.assert_permutation_equivariant": _made(
        testing.assert_permutation_equivariant,
        lambda: {"conv": conv(), "x": x(), "edges": edges()},
    ),
    "testing.assert_restrict": _made(
        testing.assert_restrict,
        lambda: {"basis": edge_basis(), "sources": torch.tensor([0, 1]), "targets": None},
    ),
    "testing.assert_same_gradients": _made(
        testing.assert_same_gradients,
        lambda: {"actual": (z := x().requires_grad_()), "reference": 1 * z, "inputs": [z]},
    ),
    "testing.assert_seen_alone": lambda: Call(
        testing.assert_seen_alone,
        {
            "run": lambda rows: rows * 2,
            "x": x().requires_grad_(),
            "seen": torch.eye(4, dtype=torch.bool),
            "number": float("nan"),
        },
    ),
    "testing.assert_stochastic": _made(
        testing.assert_stochastic,
        lambda: {
            "basis": basis.MultiHeadEdges(pattern(), torch.tensor([1.0, 0.5, 0.5, 1.0])[:, None])
        },
    ),
    "testing.assert_translation_equivariant": _made(
        testing.assert_translation_equivariant,
        lambda: {
            "conv": conv(family="grid(3,padding=1,padding_mode='circular',dim=2)"),
            "x": torch.ones(12, 3),
            "shape": (3, 4),
            "by": (1, 1),
        },
    ),
    "testing.awkward_cells": _of(testing.awkward_cells),
    "testing.awkward_structures": _of(testing.awkward_structures),
    "testing.dense_contraction": _made(testing.dense_contraction, _contraction),
    "testing.legal_orders": _made(testing.legal_orders, _contraction),
    "testing.primitive_calls": _made(
        testing.primitive_calls, lambda: {"csr": matrix(), "channels": 2}
    ),
    # transforms
    "transforms.AddBasis": _of(transforms.AddBasis, family="gcn"),
    "transforms.BasisToHetero": _of(transforms.BasisToHetero, family="relation(2)"),
    "transforms.basis_of": _made(
        transforms.basis_of, lambda: {"data": transforms.AddBasis("gcn")(data())}
    ),
}
