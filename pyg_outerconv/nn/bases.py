"""The basis of a call of a layer: passed to it, shared with other layers, or made."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from ..attention.queries import Content
from ..basis import Basis, EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedValue
from ..families.support.support import cached_support
from ..graph.checks import check_size, holds
from ..graph.edge_index import is_matrix
from ..graph.graph import Graph, completed
from ..graph.node_set import NodeSet
from ..graph.structure import Structure, require_kind
from ..kernels.index_checks import has_numbers
from ..kernels.mode import Mode
from ..memo import Memo
from .call import Call

if TYPE_CHECKING:
    from ..families import Attention, Family
    from .outer_conv import OuterConv

bases = Memo()
rules = Memo(64)  # of shapes, which are no tensors
# For layers with cached=None: bases of the last few graphs, shared by the layers of a model.
recent = Memo(each=8, tensors=4)


def shares_here(edge_index: Any, mode: Mode) -> bool:
    """Whether layers with ``cached=None`` share the basis of this ``edge_index``."""
    return type(edge_index) is Tensor and not (mode.compiles or mode.traces or mode.dispatches)


def basis_of(
    conv: OuterConv,
    call: Call,
    content: Content | None = None,
    family: Family | None = None,
    keeps: bool = True,
) -> Basis:
    """The basis passed as ``edge_index``, or the basis that the family makes, perhaps cached.

    ``family``: a part of the layer's that does not learn, in its place. ``keeps``: whether to look
    at a cache, where the layer may.
    """
    edge_index, source = call.edge_index, call.source
    if not isinstance(edge_index, Tensor) and isinstance(edge_index, Basis):
        return _passed_basis(conv, call)
    has_features = source is not None and source.is_floating_point()
    place = (source.dtype, source.device) if has_features else _place(conv, call)  # type: ignore[union-attr]
    memo, learns = None, family is None and conv._learns
    family = conv._family if family is None else family
    if keeps and not learns:
        if conv.cached:
            memo = bases
        elif conv.cached is None and content is None and shares_here(edge_index, call.mode):
            memo = recent
    make = partial(_make_basis, conv, family, call, content, place)
    if memo is None:
        basis = make()
    else:
        size = call.size
        if size is not None:
            check_size(size)
            size = tuple(size)  # type: ignore[assignment]
        key = (
            family,
            conv.flow,
            conv.folds_mean,
            size,
            conv.theta.in_channels if call.featureless else call.num_sources,
            call.num_targets,
            call.is_single,
            *place,
            torch.get_default_dtype(),
        )
        if type(edge_index) is Tensor and not (call.beside or edge_index.requires_grad):
            basis = memo.get(key, make, edge_index)
        else:
            basis = _cached(memo, key, make, family, call)
    # Edges in a tensor are among the nodes of a single x.
    is_of_x = type(edge_index) is Tensor and family.reads.targets_are_sources
    if not is_of_x and conv.root is not None:
        kind = require_kind(family, edge_index)
        is_list = isinstance(edge_index, Tensor)  # getattr on a tensor without it is slow
        of_two = kind.bipartite if is_list else getattr(edge_index, "bipartite", kind.bipartite)
        _check_root(call, basis, of_two)
    return basis


def _cached(memo: Memo, key: Hashable, make: partial[Basis], family: Family, call: Call) -> Basis:
    """The cached basis of a structure and what is beside it, or a new one, which is then cached.

    Bases of shapes, which are no tensors, are cached by value.
    """
    kind = require_kind(family, call.edge_index)
    parts, value = kind.identity(call.edge_index)
    names: list[Hashable] = []
    tensors: list[Tensor] = []
    for name, ends in (("edge_index", parts), *call.beside.items()):
        for end, part in enumerate(ends if isinstance(ends, tuple | list) else (ends,)):
            if part is None:
                continue
            if not isinstance(part, Tensor) or part.requires_grad:
                return make()
            names.append((name, end))
            tensors.append(part)
    key = key, value, *names
    return (memo if tensors else rules).get(key, make, *tensors)  # type: ignore[no-any-return]


def _passed_basis(conv: OuterConv, call: Call) -> Basis:
    """The basis in the place of ``edge_index``, if it fits the layer and x."""
    basis: Basis = call.edge_index
    _check_given(conv, call, basis)
    dtype = _place(conv, call)[0] or torch.get_default_dtype()
    return basis.mean(dtype) if conv.folds_mean else basis


Place = tuple[torch.dtype | None, torch.device]


def _place(conv: OuterConv, call: Call) -> Place:
    """The dtype of values, and the device for a structure without tensors.

    Both are those of the features, else of the parameters; the dtype is None without either.
    """
    source = call.source
    dtype = device = None
    if source is not None:
        device = source.device
        if source.is_floating_point():
            return source.dtype, device
    for parameter in conv.parameters():
        return parameter.dtype, device or parameter.device
    return dtype, device or torch.get_default_device()


def _make_basis(
    conv: OuterConv, family: Family, call: Call, content: Content | None, place: Place
) -> Basis:
    """The basis that a family makes, with values in the dtype of x or of parameters."""
    (dtype, device), edge_index = place, call.edge_index
    is_index = type(edge_index) is Tensor and edge_index.layout is torch.strided
    is_edges = is_index and edge_index.dtype is torch.int64 and family.reads is Graph
    kind = Graph if is_edges else require_kind(family, edge_index)
    size = call.num_sources, call.num_targets
    if call.size is not None or call.featureless or not (is_edges and call.is_single):
        size = _size(conv, call, kind)
    reverse = conv.flow == "target_to_source"
    if reverse and is_matrix(edge_index):
        raise RefusedValue(
            "flow='target_to_source' takes edges as indices",
            "(2, E)",
            "a sparse matrix; pass its transpose",
        )
    ends = size[::-1] if reverse else size
    structure: Structure
    if is_index and kind is Graph and not call.beside:
        structure = Graph.of_index(edge_index, ends, not call.is_single)
    else:
        family.refuse_unread(call.beside)
        bipartite = None if call.is_single else True
        place_of = {"dtype": dtype} if issubclass(kind, Graph) else {"device": device}
        structure = kind.read(edge_index, size=ends, bipartite=bipartite, **place_of, **call.beside)
    # Not left to PyG, whose generated and general `propagate` disagree about pairs of this flow.
    structure = structure.reversed() if reverse else structure
    is_read = call.mode.is_plain and type(edge_index) is Tensor and edge_index.is_cpu
    if not is_read and isinstance(structure, Graph) and not has_numbers(structure.edge_index):
        structure = structure.but(only_sums=conv.aggr == "sum" and content is None)
    dtype = dtype or torch.get_default_dtype()
    if family is conv._family or type(edge_index) is Tensor:
        basis = (
            family.basis_on(structure, dtype)
            if content is None
            else family.basis_with(structure, dtype, content)
        )
    else:  # a support, kept for as long as the graph that was given
        basis = cached_support(family, structure, rules)
    if not kind.targets_are_sources:
        _check_ends(basis, size)
    return basis.mean(dtype) if conv.folds_mean else basis


def _size(conv: OuterConv, call: Call, kind: type[Structure]) -> tuple[int | None, int | None]:
    """(M, N) from ``size``, x and the layer. Raises ValueError if they disagree."""
    size = call.size
    if size is not None:
        check_size(size)
        size = size[::-1] if conv.flow == "target_to_source" else size
    counts = [call.num_sources, call.num_targets]
    if call.featureless:
        counts[0] = conv.theta.in_channels
    if call.is_single and not kind.targets_are_sources:
        counts[1] = None
    if size is not None:
        for end, (name, count) in enumerate(zip(("sources", "targets"), size, strict=True)):
            if count is None:
                continue
            if counts[end] not in (None, count):
                raise RefusedValue(
                    f"size must agree with x in the number of {name}", counts[end], count
                )
            counts[end] = count
    if counts[1] is None and kind.targets_are_sources and not _tells_targets(conv, call.edge_index):
        counts[1] = counts[0]
    return counts[0], counts[1]


def _tells_targets(conv: OuterConv, edges: Any) -> bool:
    """Whether the structure knows the number of targets, N."""
    if isinstance(edges, EdgeIndex):
        return edges.sparse_size(0 if conv.flow == "target_to_source" else 1) is not None
    return isinstance(edges, Structure) or is_matrix(edges)


def _check_given(conv: OuterConv, call: Call, basis: Basis) -> None:
    if basis.num_bases != conv.theta.num_labels:
        raise RefusedValue(
            f"a basis must have the labels of the layer's family, {conv.family}",
            f"K = {conv.theta.num_labels}",
            basis.num_bases,
        )
    if any(name != "batch" for name in call.beside):
        raise RefusedValue(
            "a basis has its own weights and types",
            "no edge_weight, edge_type, edge_attr or pos beside it",
            "one of them",
        )
    own_targets = call.is_single and not conv.family.reads.targets_are_sources
    _check_ends(basis, (call.num_sources, None if own_targets else call.num_targets))
    check_size(call.size)
    _check_ends(basis, call.size or (None, None))
    if conv.root is not None:
        _check_root(call, basis)


def _check_ends(basis: Basis, expected: tuple[int | None, int | None]) -> None:
    """Raise ValueError if a basis has other numbers of nodes than expected."""
    for name, count, actual in zip(("sources", "targets"), expected, basis.size, strict=True):
        if count is not None and count != actual:
            raise RefusedValue(f"the basis must have the {name} of x and size", count, actual)


def _check_root(call: Call, basis: Basis, bipartite: bool = False) -> None:
    """Raise ValueError for a single x if a root weight needs features of other target nodes."""
    sources, targets = basis.size
    has_one_x = call.is_single and call.source is not None
    if has_one_x and (bipartite or sources != targets):
        raise RefusedValue(
            "a root weight multiplies features of the targets",
            "a pair (x_source, x_target) where targets are other nodes than sources",
            f"one x, M = {sources}, N = {targets}",
        )


# Attention: a support in the place of edge_index -------------------------------------------------


def check_beside_basis(call: Call, content: Content) -> None:
    """Check the arguments beside a basis."""
    own, size = call.edge_index.size, call.size
    ends = zip(size or (), own, strict=False)
    if any(count is not None and count != end for count, end in ends):
        raise RefusedValue("a basis has a size of its own", own, size)
    beside = {name: call.beside.get(name) for name in ("edge_weight", "edge_type")}
    if call.edge_index.dtype is not None:
        beside |= {"source_mask": content.present, "alignment": content.alignment}
    for name, part in beside.items():
        if part is not None:
            raise RefusedValue(
                f"a basis that is given was made before {name}", "none beside it", name
            )


def basis_on_support(family: Attention, call: Call, content: Content) -> Basis:
    """The attention matrices on the edges of a support, a basis without values.

    ``call`` also has attributes (E, D_e) of the edges that it was made from, and positions and
    graphs of the nodes, which do not change its edges.
    """
    support = call.edge_index
    edge_attr, pos, batch = (call.beside.get(name) for name in ("edge_attr", "pos", "batch"))
    over = support if isinstance(support, ImplicitEdges) else support.edges()
    for name, part in (("edge_attr", edge_attr), ("pos", pos)):
        if part is not None and not family.makes_use_of(name):
            raise RefusedValue(f"the score does not read {name}", "none", name)
    ends = (pos, pos) if isinstance(pos, Tensor) else pos
    is_pair = not content.is_single
    structure: Structure
    if isinstance(over, ImplicitEdges):
        node_set = NodeSet.read(None, size=over.size, device=over.device, batch=batch)
        structure = replace(node_set, pos=ends, bipartite=is_pair)
    else:
        _check_origin(over, edge_attr)
        index = over.pattern.index
        edges = Graph(index, over.size, edge_attr=edge_attr, pos=ends, bipartite=is_pair)
        structure = completed(edges, None, batch, None)
    return family.basis_over(over, structure, content)


def _check_origin(over: EdgeBasis, edge_attr: Tensor | None) -> None:
    """Raise ValueError if ``edge_attr`` has fewer rows than the support was made from."""
    origin = over.pattern.origin
    if edge_attr is None or origin is None or not edge_attr.dim() or torch.compiler.is_compiling():
        return
    if not holds((origin < edge_attr.size(0)).all()):
        raise RefusedValue(
            "edge_attr has a row for each edge that the support was made of",
            f"{int(origin.max()) + 1} or more",
            edge_attr.size(0),
        )
