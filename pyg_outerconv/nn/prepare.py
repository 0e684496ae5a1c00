"""Turn the arguments of a layer's forward into features of sources and targets, and a basis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..basis import Basis
from ..errors import RefusedValue
from ..graph.checks import check_size
from ..graph.edge_index import is_matrix
from ..graph.edge_list import EdgeList
from ..graph.structure import Content, Structure, require_kind
from ..kernels.index_checks import has_numbers
from .cache import bases, cached_basis, recent, shares_here
from .inputs import Given, Inputs

if TYPE_CHECKING:
    from .outer_conv import OuterConv


def prepare_basis(
    conv: OuterConv, inputs: Inputs, given: Given, content: Content | None = None
) -> Basis:
    """The basis passed as ``edge_index``, or the basis that the family makes, perhaps cached.

    Raises:
        TypeError, ValueError: the basis does not fit the layer or x; or as :meth:`Family.basis`.
    """
    edge_index = given.edge_index
    if not isinstance(edge_index, Tensor) and isinstance(edge_index, Basis):
        _check_given(conv, inputs, edge_index, given)
        dtype = _place(conv, inputs)[0] or torch.get_default_dtype()
        return edge_index.mean(dtype) if conv.folds_mean else edge_index
    kind, place = require_kind(conv._family, edge_index), _place(conv, inputs)
    keeps = conv.cached or (conv.cached is None and content is None)
    if keeps and not conv._learns and (conv.cached or shares_here(edge_index)):
        size = given.size
        if size is not None:
            check_size(size)
            size = tuple(size)  # type: ignore[assignment]
        sources = conv.theta.in_channels if inputs.featureless else inputs.num_sources
        basis = cached_basis(
            bases if conv.cached else recent,
            kind,
            edge_index,
            given.beside(),
            (
                conv._family,
                conv.flow,
                conv.folds_mean,
                size,
                sources,
                inputs.num_targets,
                inputs.is_single,
                *place,
                torch.get_default_dtype(),
            ),
            lambda: _make_basis(conv, inputs, given, content, kind, place),
        )
    else:
        basis = _make_basis(conv, inputs, given, content, kind, place)
    if conv.root is not None:
        is_list = isinstance(edge_index, Tensor)  # getattr on a tensor without it is slow
        of_two = kind.bipartite if is_list else getattr(edge_index, "bipartite", kind.bipartite)
        _check_root(inputs, basis, of_two)
    return basis


Place = tuple[torch.dtype | None, torch.device]


def _place(conv: OuterConv, inputs: Inputs) -> Place:
    """The dtype of values, and the device for a structure without tensors.

    Both are those of the features, else of the parameters; the dtype is None without either.
    """
    source = inputs.source
    dtype = device = None
    if source is not None:
        device = source.device
        if source.is_floating_point():
            return source.dtype, device
    for parameter in conv.parameters():
        return parameter.dtype, device or parameter.device
    return dtype, device or torch.get_default_device()


def _make_basis(
    conv: OuterConv,
    inputs: Inputs,
    given: Given,
    content: Content | None,
    kind: type[Structure],
    place: Place,
) -> Basis:
    """The basis that the layer's family makes, with values in the dtype of x or of parameters."""
    (dtype, device), family, beside = place, conv._family, dict(given.beside())
    size = _size(conv, inputs, given, kind)
    reverse = conv.flow == "target_to_source"
    if reverse and is_matrix(given.edge_index):
        raise RefusedValue(
            "flow='target_to_source' takes edges as indices",
            "(2, E)",
            "a sparse matrix; pass its transpose",
        )
    family.refuse_unread(beside)
    if issubclass(kind, EdgeList):
        beside["dtype"] = dtype
    found = kind.read(
        given.edge_index,
        size=size[::-1] if reverse else size,
        bipartite=None if inputs.is_single else True,
        device=device,
        **beside,
    )
    found = found.reversed() if reverse else found
    if isinstance(found, EdgeList) and not has_numbers(found.edge_index):
        found = found.but(only_sums=conv.aggr == "sum" and content is None)
    found = found if content is None else found.with_content(content)
    dtype = dtype or torch.get_default_dtype()
    basis = family.basis_on(found, dtype)
    if not kind.targets_are_sources:
        _check_ends(basis, size)
    return basis.mean(dtype) if conv.folds_mean else basis


def _size(
    conv: OuterConv, inputs: Inputs, given: Given, kind: type[Structure]
) -> tuple[int | None, int | None]:
    """(M, N) from ``size``, x and the layer. Raises ValueError if they disagree."""
    size = given.size
    if size is None and kind.targets_are_sources and inputs.is_single and not inputs.featureless:
        return inputs.num_sources, inputs.num_targets
    if size is not None:
        check_size(size)
        size = size[::-1] if conv.flow == "target_to_source" else size
    known = [inputs.num_sources, inputs.num_targets]
    if inputs.featureless:
        known[0] = conv.theta.in_channels
    if inputs.is_single and not kind.targets_are_sources:
        known[1] = None
    if size is not None:
        for end, (name, count) in enumerate(zip(("sources", "targets"), size, strict=True)):
            if count is None:
                continue
            if known[end] not in (None, count):
                raise RefusedValue(
                    f"size must agree with x in the number of {name}", known[end], count
                )
            known[end] = count
    if known[1] is None and kind.targets_are_sources:
        found = given.edge_index
        if not isinstance(found, Structure) and not is_matrix(found):  # these know N
            known[1] = known[0]
    return known[0], known[1]


def _check_given(conv: OuterConv, inputs: Inputs, basis: Basis, given: Given) -> None:
    if basis.num_bases != conv.theta.num_labels:
        raise RefusedValue(
            f"a basis must have the labels of the layer's family, {conv.family}",
            f"K = {conv.theta.num_labels}",
            basis.num_bases,
        )
    beside = (given.edge_weight, given.edge_type, given.edge_attr, given.pos)
    if any(part is not None for part in beside):
        raise RefusedValue(
            "a basis has its own weights and types",
            "no edge_weight, edge_type, edge_attr or pos beside it",
            "one of them",
        )
    own_targets = inputs.is_single and not conv.family.reads.targets_are_sources
    _check_ends(basis, (inputs.num_sources, None if own_targets else inputs.num_targets))
    check_size(given.size)
    _check_ends(basis, given.size or (None, None))
    if conv.root is not None:
        _check_root(inputs, basis)


def _check_ends(basis: Basis, expected: tuple[int | None, int | None]) -> None:
    """Raise ValueError if a basis has other numbers of nodes than expected."""
    for name, given, actual in zip(("sources", "targets"), expected, basis.size, strict=True):
        if given is not None and given != actual:
            raise RefusedValue(f"the basis must have the {name} of x and size", given, actual)


def _check_root(inputs: Inputs, basis: Basis, bipartite: bool = False) -> None:
    """Raise ValueError for a single x if a root weight needs features of other target nodes."""
    sources, targets = basis.size
    has_one_x = inputs.is_single and inputs.source is not None
    if has_one_x and (bipartite or sources != targets):
        raise RefusedValue(
            "a root weight multiplies features of the targets",
            "a pair (x_source, x_target) where targets are other nodes than sources",
            f"one x, M = {sources}, N = {targets}",
        )
