"""PyG's layers for families of heads: what each is, and how it begins as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from ....families import Family
from ....families.heads_by_name import HeadsByName
from ....families.multi_head import GAT, GATv2, Transformer
from ..settings import Settings
from .recipe import Recipe, no_peer


def _options(family: HeadsByName) -> dict[str, Any]:
    """The options that all three layers have."""
    if family.combine == "sum":
        raise no_peer("heads side by side, or their mean", repr(family))
    options = {"heads": family.heads, "concat": family.combine == "concat"}
    return {**options, "dropout": family.dropout}


def _width(family: HeadsByName, out_channels: int) -> int:
    """The channels of a head."""
    return out_channels // family.heads if family.combine == "concat" else out_channels


def _recipe(
    family: HeadsByName,
    data: Data,
    options: dict[str, Any],
) -> Recipe:
    kind, begin_heads = _KINDS[type(family)]

    def begin(conv: Any, mine: Any) -> None:
        begin_heads(conv, mine.theta.weight, mine.family.score)
        if mine.root is not None:
            conv.lin_skip.weight.copy_(mine.root.weight[0].t())
            conv.lin_skip.bias.zero_()

    def make(p: int, q: int) -> Module:
        return kind(p, _width(family, q), **options)

    name = f"{kind.__name__}(heads={family.heads})"
    return Recipe(name, make, begin, {"edge_index": data.edge_index}, takes_sparse=True)


def _gat(family: GAT, data: Data, settings: Settings) -> Recipe:
    options = {"negative_slope": family.negative_slope, "add_self_loops": family.add_self_loops}
    return _recipe(family, data, {**_options(family), **options})


def _gatv2(family: GATv2, data: Data, settings: Settings) -> Recipe:
    options = {
        "negative_slope": family.negative_slope,
        "add_self_loops": family.add_self_loops,
        "share_weights": family.share_weights,
    }
    return _recipe(family, data, {**_options(family), **options})


def _transformer(family: Transformer, data: Data, settings: Settings) -> Recipe:
    if family.add_self_loops:
        raise no_peer("no added self-loops", repr(family))
    options = {**_options(family), "root_weight": settings.root_weight}
    return _recipe(family, data, options)


def residual(family: HeadsByName, data: Data, settings: Settings) -> Recipe:
    """PyG's layer with a linear map of the node itself, for a stack of heads and the identity."""
    if isinstance(family, Transformer):
        options = {**_options(family), "root_weight": True}
    elif isinstance(family, GAT | GATv2):
        options = {**_options(family), "add_self_loops": family.add_self_loops, "residual": True}
        options["negative_slope"] = family.negative_slope
        if isinstance(family, GATv2):
            options["share_weights"] = family.share_weights
    else:
        raise no_peer("gat, gatv2 or transformer beside the identity", repr(family))
    kind, begin = _KINDS[type(family)]

    def begin_stack(conv: Any, mine: Any) -> None:
        heads, itself = mine.theta.parts
        begin(conv, heads.weight, mine.family.families[0].score)
        skip = conv.lin_skip if isinstance(conv, TransformerConv) else conv.res
        skip.weight.copy_(itself.weight[0].t())
        if skip.bias is not None:
            skip.bias.zero_()

    def make(p: int, q: int) -> Module:
        return kind(p, _width(family, q), **options)

    name = f"{kind.__name__}(heads={family.heads}, residual)"
    return Recipe(name, make, begin_stack, {"edge_index": data.edge_index}, takes_sparse=True)


def _rows(weight: Tensor) -> Tensor:
    """Weights of heads (H, P, D) as those of one linear map (H·D, P)."""
    return weight.transpose(1, 2).flatten(0, 1)


def _begin_gat(conv: Any, theta: Tensor, score: Any) -> None:
    conv.lin.weight.copy_(_rows(theta))
    conv.att_src.copy_(score.att_source[None])
    conv.att_dst.copy_(score.att_target[None])


def _begin_gatv2(conv: Any, theta: Tensor, score: Any) -> None:
    conv.lin_l.weight.copy_(_rows(theta))
    conv.lin_l.bias.zero_()
    conv.att.copy_(score.att[None])
    if score.ends.target is not None:
        conv.lin_r.weight.copy_(_rows(score.ends.target.weight))
        conv.lin_r.bias.copy_(score.ends.target.bias.flatten())


def _begin_transformer(conv: Any, theta: Tensor, score: Any) -> None:
    conv.lin_value.weight.copy_(_rows(theta))
    conv.lin_value.bias.zero_()
    for theirs, ours in ((conv.lin_key, score.key), (conv.lin_query, score.query)):
        theirs.weight.copy_(_rows(ours.weight))
        theirs.bias.copy_(ours.bias.flatten())


_KINDS: dict[type[Family], tuple[type[Module], Callable[[Any, Tensor, Any], None]]] = {
    GAT: (GATConv, _begin_gat),
    GATv2: (GATv2Conv, _begin_gatv2),
    Transformer: (TransformerConv, _begin_transformer),
}

HEADS: dict[type[Family], Callable[[Any, Any, Settings], Recipe]] = {
    GAT: _gat,
    GATv2: _gatv2,
    Transformer: _transformer,
}
