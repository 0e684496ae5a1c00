"""DropIn: a layer of PyG whose convolution is the contraction of an OuterConv."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial, wraps
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, Optional

import torch
from torch import Tensor
from torch.nn import Module, ModuleList
from torch.nn.parameter import is_lazy
from torch_geometric import EdgeIndex
from torch_geometric.inspector import Inspector
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import OptTensor

from ..errors import RefusedValue
from ..families import Family
from ..graph.checks import holds
from ..graph.edge_index import check_compressed
from ..graph.summary import summary_of
from ..kernels.index_checks import has_numbers, is_exporting, surely, waits
from ..kernels.mode import mode
from ..memo import Memo
from ..nn import OuterConv
from .matrices import is_product
from .reductions import check_reduction, reduction
from .tie import STEPS, Source, Tied, generated, is_recorded, make_tied, own_methods, same

Recipe = tuple[OuterConv | ModuleList, dict[str, Source]]
"""The convolution of a layer, or one for each of its steps, and its parameters as functions."""

OURS: dict[type[Module], type[Module]] = {}
"""Our class for each of PyG's."""
THEIRS: dict[type[Module], type[Module]] = {}
"""PyG's class for each of ours."""
_finite = Memo()
WAITING = "parameters have no shapes before the first input"
_MAPS = ("lin", "res", "root")
"""How the names of PyG's linear maps begin."""


class DropIn(MessagePassing):
    r"""A layer with the constructor, parameters and results of the class of PyG it derives from.

    Its convolution is that of an :class:`~pyg_outerconv.OuterConv` over the same parameters
    (:meth:`recipe`). PyG's own ``forward`` runs where messages are looked at (explainers, hooks,
    subclasses and objects that override a step), where a linear map was replaced, where an option
    or an input has no equal here, on graphs so small that it is faster, and where torch.export,
    torch.onnx or torch.jit record the layer. :meth:`why_not` tells which of them runs, and why.

    A subclass defines :meth:`recipe`, and :meth:`convolve` if it does more than that convolution;
    its ``forward`` has PyG's signature.

    Attributes:
        theirs: the class of PyG.
        reductions: those that the recipe has; see :func:`check_reduction`.
        takes_pairs: whether features may be a pair (sources, targets).
        takes_batches: whether features may have dimensions before those of nodes and channels.
        takes_any_attributes: whether edge attributes may be NaN or infinite.
        takes_matrices: whether the contraction with a large sparse matrix is faster than PyG's.
        trick: what else is computed, besides the sum, to give PyG's results; empty if nothing.
        transforms_first: whether PyG's messages are as wide as the output, not as the input.
        least: number of edges times channels of a message, below which PyG's own ``forward`` is
            faster on a CPU.
        least_of_matrices: the same number where edges are a sparse matrix.
        edges_are: the name of the argument with the edges.
        linear_map: the class of PyG's linear maps.
    """

    theirs: ClassVar[type[MessagePassing]]
    reductions: ClassVar[tuple[str, ...]] = ("sum",)
    takes_pairs: ClassVar[bool] = False
    takes_batches: ClassVar[bool] = True
    takes_any_attributes: ClassVar[bool] = True
    trick: ClassVar[str] = ""
    transforms_first: ClassVar[bool] = False
    takes_matrices: ClassVar[bool] = False
    least: ClassVar[int] = 0
    least_of_matrices: ClassVar[int] = 2**24
    edges_are: ClassVar[str] = "edge_index"
    linear_map: ClassVar[type[Module]] = Linear
    _overridden: ClassVar[tuple[str, ...]] = ()
    _switches: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        pygs_own = [one for one in cls.__bases__ if issubclass(one, MessagePassing)]
        pygs_own = [one for one in pygs_own if not issubclass(one, DropIn)]
        if pygs_own:
            cls.theirs = pygs_own[0]
            register(cls, cls.theirs)
            if "forward" not in vars(cls):
                cls.forward = _forward_like(cls.theirs.forward)
            if _LAZY in " ".join((cls.theirs.__doc__ or "").split()) and cls.__doc__:
                cls.__doc__ = (
                    f"{inspect.cleandoc(cls.__doc__)}\n\nChannels are a number, {_LAZY} call."
                )
        theirs = getattr(cls, "theirs", None)
        if theirs is None:  # a base of several of our classes
            return
        own: dict[str, Any]
        own = {f"{call}_type": _arguments_of(cls, call) for call in ("propagate", "edge_updater")}
        own["_switches"] = _switches_of(theirs)
        pygs = generated(cls)
        own["_overridden"] = tuple(
            step for step in STEPS if getattr(cls, step) not in (getattr(theirs, step), *pygs)
        )
        for name, value in own.items():
            if getattr(cls, name, None) != value:  # classes that wrappers make stay as they are
                setattr(cls, name, value)

    def recipe(self) -> Recipe:
        """The convolution as an OuterConv, and its parameters as functions of this layer's.

        A layer of several steps gives a list of them.
        """
        raise NotImplementedError

    def convolution(
        self,
        family: Family,
        theta: Source,
        root: Source | None = None,
        bias: Source | str | None = "bias",
        form: str = "full",
        channels: Any = None,
        out_channels: int | None = None,
        aggr: str | None = None,
        beside: Mapping[str, Source] | None = None,
    ) -> Recipe:
        """The recipe Y = Σ_k A_kᵀ X Θ_k + X Θ_root + b, reduced and directed as this layer.

        Args:
            family: the A_k.
            theta, root: the Θ_k, and Θ_root if there is one.
            bias: b, or the name of the parameter, which may be None.
            form: the form of Θ.
            channels: P, or those of both ends; else those of the linear maps of Θ_k and Θ_root.
            out_channels: Q, if the layer does not say it.
            aggr: the reduction, if it is not that of the layer.
            beside: further parameters by their names in the OuterConv.
        """
        if channels is None:
            maps = [one.linears[0] for one in (theta, root) if one is not None]
            widths = [attrgetter(f"{path}.weight")(self).size(1) for path in maps]
            channels = (widths[0], widths[-1]) if self.takes_pairs else widths[0]
        if isinstance(bias, str):
            bias = None if attrgetter(bias)(self) is None else same(bias)
        conv = OuterConv(
            channels,
            self.out_channels if out_channels is None else out_channels,
            family,
            bias=bias is not None,
            theta=form,
            aggr=reduction(self) if aggr is None else aggr,
            root_weight=root is not None,
            flow=self.flow,
        )
        sources = {"theta.weight": theta, "root.weight": root, "bias": bias, **(beside or {})}
        return conv, {name: one for name, one in sources.items() if one is not None}

    def convolve(self, conv: Any, *args: Any, **named: Any) -> Any:
        """The result by the convolution of :meth:`recipe`, for the arguments of PyG's ``forward``.

        Args:
            conv: an :class:`OuterConv`, or a list of them.
            *args, **named: the arguments, which :meth:`_of_inputs` has nothing against.
        """
        return conv(*args, **named)

    def lacks(self) -> list[str]:
        """The options of this layer that have no equal in the recipe."""
        return check_reduction(self, self.reductions)

    def unused(self) -> tuple[str, ...]:
        """The beginnings of the names of parameters that no call uses."""
        return ()

    def outside(self) -> list[str]:
        """What the layer computes before or after the convolution, in words."""
        return []

    def outer_conv(self) -> OuterConv:
        """The OuterConv over the parameters of this layer, which both share.

        Raises:
            ValueError: an option has no equal, parameters have no shapes before the first input, or
                the layer has several steps.
        """
        conv = self._tied().conv
        if isinstance(conv, OuterConv):
            return conv
        reasons = list(self._of_layer()) or ["it has several steps"]
        rule = f"{type(self).__name__} is one convolution with some of its options"
        raise RefusedValue(f"{rule}: {'; '.join(reasons)}")

    def skipped(self) -> list[Module]:
        """The modules that PyG's ``forward`` calls and the contraction does not, but for those
        whose weights it reads.
        """
        return list(self.aggr_module.modules()) if self.aggr_module is not None else []

    def why_not(self, *args: Any, **named: Any) -> list[str]:
        """The reasons why PyG's own ``forward`` runs; none if the contraction does.

        >>> from pyg_outerconv.pyg import SAGEConv
        >>> SAGEConv(16, 8, aggr="median").why_not()
        ['aggr=median is not made of sums, means, maxima, minima or variances']

        Args:
            *args, **named: the arguments of a call; without them only the layer is looked at.

        Raises:
            TypeError: these are not the arguments of a call.
        """
        reasons = list(self._of_layer())
        if args or named:
            call = inspect.signature(self.theirs.forward).bind(self, *args, **named)
            del call.arguments["self"]
            arguments = call.arguments
            input_reasons = list(islice(self._of_inputs(**arguments), 1))
            if not input_reasons and self._is_small(
                arguments.get("x"), arguments.get(self.edges_are)
            ):
                input_reasons = ["a graph so small that PyG's own layer is faster"]
            reasons += input_reasons
        return reasons

    # How a call runs ------------------------------------------------------------------------------

    def _runs(self, arguments: Mapping[str, Any]) -> Any:
        """The OuterConv that runs a call, or None where PyG's own ``forward`` does."""
        if torch.compiler.is_dynamo_compiling():
            self._tie()  # first, for a compiler reads ``__dict__`` once
            whole = self._whole(arguments)
            if whole is not None:
                return whole
        if self._is_small(arguments.get("x"), arguments.get(self.edges_are)):
            return None  # asked first, for on so small a graph the other questions take long
        tied: Tied | None = self.__dict__.get("_contraction")
        here = mode()
        if tied is None or here.compiles or here.traces or tied.watch.is_changed():
            if self._is_recorded():  # before the contraction, whose making would be recorded
                return None
            tied = self._tied()
        if tied.conv is None or tied.watch.is_seen():
            return None
        for _ in self._of_inputs(**arguments):
            return None
        return tied.conv

    def _whole(self, arguments: Mapping[str, Any]) -> Any:
        """What stands for the convolution of a call that a compiler sees whole; None if nothing."""
        return None

    def _is_recorded(self) -> bool:
        """Whether a call is recorded for other inputs, which PyG's own ``forward`` is made for."""
        return is_recorded()

    def _of_options(self) -> Iterator[str]:
        """Reasons that lie in the options, the parameters and the modules of the layer."""
        yield from self.lacks()
        if _is_waiting(self):
            yield WAITING
        elif _is_replaced(self):
            yield "a linear map was replaced by another module"
        for name in own_methods(self):
            yield f"has a {name} of its own"
        for name in self._overridden:
            yield f"a subclass has a {name} of its own"
        for name, initial in vars(self).get(CHANGED, {}).items():
            if vars(self).get(name) != initial:
                yield f"{name}={vars(self).get(name)} was {initial} when parameters were made"
        if self.explain:
            yield "messages are explained"

    def _of_layer(self) -> Iterator[str]:
        """Reasons that lie in the layer."""
        reasons, tied = list(self._of_options()), self._tied()
        yield from reasons
        if tied.conv is None and not reasons:
            yield tied.reason or "a linear map has a bias that PyG's has not, or has none"
        if tied.watch.is_seen():
            yield "hooks look at messages or at modules that the contraction skips"

    def _of_inputs(
        self, x: Any, edge_index: Any, edge_weight: OptTensor = None, **beside: Any
    ) -> Iterator[str]:
        """The reason that lies in the inputs, if there is one.

        ``beside`` holds further arguments of a call, which a subclass may look at.
        """
        is_pair = isinstance(x, tuple | list)
        features = x[0] if is_pair else x
        if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
            if getattr(edge_index, "layout", None) in (torch.sparse_csr, torch.sparse_csc):
                check_compressed(edge_index)
            if not self.takes_matrices or not is_product(self, x, edge_index, edge_weight):
                yield "a sparse matrix, which PyG multiplies with"
        elif is_pair and not (self.takes_pairs and self.flow == "source_to_target"):
            yield "a pair of features"
        elif not isinstance(features, Tensor):
            yield f"features of type {type(features).__name__}"
        elif features.is_meta:
            yield "features without numbers, on meta"
        elif not features.is_floating_point():
            yield f"features of type {features.dtype}"
        elif (rank := features.dim()) < 2 or self.node_dim not in (-2, rank - 2):
            yield "features whose dimension before the last is not that of nodes"
        elif rank > 2 and not self.takes_batches:
            yield f"features of {rank} dimensions"
        elif edge_weight is not None and _other_type(edge_weight, features):
            yield f"edge weights of type {edge_weight.dtype} for features of {features.dtype}"
        elif edge_weight is not None and surely(edge_weight.numel() == 1, edge_index.size(-1) != 1):
            yield "one edge weight for all edges"
        elif type(edge_index) is not Tensor and _has_other_size(edge_index, x):
            yield "an EdgeIndex with other numbers of nodes than the features"
        elif edge_weight is not None and not _are_finite(edge_weight, edge_index, features):
            yield "edge weights that are not finite"
        elif torch.is_autocast_enabled(features.device.type) and _is_mixed(self, features):
            yield "features or weights of a short type that is not that of autocast, or alone"
        elif beside.get("return_attention_weights") is not None:
            yield "attention weights are asked for"
        elif not (self.takes_any_attributes or is_finite(beside.get("edge_attr"))):
            yield "edge attributes that are not finite"

    def _is_small(self, x: Any, edge_index: Any) -> bool:
        """Whether PyG's own ``forward`` is faster, compiled too; an export is for any size.

        Not on a GPU: it waits for it at every call where ours, once prepared, never does.
        """
        features = x[0] if isinstance(x, tuple | list) else x
        if not (self.least and type(features) is Tensor and isinstance(edge_index, Tensor)):
            return False
        if features.is_cuda:
            return False
        if edge_index.layout is not torch.strided or features.dim() < 2:
            return False
        if edge_index.dtype is not torch.int64:  # which PyG's gathers and sums need
            return False
        width, own = features.size(-1), self.__dict__
        if self.transforms_first:
            width = own["out_channels"] * own.get("heads", 1)
        is_less = edge_index.size(-1) * width < self.least
        if torch.compiler.is_compiling():
            return surely(is_less) and not is_exporting()
        return bool(is_less)

    def _tied(self) -> Tied:
        """The contraction, made once for the options and modules of this layer.

        That there is none is remembered too, but not while parameters wait for the first input.
        """
        tied: Tied | None = self.__dict__.get("_contraction")
        if tied is None or (not torch.compiler.is_compiling() and tied.watch.is_changed()):
            tied = make_tied(self)
            if tied.conv is not None or not _is_waiting(self):
                self.__dict__["_contraction"] = tied
        return tied

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _tie(self) -> bool:
        """Make the contraction while a compiler traces a call, which does not trace this."""
        return self._tied().conv is not None

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """Let PyG generate ``propagate`` with its fused step, whatever the first layer's aggr.

        PyG generates it once for a class; of a layer that cannot fuse it, others would have none.
        """
        fuse = vars(self)["fuse"]
        self.fuse: bool = self.inspector.implements("message_and_aggregate")
        super()._set_jittable_templates(raise_on_error)
        self.fuse = fuse

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self._tied()  # before a compiler looks at the layer

    def __setattr__(self, name: str, value: Any) -> None:
        is_off = value is None and isinstance(vars(self).get(name), bool)  # else a parameter
        if name in self._switches and (is_off or type(value) is int):
            value = bool(value)  # PyG's switches may be so; options of a recipe may not
        elif not name.startswith("_") and _is_resized(self, name, value):
            self.__dict__.setdefault(CHANGED, {}).setdefault(name, self.__dict__[name])
        before = self.__dict__["_parameters"].get(name) if "_parameters" in self.__dict__ else None
        super().__setattr__(name, value)
        own = name.startswith("_") and name != "__class__"
        if not own and name not in _OF_CALLS and not _is_alike(before, value):
            self.__dict__.pop("_contraction", None)  # an option or a submodule may have changed
        if name == "explain" and value and "propagate" not in self._overridden:
            # A class made after its base has the base's generated method, which explains nothing.
            self.__dict__["propagate"] = MessagePassing.propagate.__get__(self)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self.__dict__.pop("_contraction", None)

    def __prepare_scriptable__(self) -> Module:
        """The layer of PyG in the place of this one, which torch.jit.script compiles."""
        return as_pygs(self)

    def __getstate__(self) -> dict[str, Any]:
        """The state to copy or pickle, without the tied OuterConv and its basis."""
        return {key: value for key, value in vars(self).items() if key not in TIED}


def _forward_like(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """The ``forward`` of a class of ours: by the contraction, or PyG's own where that cannot be."""
    _, *parameters = inspect.signature(theirs).parameters.values()
    names = [one.name for one in parameters]
    parameter_names = frozenset(names)
    needed = sum(one.default is inspect.Parameter.empty for one in parameters)

    @wraps(theirs)
    def forward(self: DropIn, *args: Any, **named: Any) -> Any:
        arguments = dict(zip(names, args, strict=False)) | named
        if len(arguments) < max(needed, len(args) + len(named)) or not parameter_names.issuperset(
            arguments
        ):
            return theirs(self, *args, **named)  # which says what is missing, twice, or unknown
        conv = self._runs(arguments)
        if conv is None:
            return theirs(self, *args, **named)
        return self.convolve(conv, **arguments)

    return forward


_LAZY = "or :obj:`-1` to derive the size from the first"
"""The words by which PyG tells that a class takes -1."""

# Attributes that PyG's own calls set: no options, which would make the contraction anew.
_OF_CALLS = {"training", "fuse", "att_x", "att_y"}
TIED = ("_contraction", "_kept")
MARK = "_accelerated"
CHANGED = "_changed"
"""Where a layer keeps the numbers that its options had when its parameters were made of them."""


def _switches_of(kind: type) -> frozenset[str]:
    """The options of a class of PyG's that are True or False."""
    options = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    return frozenset(
        one.name
        for one in options
        if isinstance(one.default, bool) or one.annotation in (bool, Optional[bool])
    )


def register(ours: type[Module], theirs: type[Module]) -> None:
    """Let :func:`.accelerate` replace a class of PyG's by this class."""
    if ours.__module__.startswith(__package__):
        OURS[theirs], THEIRS[ours] = ours, theirs


def become_pygs(layers: Collection[Module]) -> int:
    """Give layers of ours PyG's classes; their number."""
    for layer in layers:
        for key in (MARK, CHANGED, *TIED):
            layer.__dict__.pop(key, None)
        layer.__class__ = in_place_of(type(layer), THEIRS)
        if isinstance(
            layer, MessagePassing
        ):  # PyG generates methods for its first layer of a class
            layer._set_jittable_templates()
    return len(layers)


def as_pygs(layer: Module) -> Module:
    """A copy of a layer that has PyG's class, and shares parameters and modules with it."""
    copied = copy.copy(layer)
    copied._modules = dict(layer._modules)  # torch.jit.script puts PyG's in their place
    become_pygs([copied])
    return copied


def in_place_of(kind: type, others: Mapping[type[Module], type[Module]]) -> Any:
    """The class in the place of another, or one with it in the place of that base.

    torch's wrappers give an object a class of its own, made of its class, where they shard or
    parametrise it.
    """
    if kind in others:
        return others[kind]
    bases = tuple(in_place_of(base, others) for base in kind.__bases__)
    if bases == kind.__bases__:
        return kind
    own = {name: value for name, value in vars(kind).items() if name not in _OF_OBJECTS}
    return type(kind.__name__, bases, own)


_OF_OBJECTS = ("__dict__", "__weakref__")


def _is_waiting(layer: DropIn) -> bool:
    """Whether parameters that the layer uses have no shapes before the first input."""
    unused = layer.unused()
    return any(
        is_lazy(parameter) and not name.startswith(unused)
        for name, parameter in layer.named_parameters()
    )


def _is_replaced(layer: DropIn) -> bool:
    """Whether a linear map of PyG's class, whose weight a recipe reads, is another module."""
    unused = layer.unused()
    return any(
        getattr(type(part), "forward", None) is not layer.linear_map.forward
        for name, part in layer.named_modules()
        if name.startswith(_MAPS) and not isinstance(part, ModuleList)
        if "parametrizations" not in name and not f"{name}.".startswith(unused)
    )


def _is_resized(layer: Module, name: str, value: Any) -> bool:
    """Whether an option that has numbers, or none, becomes another: of parameters that are there.

    Recipes read sizes of parameters or of options, PyG's calls perhaps the others.
    """
    if name not in vars(layer) or name in _OF_CALLS:
        return False
    before = vars(layer)[name]
    is_count = any(one is None or type(one) is int for one in (before, value))
    return is_count and (type(before) is not type(value) or before != value)


def _is_alike(before: Any, value: Any) -> bool:
    """Whether a parameter takes the place of another of its shape."""
    if not isinstance(before, Tensor) or not isinstance(value, Tensor) or is_lazy(before):
        return False
    return before.shape == value.shape


def _has_other_size(edge_index: Tensor, x: Any) -> bool:
    """Whether an EdgeIndex tells other numbers of sources and targets than the features."""
    if not isinstance(edge_index, EdgeIndex):
        return False
    return any(
        size is not None and end is not None and size != end.size(-2)
        for size, end in zip(edge_index.sparse_size(), both(x), strict=True)
    )


def both(x: Any) -> Any:
    """What there is of sources and of targets: a pair, or twice the same."""
    return x if isinstance(x, tuple | list) else (x, x)


def as_linear(out: Tensor) -> Tensor:
    """A result in the type that autocast gives linear maps, which PyG's layer ends with."""
    kind = out.device.type
    if not torch.is_autocast_enabled(kind) or out.dtype == torch.float64:
        return out
    return out.to(torch.get_autocast_dtype(kind))


def as_weighted(out: Tensor, like: Any, parameter: str | None = None) -> Tensor:
    """A result in the type of PyG's weights of edges under autocast.

    It is that of features, or of a parameter of a layer ``like``.
    """
    if not torch.is_autocast_enabled(out.device.type):
        return out
    like = both(like)[0] if parameter is None else getattr(like, parameter)
    return out.to(torch.promote_types(out.dtype, like.dtype))


def is_finite(values: Any) -> bool:
    """Whether there is no NaN and no infinity; a sum too large for the type counts as one."""
    if not isinstance(values, Tensor) or not has_numbers(values):
        return True
    if waits(values):
        return _finite.get(None, partial(_has_finite_sum, values.detach()), values)  # type: ignore[no-any-return]
    return _has_finite_sum(values)


def _has_finite_sum(values: Tensor) -> bool:
    return holds(values.detach().sum().isfinite())


def _are_finite(edge_weight: Tensor, edge_index: Tensor, x: Tensor) -> bool:
    """:func:`is_finite`, on a device read with all else that is asked of a graph."""
    if edge_index.is_cpu or not (type(edge_index) is Tensor and waits(edge_index)):
        return is_finite(edge_weight)
    if edge_index.dtype is not torch.long or edge_index.dim() != 2 or edge_index.size(0) != 2:
        return is_finite(edge_weight)
    summary = summary_of(edge_index, edge_weight, None, x.size(-2))
    return summary is None or summary.is_finite


def _other_type(edge_weight: Tensor, features: Tensor) -> bool:
    """Whether PyG's result has another type than the features."""
    return edge_weight.dtype != features.dtype and edge_weight.is_floating_point()


def _is_mixed(layer: Module, features: Tensor) -> bool:
    """Whether types meet under autocast that each product of PyG's mixes in its own way."""
    short = torch.get_autocast_dtype(features.device.type)
    of_weights = {one.dtype for one in layer.parameters()}
    others = {torch.float16, torch.bfloat16} - {short}
    alone = short in of_weights and features.dtype != short
    return alone or not others.isdisjoint({*of_weights, features.dtype})


def _arguments_of(cls: type[DropIn], call: str) -> dict[str, Any]:
    """The types of the arguments of ``propagate``, which PyG reads in the source of a class.

    It finds the source by the name of the class, so that classes of one name hide each other; it is
    read of the class that makes the call, for classes that wrappers make have none.
    """
    for base in cls.__mro__:
        if base in (DropIn, MessagePassing):
            break
        base = vars(base).get("theirs", base)
        if not any(call in _names_in(method) for method in vars(base).values()):
            continue
        parameters = Inspector(base).get_params_from_method_call(call, [0, "edge_index", "size"])
        if parameters:
            return {name: one.type_repr for name, one in parameters.items()}
    return {}


def _names_in(method: Any) -> tuple[str, ...]:
    """The names that a function uses."""
    code = getattr(inspect.unwrap(method) if callable(method) else None, "__code__", None)
    return () if code is None else code.co_names
