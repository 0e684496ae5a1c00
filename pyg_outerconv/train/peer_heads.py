"""PyG's layers for families of heads: what each is, and how it begins as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GATv2Conv, TransformerConv

from ..families import Family
from ..families.multi_head import GAT, GATv2, HeadsByName, Transformer
from .peer_recipe import Recipe, no_peer
from .settings import Settings


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
    kind: type[Module],
    begin: Callable[[Any, Any], None],
    options: dict[str, Any],
) -> Recipe:
    def make(p: int, q: int) -> Module:
        return kind(p, _width(family, q), **options)

    name = f"{kind.__name__}(heads={family.heads})"
    return Recipe(name, make, begin, {"edge_index": data.edge_index}, takes_sparse=True)


def _gat(family: GAT, data: Data, settings: Settings) -> Recipe:
    options = {"negative_slope": family.negative_slope, "add_self_loops": family.add_self_loops}
    return _recipe(family, data, GATConv, _begin_gat, {**_options(family), **options})


def _gatv2(family: GATv2, data: Data, settings: Settings) -> Recipe:
    options = {
        "negative_slope": family.negative_slope,
        "add_self_loops": family.add_self_loops,
        "share_weights": family.share_weights,
    }
    return _recipe(family, data, GATv2Conv, _begin_gatv2, {**_options(family), **options})


def _transformer(family: Transformer, data: Data, settings: Settings) -> Recipe:
    if family.add_self_loops:
        raise no_peer("no added self-loops", repr(family))
    options = {**_options(family), "root_weight": settings.root_weight}
    return _recipe(family, data, TransformerConv, _begin_transformer, options)


def _rows(weight: Tensor) -> Tensor:
    """Weights of heads (H, P, D) as those of one linear map (H·D, P)."""
    return weight.transpose(1, 2).flatten(0, 1)


def _begin_gat(conv: Any, mine: Any) -> None:
    score = mine.family.score
    conv.lin.weight.copy_(_rows(mine.theta.weight))
    conv.att_src.copy_(score.att_source[None])
    conv.att_dst.copy_(score.att_target[None])


def _begin_gatv2(conv: Any, mine: Any) -> None:
    score = mine.family.score
    conv.lin_l.weight.copy_(_rows(mine.theta.weight))
    conv.lin_l.bias.zero_()
    conv.att.copy_(score.att[None])
    if score.ends.target is not None:
        conv.lin_r.weight.copy_(_rows(score.ends.target.weight))
        conv.lin_r.bias.copy_(score.ends.target.bias.flatten())


def _begin_transformer(conv: Any, mine: Any) -> None:
    score = mine.family.score
    conv.lin_value.weight.copy_(_rows(mine.theta.weight))
    conv.lin_value.bias.zero_()
    for theirs, ours in ((conv.lin_key, score.key), (conv.lin_query, score.query)):
        theirs.weight.copy_(_rows(ours.weight))
        theirs.bias.copy_(ours.bias.flatten())
    if mine.root is not None:
        conv.lin_skip.weight.copy_(mine.root.weight[0].t())
        conv.lin_skip.bias.zero_()


HEADS: dict[type[Family], Callable[[Any, Any, Settings], Recipe]] = {
    GAT: _gat,
    GATv2: _gatv2,
    Transformer: _transformer,
}
