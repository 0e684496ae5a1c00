"""Convert layers of torch to layers of this package."""

from __future__ import annotations

from typing import Any, Union, overload

from torch import nn
from torch_geometric.nn.conv import MessagePassing

from ...errors import RefusedType
from ...signatures import typed
from ..attention.blocks import DecoderBlock, EncoderBlock
from ..attention_conv import AttentionConv
from ..grid_conv import GridConv
from ..grid_pool import GridPool
from .attentions import ATTENTIONS, BLOCKS, from_attention, from_block
from .grids import CONVOLUTIONS, POOLINGS, from_convolution, from_pooling
from .weights import require_plain, require_weights

Layer = Union[GridConv, GridPool, AttentionConv, EncoderBlock, DecoderBlock]  # noqa: UP007


@typed
@overload
def from_torch(module: nn.MultiheadAttention, **supports: Any) -> AttentionConv: ...
@overload
def from_torch(module: nn.TransformerEncoderLayer, **supports: Any) -> EncoderBlock: ...
@overload
def from_torch(module: nn.TransformerDecoderLayer, **supports: Any) -> DecoderBlock: ...
@overload
def from_torch(module: nn.Module, **supports: Any) -> Layer: ...
def from_torch(module: nn.Module, **supports: Any) -> Layer:
    """The layer of this package that equals one of torch's, with a copy of its weights.

    Args:
        module: ``Conv1d``, ``Conv2d``, ``Conv3d``, ``ConvTranspose``, ``MaxPool`` or ``AvgPool`` of
            1 to 3 axes, ``LPPool`` with norm 1, ``MultiheadAttention``, ``TransformerEncoderLayer``
            or ``TransformerDecoderLayer``.
        **supports: for attention, the supports in place of torch's masks: ``support``, and
            ``memory_support`` of a decoder layer; complete by default.

    Raises:
        TypeError: it is another layer, or a subclass, which may compute something else.
        ValueError: it has an option that has no equal, or no weights yet; or a part of it is
            parametrised (``weight_norm``, ``spectral_norm``, ...), pruned or hooked.
    """
    layer: Layer
    if isinstance(module, nn.Module):
        require_weights(module)
        require_plain(module)
    kind = type(module)
    if kind in ATTENTIONS:
        layer = from_attention(module, **supports)
    elif kind in BLOCKS:
        layer = from_block(module, **supports)
    elif supports:
        raise RefusedType("attention has supports", "no more than the module", sorted(supports))
    elif kind in CONVOLUTIONS:
        layer = from_convolution(module)
    elif kind in POOLINGS:
        layer = from_pooling(module)
    else:
        expected = "a convolution, pooling, attention or Transformer layer of torch.nn"
        if isinstance(module, (*ATTENTIONS, *BLOCKS, *CONVOLUTIONS, *POOLINGS)):
            expected += ", and no subclass of them"
        if isinstance(module, MessagePassing):
            expected += " (pyg.from_pyg and pyg.outer_conv take layers of PyG)"
        rule = "a layer of torch becomes one of this package"
        raise RefusedType(rule, expected, type(module).__name__)
    return layer.train(module.training)
