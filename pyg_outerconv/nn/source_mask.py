"""The argument ``source_mask``, which marks the sources that are present."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedType, RefusedValue, refusal
from ..graph import Features, SparseFeatures
from .prepare import Inputs


def checked_mask(source_mask: Any, inputs: Inputs) -> Tensor:
    """The mask after checks: booleans (*, M) on the device of the sources.

    Raises:
        TypeError: it is not a tensor.
        ValueError: it has another dtype, shape or device.
    """
    count = "M" if inputs.num_sources is None else inputs.num_sources
    rule, wanted = "source_mask says which sources there are", f"booleans (*, {count})"
    if not isinstance(source_mask, Tensor):
        raise RefusedType(refusal(rule, wanted, type(source_mask).__name__))
    known = inputs.num_sources is not None and source_mask.dim() > 0
    if source_mask.dtype != torch.bool or not known or source_mask.size(-1) != inputs.num_sources:
        got = f"{source_mask.dtype} {tuple(source_mask.shape)}"
        raise RefusedValue(refusal(rule, wanted, got))
    if inputs.source is not None and source_mask.device != inputs.source.device:
        raise RefusedValue(
            refusal("source_mask is where x is", inputs.source.device, source_mask.device)
        )
    return source_mask


def without_absent(inputs: Inputs, source_mask: Tensor) -> Inputs:
    """The inputs with NaN and inf replaced by zeros in absent sources.

    Zero times NaN or inf is NaN, so a share of zero would not keep them from other nodes.

    Args:
        inputs: the features of M sources.
        source_mask: the result of :func:`checked_mask`.
    """
    source = _without(inputs.source, source_mask)
    return inputs._replace(source=source, target=source if inputs.is_single else inputs.target)


def _without(x: Features, there: Tensor) -> Features:
    if isinstance(x, SparseFeatures):
        if there.dim() > 1:
            return x  # sparse features have no batch; the values of heads refuse it later
        count = x.sparsity.rowptr.diff().long()
        there = torch.repeat_interleave(there, count, output_size=x.num_entries)
        return x.with_values(x.value.masked_fill(~there & ~x.value.isfinite(), 0.0))
    if x is None or not x.is_floating_point() or there.shape not in (x.shape[-2:-1], x.shape[:-1]):
        return x
    return x.masked_fill(~there.unsqueeze(-1) & ~x.isfinite(), 0.0)
