"""A convolution as a compiler sees it: dense products, and one operator for the sums over edges.

A compiler would trace what makes a basis (self-loops, degrees, sorts) and run it at every call.
Where the values of edges do not learn, a layer hands the graph itself to an operator, which makes
the basis as an eager layer does: once for an unmodified ``edge_index``, and with its checks.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor

from ..attention import KeyQuery
from ..basis.edges import EdgeBasis, multiply
from ..contract.heads import values_of
from ..families import Family, parse_family
from ..graph.graph import Graph
from ..kernels.attend_ends import SUMS_OF_ENDS, attend_compiled, can_attend_ends
from ..kernels.attend_entries import PRODUCTS
from ..kernels.attend_operator import as_operator
from ..kernels.edge_sums import edge_sums, most
from ..kernels.head_copies import HeadCopies, copies_for
from ..kernels.index_checks import is_exporting
from ..kernels.mode import mode
from ..memo import Memo
from ..theta import Theta, ThetaValue, add_bias
from .call import Call

if TYPE_CHECKING:
    from ..attention.sums import Additive
    from .attention_conv import AttentionConv
    from .outer_conv import OuterConv

_bases = Memo(each=8, tensors=4)
_by_number: WeakValueDictionary[int, EdgeBasis] = WeakValueDictionary()
_transposed: WeakKeyDictionary[EdgeBasis, EdgeBasis] = WeakKeyDictionary()
_numbers = count()


def convolution(
    conv: OuterConv, call: Call, theta: ThetaValue, bias: Tensor | None
) -> Tensor | None:
    """Y (*batch, N, Q) = Σ_k A_kᵀ X Θ_k + b, with sums on the narrower side of Θ.

    None where the operator does not serve the call, which is then traced as a whole: without edges
    whose values are known, in exported graphs, and where something is to be refused.
    """
    theta = Theta(theta) if isinstance(theta, Tensor) else theta
    sums = conv.reduce == conv.label_reduce == "sum"
    free = conv.order is None and conv.max_memory is None
    if not (sums and free and _is_served(conv, conv.family, call) and _fits(call.source, theta)):
        return None
    x = call.source.movedim(-2, 0)  # type: ignore[union-attr]
    num_nodes, batch = x.size(0), x.shape[1:-1]
    num_labels, groups, _, columns = theta.shape
    made_of = *_graph(call), _recipe(conv), num_nodes, x.dtype
    if groups * columns < x.size(-1):
        z = theta.transform(x).flatten(0, 1).flatten(1)
        out, _ = sum_over_edges(z, None, *made_of, num_nodes, False, False)
        out = out.view(num_nodes, *batch, groups * columns)
        out = out if bias is None else add_bias(out, bias, own=True)
    else:
        num_rows = num_nodes * num_labels
        h, _ = sum_over_edges(x.flatten(1), None, *made_of, num_rows, True, False)
        out = theta.combine(h.view(num_rows, *x.shape[1:]), num_nodes, bias)
    return out if out.dim() == 2 else out.movedim(0, -2).contiguous()


def _is_served(conv: OuterConv, family: Family, call: Call) -> bool:
    """Whether the call is one over a list of edges, of whose values none learns."""
    if conv.family_text is None or conv.cached is False or is_exporting():
        return False
    if not call.is_single or call.size is not None:
        return False
    edge_index = call.edge_index
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


def _graph(call: Call) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return call.edge_index, call.beside.get("edge_weight"), call.beside.get("edge_type")


def _recipe(conv: OuterConv) -> str:
    """What makes a basis of a graph: the direction of messages, the reduction, and the family."""
    return f"{conv.flow} {conv.aggr} {conv.family_text}"


@lru_cache
def text_of(family: Family) -> str | None:
    """The text of a family, for a compiled graph that is stored outlives objects.

    None if the text does not say all of it.
    """
    text = str(family)
    try:
        return text if _family(text) == family else None
    except (TypeError, ValueError):
        return None


@lru_cache
def _family(text: str) -> Family:
    return parse_family(text)


def _numbered(number: int | None, *made_of: Any) -> tuple[int, EdgeBasis]:
    """The basis of a graph, perhaps cached, and its number, which no other basis ever has.

    Args:
        number: that of the basis, if it is known. A backward pass knows it by this number, for the
            tensors of the graph are other objects there. One no longer cached is made anew.
        *made_of: edge_index, edge_weight and edge_type, then as for :func:`_make`.
    """
    basis = None if number is None else _by_number.get(number)
    if number is not None and basis is not None:
        return number, basis
    edge_index, edge_weight, edge_type, *key = made_of
    make = partial(_make, *made_of)
    return _bases.get(tuple(key), make, edge_index, edge_weight, edge_type)  # type: ignore[no-any-return]


def _make(
    edge_index: Tensor,
    edge_weight: Tensor | None,
    edge_type: Tensor | None,
    recipe: str,
    num_nodes: int,
    dtype: torch.dtype,
) -> tuple[int, EdgeBasis]:
    """A basis from the edges, the text that tells how, the number N, and the type of values."""
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
        number: that of the basis, () of int64, or None; see :func:`_numbered`.
        edge_index, edge_weight, edge_type, recipe, num_nodes, dtype: what it is made of.
        num_rows: R.
        by_target: whether S has a row for each target and label, and a column for each source;
            else a row for each target, and a column for each source and label.
        transposed: whether x is multiplied with Sᵀ.

    Returns:
        (R, channels), and the number.
    """
    made_of = edge_index, edge_weight, edge_type, recipe, num_nodes, dtype
    place, basis = _numbered(None if number is None else int(number), *made_of)
    return _product(basis, x.contiguous(), num_rows, by_target, transposed), torch.tensor(place)


def _product(
    basis: EdgeBasis, x: Tensor, num_rows: int, by_target: bool, transposed: bool
) -> Tensor:
    pattern = basis.pattern
    if pattern.listed is not None and pattern.num_edges * x.size(1) <= most(x, mode()):
        ends = pattern.listed_rows if by_target else pattern.listed_columns
        return edge_sums(ends, basis.values_as_listed(x), x, num_rows, transposed)
    if transposed:  # with values in its own order, which would be brought into it at every call
        by_target = not by_target
        if basis not in _transposed:
            _transposed[basis] = basis.transposed_edges()
        basis = _transposed[basis]
    pattern = basis.pattern
    return multiply(pattern.by_target_label if by_target else pattern.by_target, basis, x)


def _sizes(x: Tensor, number: Tensor | None, *others: Any) -> tuple[Tensor, Tensor]:
    *_, num_rows, _, _ = others
    return x.new_empty((num_rows, x.size(1))), x.new_empty((), dtype=torch.int64)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, _, edge_index, edge_weight, edge_type, recipe, num_nodes, dtype, _, *way = inputs
    ctx.save_for_backward(output[1], edge_index, edge_weight, edge_type)
    ctx.rest = recipe, num_nodes, dtype, x.size(0), way


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    recipe, num_nodes, dtype, num_rows, (by_target, transposed) = ctx.rest
    made_of = *ctx.saved_tensors, recipe, num_nodes, dtype
    of_x, _ = sum_over_edges(grad, *made_of, num_rows, by_target, not transposed)
    return of_x, *(None,) * 10


def _vmap(
    info: Any, in_dims: tuple[int | None, ...], x: Tensor, *others: Any
) -> tuple[tuple[Tensor, Tensor], tuple[int, None]]:
    """A batch is more channels of x; the graph has none, for it is no operand."""
    x = x.movedim(in_dims[0], 1)  # type: ignore[arg-type]
    out, number = sum_over_edges(x.flatten(1), *others)
    return (out.unflatten(1, x.shape[1:]), number), (1, None)


# Not by `torch.library.custom_op`, whose checks of what is returned take as long as a small sum.
_LIBRARY = torch.library.Library("pyg_outerconv", "FRAGMENT")
_NAME = "sum_over_edges"
_LIBRARY.define(_NAME + torch.library.infer_schema(_run, mutates_args=()))
_LIBRARY.impl(_NAME, _run, "CompositeExplicitAutograd")
_FULL = f"{_LIBRARY.ns}::{_NAME}"
torch.library.register_fake(_FULL, _sizes, lib=_LIBRARY)
torch.library.register_autograd(_FULL, _backward, setup_context=_setup, lib=_LIBRARY)
torch.library.register_vmap(_FULL, _vmap, lib=_LIBRARY)
sum_over_edges = torch.ops.pyg_outerconv.sum_over_edges.default


# Attention ----------------------------------------------------------------------------------------


def attention(conv: AttentionConv, call: Call, score: Additive, theta: Theta) -> Tensor | None:
    """A_hᵀ X V_h for each head, (N, H, V), with scores of one number for each end (GAT).

    None where the operator does not serve the call.
    """
    x = call.source
    if not _is_served(conv, conv.family.support, call) or not isinstance(x, Tensor):
        return None
    operands = x, theta.value, score.att_source, score.att_target
    return attend_compiled(_sums_of_ends, *operands, _edges(conv, call, x), score.negative_slope)


def key_query_attention(conv: AttentionConv, call: Call, theta: Theta) -> Tensor | None:
    """A_hᵀ (X V_h + b_h) for each head, (N, H, V), by scores that are products of both ends.

    None where the operator does not serve the call, or a part of the attention is not in it.
    """
    x, family = call.source, conv.family
    score, f = family.score, family.normalise
    if not isinstance(score, KeyQuery) or score.edge is not None or score.rotary is not None:
        return None
    if family.align is not None or family.terms or family.support.num_bases != 1:
        return None
    if not f.is_softmax or f.dropped or not _is_served(conv, family.support, call):
        return None
    if not isinstance(x, Tensor) or x.dim() != 2 or theta.heads is None:
        return None
    fits = x.size(1) == theta.value.size(1) == score.key.in_channels == score.query.in_channels
    if not fits or not can_attend_ends(x, theta.value, score.key.weight, score.query.weight):
        return None
    operands = score.query(x), score.key(x), values_of(theta, x)
    return _sums_of_products(*operands, score.scale / f.temperature, *_edges(conv, call, x))


def _edges(conv: AttentionConv, call: Call, x: Tensor) -> tuple[Any, ...]:
    """What an operator makes the support of."""
    return *_graph(call), _recipe(conv), x.size(0), x.dtype


def _entries(heads: int, number: int | None, *made_of: Any) -> tuple[HeadCopies, int]:
    place, basis = _numbered(number, *made_of)
    pattern = basis.pattern
    return copies_for(pattern.by_target, heads, at_once=True), place


def _room(edge_index: Tensor, *beside: Any) -> int:
    """The number of edges if every node got one more, for a compiler does not know how many do."""
    *_, num_nodes, _ = beside
    return edge_index.size(1) + num_nodes  # type: ignore[no-any-return]


_EDGES = (
    "Tensor edge_index, Tensor? edge_weight, Tensor? edge_type, str recipe, SymInt num_nodes, "
    "ScalarType dtype"
)
_sums_of_ends = as_operator(SUMS_OF_ENDS, "of_graph", _EDGES, _room, _entries)
_sums_of_products = as_operator(PRODUCTS, "of_graph", _EDGES, _room, _entries)
