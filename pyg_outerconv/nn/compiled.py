"""A convolution as a compiler sees it: dense products, and one operator for the sums over edges.

A compiler would trace what makes a basis (self-loops, degrees, sorts) and run it at every call.
Where the values of edges do not learn, a layer hands the graph itself to an operator, which makes
the basis as an eager layer does: once for an unmodified ``edge_index``, and with its checks.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ..basis.edges import EdgeBasis, multiply
from ..families import Family, parse_family
from ..graph.graph import Graph
from ..kernels.edge_sums import edge_sums, most
from ..kernels.index_checks import is_exporting
from ..kernels.mode import mode
from ..kernels.primitive import Primitive
from ..memo import Memo
from ..theta import Theta, ThetaValue, add_bias
from .call import Call

if TYPE_CHECKING:
    from .outer_conv import OuterConv

_bases = Memo(each=8, tensors=4)
_by_number: WeakValueDictionary[int, EdgeBasis] = WeakValueDictionary()
_numbers = count()
_families: dict[str, Family] = {}


def convolution(
    conv: OuterConv, call: Call, theta: ThetaValue, bias: Tensor | None
) -> Tensor | None:
    """Y (*batch, N, Q) = Σ_k A_kᵀ X Θ_k + b, with sums on the narrower side of Θ.

    None where the operator does not serve the call, which is then traced as a whole: without edges
    whose values are known, in exported graphs, and where something is to be refused.
    """
    theta = Theta(theta) if isinstance(theta, Tensor) else theta
    if not (_is_served(conv, call) and _fits(call.source, theta)):
        return None
    recipe = _recipe(conv)
    if recipe is None:
        return None
    x = call.source.movedim(-2, 0)  # type: ignore[union-attr]
    num_nodes, batch = x.size(0), x.shape[1:-1]
    num_labels, groups, _, columns = theta.shape
    graph = call.edge_index, call.beside.get("edge_weight"), call.beside.get("edge_type")
    made = graph, (recipe, num_nodes, x.dtype)
    if groups * columns < x.size(-1):
        z = theta.transform(x).flatten(0, 1).flatten(1)
        out = sum_over_edges(z, None, *made, num_nodes, by_target=False)
        out = out.view(num_nodes, *batch, groups * columns)
        out = out if bias is None else add_bias(out, bias, own=True)
    else:
        num_rows = num_nodes * num_labels
        h = sum_over_edges(x.flatten(1), None, *made, num_rows, by_target=True)
        out = theta.combine(h.view(num_rows, *x.shape[1:]), num_nodes, bias)
    return out if out.dim() == 2 else out.movedim(0, -2).contiguous()


def _is_served(conv: OuterConv, call: Call) -> bool:
    """Whether the call is one over a list of edges, of whose values none learns."""
    edge_index, family = call.edge_index, conv.family
    if not family.makes_edges or conv.reduce != "sum" or conv.label_reduce != "sum":
        return False
    if conv.cached is False or conv.order is not None or conv.max_memory is not None:
        return False
    if not call.is_single or call.size is not None or is_exporting():
        return False
    for name, part in (("edge_index", edge_index), *call.beside.items()):
        if name != "edge_index" and name not in family.reads_beside:
            return False
        if type(part) is not Tensor or not part.is_cpu or part.requires_grad:
            return False
    return edge_index.layout is torch.strided and not edge_index.is_floating_point()


def _fits(x: Any, theta: Theta) -> bool:
    """Whether x are dense features that fit Θ."""
    if not isinstance(x, Tensor) or not x.is_cpu or not x.is_floating_point():
        return False
    is_alike = x.dtype == theta.dtype or torch.is_autocast_enabled("cpu")
    return is_alike and x.size(-1) == theta.shape[1] * theta.shape[2]


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _recipe(conv: OuterConv) -> str | None:
    """What makes the basis of a graph, as text, for a stored compiled graph outlives objects.

    None if the text of the family does not say all of it.
    """
    text = str(conv.family)
    try:
        is_whole = _family(text) == conv.family
    except (TypeError, ValueError):
        return None
    return f"{conv.flow} {conv.aggr} {text}" if is_whole else None


def _family(text: str) -> Family:
    if text not in _families:
        _families[text] = parse_family(text)
    return _families[text]


def _numbered(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_type: Tensor | None,
    recipe: str,
    num_nodes: int,
    dtype: torch.dtype,
) -> tuple[int, EdgeBasis]:
    """The basis of a graph, perhaps cached, and its number, which no other basis ever has."""
    make = partial(_make, edge_index, edge_weight, edge_type, recipe, num_nodes, dtype)
    key = recipe, num_nodes, dtype
    return _bases.get(key, make, edge_index, edge_weight, edge_type)  # type: ignore[no-any-return]


def _make(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_type: Tensor | None,
    recipe: str,
    num_nodes: int,
    dtype: torch.dtype,
) -> tuple[int, EdgeBasis]:
    flow, aggr, text = recipe.split(" ", 2)
    beside = edge_weight, edge_type
    edges = Graph.read(edge_index, *beside, size=(num_nodes, num_nodes), dtype=dtype)
    edges = edges.reversed() if flow == "target_to_source" else edges
    basis = _family(text).basis_on(edges, dtype)
    assert isinstance(basis, EdgeBasis)  # of families with `makes_edges`
    basis = basis.mean(dtype) if aggr == "mean" else basis
    number = next(_numbers)
    _by_number[number] = basis
    return number, basis


def _run(
    x: Tensor,
    number: Tensor | None,
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_type: Tensor | None,
    recipe: str,
    num_nodes: int,
    dtype: torch.dtype,
    num_rows: int,
    by_target: bool,
    transposed: bool,
) -> tuple[Tensor, Tensor]:
    """S x, or Sᵀ x, for the sparse matrix S of all edges of a basis.

    Args:
        x: (C, channels).
        number: that of the basis, () of int64, or None. A backward pass knows it by this number,
            for the tensors of the graph are other objects there. If it is no longer cached, it is
            made anew.
        edge_index, edge_weight, edge_type, recipe, num_nodes, dtype: what it is made of.
        num_rows: R.
        by_target: whether S has a row for each target and label, and a column for each source;
            else a row for each target, and a column for each source and label.
        transposed: whether x is multiplied with Sᵀ.

    Returns:
        (R, channels), and the number.
    """
    place = -1 if number is None else int(number)
    basis = _by_number.get(place)
    if basis is None:
        graph = edge_index, edge_weight, edge_type
        place, basis = _numbered(*graph, recipe, num_nodes, dtype)
    return _product(basis, x.contiguous(), num_rows, by_target, transposed), torch.tensor(place)


def _product(
    basis: EdgeBasis, x: Tensor, num_rows: int, by_target: bool, transposed: bool
) -> Tensor:
    pattern, listed = basis.pattern, basis.pattern.given
    if listed is not None and listed.source.numel() * x.size(1) <= most(x, mode()):
        source, target, num_labels = listed.source, listed.target, pattern.num_labels
        if by_target:
            target = listed.under_label(target, num_labels)
        else:
            source = listed.under_label(source, num_labels)
        ends = (target, source) if transposed else (source, target)
        return edge_sums(*ends, basis.values_as_listed(x), x, num_rows)
    csr = pattern.by_target_label if by_target else pattern.by_target
    return multiply(csr.T if transposed else csr, basis, x)


# Not by `torch.library.custom_op`, which takes 20 µs a call in the place of 7, where the sum over
# a few thousand edges takes 40.
_LIBRARY = torch.library.Library("pyg_outerconv", "FRAGMENT")
_NAME = "sum_over_edges"
_LIBRARY.define(_NAME + torch.library.infer_schema(_run, mutates_args=()))
_LIBRARY.impl(_NAME, _run, "CompositeExplicitAutograd")


def _sizes(x: Tensor, number: Tensor | None, *others: Any) -> tuple[Tensor, Tensor]:
    *_, num_rows, _, _ = others
    return x.new_empty((num_rows, x.size(1))), x.new_empty((), dtype=torch.int64)


torch.library.register_fake(f"{_LIBRARY.ns}::{_NAME}", _sizes, lib=_LIBRARY)
_operator = torch.ops.pyg_outerconv.sum_over_edges.default


class _SumOverEdges(Primitive):
    """The operator, whose gradient is that of the transposed matrix."""

    operands = 1

    @staticmethod
    def forward(
        x: Tensor,
        number: Tensor | None,
        graph: tuple[Tensor, Tensor | None, Tensor | None],
        recipe: tuple[str, int, torch.dtype],
        num_rows: int,
        by_target: bool,
        transposed: bool,
    ) -> tuple[Tensor, Tensor]:
        return _operator(x, number, *graph, *recipe, num_rows, by_target, transposed)  # type: ignore[no-any-return]

    @staticmethod
    def keep(ctx: Any, operands: Any, output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])
        ctx.num_sources = operands[0].size(0)

    @staticmethod
    def gradients(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor]:
        _, graph, recipe, _, by_target, transposed = ctx.rest
        way = ctx.num_sources, by_target, not transposed
        return (sum_over_edges(grad, ctx.saved_tensors[0], graph, recipe, *way),)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        """A batch is more channels of x; the graph has none, for it is no operand."""
        x, number, *others = arguments
        x = x.movedim(in_dims[0], 1)
        out, number = cls.apply(x.flatten(1), number, *others)
        return (out.unflatten(1, x.shape[1:]), number), (1, None)


def sum_over_edges(
    x: Tensor,
    number: Tensor | None,
    graph: tuple[Tensor, Tensor | None, Tensor | None],
    recipe: tuple[str, int, torch.dtype],
    num_rows: int,
    by_target: bool,
    transposed: bool = False,
) -> Tensor:
    """The sums of the operator, see :func:`_run`, with derivatives of every order."""
    out: Tensor
    out, _ = _SumOverEdges.apply(x, number, graph, recipe, num_rows, by_target, transposed)
    return out
