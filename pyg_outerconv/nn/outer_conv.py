"""OuterConv: the one layer, Y = Σ_k A_kᵀ X Θ_k, as a PyG MessagePassing."""

from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from ..basis import Basis, Family, parse_family
from ..contract import (
    ContractionPath,
    Features,
    ThetaValue,
    check_memory,
    check_order,
    contract,
    contraction_path,
    full,
    scaled,
)
from ..errors import RefusedType, RefusedValue, refusal
from .bias import add_bias
from .checks import check_aggregation, check_channels
from .dense import DenseForms
from .prepare import Inputs, nodes_first, prepare_basis, split_input
from .readable import convolve_by_messages
from .root import add_root
from .theta import Theta
from .theta_forms import make_theta
from .watched import Watched


class OuterConv(MessagePassing, DenseForms, Watched):
    r"""The convolution of the `"Convolution is outer product"
    <https://arxiv.org/abs/1905.01289>`_ paper (section 2, equation 1)

    .. math::
        \mathbf{Y} = \sum_k \mathbf{A}_k^{\top} \mathbf{X} \mathbf{\Theta}_k

    with a basis :math:`\mathbf{A}` of :math:`K` sparse matrices that a :obj:`family` makes of the
    edges, and parameters :math:`\mathbf{\Theta}` whose size does not depend on the data.

    Args:
        in_channels (int or tuple): Size :math:`P` of each input sample, or :obj:`-1` to derive it
            from the first input. A tuple holds the sizes of sources and targets, of which the
            second matters with :obj:`root_weight` only. Without features, the number of sources.
        out_channels (int): Size :math:`Q` of each output sample.
        family (Family or str): The recipe for the basis, or text that names one, such as
            :obj:`"walk(length=2)"`.
        bias (bool, optional): If set to :obj:`False`, the layer adds no bias.
            (default: :obj:`True`)
        theta (str, optional): The form of :math:`\mathbf{\Theta}`: :obj:`"full"`,
            :obj:`"basis-decomposed(num_bases=B)"`, :obj:`"block-diagonal(num_blocks=G)"`,
            :obj:`"low-rank(rank=r)"`, :obj:`"grouped(groups=G)"`, :obj:`"depthwise"` or
            :obj:`"shared"`. (default: :obj:`"full"`)
        aggr (str, optional): The reduction over the inputs of one label: :obj:`"sum"`, or
            :obj:`"mean"`, which divides by the number of edges of that label that reach the
            output. (default: :obj:`"sum"`)
        label_aggr (str, optional): The reduction over labels: :obj:`"sum"`, or :obj:`"mean"`,
            which divides by :math:`K`; a label without edges counts as zero.
            (default: :obj:`"sum"`)
        cached (bool, optional): If set to :obj:`True`, the basis is kept as long as the same
            unmodified :obj:`edge_index` (with the same weights and types) comes back, and is
            shared by all layers with an equal family. Other edges are never served a stale basis,
            so it is safe in mini-batches too. (default: :obj:`False`)
        root_weight (bool, optional): If set to :obj:`True`, the layer adds transformed features
            of the target itself. (default: :obj:`False`)
        order (str, optional): The contraction order for every part of the basis that it may
            solve; see :meth:`contraction_path`. (default: the cheapest)
        max_memory (int, optional): Bytes that an order may hold beside input and output.
            (default: no bound)
        **kwargs (optional): Additional arguments of
            :class:`torch_geometric.nn.conv.MessagePassing`.

    Shapes:
        - **input:**
          node features :math:`(M, P)`, or :math:`((M, P), (N, P_t))` if bipartite (the second may
          be :obj:`None`), with any number of leading batch dimensions; each of them dense, or
          without batch dimensions a :obj:`torch.sparse` matrix (CSR, COO or CSC), or
          :class:`~pyg_outerconv.nn.SparseFeatures`; node indices :math:`(M)`;
          or :obj:`None`,
          edge indices :math:`(2, E)`, a transposed sparse matrix, or a
          :class:`~pyg_outerconv.Basis`,
          edge weights :math:`(E)` *(optional)*, edge types :math:`(E)` *(optional)*
        - **output:** node features :math:`(N, Q)`

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit, an index is
            out of range, or the family refuses the edges.
        TypeError: an argument has the wrong type.
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        family: Union[Family, str],
        bias: bool = True,
        theta: str = "full",
        aggr: str = "sum",
        label_aggr: str = "sum",
        cached: bool = False,
        root_weight: bool = False,
        order: Optional[str] = None,
        max_memory: Optional[int] = None,
        **kwargs: Any,
    ):
        # PyG says "add" too. Means are folded into values and parameters: messages only add up.
        aggr = "sum" if aggr == "add" else aggr
        check_aggregation("aggr", aggr)
        check_aggregation("label_aggr", label_aggr)
        check_order(order)
        check_memory(max_memory)
        super().__init__(aggr="sum", **kwargs)
        self.aggr = aggr
        self.label_aggr = label_aggr
        self.family = parse_family(family) if isinstance(family, str) else family
        if not isinstance(self.family, Family):
            raise RefusedType(
                refusal(
                    "family must be a recipe for a basis",
                    "a Family or its name",
                    type(family).__name__,
                )
            )
        check_channels("in_channels", in_channels, -1)
        check_channels("out_channels", out_channels, 0)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.cached = cached
        self.order, self.max_memory = order, max_memory
        sources, targets = in_channels if isinstance(in_channels, tuple) else (in_channels,) * 2
        self.theta = make_theta(theta, self.family.num_bases, sources, out_channels)
        self.root = make_theta("full", 1, targets, out_channels) if root_weight else None
        self._root_weight = root_weight
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        super().reset_parameters()
        self.theta.reset_parameters()
        if self.root is not None:
            self.root.reset_parameters()
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    # What PyG's wrappers read and set -----------------------------------------------------------

    @property
    def add_self_loops(self) -> bool:
        """Whether the family adds self-loops; can be set where the family has the option."""
        return bool(self.family.add_self_loops)

    @add_self_loops.setter
    def add_self_loops(self, add: bool) -> None:
        self.family = self.family.set_self_loops(add)

    @property
    def root_weight(self) -> bool:
        """Whether features of the target itself are added; can be switched off."""
        return self._root_weight

    @root_weight.setter
    def root_weight(self, add: bool) -> None:
        if add and self.root is None:
            raise RefusedValue("a root weight has no parameters unless the layer was made with one")
        self._root_weight = add
        self.root = self.root if add else None

    # The convolution ----------------------------------------------------------------------------

    def forward(
        self,
        x: Union[Features, tuple[Features, Features]],
        edge_index: Union[Adj, Basis],
        edge_weight: OptTensor = None,
        edge_type: OptTensor = None,
        size: Size = None,
        batch: OptTensor = None,
    ) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor or SparseFeatures or tuple or None): The node features, see above.
            edge_index (torch.Tensor or EdgeIndex or Basis): The edges, a transposed sparse
                matrix of them, or a basis, which the family is not asked about.
            edge_weight (torch.Tensor, optional): The edge weights.
            edge_type (torch.Tensor, optional): The edge types.
            size (tuple, optional): :math:`(M, N)`.
            batch (torch.Tensor, optional): The graph of each node, for families that treat
                graphs one by one (:obj:`Chebyshev`).
        """
        inputs = split_input(x, self.flow)
        waiting = self._waiting(inputs)
        basis = self.basis(inputs, edge_index, edge_weight, edge_type, size, batch)
        for lazy, channels in waiting:
            lazy.materialize(channels)
        theta = self._parameter()
        by_messages = self._is_asked_for_messages()
        if by_messages:
            # propagate_type: (x: OptPairTensor, edge_value: OptTensor)
            out = convolve_by_messages(self, basis, inputs.source, full(theta))
        else:
            out = self._watch_fused(basis, inputs.source, theta)
        if self.root is not None:
            out = add_root(out, inputs, self.root()[0, 0])
        if self.bias is None:
            return out
        return add_bias(out, self.bias, own=not by_messages and not self._is_watched())

    def basis(
        self,
        x: Any,
        edge_index: Union[Adj, Basis],
        edge_weight: OptTensor = None,
        edge_type: OptTensor = None,
        size: Size = None,
        batch: OptTensor = None,
    ) -> Basis:
        """The basis that :meth:`forward` uses for these arguments, means folded into its values."""
        inputs = x if isinstance(x, Inputs) else split_input(x, self.flow)
        return prepare_basis(self, inputs, edge_index, edge_weight, edge_type, size, batch)

    def contraction_path(
        self,
        x: Union[Features, tuple[Features, Features]],
        edge_index: Union[Adj, Basis],
        edge_weight: OptTensor = None,
        edge_type: OptTensor = None,
        size: Size = None,
        batch: OptTensor = None,
    ) -> ContractionPath:
        """What each contraction order would cost for these arguments, and which one is taken."""
        inputs = split_input(x, self.flow)
        basis = self.basis(inputs, edge_index, edge_weight, edge_type, size, batch)
        x, theta = nodes_first(inputs.source), self._parameter()
        return contraction_path(basis, x, theta, self.order, max_memory=self.max_memory)

    def message_and_aggregate(self, edge_index: Basis, x: Features, theta: ThetaValue) -> Tensor:
        """Y, by the contraction engine; no tensor of edges × channels is held."""
        out = contract(
            edge_index, nodes_first(x), theta, order=self.order, max_memory=self.max_memory
        )
        return out if out.dim() == 2 else out.movedim(0, -2)

    def _parameter(self) -> ThetaValue:
        theta = self.theta.parameter()
        return theta if self.label_aggr == "sum" else scaled(theta, 1.0 / self.family.num_bases)

    def message(self, x_j: Tensor, edge_value: OptTensor) -> Tensor:
        """The definition, edge by edge: the value of the edge times what its source sends."""
        return x_j if edge_value is None else edge_value.view(-1, 1) * x_j

    def explain_message(self, inputs: Tensor, edge_origin: Tensor) -> Tensor:
        """Masks each message by the edge of the user's list that it stems from.

        A layer over powers or several edge sets sends several messages along one edge of the
        user's list; each is masked. Messages of edges that the family added are left alone.
        """
        mask = self._edge_mask
        if mask is None:
            raise RefusedValue("there is no edge mask to explain with: set_masks was not called")
        if self._apply_sigmoid:
            mask = mask.sigmoid()
        scale = torch.cat([mask, mask.new_ones(1)])[edge_origin]
        return inputs * scale.view(-1, 1)

    def _waiting(self, inputs: Inputs) -> list[tuple[Theta, int]]:
        # Parameters that have no shape yet, and the channels that they will take.
        waiting = []
        if self.theta.in_channels < 0:
            waiting.append((self.theta, inputs.channels(inputs.source)))
        if self.root is not None and self.root.in_channels < 0 and inputs.target is not None:
            waiting.append((self.root, inputs.channels(inputs.target)))
        return waiting

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, {self.family})"
