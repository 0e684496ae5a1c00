r"""Layers for GraphGym: ``import pyg_outerconv.graphgym`` adds them and their group of options.

The layers are ``outerconv`` (:class:`~pyg_outerconv.nn.OuterConv`) and ``outerattention``
(:class:`~pyg_outerconv.nn.AttentionConv`), for ``cfg.gnn.layer_type``. Their options are the group
``cfg.outerconv``, which the import adds to the configuration as it is then; so it comes before the
configuration file is read::

    import pyg_outerconv.graphgym
    from torch_geometric.graphgym import cfg, load_cfg, parse_args

    load_cfg(cfg, parse_args())

.. code-block:: yaml

    gnn:
      layer_type: outerconv
    outerconv:
      family: walk(3, norm=sym)
      theta: basis-decomposed(num_bases=2)

GraphGym itself needs yacs, and pytorch-lightning to train.
"""

from __future__ import annotations

from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.layer import LayerConfig
from torch_geometric.graphgym.register import register_config, register_layer

from .nn import AttentionConv, OuterConv

try:
    from yacs.config import CfgNode
except ImportError as error:
    raise ImportError("the configuration of GraphGym needs yacs: pip install yacs") from error

__all__ = ["OuterAttentionLayer", "OuterConvLayer", "set_options"]

_OF_BOTH: dict[str, Any] = {
    "theta": None,  # the form of Θ
    "aggr": "sum",  # the reduction over the inputs of a label: sum, mean, max, min
    "label_aggr": "sum",  # and over labels
    "root_weight": False,  # whether transformed features of the target are added
    "cached": None,  # whether bases are cached; None: those of the last few graphs
}
_OF_CONVOLUTION: dict[str, Any] = {"family": "gcn"}  # the recipe for the basis
_OF_ATTENTION: dict[str, Any] = {
    "heads": 1,
    "support": None,  # who attends to whom, such as hops(add_self_loops=True); None: the edges
    "score": "key-query",  # how content becomes scores: key-query, additive, gatv2, cosine, ...
    "normalise": "softmax",  # what makes shares of scores: softmax, sigmoid, l1, ...
    "combine": None,  # heads side by side, or their sum or mean; None: concat, or sum with a theta
    "dropout": 0.0,  # the share of values of the basis that are dropped in training
}
_BESIDE = ("edge_weight", "edge_type", "edge_attr", "pos")


def set_options(cfg: CfgNode) -> None:
    """Add the group ``cfg.outerconv`` with its defaults; None leaves an option to the layer."""
    own = {**_OF_CONVOLUTION, **_OF_BOTH, **_OF_ATTENTION}
    own["edge_features"] = False  # of cfg.dataset.edge_dim channels, added to keys and values
    cfg.outerconv = CfgNode(own)


class _Layer(torch.nn.Module):
    """A layer of GraphGym around one of this library."""

    model: OuterConv

    def forward(self, batch: Data) -> Data:
        """The batch with new node features."""
        family = self.model.family
        beside = {name: batch.get(name) for name in _BESIDE if family.makes_use_of(name)}
        edges = batch.adj_t if "adj_t" in batch else batch.edge_index
        batch.x = self.model(batch.x, edges, batch=batch.get("batch"), **beside)
        return batch


class OuterConvLayer(_Layer):
    r"""The convolution :math:`\sum_k \mathbf{A}_k^{\top} \mathbf{X} \mathbf{\Theta}_k` with the
    basis of :obj:`cfg.outerconv.family`.

    Args:
        layer_config (LayerConfig): The channels, and whether there is a bias.
        **kwargs (optional): Additional arguments of :class:`~pyg_outerconv.nn.OuterConv`, which
            replace those of the configuration.

    Raises:
        ValueError, TypeError: as :class:`~pyg_outerconv.nn.OuterConv`.
    """

    def __init__(self, layer_config: LayerConfig, **kwargs: Any) -> None:
        super().__init__()
        ends = layer_config.dim_in, layer_config.dim_out
        options = _chosen(*_OF_CONVOLUTION, *_OF_BOTH) | kwargs
        self.model = OuterConv(*ends, bias=layer_config.has_bias, **options)


class OuterAttentionLayer(_Layer):
    r"""Attention on the support :obj:`cfg.outerconv.support`, with the score
    :obj:`cfg.outerconv.score`.

    Args:
        layer_config (LayerConfig): The channels, and whether there is a bias.
        **kwargs (optional): Additional arguments of :class:`~pyg_outerconv.nn.AttentionConv`, which
            replace those of the configuration.

    Raises:
        ValueError, TypeError: as :class:`~pyg_outerconv.nn.AttentionConv`.
    """

    def __init__(self, layer_config: LayerConfig, **kwargs: Any) -> None:
        super().__init__()
        ends = layer_config.dim_in, layer_config.dim_out
        options = _chosen(*_OF_BOTH, *_OF_ATTENTION) | kwargs
        if cfg.outerconv.edge_features:
            options.setdefault("edge_dim", layer_config.edge_dim)
        self.model = AttentionConv(*ends, bias=layer_config.has_bias, **options)


def _chosen(*names: str) -> dict[str, Any]:
    """The options of these names that are set."""
    return {name: cfg.outerconv[name] for name in names if cfg.outerconv[name] is not None}


register_config("outerconv", set_options)
register_layer("outerconv", OuterConvLayer)
register_layer("outerattention", OuterAttentionLayer)
set_options(cfg)
