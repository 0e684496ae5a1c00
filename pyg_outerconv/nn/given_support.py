"""Where the edges of attention come from: a basis without values, or what the support reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..basis import Basis
from ..basis.edges import EdgeBasis
from ..basis.implicit_edges import ImplicitEdges
from ..errors import RefusedType, RefusedValue, refusal
from ..families import Attention
from ..graph import EdgeList, NodeSet
from ..graph.checks import holds
from ..graph.content import Content
from ..graph.edge_list import completed
from ..graph.structure import Structure


def is_support(given: Any) -> bool:
    """Whether something is a basis that says where edges are, and no more."""
    return isinstance(given, Basis) and given.dtype is None


def require_edges(family: Attention, given: Any) -> None:
    """Refuse None in the place of ``edge_index`` where the support reads something.

    Raises:
        TypeError: it does.
    """
    if given is None and not issubclass(NodeSet, reads := family.reads):
        wanted = f"{reads.expects}; or a support of nodes alone, such as Complete()"
        raise RefusedType(refusal(f"{family.support} reads {reads.noun}", wanted, given))


def check_beside(given: Basis, content: Content, *beside: Any) -> None:
    """Refuse what a basis has no need of, or cannot obey any more.

    Args:
        given: a support, or matrices with values.
        content: what the nodes hold.
        *beside: ``size`` and ``edge_type``.

    Raises:
        ValueError: one of these says something else, or values are there and a mask comes too.
    """
    size, edge_type = beside
    if any(count not in (None, end) for count, end in zip(size or (), given.size, strict=False)):
        raise RefusedValue(refusal("a basis has a size of its own", given.size, size))
    known = {"edge_type": edge_type}
    if not is_support(given):
        known |= {"source_mask": content.present, "alignment": content.alignment}
    for name, part in known.items():
        if part is not None:
            raise RefusedValue(
                refusal(f"a basis that is given was made before {name}", "none beside it", name)
            )


def basis_on_support(
    family: Attention,
    given: Basis,
    content: Content,
    edge_attr: Tensor | None,
    pos: Any,
    batch: Any = None,
) -> Basis:
    """The matrices that content makes on a given support.

    Args:
        family: attention.
        given: the support, without values.
        content: what the nodes hold.
        edge_attr: (E, D_e) of the edges that the support was made of.
        pos: positions of the nodes, or of sources and targets.
        batch: the graph of each node, or of sources and of targets, of which places and learned
            queries are; edges are where the support has them.

    Raises:
        ValueError: the support does not fit the heads or the nodes.
    """
    over = given if isinstance(given, ImplicitEdges) else given.edges()
    for name, part in (("edge_attr", edge_attr), ("pos", pos)):
        if part is not None and not family.makes_use_of(name):
            raise RefusedValue(refusal(f"the score makes nothing of {name}", "none", name))
    ends = (pos, pos) if isinstance(pos, Tensor) else pos
    is_pair = not content.is_single
    structure: Structure
    if isinstance(over, ImplicitEdges):
        known = NodeSet.read(None, size=over.size, device=over.device, batch=batch)
        structure = replace(known, pos=ends, bipartite=is_pair)
    else:
        _check_origin(over, edge_attr)
        index = over.pattern.index
        edges = EdgeList(index, over.size, edge_attr=edge_attr, pos=ends, bipartite=is_pair)
        structure = completed(edges, None, batch, None)
    return family.basis_over(over, structure, content)


def _check_origin(over: EdgeBasis, edge_attr: Tensor | None) -> None:
    """Refuse features of less edges than a support was made of. Raises ValueError."""
    origin = over.pattern.origin
    if edge_attr is None or origin is None or not edge_attr.dim() or torch.compiler.is_compiling():
        return
    if not holds((origin < edge_attr.size(0)).all()):
        raise RefusedValue(
            refusal(
                "edge_attr has a row for each edge that the support was made of",
                f"{int(origin.max()) + 1} or more",
                edge_attr.size(0),
            )
        )
