"""One layer of each kind, with its input: the laws of ``test_layers.py`` run over them.

A new kind of layer is one entry of ``LAYERS``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map

from pyg_outerconv import AttentionConv, OuterConv, compose, pyg
from pyg_outerconv.attention import NORMALISERS, SCORES
from pyg_outerconv.families import Kernel
from pyg_outerconv.nn import (
    ConvGRUCell,
    ConvLSTMCell,
    EncoderBlock,
    GaussianMixture,
    GridConv,
    GridPool,
    agnn_conv,
    gat_conv,
    gatv2_conv,
    linear_attention,
    super_gat_conv,
    transformer_conv,
)
from pyg_outerconv.testing import assert_near

P, Q, D = 4, 6, 3
NODES, COUNT = 5, 9


def graph(
    nodes: int = NODES,
    count: int = COUNT,
    weighted: bool = False,
    typed: bool = False,
    attr: int = 0,
    state: bool = False,
) -> dict[str, Tensor]:
    """Features and random edges, parallel ones and loops among them, and what is beside them."""
    index = torch.randint(nodes, (2, count))
    index[:, :2] = 0
    inputs = {"x": torch.randn(nodes, P).double(), "edge_index": index}
    inputs |= {"state": torch.randn(nodes, Q).double()} if state else {}
    inputs |= {"edge_weight": torch.rand(count).double() + 0.1} if weighted else {}
    inputs |= {"edge_type": torch.arange(count) % 3} if typed else {}
    return inputs | ({"edge_attr": torch.randn(count, attr).double()} if attr else {})


def undirected(nodes: int = NODES, count: int = COUNT) -> dict[str, Tensor]:
    """The same, of edges that run both ways."""
    inputs = graph(nodes, count)
    index = inputs["edge_index"]
    return {**inputs, "edge_index": torch.cat([index, index.flip(0)], 1)}


def nodes_alone(nodes: int = NODES, count: int = 0) -> dict[str, Tensor]:
    """A sequence."""
    return {"x": torch.randn(nodes, P).double()}


def image(nodes: int = NODES, count: int = 0) -> dict[str, Tensor]:
    """Two images of that height."""
    return {"x": torch.randn(2, P, nodes, 6).double()}


@dataclass(frozen=True)
class Layer:
    """A layer and its input.

    Attributes:
        make: the layer, from the number of input channels and further options.
        inputs: arguments by name, from a number of nodes and one of edges.
        but: what it has no part in. ``edges``, ``flow``, ``parameters``, ``channels`` (learned from
            the first input), ``messages`` (that hooks see), ``masks`` (multiply values of
            edges alone), ``pygs`` (calls of PyG's tests),
            ``ours`` (places, threads and hooks of our own layers), ``basis`` (in the place of
            edges, or a support), ``batch`` (leading dimensions), ``compile`` and ``export`` (from
            edges that no call has sorted), ``trace`` (of another graph), ``fake`` (shapes do not
            say how many edges there are), ``used`` (compiled over a basis), ``elsewhere`` and
            ``first`` (torch refuses what is on another device, or a part of a lazy layer has
            settled by then).
    """

    make: Callable[..., Module]
    inputs: Callable[..., dict[str, Any]] = graph
    but: frozenset[str] = field(default=frozenset())

    def __call__(self, in_channels: int = P, **options: Any) -> Module:
        """The layer in float64, none of whose parameters is zero."""
        module = self.make(in_channels, **options).double()
        with torch.no_grad():
            for parameter in module.parameters() if in_channels >= 0 else ():
                parameter.add_(0.3 * torch.randn_like(parameter))
        return module


def conv(
    family: Any, typed: bool = False, weighted: bool = True, but: str = "", **options: Any
) -> Layer:
    """``OuterConv`` over a family."""
    return Layer(
        lambda p, **more: OuterConv(p, Q, family, **options, **more),
        lambda nodes=NODES, count=COUNT: graph(nodes, count, weighted, typed),
        frozenset(but.split()),
    )


def attention(make: Callable[..., Module], attr: int = 0, but: str = "", **options: Any) -> Layer:
    """A layer of attention over edges."""
    return Layer(
        lambda p, **more: make(p, Q, **{"heads": 2, **options}, **more),
        lambda nodes=NODES, count=COUNT: graph(nodes, count, attr=attr),
        frozenset(but.split()),
    )


def without_edges(support: str, but: str = "", **options: Any) -> Layer:
    """Attention over a rule."""
    return Layer(
        lambda p, **more: AttentionConv(p, Q, 2, support, **options, **more),
        nodes_alone,
        frozenset({"edges", "pygs", "flow", *but.split()}),
    )


NO_EDGES = frozenset({"edges", "pygs", "messages", "flow", "export", "compile", "basis"})
# Edge features of added loops are those of PyG, which forgets the flow there.
LOOPS = "pygs flow fake elsewhere basis"
LAYERS = {
    "gcn": conv("gcn"),
    "walk": conv("walk(2)"),
    "chebyshev": conv("chebyshev(3)"),
    "jacobi": conv("jacobi(3, 1.0, -0.5)", theta="channelwise"),
    "bernstein": conv("bernstein(3)", theta="basis-decomposed(num_bases=1)"),
    "favard": conv("favard(3)", but="used"),
    "opt_basis": Layer(
        lambda p, **more: OuterConv(p, Q, "opt_basis(3)", **more),
        undirected,
        frozenset({"basis", "masks", "trace"}),
    ),
    "relation": conv("relation(3)", typed=True),
    "directed": conv("directed(gcn(add_self_loops=False))", but="export compile"),
    "stack": conv("stack(walk(1, direction=both), identity)", but="export compile"),
    "max": conv("gcn", but="fake", aggr="max"),
    "mean": conv(
        "directed(relation(1))",
        weighted=False,
        but="trace export compile fake",
        aggr="mean",
        label_aggr="max",
    ),
    "root": conv("walk(2)", theta="low-rank(rank=2)", root_weight=True, cached=True),
    "kernel": Layer(
        lambda p, **more: OuterConv(p, Q, Kernel(GaussianMixture(D, 3)), **more),
        lambda nodes=NODES, count=COUNT: graph(nodes, count, weighted=True, attr=D),
        frozenset({"basis", "pygs", "compile", "export", "fake", "used"}),
    ),
    "key-query": attention(AttentionConv),
    "sum": attention(AttentionConv, combine="sum", value_channels=3, value_bias=True),
    "sigmoid": attention(AttentionConv, normalise="sigmoid"),
    "gat": attention(gat_conv, but="fake first", concat=False),
    "gat, features": attention(gat_conv, D, LOOPS, edge_dim=D, concat=False),
    "gatv2": attention(
        gatv2_conv, D, f"{LOOPS} export compile used", edge_dim=D, fill_value="max", concat=False
    ),
    "super-gat": attention(super_gat_conv, but="fake first", concat=False),
    "transformer": attention(
        transformer_conv, D, "pygs export fake masks", edge_dim=D, beta=True, concat=False
    ),
    "agnn": Layer(lambda p, **more: agnn_conv(**more), but=frozenset({"channels", "pygs", "fake"})),
    "complete": without_edges("complete"),
    "causal": without_edges("causal"),
    "learned": attention(AttentionConv, but="pygs", learned_sources=2, value_bias=True),
    "learned, causal": without_edges("causal", learned_sources=1, empty_source=True),
    "window": without_edges("sliding_window(1)", "export"),
    "union": without_edges("union(sliding_window(1), global_tokens(1))", "export"),
    "linear": Layer(
        lambda p, **more: linear_attention(p, Q, 2, **more),
        nodes_alone,
        frozenset({"edges", "pygs", "flow", "basis"}),
    ),
    "linear, causal": Layer(
        lambda p, **more: linear_attention(p, Q, 2, causal=True, **more),
        nodes_alone,
        frozenset({"edges", "pygs", "flow", "basis", "compile", "export"}),
    ),
    "composed": Layer(
        lambda p, **more: compose(
            OuterConv(p, 5, "gcn", **more), OuterConv(5, Q, "walk(1)", **more)
        ),
        but=frozenset({"channels", "messages", "flow", "pygs", "export", "compile"}),
    ),
    "gru": Layer(
        lambda p, **more: ConvGRUCell(p, Q, "gcn", **more),
        lambda nodes=NODES, count=COUNT: graph(nodes, count, state=True),
        frozenset({"messages", "pygs", "elsewhere"}),
    ),
    "lstm": Layer(
        lambda p, **more: ConvLSTMCell(p, Q, "walk(1)", **more),
        but=frozenset({"messages", "pygs", "export", "compile"}),
    ),
    "grid": Layer(lambda p, **more: GridConv(p, Q, 3, dim=2, **more), image, NO_EDGES),
    "pool": Layer(
        lambda p, **more: GridPool(2, dim=2, **more),
        image,
        NO_EDGES | {"parameters", "channels", "elsewhere"},
    ),
    "block": Layer(
        lambda p, **more: EncoderBlock(p, 2, **more),
        nodes_alone,
        NO_EDGES | {"channels", "elsewhere"},
    ),
    "pyg.GCNConv": Layer(
        lambda p, **more: pyg.GCNConv(p, Q, **more), but=frozenset({"ours", "basis"})
    ),
    "pyg.GATConv": Layer(
        lambda p, **more: pyg.GATConv(p, Q, 2, concat=False, **more),
        but=frozenset({"ours", "fake", "basis", "batch"}),
    ),
}


SCORED = {
    **{f"score {name}": attention(AttentionConv, score=name) for name in SCORES},
    **{f"f {name}": attention(AttentionConv, normalise=name) for name in NORMALISERS},
}


def of_each_layer(*needed: str, slow: int = 0, scores: bool = False) -> Callable[..., Any]:
    """A test of each layer that has a part in what is needed; of each score and f, where asked."""
    names = [name for name, layer in LAYERS.items() if not layer.but & {*needed}]
    tests = pytest.mark.parametrize("name", [*names, *(SCORED if scores else ())])
    return (lambda test: pytest.mark.slow(cases=slow)(tests(test))) if slow else tests


def module_and_inputs(
    name: str, *channels: Any, fuse: bool = True, **options: Any
) -> tuple[Module, Any]:
    """A layer, and its input."""
    layer = (LAYERS | SCORED)[name]
    module = layer(*channels, **options).eval()
    for part in module.modules():
        if isinstance(part, OuterConv):
            part.fuse = fuse
    return module, layer.inputs()


def over_a_basis(module: Module, inputs: dict[str, Any]) -> dict[str, Any]:
    """The input with a basis in the place of edges; of attention over its support."""
    inputs = dict(inputs)
    nodes = inputs["x"].size(-2)
    index = inputs.pop("edge_index", None)
    beside = {key: inputs.pop(key, None) for key in ("edge_weight", "edge_type")}
    family = module.family.support if isinstance(module, AttentionConv) else module.family
    basis = family.basis(index, size=(nodes, nodes), dtype=torch.float64, **beside)
    return {**inputs, "edge_index": basis}


# What is compared -------------------------------------------------------------------------------


def to(inputs: dict[str, Any], where: Any) -> dict[str, Any]:
    """Numbers in another type, or elsewhere."""
    return tree_map(lambda x: x.to(where) if x.is_floating_point() else x, inputs)


def learning(inputs: dict[str, Any]) -> tuple[dict[str, Any], list[Tensor]]:
    """Inputs whose numbers have gradients, and these."""
    inputs = tree_map(
        lambda x: x.detach().clone().requires_grad_() if x.is_floating_point() else x, inputs
    )
    return inputs, [x for x in tree_leaves(inputs) if x.requires_grad]


def results(module: Module, inputs: dict[str, Any], call: Any = None) -> list[Tensor]:
    """What a layer gives, and gradients of a fixed sum in its inputs and parameters."""
    inputs, numbers = learning(inputs)
    out = tree_leaves((module if call is None else call)(**inputs))
    ahead = [torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).view_as(y) for y in out]
    wanted = [*numbers, *module.parameters()]
    gradients = torch.autograd.grad(out, wanted, ahead, materialize_grads=True)
    return [*(y.detach() for y in out), *gradients]


def assert_same(
    actual: Any, expected: Any, tolerance: float | None = None, at_least: float = 0.1
) -> None:
    """Trees of tensors are near each other; gradients may cancel."""
    for mine, its in zip(tree_leaves(actual), tree_leaves(expected), strict=True):
        assert_near(mine, its.to(mine.dtype), tolerance, at_least)


def assert_is_adjoint(run: Callable[..., Any], *points: Any) -> None:
    """<u, J v> = <Jᵀ u, v> at the points, by torch.func and by dual numbers."""
    out = tree_leaves(run(*points))
    directions = [torch.randn_like(x) for x in out]
    along = tree_map(torch.randn_like, points)

    def pulled(*primals: Any) -> Tensor:
        return sum(
            (u * y).sum() for u, y in zip(directions, tree_leaves(run(*primals)), strict=True)
        )

    gradients = grad(pulled, argnums=tuple(range(len(points))))(*points)
    pairs = zip(tree_leaves(gradients), tree_leaves(along), strict=True)
    expected = sum((g * v).sum() for g, v in pairs)
    primal, tangents = jvp(run, points, along)
    assert_same(primal, out)
    pushed = zip(directions, tree_leaves(tangents), strict=True)
    assert_near(sum((u * t).sum() for u, t in pushed), expected)
    with forward_ad.dual_level():
        dual = run(*tree_map(forward_ad.make_dual, points, along))
        for mine, wanted in zip(tree_leaves(dual), tree_leaves(tangents), strict=True):
            tangent = forward_ad.unpack_dual(mine).tangent
            assert_near(torch.zeros_like(wanted) if tangent is None else tangent, wanted)


def compiled(module: Any) -> tuple[Any, list[int]]:
    """The layer in one graph, and a list with an entry for each compilation."""
    torch._dynamo.reset()
    times: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        times.append(1)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    return torch.compile(module, backend=backend, fullgraph=True), times
