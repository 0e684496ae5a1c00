"""DropIn: a layer of PyG whose convolution is the contraction of an OuterConv."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Identity, Module, ModuleList
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import _disable_current_modes
from torch_geometric.inspector import Inspector
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.dense import Linear
from torch_geometric.typing import OptTensor

from ..errors import RefusedValue
from ..graph.edge_index import check_compressed
from ..nn import OuterConv
from .matrices import is_product
from .tie import Source, tie

Recipe = tuple[OuterConv | ModuleList, dict[str, Source]]
"""The convolution of a layer, or one for each of its steps, and its parameters as functions."""

OURS: dict[type[Module], type[Module]] = {}
"""Our class for each of PyG's."""
THEIRS: dict[type[Module], type[Module]] = {}
"""PyG's class for each of ours."""
_LINEAR = (Linear.forward, torch.nn.Linear.forward)

# Methods of messages: a subclass that overrides one of them is run by PyG.
STEPS = ("message", "aggregate", "message_and_aggregate", "update", "propagate", "edge_update")
HOOKS = tuple(
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)


class DropIn(MessagePassing):
    r"""A layer with the constructor, parameters and results of the class of PyG it derives from.

    Its convolution is that of an :class:`~pyg_outerconv.OuterConv` over the same parameters
    (:meth:`recipe`). PyG's own ``forward`` runs where messages are looked at (explainers, hooks,
    subclasses that override a step), where an option or an input has no equal here, and on graphs
    so small that it is faster. :meth:`why_not` tells which of them runs, and why.

    A subclass defines :meth:`recipe`, and ``forward`` with PyG's signature.

    Attributes:
        theirs: the class of PyG.
        takes_pairs: whether features may be a pair (sources, targets).
        takes_matrices: whether the contraction with a large sparse matrix is faster than PyG's.
        trick: what else is computed, besides the sum, to give PyG's results; empty if nothing.
        transforms_first: whether PyG's messages are as wide as the output, not as the input.
        least: number of edges times channels of a message, below which PyG's own ``forward`` is
            faster.
        least_of_matrices: the same number where edges are a sparse matrix.
    """

    theirs: ClassVar[type[MessagePassing]]
    takes_pairs: ClassVar[bool] = False
    trick: ClassVar[str] = ""
    transforms_first: ClassVar[bool] = False
    takes_matrices: ClassVar[bool] = False
    least: ClassVar[int] = 0
    least_of_matrices: ClassVar[int] = 2**24
    _overridden: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        bases: list[Any] = [base for base in cls.__bases__ if not issubclass(base, DropIn)]
        if DropIn in cls.__bases__ and bases:
            cls.theirs = bases[0]
            register(cls, cls.theirs)
        theirs = getattr(cls, "theirs", None)
        if theirs is None:  # a base of several of our classes
            return
        cls._overridden = tuple(
            step for step in STEPS if getattr(cls, step) is not getattr(theirs, step)
        )
        for call in ("propagate", "edge_updater"):
            setattr(cls, f"{call}_type", _arguments_of(cls, call))

    def recipe(self) -> Recipe:
        """The convolution as an OuterConv, and its parameters as functions of this layer's.

        A layer of several steps gives a list of them.
        """
        raise NotImplementedError

    def lacks(self) -> list[str]:
        """The options of this layer that have no equal in the recipe."""
        return []

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
        conv = self._outer_conv()
        if isinstance(conv, OuterConv):
            return conv
        reasons = list(self._of_layer()) or ["it has several steps"]
        rule = f"{type(self).__name__} is one convolution with some of its options"
        raise RefusedValue(f"{rule}: {'; '.join(reasons)}")

    def why_not(
        self, x: Any = None, edge_index: Any = None, edge_weight: OptTensor = None
    ) -> list[str]:
        """The reasons why PyG's own ``forward`` runs; none if the contraction does.

        >>> from pyg_outerconv.pyg import SAGEConv
        >>> SAGEConv(16, 8, aggr="median").why_not()
        ['aggr=median is not made of sums, means, maxima, minima or variances']

        Args:
            x, edge_index, edge_weight: inputs of a call; without them only the layer is looked at.
        """
        found = list(self._of_layer())
        if edge_index is not None:
            found += self._of_inputs(x, edge_index, edge_weight)
        return found

    # How a call runs ------------------------------------------------------------------------------

    def _runs(self, x: Any, edge_index: Any, edge_weight: OptTensor = None) -> Any:
        """The OuterConv that runs a call, or None where PyG's own ``forward`` does."""
        held = self.__dict__
        conv = held.get("_outer")
        if conv is None:
            conv = self._outer_conv()
        if conv is None or self._observed():
            return None
        for _ in self._of_inputs(x, edge_index, edge_weight):
            return None
        return conv

    def _observed(self) -> bool:
        """Whether something looks at messages, or at a linear map that the contraction skips."""
        held = self.__dict__
        if held["_explain"] or self._overridden or any(map(held.__getitem__, HOOKS)):
            return True
        return any(map(has_hooks, held.get("_skipped", ())))

    def _of_layer(self) -> Iterator[str]:
        """Reasons that lie in the layer."""
        lacks = self.lacks()
        yield from lacks
        if _is_waiting(self):
            yield "parameters have no shapes before the first input"
        elif not lacks and self._outer_conv() is None:
            yield "a linear map was replaced by another module"
        if self.explain:
            yield "messages are explained"
        elif self._observed():
            yield "hooks or a subclass look at messages or at linear maps"

    def _of_inputs(self, x: Any, edge_index: Any, edge_weight: OptTensor = None) -> Iterator[str]:
        """The reason that lies in the inputs, if there is one."""
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
        elif not features.is_floating_point():
            yield f"features of type {features.dtype}"
        elif (rank := features.dim()) < 2 or self.node_dim % rank != rank - 2:
            yield "features whose dimension before the last is not that of nodes"
        elif edge_weight is not None and _other_type(edge_weight, features):
            yield f"edge weights of type {edge_weight.dtype} for features of {features.dtype}"
        elif self._is_small(edge_index, features):
            yield "a graph so small that PyG's own layer is faster"

    def _is_small(self, edge_index: Tensor, features: Tensor) -> bool:
        """Whether PyG's own ``forward`` is faster; in a compiled graph it is not."""
        if not self.least or torch.compiler.is_compiling():
            return False
        width = features.size(-1)
        if self.transforms_first:
            width = vars(self)["out_channels"] * vars(self).get("heads", 1)
        return edge_index.size(-1) * width < self.least

    def _outer_conv(self) -> OuterConv | ModuleList | None:
        """The OuterConv tied to this layer, made once for its options; None if there is none.

        That there is none is remembered too, but not while parameters wait for the first input.
        """
        held = self.__dict__
        if "_outer" not in held:
            found = _tied_conv(self)
            if found[0] is None and _is_waiting(self):
                return None
            held["_outer"], held["_skipped"] = found
        return held["_outer"]  # type: ignore[no-any-return]

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
        self._outer_conv()  # before a compiler looks at the layer

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if not name.startswith("_") and name not in _OF_CALLS:
            self.__dict__.pop("_outer", None)  # an option or a submodule may have changed
        if name == "explain" and value and "propagate" not in self._overridden:
            # A class made after its base has the base's generated method, which explains nothing.
            self.__dict__["propagate"] = MessagePassing.propagate.__get__(self)

    def __getstate__(self) -> dict[str, Any]:
        """The state to copy or pickle, without the tied OuterConv and its basis."""
        return {key: value for key, value in vars(self).items() if key not in TIED}


# Attributes that PyG's own calls set: no options, which would make the contraction anew.
_OF_CALLS = {"training", "fuse", "att_x", "att_y"}
TIED = ("_outer", "_skipped", "_kept")


def register(ours: type[Module], theirs: type[Module]) -> None:
    """Let :func:`.accelerate` replace a class of PyG's by this class."""
    if ours.__module__.startswith(__package__):
        OURS[theirs], THEIRS[ours] = ours, theirs


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _tied_conv(layer: DropIn) -> tuple[OuterConv | ModuleList | None, tuple[Module, ...]]:
    """The OuterConv of a layer, and the linear maps whose weights it reads."""
    if layer.lacks() or _is_waiting(layer) or _is_replaced(layer):
        return None, ()
    # No memory is written, no random number drawn, and a tracer does not see it.
    with _disable_current_modes(), torch.device("meta"):
        conv, sources = layer.recipe()
    paths = (path for source in sources.values() for path in source.linears)
    skipped = tuple(attrgetter(path)(layer) for path in dict.fromkeys(paths))
    tie(conv, layer, sources)
    return conv, skipped


def _is_waiting(layer: DropIn) -> bool:
    """Whether parameters that the layer uses have no shapes before the first input."""
    unused = layer.unused()
    return any(
        is_lazy(parameter) and not name.startswith(unused)
        for name, parameter in layer.named_parameters()
    )


def _is_replaced(layer: DropIn) -> bool:
    """Whether a linear map of PyG's class, whose weight a recipe reads, is another module."""
    return any(
        type(part).forward not in _LINEAR
        for name, part in layer.named_modules()
        if name.startswith("lin") and not isinstance(part, ModuleList | Identity)
        if "parametrizations" not in name
    )


def has_hooks(part: Module) -> bool:
    """Whether a call of a module is looked at."""
    return bool(part._forward_hooks or part._forward_pre_hooks or part._backward_hooks)


def _other_type(edge_weight: Tensor, features: Tensor) -> bool:
    """Whether PyG's result has another type than the features."""
    return edge_weight.dtype != features.dtype and edge_weight.is_floating_point()


def _arguments_of(cls: type[DropIn], call: str) -> dict[str, Any]:
    """The types of the arguments of ``propagate``, which PyG reads in the source of a class.

    It finds the source by the name of the class, so that classes of one name hide each other.
    """
    for base in cls.__mro__:
        if base in (DropIn, MessagePassing):
            break
        base = vars(base).get("theirs", base)
        found = Inspector(base).get_params_from_method_call(call, [0, "edge_index", "size"])
        if found:
            return {name: one.type_repr for name, one in found.items()}
    return {}
