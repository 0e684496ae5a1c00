"""PyG's attention layers and AttentionConv."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch_geometric.nn import AGNNConv, GATConv, GATv2Conv, SuperGATConv, TransformerConv

from ...errors import RefusedType
from ..attention.graph_attention import agnn_conv, gat_conv, gatv2_conv, super_gat_conv
from ..attention.transformer_conv import transformer_conv
from ..attention_conv import AttentionConv
from .weights import (
    copy_parameters,
    copy_to_heads,
    copy_weight,
    require,
    require_plain,
    require_weights,
)


def from_pyg(layer: nn.Module) -> AttentionConv:
    """The layer of this package that equals an attention layer of PyG, with a copy of its weights.

    Options, ``training``, dtype, device and ``requires_grad`` stay the same. The additional loss of
    SuperGAT is not part of a convolution, and is left out.

    >>> from torch_geometric.nn import GATConv
    >>> from_pyg(GATConv(16, 8, heads=4)).out_channels
    32

    Args:
        layer: a ``GATConv``, ``GATv2Conv``, ``TransformerConv``, ``AGNNConv``, or a
            ``SuperGATConv`` with ``attention_type='SD'``.

    Raises:
        TypeError: it is another layer, or a subclass, which may compute something else.
        ValueError: it has an option that has no equal, or no weights yet; or a part of it is
            parametrised (``weight_norm``, ``spectral_norm``, ...), pruned or hooked.
    """
    if isinstance(layer, tuple(LAYERS)) and is_parametrized(layer):
        require_plain(layer)  # whose class is torch's own, derived from the layer's
    make = LAYERS.get(type(layer))
    if make is None:
        known = ", ".join(kind.__name__ for kind in LAYERS)
        rule = "an attention layer of PyG becomes one of this package"
        got = type(layer).__name__
        raise RefusedType(rule, f"{known}, and no subclass of them", got)
    _check(layer)
    require_plain(layer)
    return make(layer).train(layer.training)


def _gat(layer: Any) -> AttentionConv:
    source = layer.lin_src if layer.lin is None else layer.lin
    ours = gat_conv(
        _ends(layer, source, layer.lin_dst),
        edge_dim=_edge_dim(layer),
        bias=layer.bias is not None,
        residual=layer.res is not None,
        **_options(layer, "negative_slope", "add_self_loops", "fill_value"),
    )
    _become_like(ours, layer)
    score: Any = ours.family.score
    _copy_linear(ours.theta, source)
    if score.ends.target is not None:
        _copy_linear(score.ends.target, layer.lin_dst)
    copy_weight(score.att_source, layer.att_src[0], layer.att_src)
    copy_weight(score.att_target, layer.att_dst[0], layer.att_dst)
    if score.edge is not None:
        _copy_linear(score.edge.projection, layer.lin_edge)
        copy_weight(score.edge.att, layer.att_edge[0], layer.att_edge)
    return _with_outputs(ours, layer)


def _gatv2(layer: Any) -> AttentionConv:
    ours = gatv2_conv(
        _ends(layer, layer.lin_l, layer.lin_r),
        edge_dim=_edge_dim(layer),
        bias=layer.bias is not None,
        residual=layer.res is not None,
        **_options(layer, "negative_slope", "add_self_loops", "fill_value", "share_weights"),
    )
    _become_like(ours, layer)
    score: Any = ours.family.score
    _copy_linear(ours.theta, layer.lin_l, ours.value_bias)
    if score.ends.target is not None:
        _copy_linear(score.ends.target, layer.lin_r, score.ends.target.bias)
    copy_weight(score.att, layer.att[0], layer.att)
    if score.edge is not None:
        _copy_linear(score.edge, layer.lin_edge)
    return _with_outputs(ours, layer)


def _transformer(layer: Any) -> AttentionConv:
    ours = transformer_conv(
        _ends(layer, layer.lin_key, layer.lin_query),
        edge_dim=_edge_dim(layer),
        bias=layer.lin_value.bias is not None,
        **_options(layer, "beta", "root_weight"),
    )
    _become_like(ours, layer)
    score: Any = ours.family.score
    _copy_linear(ours.theta, layer.lin_value, ours.value_bias)
    _copy_linear(score.key, layer.lin_key, score.key.bias)
    _copy_linear(score.query, layer.lin_query, score.query.bias)
    if score.edge is not None:
        _copy_linear(score.edge, layer.lin_edge)
    for mine, its in ((ours.skip, layer.lin_skip), (ours.gate, layer.lin_beta)):
        if mine is not None:
            copy_parameters(mine, its)
    return ours


def _super_gat(layer: Any) -> AttentionConv:
    ours = super_gat_conv(
        layer.lin.weight.size(1),
        bias=layer.bias is not None,
        **_options(layer, "negative_slope", "add_self_loops"),
    )
    _become_like(ours, layer)
    _copy_linear(ours.theta, layer.lin)
    return _with_outputs(ours, layer)


def _agnn(layer: Any) -> AttentionConv:
    ours = agnn_conv(layer.requires_grad, layer.add_self_loops)
    _become_like(ours, layer)
    copy_weight(ours.family.score.beta, layer.beta)
    return ours


# Layers of PyG, and what makes ours of each.
LAYERS: dict[type[nn.Module], Callable[[Any], AttentionConv]] = {
    GATConv: _gat,
    GATv2Conv: _gatv2,
    TransformerConv: _transformer,
    SuperGATConv: _super_gat,
    AGNNConv: _agnn,
}


def _check(layer: Any) -> None:
    """Raise ValueError if an option has no equal, or the weights have no shapes yet."""
    require_weights(layer, unused=None if getattr(layer, "root_weight", True) else "lin_skip.")
    attention = getattr(layer, "attention_type", "SD")
    node_dim = -2 if isinstance(layer, AGNNConv) else 0
    require(
        "PyG's attention layers have more options",
        (attention == "SD", "attention_type='SD'", f"attention_type={attention!r}"),
        (layer.aggr in ("add", "sum"), "aggr='add'", f"aggr={layer.aggr!r}"),
        (layer.flow == "source_to_target", "flow='source_to_target'", f"flow={layer.flow!r}"),
        (layer.node_dim == node_dim, f"node_dim={node_dim}", f"node_dim={layer.node_dim}"),
        (
            layer.decomposed_layers == 1,
            "decomposed_layers=1",
            f"decomposed_layers={layer.decomposed_layers}",
        ),
    )


def _options(layer: Any, *names: str) -> dict[str, Any]:
    """Options that have the same names here; tensors among them are copied."""
    options = {}
    for name in ("out_channels", "heads", "concat", "dropout", *names):
        value = getattr(layer, name)
        options[name] = value.clone() if isinstance(value, Tensor) else value
    return options


def _ends(layer: Any, source: Any, target: Any) -> int | tuple[int, int]:
    """Input channels from the shapes of weights, because options may be -1: a number or a pair."""
    width: int = source.weight.size(1)
    return width if isinstance(layer.in_channels, int) else (width, target.weight.size(1))


def _edge_dim(layer: Any) -> int | None:
    return None if layer.lin_edge is None else layer.lin_edge.weight.size(1)


def _become_like(ours: AttentionConv, layer: nn.Module) -> None:
    """Move a layer to the device and dtype of another."""
    like = next(chain(layer.parameters(), layer.buffers()))
    ours.to(like.device, like.dtype)


def _copy_linear(ours: Any, linear: Any, bias: Any = None) -> None:
    """A linear map (H·D, P), and its bias if there is one, to weights (H, P, D) and (H, D)."""
    copy_to_heads(ours.weight, linear.weight)
    if bias is not None:
        copy_weight(bias, linear.bias.view_as(bias), linear.bias)


def _with_outputs(ours: AttentionConv, layer: Any) -> AttentionConv:
    """The layer, with a copy of the output's bias, and of the residual's weight if it has one."""
    if ours.bias is not None:
        copy_weight(ours.bias, layer.bias)
    if ours.root is not None:
        copy_to_heads(ours.root.weight, layer.res.weight)
    return ours
