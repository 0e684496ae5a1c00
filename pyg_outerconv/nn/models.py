"""Models of PyG's BasicGNN over OuterConv and AttentionConv."""

from __future__ import annotations

from typing import Any, Final

from torch_geometric.nn.models.basic_gnn import BasicGNN

from .attention_conv import AttentionConv
from .outer_conv import OuterConv


class OuterGNN(BasicGNN):
    r"""PyG's basic graph neural network with :class:`~pyg_outerconv.nn.OuterConv` as its layers.

    Activations, normalisation, dropout, jumping knowledge, trimming of sampled graphs and
    layer-wise inference are those of :class:`torch_geometric.nn.models.basic_gnn.BasicGNN`.

    >>> import torch
    >>> model = OuterGNN(16, 64, num_layers=3, out_channels=7, family="walk(2)", jk="cat")
    >>> model(torch.randn(3, 16), torch.tensor([[0, 1], [1, 2]])).shape
    torch.Size([3, 7])

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive it from the
            first input. A tuple holds the sizes of sources and targets.
        hidden_channels (int): Size of each hidden sample.
        num_layers (int): Number of layers.
        out_channels (int, optional): Size of each output sample. (default: that of hidden ones)
        **kwargs (optional): Additional arguments of
            :class:`torch_geometric.nn.models.basic_gnn.BasicGNN` (:obj:`dropout`, :obj:`act`,
            :obj:`norm`, :obj:`jk`, ...), and of :class:`~pyg_outerconv.nn.OuterConv`
            (:obj:`family`, :obj:`theta`, ...).

    Raises:
        ValueError, TypeError: as :class:`~pyg_outerconv.nn.OuterConv`; at a call, edge weights or
            attributes that the family does not read are refused.
    """

    supports_edge_weight: Final[bool] = True
    supports_edge_attr: Final[bool] = True

    def init_conv(
        self, in_channels: int | tuple[int, int], out_channels: int, **kwargs: Any
    ) -> OuterConv:
        """A layer of these sizes; the options of all layers are the same."""
        return OuterConv(in_channels, out_channels, **kwargs)


class AttentionGNN(BasicGNN):
    r"""PyG's basic graph neural network with :class:`~pyg_outerconv.nn.AttentionConv` as its
    layers, whose dropout is that of the model.

    Unless :obj:`combine` says otherwise, heads are concatenated, and those of a last layer that
    makes the outputs are averaged, as in :class:`torch_geometric.nn.models.GAT`.

    Args:
        in_channels (int or tuple): Size of each input sample, or :obj:`-1` to derive it from the
            first input. A tuple holds the sizes of sources and targets.
        hidden_channels (int): Size of each hidden sample, of all heads together.
        num_layers (int): Number of layers.
        out_channels (int, optional): Size of each output sample. (default: that of hidden ones)
        **kwargs (optional): Additional arguments of
            :class:`torch_geometric.nn.models.basic_gnn.BasicGNN` and of
            :class:`~pyg_outerconv.nn.AttentionConv` (:obj:`heads`, :obj:`support`,
            :obj:`score`, ...).

    Raises:
        ValueError, TypeError: as :class:`~pyg_outerconv.nn.AttentionConv`; at a call, edge weights
            or attributes that no part reads are refused.
    """

    supports_edge_weight: Final[bool] = True
    supports_edge_attr: Final[bool] = True

    def init_conv(
        self, in_channels: int | tuple[int, int], out_channels: int, **kwargs: Any
    ) -> AttentionConv:
        """A layer of these sizes; only how heads are combined may differ between layers."""
        if getattr(self, "_is_conv_to_out", False):
            kwargs.setdefault("combine", "mean")
        return AttentionConv(in_channels, out_channels, dropout=self.dropout.p, **kwargs)
