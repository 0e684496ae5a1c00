"""Models of PyG's BasicGNN over OuterConv and AttentionConv."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn import Module
from torch_geometric.nn.models.basic_gnn import BasicGNN
from torch_geometric.nn.resolver import activation_resolver, normalization_resolver

from ..errors import RefusedValue, unknown
from ..graph.checks import check_positive
from ..signatures import typed
from .attention_conv import AttentionConv
from .checks import check_channels
from .outer_conv import OuterConv

JUMPING = ("cat", "last", "lstm", "max")


class _Model(BasicGNN):
    """PyG's model, whose options are checked before a layer is made."""

    @typed
    def __init__(
        self,
        in_channels: int | tuple[int, int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        dropout: float = 0.0,
        act: str | Callable[..., Any] | None = "relu",
        act_first: bool = False,
        act_kwargs: dict[str, Any] | None = None,
        norm: str | Callable[..., Any] | None = None,
        norm_kwargs: dict[str, Any] | None = None,
        jk: str | None = None,
        **kwargs: Any,
    ) -> None:
        check_channels("hidden_channels", hidden_channels, 0)
        check_channels("out_channels", hidden_channels if out_channels is None else out_channels, 0)
        check_positive("a model", num_layers=num_layers)
        if not 0 <= dropout <= 1:
            raise RefusedValue("dropout is a probability", "[0, 1]", dropout)
        if jk not in (None, *JUMPING):
            raise RefusedValue(unknown("jk", jk, JUMPING))
        options: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any] | None]]
        options = {"act": (activation_resolver, (act,), act_kwargs)}
        options["norm"] = (normalization_resolver, (norm, hidden_channels), norm_kwargs)
        for name, (resolve, arguments, named) in options.items():
            try:
                resolve(*arguments, **(named or {}))
            except (TypeError, ValueError) as error:
                said = f"{arguments[0]!r} and {name}_kwargs={named}"
                raise RefusedValue(
                    f"{name} is a name that PyG resolves", str(error), said
                ) from error
        super().__init__(
            *(in_channels, hidden_channels, num_layers, out_channels, dropout),
            *(act, act_first, act_kwargs, norm, norm_kwargs, jk),
            **kwargs,
        )


class OuterGNN(_Model):
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


class AttentionGNN(_Model):
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


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """A block in which a model is in evaluation mode, and without gradients.

    When the block ends, by an error too, each module has its own mode again: parts of a model that
    is in training may be in evaluation mode. ``torch.enable_grad()`` inside brings gradients back.
    """
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in before:
            part.training = training
