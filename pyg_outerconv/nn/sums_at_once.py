"""Attention calls that need only the sums of values, so that shares need not be stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..basis import Basis, EdgeBasis
from ..basis.additive_attention import AdditiveAttentionBasis
from ..graph.content import Content
from .cache import bases
from .prepare import Given

if TYPE_CHECKING:
    from .attention_conv import AttentionConv


def only_sums(conv: AttentionConv) -> bool:
    """Whether a layer needs only the sums of values, by any order and without observers."""
    free = conv.order is None and conv.max_memory is None and conv.edge_dim is None
    sums = conv.reduce == conv.label_reduce == "sum" and not conv.folds_mean
    return free and sums and not (conv._runs_by_messages() or conv._calls_fused_step())


def on_cached_support(
    conv: AttentionConv, given: Given, content: Content, make: Callable[[], Basis]
) -> Basis:
    """The basis of ``make()``; if the layer is ``cached``, on the cached edges of its support."""
    edge_index, nodes = given.edge_index, None if content.source is None else content.source.size(0)
    is_list = type(edge_index) is Tensor and edge_index.layout == torch.strided
    if not (conv.cached and content.only_sums and is_list) or given.size or given.beside():
        return make()

    def support() -> EdgeBasis | None:
        made = make()
        return made.over if isinstance(made, AdditiveAttentionBasis) else None

    key = "support", conv._family.support, conv.flow, conv.root is None, nodes
    over = bases.get(edge_index, (), key, support)
    found = None if over is None else conv._family.at_once(over, content)
    return make() if found is None else found
