"""Our layers beside PyG's of the same names: one ``state_dict``, one input, all gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric import nn as theirs

from pyg_outerconv import pyg as ours

P, Q, D, R = 6, 4, 3, 3
"""Channels in and out, of edge features; number of relations."""

contracted, by_size = (
    pytest.mark.parametrize("small_graphs", [way], indirect=True)
    for way in ("contracted", "by-size")
)
"""Marks of tests that are of one of both ways alone; see `conftest.py`."""

reseed = torch.default_generator.manual_seed
"""``torch.manual_seed`` of the CPU alone, several hundred times as quick without a device."""

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
REFUSALS = (
    AssertionError,
    AttributeError,
    IndexError,
    RuntimeError,
    TypeError,
    ValueError,
)
OF_GRADIENTS = {torch.float32: 5e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class Graph:
    """A graph, or a pair of sets of nodes, with everything that layers read beside.

    Attributes:
        size: (M, N); a pair is drawn as two sets of features.
        edge_index: (2, E).
        is_pair: whether sources and targets are two sets of nodes.
    """

    size: tuple[int, int]
    edge_index: Tensor
    is_pair: bool = False

    @property
    def num_edges(self) -> int:
        return self.edge_index.size(1)


def graphs() -> dict[str, Graph]:
    """Graphs of every awkward kind, by name."""
    drawn = torch.Generator().manual_seed(5)

    def edges(sources: int, targets: int, count: int) -> Tensor:
        rows = [torch.randint(end, (count,), generator=drawn) for end in (sources, targets)]
        return torch.stack(rows)

    plain = edges(9, 9, 30)
    plain = plain[:, plain[0] != plain[1]].unique(dim=1)
    plain = plain[:, torch.randperm(plain.size(1), generator=drawn)]
    loops = torch.tensor([[2, 5, 0], [2, 5, 0]])
    several = torch.tensor([[3, 3, 1], [3, 3, 1]])
    return {
        "directed": Graph((9, 9), plain),
        "sorted": Graph((9, 9), plain[:, plain[1].argsort(stable=True)]),
        "self-looped": Graph((9, 9), torch.cat([loops, plain], 1)),
        "multi-edge": Graph((9, 9), torch.cat([plain, plain[:, :7], several, loops], 1)),
        "isolated": Graph((14, 14), plain),
        "empty": Graph((5, 5), plain[:, :0]),
        "pair": Graph((9, 6), edges(9, 6, 25), True),
        "square-pair": Graph((7, 7), edges(7, 7, 20), True),
        "empty-pair": Graph((4, 3), plain[:, :0], True),
    }


@dataclass(frozen=True)
class Drawn:
    """Tensors for one graph. Calls take what their layer reads."""

    graph: Graph
    dtype: torch.dtype

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, dtype=self.dtype, requires_grad=True)

    def x(self, channels: int = P, targets: int | None = None) -> Any:
        """Features (M, P), or a pair of features."""
        sources, count = self.graph.size
        if not self.graph.is_pair:
            return self.normal(sources, channels)
        return self.normal(sources, channels), self.normal(count, targets or channels)

    def weight(self) -> Tensor:
        """Positive edge weights (E,)."""
        weight = torch.rand(self.graph.num_edges, dtype=self.dtype) + 0.2
        return weight.requires_grad_()

    def signed(self) -> Tensor:
        """Edge weights (E,), every other one below zero: GCN's norm makes NaN of some degrees."""
        weight = self.weight().detach()
        weight[1::2] *= -1
        return weight.requires_grad_()

    def matrix(self, layout: str) -> Tensor:
        """The transposed sparse matrix (N, M) of the edges, parallel ones added up."""
        (sources, targets), index = self.graph.size, self.graph.edge_index.flip(0)
        weight = self.weight().detach()
        adjacency = torch.sparse_coo_tensor(index, weight, (targets, sources)).coalesce()
        return adjacency.to_sparse_csr() if layout == "csr" else adjacency

    def edges(self) -> EdgeIndex:
        """The edges as PyG's EdgeIndex."""
        return EdgeIndex(self.graph.edge_index, sparse_size=self.graph.size)

    def attributes(self, channels: int = D) -> Tensor:
        """Edge features (E, D)."""
        return self.normal(self.graph.num_edges, channels)

    def types(self, count: int = R) -> Tensor:
        """Edge types (E,)."""
        return torch.randint(count, (self.graph.num_edges,))


FLOWS = ("source_to_target", "target_to_source")
Call = Callable[[Drawn], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """A class with its options and inputs.

    Attributes:
        name: of the class, here and in PyG.
        make: from a class and options to a layer.
        calls: the inputs of a call, by a name for each layout.
        options: the values of each option that are tried, the default first.
        pairs: whether pairs of features are taken.
        by_pyg: values of options, as (option, value), that PyG's own ``forward`` runs.
        widest: the type of floating point that PyG computes in at most, whatever the features have.
        allowed: whether a combination of options is one that PyG's class takes.
    """

    name: str
    make: Callable[..., Any]
    calls: dict[str, Call]
    options: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    pairs: bool = False
    by_pyg: tuple[tuple[str, Any], ...] = ()
    widest: torch.dtype = torch.float64
    allowed: Callable[[dict[str, Any]], bool] = lambda options: True

    def compared_in(self, dtype: torch.dtype) -> torch.dtype:
        """The type whose tolerance results for features of ``dtype`` have."""
        return min(dtype, self.widest, key=lambda one: one.itemsize)

    def runs_by_pyg(self, options: dict[str, Any]) -> bool:
        """Whether an option in a combination has no equal in a contraction."""
        return any(options.get(name) == value for name, value in self.by_pyg)

    def one_by_one(self) -> Iterator[dict[str, Any]]:
        """The defaults, then every value of every option by itself."""
        yield {}
        for name, values in self.options.items():
            for value in values[1:]:
                if self.allowed({name: value}):
                    yield {name: value}

    def two_by_two(self) -> Iterator[dict[str, Any]]:
        """Every two values of two options, other than the defaults, together."""
        for (one, values), (other, others) in combinations(self.options.items(), 2):
            for first, second in product(values[1:], others[1:]):
                if self.allowed({one: first, other: second}):
                    yield {one: first, other: second}

    def drawn(self, seed: int) -> dict[str, Any]:
        """A combination of options."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            options = {
                name: values[int(torch.randint(len(values), (1,), generator=generator))]
                for name, values in self.options.items()
            }
            if self.allowed(options):
                return options


@dataclass(frozen=True)
class ByPyG:
    """A value of an option that PyG's own ``forward`` runs."""

    value: Any


def channels(cls: Callable[..., Any], in_channels: Any = P, **options: Any) -> Any:
    """A layer from P to Q channels, as most are made."""
    return cls(in_channels, Q, **options)


def case(
    name: str,
    calls: dict[str, Call],
    options: dict[str, tuple[Any, ...]],
    make: Callable[..., Any] = channels,
    flows: bool = True,
    **more: Any,
) -> Case:
    """A row of the table; all but hypergraphs and layers of layers have both flows."""
    options = options | ({"flow": FLOWS} if flows else {})
    by_pyg, plain = [], {}
    for option, values in options.items():
        by_pyg += [(option, one.value) for one in values if isinstance(one, ByPyG)]
        plain[option] = tuple(one.value if isinstance(one, ByPyG) else one for one in values)
    return Case(name, make, calls, plain, by_pyg=tuple(by_pyg), **more)


def layers(case: Case, options: dict[str, Any], dtype: torch.dtype) -> tuple[Any, Any]:
    """PyG's layer and ours, with equal weights."""
    pair = []
    for library in (theirs, ours):
        reseed(3)
        pair.append(case.make(getattr(library, case.name), **options).to(dtype))
    with torch.no_grad():  # biases begin as zeros
        for parameter in pair[0].parameters():
            if not torch.nn.parameter.is_lazy(parameter):
                parameter.add_(0.1 * torch.randn_like(parameter))
    pair[1].load_state_dict(pair[0].state_dict())
    return pair[0], pair[1]


def tensors(tree: Any) -> list[Tensor]:
    """All floating point tensors within tuples and lists."""
    if isinstance(tree, Tensor):
        return [tree] if tree.is_floating_point() else []
    if isinstance(tree, tuple | list):
        return [tensor for part in tree for tensor in tensors(part)]
    return []


def compare(
    their_layer: Any, our_layer: Any, arguments: tuple[Any, ...], dtype: torch.dtype
) -> None:
    """Both layers give equal values, and equal gradients of inputs and parameters.

    Where PyG's layer raises an error, ours does.
    """
    reseed(13)
    try:
        expected = their_layer(*arguments)
    except REFUSALS as refused:
        if "'message_and_aggregate' not implemented" in str(refused):
            return  # PyG generated `propagate` for a layer of this class that does not fuse it
        with pytest.raises(REFUSALS):
            our_layer(*arguments)
        return
    reseed(13)
    actual = our_layer(*arguments)
    inputs = [tensor for tensor in tensors(arguments) if tensor.requires_grad]
    assert_close(actual, expected, TOLERANCE[dtype], "values")
    gradients = []
    for layer, out in ((their_layer, expected), (our_layer, actual)):
        named = {name: one for name, one in layer.named_parameters() if one.requires_grad}
        reseed(7)
        learning = [one for one in tensors(out) if one.requires_grad]
        loss = sum((one * torch.randn(one.shape, dtype=one.dtype)).sum() for one in learning)
        wanted = [*inputs, *named.values()]
        if not isinstance(loss, Tensor):
            continue
        grads = torch.autograd.grad(loss, wanted, materialize_grads=True)
        names = [*(f"input {place}" for place in range(len(inputs))), *named]
        gradients.append(dict(zip(names, grads, strict=True)))
    if gradients:
        for name, gradient in gradients[0].items():
            assert_close(gradients[1][name], gradient, OF_GRADIENTS[dtype], f"gradient of {name}")


def assert_close(actual: Any, expected: Any, tolerance: float, what: str) -> None:
    """max|Δ| ≤ tolerance · max|expected| for every tensor; integers are equal."""
    assert type(actual) is type(expected), what
    if isinstance(expected, tuple | list):
        assert len(actual) == len(expected), what
        for one, other in zip(actual, expected, strict=True):
            assert_close(one, other, tolerance, what)
    elif isinstance(expected, Tensor) and expected.is_floating_point():
        assert actual.shape == expected.shape, what
        assert actual.dtype == expected.dtype, what
        numbers = expected.detach().nan_to_num(0.0, 0.0, 0.0)
        bound = tolerance * max(float(numbers.abs().max()) if expected.numel() else 0.0, 1.0)
        torch.testing.assert_close(actual, expected, atol=bound, rtol=0.0, equal_nan=True, msg=what)
    elif isinstance(expected, Tensor):
        assert torch.equal(actual, expected), what
    else:
        assert actual == expected, what
