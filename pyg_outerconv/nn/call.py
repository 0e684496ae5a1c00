"""The arguments of a call of a layer: x for both ends, what comes beside it, their devices."""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import RefusedType, RefusedValue
from ..graph import Cells
from ..graph.checks import check_dense
from ..graph.sparse_features import as_matrix
from ..graph.sparse_matrix import Features, SparseMatrix, read_sparse
from ..kernels.edge_sums import TINY, most
from ..kernels.mode import mode

LISTED = {"edge_weight", "edge_type"}
"""What may come beside the edges of a tiny graph."""

Ends = Tensor | tuple[Tensor, Tensor]
"""One tensor for the nodes, or one for the sources and one for the targets."""


class Call:
    """The arguments of a call of a layer, read once: ``x`` as features of sources and of targets.

    Args:
        x: one tensor for both ends, a pair (sources, targets), or None. Sparse features become a
            :class:`SparseMatrix`, which is no tensor.
        edge_index: the structure, or a basis.
        edge_weight, edge_type, size, batch, edge_attr, pos: as in :meth:`OuterConv.forward`.
        flow: the direction of messages.

    Attributes:
        source: (*batch, M, P) features, sparse ones (M, P), (M,) indices, or None.
        target: the same for the N targets, with P_t channels; equals ``source`` if x is single.
        num_sources, num_targets: M and N if x determines them, else None.
        featureless: whether the sources have no features or indices: Θ has a row for each source.
        targets_featureless: whether x was None: a root weight has a row for each target.
        is_single: whether sources and targets are the same nodes: x is one tensor, or a pair of the
            same tensor, as ``to_hetero`` passes it. Otherwise they are different nodes, even if
            M = N.
        like: a tensor with the dtype and device of the features; None without features.
        beside: names and values of the arguments beside the structure that are not None, but for
            ``size``.
        mode: what surrounds the call.

    Raises:
        TypeError: x is neither a tensor, nor a pair of tensors, nor None; or holds neither
            floating point features nor integer indices.
        ValueError: a tensor has too few dimensions, or a sparse one is no matrix.
    """

    source: Features
    target: Features
    num_sources: int | None
    num_targets: int | None
    like: Tensor | None
    featureless = targets_featureless = False
    is_single = True

    def __init__(
        self,
        x: Any,
        edge_index: Any = None,
        edge_weight: Tensor | None = None,
        edge_type: Tensor | None = None,
        size: tuple[int | None, int | None] | None = None,
        batch: Ends | None = None,
        edge_attr: Tensor | None = None,
        pos: Ends | None = None,
        *,
        flow: str = "source_to_target",
    ) -> None:
        self.edge_index, self.size, self.mode = edge_index, size, mode()
        self.beside: dict[str, Any] = {}
        if edge_weight is not None:
            self.beside["edge_weight"] = edge_weight
        if edge_type is not None:
            self.beside["edge_type"] = edge_type
        if batch is not None:
            self.beside["batch"] = batch
        if edge_attr is not None:
            self.beside["edge_attr"] = edge_attr
        if pos is not None:
            self.beside["pos"] = pos
        is_dense = type(x) is Tensor and x.layout is torch.strided and x.is_floating_point()
        if is_dense and x.dim() > 1:  # the common case, kept fast
            self.source = self.target = self.like = x
            self.num_sources = self.num_targets = x.size(-2)
        else:
            self._read_ends(x, flow)

    def _read_ends(self, x: Any, flow: str) -> None:
        """Set the features of both ends from any ``x``."""
        pair = isinstance(x, tuple | list)
        if pair and len(x) != 2:
            got = f"{len(x)} entries"
            raise RefusedValue("a bipartite x is a pair", "(x_source, x_target)", got)
        source, target = x if pair else (x, x)
        if pair and flow == "target_to_source":
            source, target = target, source
        same = target is source
        self.is_single = not pair or (same and source is not None)
        self.featureless, self.targets_featureless = source is None, x is None
        self.source, self.num_sources = _features(source)
        self.target, self.num_targets = self.source, self.num_sources
        if not same:
            self.target, self.num_targets = _features(target)
        self._set_like()

    def _set_like(self) -> None:
        values = self.source.value if isinstance(self.source, SparseMatrix) else self.source
        self.like = values if values is not None and values.is_floating_point() else None

    def is_tiny(self, num_labels: int) -> bool:
        """Whether it is of few edges, as an index that can be read, among nodes of dense x."""
        x, index = self.source, self.edge_index
        if type(index) is not Tensor or not isinstance(x, Tensor) or x.dim() != 2:
            return False
        if not (self.mode.is_plain and index.is_cpu) or index.layout is not torch.strided:
            return False  # asked first, for a compiler would guard on the sizes
        rows = max(index.numel() // 2, x.size(0) * num_labels)
        if rows * x.size(1) > TINY or most(x, self.mode) < TINY:
            return False
        if index.dtype is not torch.int64 or index.dim() != 2 or index.size(0) != 2:
            return False
        return self.is_single and self.size is None and not self.beside.keys() - LISTED

    @staticmethod
    def without_x(edge_index: Any, *args: Any, **beside: Any) -> Call:
        """A call for a basis alone, whose numbers of nodes are those of the structure."""
        call = Call(None, edge_index, *args, **beside)
        call.featureless = call.targets_featureless = False
        return call

    def with_ends(self, source: Features, target: Features) -> Call:
        """The same call with other features of the same nodes."""
        call = object.__new__(Call)
        call.__dict__.update(self.__dict__)
        call.source, call.target = source, target
        call._set_like()
        return call

    @staticmethod
    def channels(x: Features) -> int:
        """P of dense or sparse features. Raises ValueError for indices and None."""
        if x is None or not x.is_floating_point():
            raise RefusedValue(
                "in_channels=-1 is derived from features",
                "a float tensor",
                "none" if x is None else x.dtype,
            )
        return x.size(-1)


def nodes_first(x: Features) -> Features:
    """Features (*batch, M, P) as (M, *batch, P), the layout of the contraction."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() == 2:
        return x  # the same object, because caches know it by its identity
    return x.movedim(-2, 0)


def _features(x: Any) -> tuple[Features, int | None]:
    """Features after checks, and their number of nodes."""
    if x is None:
        return None, None
    x = as_matrix(x)
    if isinstance(x, SparseMatrix):
        return x, x.size(0)
    if not isinstance(x, Tensor) or x.is_complex() or x.dtype == torch.bool:
        raise RefusedType(
            "x must hold features or node indices",
            "a tensor of floating point or integer type",
            x.dtype if isinstance(x, Tensor) else type(x).__name__,
        )
    if x.layout != torch.strided:
        return read_sparse(x), x.size(0)
    if x.is_floating_point():
        if x.dim() < 2:
            raise RefusedValue(
                "features must have a row for each node", "shape (M, P)", tuple(x.shape)
            )
        return x, x.size(-2)
    if x.dim() != 1:
        raise RefusedValue("node indices must be one for each node", "shape (M,)", tuple(x.shape))
    return x, x.size(0)


def checked_mask(source_mask: Any, call: Call) -> Tensor:
    """The mask after checks: booleans (*, M) on the device of the sources."""
    count = "M" if call.num_sources is None else call.num_sources
    rule, wanted = "source_mask says which sources there are", f"booleans (*, {count})"
    if not isinstance(source_mask, Tensor):
        raise RefusedType(rule, wanted, type(source_mask).__name__)
    fits = source_mask.dim() > 0 and source_mask.size(-1) == call.num_sources
    if source_mask.dtype != torch.bool or not fits:
        got = f"{source_mask.dtype} {tuple(source_mask.shape)}"
        raise RefusedValue(rule, wanted, got)
    if call.source is not None and source_mask.device != call.source.device:
        raise RefusedValue("source_mask is where x is", call.source.device, source_mask.device)
    return source_mask


def checked_keys(keys: Any, call: Call, source_mask: Tensor | None) -> Tensor:
    """Features of the sources (*, M, P_k) after checks; zeros for NaN and inf of absent ones."""
    values = call.source
    check_dense("keys are features of the sources", keys, least=2, beside=call.like)
    if not isinstance(values, Tensor) or keys.shape[:-1] != values.shape[:-1]:
        got = None if values is None else tuple(values.shape)
        rule = "keys are of the sources whose values x has"
        raise RefusedValue(rule, f"x ({', '.join(map(str, keys.shape[:-1]))}, P)", got)
    return keys if source_mask is None else _without(keys, source_mask, False)  # type: ignore[return-value]


def without_absent(call: Call, source_mask: Tensor, wholly: bool = False) -> Call:
    """The call with zeros for NaN and inf of absent sources, or ``wholly`` for all they hold.

    Zero times NaN or inf is NaN, so a share of zero would not keep them from other nodes. Targets
    stay as they are where all is left out, for what absent nodes ask is theirs.
    """
    source = _without(call.source, source_mask, wholly)
    own = call.is_single and not wholly
    return call.with_ends(source, source if own else call.target)


def values_of_present(values: Tensor, source_mask: Tensor) -> Tensor:
    """Values (M, *batch, H, V) with zeros for absent sources, to which no gradient comes."""
    there = source_mask.movedim(-1, 0)
    if there.shape not in (values.shape[:1], values.shape[:-2]):
        return values  # each item of the batch has sources of its own
    ones = (1,) * (values.dim() - there.dim())
    return values.masked_fill(~there.reshape(*there.shape, *ones), 0.0)


def _without(x: Features, there: Tensor, wholly: bool) -> Features:
    if isinstance(x, SparseMatrix):
        if there.dim() > 1:
            return x  # sparse features have no batch; the values of heads refuse it later
        count = x.csr.ptr.diff().long()
        there = torch.repeat_interleave(there, count, output_size=x.num_entries)
        lost = ~there if wholly else ~there & ~x.value.isfinite()
        return x.with_values(x.value.masked_fill(lost, 0.0))
    if x is None or not x.is_floating_point() or there.shape not in (x.shape[-2:-1], x.shape[:-1]):
        return x
    lost = ~there.unsqueeze(-1)
    return x.masked_fill(lost if wholly else lost & ~x.isfinite(), 0.0)


RULE = "what a layer is called with is where its parameters are"


def check_devices(layer: Module, call: Call) -> None:
    """Check the devices of a call before it runs.

    Kernels would not notice a mix of CPU and ``meta``, and would return uninitialised memory.
    """
    if call.mode.compiles:
        return  # tracers check devices themselves
    source, target, edge_index = call.source, call.target, call.edge_index
    features = target if source is None else source
    place = next(layer.parameters(), None) if features is None else features
    if place is None:
        return
    device = place.device
    if target is not None and target.device != device:
        raise RefusedValue("sources and targets are in one place", device, target.device)
    modules: list[Module | None] = [layer]
    on_cpu = device.type == "cpu"
    for module in modules:  # faster than parameters(), and every call comes here
        if module is None:
            continue
        if module._parameters:
            for tensor in module._parameters.values():
                if not (tensor is None or (on_cpu and tensor.is_cpu)):
                    _check_place(layer, tensor, device)
        if module._buffers:
            for buffer in module._buffers.values():
                if buffer is not None:
                    _check_place(layer, buffer, device)
        if module._modules:
            modules += module._modules.values()
    for name, parts in call.beside.items():
        for part in parts if isinstance(parts, tuple | list) else (parts,):
            if isinstance(part, Tensor) and part.device != device:
                raise RefusedValue(f"{name} is where the features are", device, part.device)
    if not isinstance(edge_index, Tensor) or edge_index.device != device or device.type == "meta":
        check_given(edge_index, device)


def _check_place(layer: Module, tensor: Tensor, device: torch.device) -> None:
    """Raise ValueError if a parameter or buffer of a layer is not on ``device``."""
    if tensor.device != device:
        named = chain(layer.named_parameters(), layer.named_buffers())
        name = next(name for name, one in named if one is tensor)
        lost = " (layer.to_empty(device=...), and load_state_dict)" if tensor.is_meta else ""
        raise RefusedValue(RULE, f"{name} on {device}{lost}", tensor.device)


def check_given(edge_index: Any, device: torch.device) -> None:
    """Raise ValueError if edges or a basis are not on ``device``, or if that is ``meta``."""
    is_shape = isinstance(edge_index, Cells) and edge_index.index is None  # a shape has no device
    where = device if is_shape else getattr(edge_index, "device", device)
    where = where() if callable(where) else where  # a method of torch_sparse's SparseTensor
    if isinstance(where, torch.device) and where != device:  # of numpy's arrays it is a text
        raise RefusedValue(
            "edges, or the basis in their place, are where the features are",
            f"{device}: .to(x.device), which a FixedBasis in a module follows",
            where,
        )
    if device.type == "meta":
        raise RefusedValue(
            "a layer runs on values, and meta has none",
            "for shapes alone a real basis within FakeTensorMode(allow_non_fake_inputs=True)",
            device,
        )
