"""OuterConv: the one layer, Y = Σ_k A_kᵀ X Θ_k, as a PyG MessagePassing."""

from dataclasses import replace
from functools import partial
from typing import Any, Optional, Union

import torch
from torch import Tensor
from torch.nn import ModuleList, Parameter
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.inits import reset
from torch_geometric.typing import Adj, OptPairTensor, OptTensor, Size

from ..attention import Additive
from ..attention.queries import Content
from ..basis import Basis
from ..basis.additive_attention import AdditiveAttentionBasis
from ..basis.edges import EdgeBasis
from ..contract import ContractionPath, contraction_path
from ..contract.plan import check_memory, check_order, solve
from ..contract.problem import Problem
from ..errors import RefusedType, RefusedValue
from ..families import Attention, Family, parse_family
from ..families.options import functions_of, nested
from ..graph import Features, SparseMatrix
from ..kernels.mode import Mode
from ..memo import settle
from ..signatures import typed
from ..theta import Theta, ThetaValue, add_bias, add_product, scaled
from . import compiled, tiny
from .bases import basis_of
from .call import Call, check_devices, checked_mask, nodes_first, without_absent
from .checks import (
    COMPARISONS,
    aggregation,
    check_ends,
    check_known,
    check_node_dim,
    check_options,
    message_aggregation,
)
from .messages import FirstOfEqual, MessageHooks, Way, convolve_by_messages
from .theta import ThetaModule, make_theta
from .theta_parts import check_reduction, theta_of


class OuterConv(MessageHooks):
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
        out_channels (int): Size :math:`Q` of each output sample; with :obj:`theta="identity"` it
            equals that of the input, and may be given as :obj:`-1`.
        family (Family or str): The recipe for the basis, or text that names one, such as
            :obj:`"walk(length=2)"`.
        bias (bool, optional): If set to :obj:`False`, the layer adds no bias.
            (default: :obj:`True`)
        theta (str, optional): The form of :math:`\mathbf{\Theta}`: :obj:`"full"`,
            :obj:`"basis-decomposed(num_bases=B)"`, :obj:`"block-diagonal(num_blocks=G)"`,
            :obj:`"low-rank(rank=r)"`, :obj:`"grouped(groups=G)"`, :obj:`"depthwise"`,
            :obj:`"shared"`, :obj:`"columns"`, which concatenates the results of labels, or
            :obj:`"identity"`, which has no parameters. (default: :obj:`"full"`)
        aggr (str, optional): The reduction over the inputs of one label: :obj:`"sum"`;
            :obj:`"mean"`, which divides by the number of edges of that label that reach the
            output; :obj:`"max"` or :obj:`"min"`, which :math:`\mathbf{\Theta}_k` follows and which
            need dense features. Of equal inputs the first edge (within a target and label, in the
            order of :obj:`edge_index`) takes all of the gradient. (default: :obj:`"sum"`)
        label_aggr (str, optional): The reduction over labels: :obj:`"sum"`; :obj:`"mean"`, which
            divides by :math:`K`, a label without edges counting as zero; :obj:`"max"` or
            :obj:`"min"`, which leave out labels without edges, and of equal labels take the
            lowest. (default: :obj:`"sum"`)
        cached (bool, optional): If set to :obj:`True`, the basis is cached for an unmodified
            :obj:`edge_index` (with the same weights and types) and shared by all layers with an
            equal family; see :mod:`pyg_outerconv.memo` for the changes that are noticed. If
            :obj:`None`, only bases of the last four :obj:`edge_index` are cached, so that the
            layers of a model share them; :obj:`False` caches nothing. Of a few dozen nodes on a
            CPU, whose edges are summed faster than a basis is looked up, only :obj:`True` caches.
            Under :meth:`torch.compile` this holds on a CPU for GCN and :obj:`Relation` with weights
            that do not learn. For all others, and under :meth:`torch.export`, the basis is made in
            the graph at every call, and ranges of indices, signs and NaN are not checked; a basis
            that is passed in is made and checked once. (default: :obj:`None`)
        root_weight (bool, optional): If set to :obj:`True`, the layer adds transformed features
            of the target itself. (default: :obj:`False`)
        order (str, optional): The contraction order for every leaf of the basis that it can
            solve; see :meth:`contraction_path`. (default: chosen by a plain rule)
        max_memory (int, optional): Bytes that an order may allocate beside input and output.
            (default: no bound)
        **kwargs (optional): Additional arguments of
            :class:`torch_geometric.nn.conv.MessagePassing`; :obj:`node_dim` is :obj:`-2`.

    Shapes:
        - **input:**
          node features :math:`(M, P)`, or :math:`((M, P), (N, P_t))` if sources and targets are
          different nodes, however many (the second may be :obj:`None`), with any number of leading
          batch dimensions; each of them dense, or without batch dimensions a :obj:`torch.sparse`
          matrix (CSR, COO or CSC), or :class:`~pyg_outerconv.nn.SparseFeatures`; node indices
          :math:`(M)`; or :obj:`None`,
          edge indices :math:`(2, E)`, a transposed sparse matrix, or a
          :class:`~pyg_outerconv.Basis`,
          edge weights :math:`(E)` *(optional)*
        - **output:** node features :math:`(N, Q)`; an output without edges is the bias plus the
          root term, or zero without these

    Raises:
        ValueError: an option is unknown or out of range; at a call, shapes do not fit, an index is
            out of range, or the family refuses the edges.
        TypeError: an argument has the wrong type.
    """

    @partial(typed, but=("in_channels", "out_channels", "family", "max_memory"))
    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        family: Union[Family, str],
        bias: bool = True,
        theta: str = "full",
        aggr: str = "sum",
        label_aggr: str = "sum",
        cached: Optional[bool] = None,
        root_weight: bool = False,
        order: Optional[str] = None,
        max_memory: Optional[int] = None,
        **kwargs: Any,
    ):
        aggr, label_aggr = aggregation("aggr", aggr), aggregation("label_aggr", label_aggr)
        check_order(order)
        check_memory(max_memory)
        check_options(self, kwargs, type(self), OuterConv, MessagePassing)
        check_node_dim(kwargs.get("node_dim", -2))
        reduce = message_aggregation(aggr, label_aggr)
        super().__init__(FirstOfEqual(reduce) if reduce in COMPARISONS else reduce, **kwargs)
        self.fuse = True  # PyG switches it off where aggr is no name that it fuses
        compares = label_aggr in COMPARISONS
        self.aggr, self.label_aggr = aggr, label_aggr
        # What the contraction reduces: means are divided into the values of the basis and into Θ.
        self.reduce, self.label_reduce = reduce, label_aggr if compares else "sum"
        self.folds_mean = aggr == "mean" and not compares
        check_ends(in_channels, out_channels, theta)
        recipe = parse_family(family)
        check_reduction(recipe, label_aggr)
        self.family = recipe.sized(in_channels, out_channels, shares=True)
        self.in_channels = in_channels
        self.cached = cached
        self.order, self.max_memory = order, max_memory
        sources, targets = in_channels if isinstance(in_channels, tuple) else (in_channels,) * 2
        most = self.family.max_parameters
        self.theta = theta_of(recipe, theta, sources, out_channels, most)
        self.out_channels = out_channels = self.theta.out_channels
        check_known(out_channels, bias=bias, root_weight=root_weight)
        self.root = make_theta("full", 1, targets, out_channels) if root_weight else None
        self.bias = Parameter(torch.empty(out_channels)) if bias else None
        self.functions = ModuleList()
        self.reset_parameters()
        # After reset_parameters(): functions are initialised by their own constructors.
        self.functions.extend(functions_of(self.family))

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters of the module."""
        super().reset_parameters()
        self.theta.reset_parameters()
        if self.root is not None:
            self.root.reset_parameters()
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        for function in self.functions:
            reset(function)

    @property
    def family(self) -> Family:
        """The recipe for the basis."""
        return self._family

    @family.setter
    def family(self, family: Family) -> None:
        # Computed here, because every call reads them.
        self._family, parts = family, [*nested(family)]
        for part in parts:
            settle(part)
        self._reads_content = family.makes_use_of("x")
        self._learns = any(part.learns for part in parts)
        self._reads_theta = any(part.reads_theta for part in parts)
        adds_ends = isinstance(family, Attention) and isinstance(family.score, Additive)
        self._adds_ends = adds_ends and not family.support.makes_use_of("x")  # type: ignore[attr-defined]
        # Of attention, the text is that of its support: scores are the layer's own.
        edges: Any = getattr(family, "support", family)
        self._lists_edges = family.makes_edges and family.lists_edges()
        self.family_text = compiled.text_of(edges) if edges.makes_edges else None

    # Attributes that PyG's wrappers read and set ------------------------------------------------

    @property
    def add_self_loops(self) -> bool:
        """Whether the family adds self-loops; can be set if the family has this option."""
        return bool(self.family.add_self_loops)

    @add_self_loops.setter
    def add_self_loops(self, add: bool) -> None:
        self.family = self.family.set_self_loops(add)

    @property
    def root_weight(self) -> bool:
        """Whether the transformed features of the target are added; can be switched off."""
        return self.root is not None

    @root_weight.setter
    def root_weight(self, add: bool) -> None:
        if add and self.root is None:
            raise RefusedValue(
                "root_weight cannot be switched on: the layer was made without its parameters"
            )
        self.root = self.root if add else None

    # The convolution ----------------------------------------------------------------------------

    def forward(
        self,
        x: Union[Features, tuple[Features, Features]],
        edge_index: Union[Adj, Basis, None] = None,
        edge_weight: OptTensor = None,
        *,
        edge_type: OptTensor = None,
        size: Size = None,
        batch: Union[Tensor, OptPairTensor, None] = None,
        edge_attr: OptTensor = None,
        pos: Union[Tensor, OptPairTensor, None] = None,
        source_mask: OptTensor = None,
    ) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor or SparseFeatures or tuple or None): The node features, see above.
            edge_index (torch.Tensor or EdgeIndex or Basis, optional): The edges, a transposed
                sparse matrix of them, or a basis, which replaces that of the family; :obj:`None`
                for families that read numbers of nodes only.
            edge_weight (torch.Tensor, optional): The edge weights, :math:`(E)` or :math:`(E, 1)`
                numbers, cast to the dtype of the features. Weights, types, attributes and positions
                are refused if no part of the family reads them.
            edge_type (torch.Tensor, optional): The edge types.
            size (tuple, optional): :math:`(M, N)`.
            batch (torch.Tensor or tuple, optional): The graph of each node, for families that treat
                graphs one by one (:obj:`Chebyshev`); of a pair those of sources and targets.
            edge_attr (torch.Tensor, optional): The edge attributes :math:`(E, D)`, for families
                whose values are functions of them (:obj:`Kernel`).
            pos (torch.Tensor or tuple, optional): The node positions :math:`(N, D)`, or those of
                sources and targets, for the same families.
            source_mask (torch.Tensor, optional): Booleans :math:`(*, M)`: the sources that are
                present, for families with heads of attention, linear ones among them. Heads ignore
                edges of absent sources, as in :class:`AttentionConv`; matrices of the graph beside
                them keep their values, and what absent sources send is zero.
        """
        arguments = edge_index, edge_weight, edge_type, size, batch, edge_attr, pos
        call, content = Call(x, *arguments, flow=self.flow), None
        if source_mask is not None:
            call, content = self._masked(call, source_mask)
        elif self._adds_ends and not isinstance(edge_index, Basis):
            out = self._at_once(call)
            if out is not None:
                return out
        # Where torch keeps modules, because its __getattr__ takes as long as a small product.
        theta: Any = self._modules["theta"]
        root: Any = self._modules.get("root")
        is_lazy = theta.in_channels < 0 or (root is not None and root.in_channels < 0)
        if content is None and not is_lazy:
            out = self._without_basis(call)
            if out is not None:
                return out
        waiting = self._waiting(call) if is_lazy else []
        basis = self._basis(call, content)
        if is_lazy:
            self._materialize(waiting)
        if source_mask is not None:
            call = without_absent(call, source_mask, wholly=True)
        return self._convolve(call, basis, self._parameter(call))

    def _at_once(self, call: Call, alone: bool = False) -> Optional[Tensor]:
        """Y, where values, scores and sums of values may be one step (GAT); else None.

        ``alone``: whether a compiler is to see this step as one operator, or not at all.
        """
        edge_index, x = call.edge_index, call.source
        if edge_index is None or not (self._adds_ends and call.is_single and self._only_sums()):
            return None
        module: Any = self._modules["theta"]
        if module.in_channels < 0:
            self._materialize(self._waiting(call))
        family: Any = self._family
        theta: Any = self._parameter(call)
        operands = family.at_once(x, theta)
        if operands is None:
            return None
        if call.mode.compiles:
            check_devices(self, call)
            sums = compiled.attention(self, call, family.score, theta)
            if sums is not None:
                return self._with_root_and_bias(theta.collect(sums), call)
            if alone:
                return None
        is_basis = type(edge_index) is not Tensor and isinstance(edge_index, Basis)
        if call.beside:
            family.refuse_unread(call.beside)
        if is_basis and (call.beside or call.size is not None):
            return None  # checked where bases are made of all that comes
        check_devices(self, call)
        few = call.is_tiny(theta.shape[0]) and family.support.is_quick
        keeps = bool(self.cached) or not few
        over = edge_index if is_basis else basis_of(self, call, family=family.support, keeps=keeps)
        if (
            not isinstance(over, EdgeBasis)
            or over.pattern.num_labels != 1
            or over.dtype is not None
        ):
            return None  # the way with a basis takes it, or refuses it
        assert isinstance(x, Tensor)  # as at_once says
        if over.pattern.size != (x.size(0), x.size(0)):
            return None
        basis = AdditiveAttentionBasis(over, x, *operands)
        if few:
            return self._with_root_and_bias(theta.collect(basis.sums()), call)
        root = self._modules.get("root")
        out = solve(Problem(basis, x, theta, bias=self.bias, mode=call.mode))
        return out if root is None else add_root(out, call, root, own=True)

    def _with_root_and_bias(self, out: Tensor, call: Call) -> Tensor:
        if self.root is not None:
            out = add_root(out, call, self.root, own=True)
        return out if self.bias is None else add_bias(out, self.bias, own=True)

    def _only_sums(self) -> bool:
        """Whether nothing is asked for but sums, by any order, and nobody observes them."""
        free = self.order is None and self.max_memory is None and not self.folds_mean
        sums = self.reduce == self.label_reduce == "sum"
        return free and sums and self._way() == "contraction"

    def _without_basis(self, call: Call) -> Optional[Tensor]:
        """Y of a tiny graph, or for a compiler, whose sums are one operator; else None."""
        module: Any = self._modules["theta"]
        if call.mode.compiles:
            if self._learns or self._reads_content or self._way() != "contraction":
                return None
            check_devices(self, call)
            out = compiled.convolution(self, call, self._parameter(call), self.bias)
        elif self._lists_edges and call.is_tiny(module.num_labels) and self._only_sums():
            bias = self._parameters.get("bias")  # of a replica or a parametrisation an attribute
            bias = self.bias if bias is None else bias
            out = tiny.convolution(self, call, self._parameter(call), bias)
        else:
            return None
        root: Any = self._modules.get("root")
        return out if out is None or root is None else add_root(out, call, root, own=True)

    def _masked(self, call: Call, source_mask: Tensor) -> tuple[Call, Content]:
        """The call without NaN and inf of absent sources, and the content, which says who is."""
        source_mask = checked_mask(source_mask, call)
        if not self._reads_content or isinstance(call.edge_index, Basis):
            rule = "source_mask says which sources heads of attention may attend to"
            got = call.edge_index if self._reads_content else self.family
            raise RefusedValue(rule, "such heads in the family, and no basis given", got)
        if self.aggr != "sum" or self.label_reduce != "sum":
            rule = "sources that source_mask leaves out add nothing to a sum"
            raise RefusedValue(rule, "aggr='sum'", f"{self.aggr!r}, {self.label_aggr!r}")
        call = without_absent(call, source_mask)
        return call, replace(self._content(call), present=source_mask.movedim(-1, 0))

    def _way(self) -> Way:
        """The way on which all see what they ask for: explainers, hooks, ``fuse``, overrides."""
        if (
            self._explain
            or self._message_forward_pre_hooks
            or self._message_forward_hooks
            or self._aggregate_forward_pre_hooks
            or self._aggregate_forward_hooks
            or self._propagate_forward_pre_hooks
            or self._propagate_forward_hooks
            or not self.fuse
            or self.sends_own_messages
        ):
            return "messages"
        if (
            self._message_and_aggregate_forward_pre_hooks
            or self._message_and_aggregate_forward_hooks
            or self.has_own_fused_step
            or "message_and_aggregate" in vars(self)
        ):
            return "fused step"
        return "contraction"

    def _convolve(
        self, call: Call, basis: Basis, theta: ThetaValue, values: Optional[Tensor] = None
    ) -> Tensor:
        """Y (*batch, N, Q) for a basis: by the contraction or by messages, with root and bias.

        ``values`` (M, *batch, H, V): the values of heads, if they are computed already; hooks and
        overrides, which may contract something else, get x alone.
        """
        bias, root = self.bias, self._modules.get("root")
        way = self._way()
        if own := way == "contraction":
            out = self._contract(basis, call.source, theta, bias, values, call.mode)
            bias = None
        elif way == "messages":
            # propagate_type: (x: OptPairTensor, edge_value: OptTensor)
            out = convolve_by_messages(self, basis, call.source, theta)
        else:
            # An override gets Θ as a tensor where it is one.
            whole = isinstance(theta, Theta) and theta.is_tensor
            theta = theta.full() if whole else theta  # type: ignore[union-attr]
            out = self._call_fused_step(basis, call.source, theta)
        if root is not None:
            out = add_root(out, call, root, own)
        return out if bias is None else add_bias(out, bias, own)

    def _sent(self, call: Call, basis: Basis, theta: ThetaValue) -> tuple[Features, ThetaValue]:
        """The features that the sources of the basis send, and their Θ."""
        return call.source, theta

    def basis(
        self,
        x: Any,
        edge_index: Union[Adj, Basis, None] = None,
        edge_weight: OptTensor = None,
        **beside: Any,
    ) -> Basis:
        """The basis that :meth:`forward` uses for these arguments.

        With ``aggr='mean'`` its values are divided by the number of edges of target and label.
        """
        return self._basis(Call(x, edge_index, edge_weight, flow=self.flow, **beside))

    def _basis(self, call: Call, content: Optional[Content] = None) -> Basis:
        check_devices(self, call)
        if content is None and self._reads_content:
            content = self._content(call)
        return basis_of(self, call, content)

    def contraction_path(
        self,
        x: Union[Features, tuple[Features, Features]],
        edge_index: Union[Adj, Basis, None] = None,
        edge_weight: OptTensor = None,
        *,
        verbose: bool = False,
        **beside: Any,
    ) -> ContractionPath:
        """The contraction order of each leaf for the arguments of :meth:`forward`, and the cost of
        every order.

        Printed, it is a table of the legal orders, cheapest first; ``verbose`` adds the others with
        their reasons.
        """
        call = Call(x, edge_index, edge_weight, flow=self.flow, **beside)
        basis = self._basis(call)
        sent, theta = self._sent(call, basis, self._parameter(call))
        path = contraction_path(
            basis,
            nodes_first(sent),
            theta,
            self.order,
            aggr=self.reduce,
            label_aggr=self.label_reduce,
            max_memory=self.max_memory,
            verbose=verbose,
        )
        few = self._lists_edges and call.is_tiny(self.theta.num_labels) and self._only_sums()
        return replace(path, note=tiny.NOTE) if few else path

    def message_and_aggregate(self, edge_index: Basis, x: Features, theta: ThetaValue) -> Tensor:
        """Y by the contraction, which stores no tensor of edges × channels."""
        return self._contract(edge_index, x, theta)

    def _contract(
        self,
        basis: Basis,
        x: Features,
        theta: ThetaValue,
        bias: OptTensor = None,
        values: OptTensor = None,
        mode: Optional[Mode] = None,
    ) -> Tensor:
        x = x if type(x) is Tensor and x.dim() == 2 else nodes_first(x)
        reductions = self.reduce, self.label_reduce
        problem = Problem(basis, x, theta, *reductions, bias, values, mode)
        out = solve(problem, self.order, self.max_memory)
        return out if out.dim() == 2 else out.movedim(0, -2).contiguous()  # users call `view`

    def _content(self, call: Call) -> Content:
        """The features, and Θ if the family reads it, for families whose values depend on them."""
        theta = None
        if self._reads_theta:
            if self.theta.in_channels < 0:
                self._materialize(self._waiting(call))
            theta = self._parameter(call)
        source = nodes_first(call.source)
        target = source if call.is_single else nodes_first(call.target)
        return Content(source, target, theta=theta, target_is_used=self.root is not None)

    def _parameter(self, call: Call) -> ThetaValue:
        """Θ as the contraction takes it, divided by K if ``label_aggr='mean'``.

        Labels without edges count, as relations do in PyG's ``HeteroConv``.
        """
        module: Any = self._modules["theta"]
        theta: ThetaValue = module.parameter(call.like)
        return scaled(theta, 1.0 / module.num_labels) if self.label_aggr == "mean" else theta

    def _materialize(self, waiting: list[tuple[ThetaModule, int]]) -> None:
        for lazy, channels in waiting:
            if lazy.in_channels < 0:  # else _content() has materialised it
                lazy.materialize(channels)
            self.out_channels = self.theta.out_channels

    def _waiting(self, call: Call) -> list[tuple[ThetaModule, int]]:
        """The parameters without shapes, with the P that the input gives them."""
        waiting = []
        if self.theta.in_channels < 0:
            waiting.append((self.theta, call.channels(call.source)))
        if self.root is not None and self.root.in_channels < 0 and call.target is not None:
            waiting.append((self.root, call.channels(call.target)))
        return waiting

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, {self.family})"


def add_root(out: Tensor, call: Call, root: ThetaModule, own: bool) -> Tensor:
    """Y + X_t W for features X_t of the targets; Y itself if these are missing in a pair.

    Y is (*batch, N, Q), W (P_t, Q). Without features target n adds row n of W; indices pick rows.
    ``own``: whether ``out`` may be changed in place.
    """
    target = call.target
    if target is None and not call.targets_featureless:
        return out
    weight = root.matrices().flatten(0, 1)
    rows = weight.size(0)
    if target is None:
        if out.size(-2) != rows:
            raise RefusedValue(
                "without features a root weight has a row for each target", rows, out.size(-2)
            )
        return out + weight
    if isinstance(target, Tensor) and not target.is_floating_point():
        if target.numel() and not 0 <= int(target.min()) <= int(target.max()) < rows:
            raise RefusedValue(
                "indices of targets must be rows of the root weight",
                f"[0, {rows})",
                f"[{int(target.min())}, {int(target.max())}]",
            )
        return out + weight.index_select(0, target)
    if target.size(-1) != rows:
        raise RefusedValue(
            "targets must have a column for each of their channels", rows, target.size(-1)
        )
    if target.dtype != weight.dtype and not torch.is_autocast_enabled(target.device.type):
        raise RefusedType(
            "targets must have the type of the root weight", weight.dtype, target.dtype
        )
    if isinstance(target, SparseMatrix):
        return out + target.times(weight)
    if target.device != weight.device:
        raise RefusedValue("a root weight is where the features are", target.device, weight.device)
    return add_product(out, target, weight, own)
