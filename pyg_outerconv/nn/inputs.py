"""The arguments of a call of a layer: x for both ends, what comes beside it, their devices."""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from ..errors import RefusedType, RefusedValue
from ..graph import Cells
from ..graph.sparse_features import as_matrix
from ..graph.sparse_matrix import Features, SparseMatrix
from ..graph.torch_sparse import read_sparse


class Given(NamedTuple):
    """The arguments of a call beside x: the structure, and tensors for its edges and nodes."""

    edge_index: Any
    edge_weight: Tensor | None = None
    edge_type: Tensor | None = None
    size: tuple[int | None, int | None] | None = None
    batch: Tensor | tuple[Tensor, Tensor] | None = None
    edge_attr: Tensor | None = None
    pos: Tensor | tuple[Tensor, Tensor] | None = None

    def beside(self) -> list[tuple[str, Any]]:
        """The arguments beside the structure that are not None, each with its name."""
        found: list[tuple[str, Any]] = []
        if self.edge_weight is not None:
            found.append(("edge_weight", self.edge_weight))
        if self.edge_type is not None:
            found.append(("edge_type", self.edge_type))
        if self.batch is not None:
            found.append(("batch", self.batch))
        if self.edge_attr is not None:
            found.append(("edge_attr", self.edge_attr))
        if self.pos is not None:
            found.append(("pos", self.pos))
        return found


class Inputs(NamedTuple):
    """``x`` split into features of sources and of targets.

    Attributes:
        source: (*batch, M, P) features, sparse ones (M, P), (M,) indices, or None.
        target: the same for the N targets, with P_t channels; equals ``source`` if x is single.
        num_sources, num_targets: M and N if x determines them, else None.
        featureless: whether the sources have no features or indices: Θ has a row for each source.
        targets_featureless: whether x was None: a root weight has a row for each target.
        is_single: whether sources and targets are the same nodes: x is one tensor, or a pair of the
            same tensor, as ``to_hetero`` passes it. Otherwise they are different nodes, even if
            M = N.
    """

    source: Features
    target: Features
    num_sources: int | None
    num_targets: int | None
    featureless: bool = False
    targets_featureless: bool = False
    is_single: bool = True

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


def split_input(x: Any, flow: str = "source_to_target") -> Inputs:
    """Split ``x``: one tensor for both ends, a pair (sources, targets), or None.

    Sparse features become a :class:`SparseMatrix`, which is no tensor.

    Raises:
        TypeError: x is neither a tensor, nor a pair of tensors, nor None; or holds neither
            floating point features nor integer indices.
        ValueError: a tensor has too few dimensions, or a sparse one is no matrix.
    """
    pair = isinstance(x, tuple | list)
    if pair and len(x) != 2:
        raise RefusedValue("a bipartite x is a pair", "(x_source, x_target)", f"{len(x)} entries")
    source, target = x if pair else (x, x)
    if pair and flow == "target_to_source":
        source, target = target, source
    same = target is source
    is_single = not pair or (same and source is not None)
    if is_single and _is_dense(source):  # the common case, kept fast
        nodes = source.size(-2)
        return Inputs(source, source, nodes, nodes)
    source, count = _features(source)
    target, num_targets = (source, count) if same else _features(target)
    return Inputs(source, target, count, num_targets, source is None, x is None, is_single)


def nodes_first(x: Features) -> Features:
    """Features (*batch, M, P) as (M, *batch, P), the layout of the contraction."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dim() == 2:
        return x  # the same object, because caches know it by its identity
    return x.movedim(-2, 0)


def _is_dense(x: Any) -> bool:
    """Whether x is a dense floating point tensor with nodes and channels."""
    is_plain = type(x) is Tensor and x.layout is torch.strided
    return is_plain and x.is_floating_point() and x.dim() > 1


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
            getattr(x, "dtype", type(x).__name__),
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


def checked_mask(source_mask: Any, inputs: Inputs) -> Tensor:
    """The mask after checks: booleans (*, M) on the device of the sources."""
    count = "M" if inputs.num_sources is None else inputs.num_sources
    rule, wanted = "source_mask says which sources there are", f"booleans (*, {count})"
    if not isinstance(source_mask, Tensor):
        raise RefusedType(rule, wanted, type(source_mask).__name__)
    known = inputs.num_sources is not None and source_mask.dim() > 0
    if source_mask.dtype != torch.bool or not known or source_mask.size(-1) != inputs.num_sources:
        got = f"{source_mask.dtype} {tuple(source_mask.shape)}"
        raise RefusedValue(rule, wanted, got)
    if inputs.source is not None and source_mask.device != inputs.source.device:
        raise RefusedValue("source_mask is where x is", inputs.source.device, source_mask.device)
    return source_mask


def without_absent(inputs: Inputs, source_mask: Tensor, wholly: bool = False) -> Inputs:
    """The inputs with zeros for NaN and inf of absent sources, or ``wholly`` for all they hold.

    Zero times NaN or inf is NaN, so a share of zero would not keep them from other nodes. Targets
    stay as they are where all is left out, for what absent nodes ask is theirs.
    """
    source = _without(inputs.source, source_mask, wholly)
    own = inputs.is_single and not wholly
    return inputs._replace(source=source, target=source if own else inputs.target)


def _without(x: Features, there: Tensor, wholly: bool) -> Features:
    if isinstance(x, SparseMatrix):
        if there.dim() > 1:
            return x  # sparse features have no batch; the values of heads refuse it later
        count = x.sparsity.rowptr.diff().long()
        there = torch.repeat_interleave(there, count, output_size=x.num_entries)
        lost = ~there if wholly else ~there & ~x.value.isfinite()
        return x.with_values(x.value.masked_fill(lost, 0.0))
    if x is None or not x.is_floating_point() or there.shape not in (x.shape[-2:-1], x.shape[:-1]):
        return x
    lost = ~there.unsqueeze(-1)
    return x.masked_fill(lost if wholly else lost & ~x.isfinite(), 0.0)


RULE = "what a layer is called with is where its parameters are"


def check_devices(
    layer: Module, given: Any, source: Any, target: Any = None, *beside: tuple[str, Any]
) -> None:
    """Check the devices of a call before it runs.

    Kernels would not notice a mix of CPU and ``meta``, and would return uninitialised memory.

    Args:
        layer: the layer, all of whose parameters and buffers are checked.
        given: the argument ``edge_index``.
        source, target: features, or None.
        *beside: names and values of further arguments: a tensor, a pair of tensors, or None.

    Raises:
        ValueError: two of them are on different devices, or all are on ``meta``.
    """
    if torch.compiler.is_compiling():
        return  # tracers check devices themselves
    known = target if source is None else source
    device = _device_of(layer) if known is None else known.device
    if device is None:
        return
    if target is not None and target.device != device:
        raise RefusedValue("sources and targets are in one place", device, target.device)
    if _is_elsewhere(layer, device):
        tensors = chain(layer.named_parameters(), layer.named_buffers())
        name, part = next((name, part) for name, part in tensors if part.device != device)
        raise RefusedValue(RULE, f"{name} on {device}{_hint(part)}", part.device)
    for name, parts in beside:
        for part in parts if isinstance(parts, tuple | list) else (parts,):
            if isinstance(part, Tensor) and part.device != device:
                raise RefusedValue(f"{name} is where the features are", device, part.device)
    if not isinstance(given, Tensor) or given.device != device or device.type == "meta":
        check_given(given, device)


def check_given(given: Any, device: torch.device) -> None:
    """Raise ValueError if edges or a basis are not on ``device``, or if that is ``meta``."""
    is_shape = isinstance(given, Cells) and given.index is None  # a shape has no device
    where = device if is_shape else getattr(given, "device", device)
    where = where() if callable(where) else where  # a method of torch_sparse's SparseTensor
    if where != device:
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


def _device_of(layer: Module) -> torch.device | None:
    """The device of the first parameter of a layer."""
    return next((parameter.device for parameter in layer.parameters()), None)


def _is_elsewhere(module: Module, device: torch.device) -> bool:
    """Whether any tensor of a module is on another device; faster than iterating parameters()."""
    waiting: list[Module | None] = [module]
    for one in waiting:
        if one is None:
            continue
        for held in (one._parameters, one._buffers):
            for part in held.values() if held else ():
                if part is not None and part.device != device:
                    return True
        if one._modules:
            waiting += one._modules.values()
    return False


def _hint(part: Tensor) -> str:
    """How to allocate parameters that are on ``meta``."""
    lost = part.device.type == "meta"
    return " (layer.to_empty(device=...), and load_state_dict)" if lost else ""
