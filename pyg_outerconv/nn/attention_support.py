"""The edges of an attention layer: a support in the place of ``edge_index``, or cached edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..basis import Basis, EdgeBasis
from ..basis.additive_attention import AdditiveAttentionBasis
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedType, RefusedValue
from ..families import Attention
from ..graph import Graph, NodeSet
from ..graph.checks import holds
from ..graph.graph import completed
from ..graph.structure import Content, Structure
from .bases import bases
from .call import Call

if TYPE_CHECKING:
    from .attention_conv import AttentionConv


def is_support(given: Any) -> bool:
    """Whether the argument is a basis without values, which gives edges only."""
    return isinstance(given, Basis) and given.dtype is None


def require_edges(family: Attention, given: Any) -> None:
    """Raise TypeError if ``edge_index`` is None and the support reads a structure."""
    if given is None and not issubclass(NodeSet, reads := family.reads):
        wanted = f"{reads.expects}; or a support of nodes alone, such as Complete()"
        raise RefusedType(f"{family.support} reads {reads.noun}", wanted, given)


def check_beside(call: Call, content: Content) -> None:
    """Check the arguments beside a basis.

    Raises:
        ValueError: the size differs from that of the basis, weights or types of edges are passed,
            or a mask or an alignment is passed beside a basis with values.
    """
    own, size = call.edge_index.size, call.size
    ends = zip(size or (), own, strict=False)
    if any(count is not None and count != end for count, end in ends):
        raise RefusedValue("a basis has a size of its own", own, size)
    beside = {name: call.beside.get(name) for name in ("edge_weight", "edge_type")}
    if not is_support(call.edge_index):
        beside |= {"source_mask": content.present, "alignment": content.alignment}
    for name, part in beside.items():
        if part is not None:
            raise RefusedValue(
                f"a basis that is given was made before {name}", "none beside it", name
            )


def basis_on_support(family: Attention, call: Call, content: Content) -> Basis:
    """The attention matrices on the edges of a support.

    Args:
        family: the attention family.
        call: the support, a basis without values; edge_attr (E, D_e) of the edges that it was
            made from, and positions and graphs of the nodes, which do not change its edges.
        content: the features of the nodes.

    Raises:
        ValueError: the support does not fit the heads or the nodes.
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
        known = NodeSet.read(None, size=over.size, device=over.device, batch=batch)
        structure = replace(known, pos=ends, bipartite=is_pair)
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


def only_sums(conv: AttentionConv) -> bool:
    """Whether a layer needs only the sums of values, by any order and without observers."""
    free = conv.order is None and conv.max_memory is None and conv.edge_dim is None
    sums = conv.reduce == conv.label_reduce == "sum" and not conv.folds_mean
    return free and sums and conv._way() == "contraction"


def on_cached_support(
    conv: AttentionConv, call: Call, content: Content, make: Callable[[], Basis]
) -> Basis:
    """The basis of ``make()``; if the layer is ``cached``, on the cached edges of its support."""
    edge_index, nodes = call.edge_index, None if content.source is None else content.source.size(0)
    is_list = type(edge_index) is Tensor and edge_index.layout == torch.strided
    if not (conv.cached and content.only_sums and is_list) or call.size or call.beside:
        return make()

    def support() -> EdgeBasis | None:
        basis = make()
        return basis.over if isinstance(basis, AdditiveAttentionBasis) else None

    key = "support", conv._family.support, conv.flow, conv.root is None, nodes
    over = bases.get(key, support, edge_index)
    found = None if over is None else conv._family.at_once(over, content)
    return make() if found is None else found
