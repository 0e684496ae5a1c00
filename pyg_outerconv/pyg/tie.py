"""Ties: parameters of one module as functions of another's, so that both are one set of weights.

What the other is made of is looked at again at each call: its modules, hooks and methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.nn import Module, ModuleList
from torch.utils._python_dispatch import _disable_current_modes
from torch_geometric.nn import MessagePassing

from ..errors import Refused, RefusedValue
from ..kernels.index_checks import is_exporting
from ..nn import OuterConv


class Source(NamedTuple):
    """A parameter or buffer as a function of a layer of PyG.

    Attributes:
        text: the function in the layer's own names, such as ``'lin.weight.T'``.
        of: the function; it returns views, or new tensors that carry gradients.
        linears: the names of the linear maps whose weights it reads, instead of calling them.
    """

    text: str
    of: Callable[[Any], Tensor]
    linears: tuple[str, ...] = ()

    def within(self, name: str) -> Source:
        """The same function of a layer that holds this one under a name."""
        inner, part = self.of, _reader(name)
        linears = tuple(f"{name}.{path}" for path in self.linears)
        return Source(f"{name}.{self.text}", lambda layer: inner(part(layer)), linears)


def _reader(path: str) -> Callable[[Any], Any]:
    """The attribute of that path; unlike ``operator.attrgetter`` a compiler can trace it."""
    names = tuple(path.split("."))

    def read(layer: Any) -> Any:
        for name in names:
            layer = getattr(layer, name)
        return layer

    return read


def same(path: str) -> Source:
    """The parameter of that name, unchanged."""
    return Source(path, _reader(path))


def linear(*paths: str) -> Source:
    """Θ (K, P, Q) from the weights (Q, P) of K linear maps."""
    weights = [_reader(f"{path}.weight") for path in paths]
    text = ", ".join(f"{path}.weight.T" for path in paths)
    if len(weights) == 1:
        (weight,) = weights
        return Source(text, lambda layer: weight(layer).t().unsqueeze(0), paths)

    def stacked(layer: Any) -> Tensor:
        return torch.stack([weight(layer) for weight in weights]).transpose(1, 2)

    return Source(text, stacked, paths)


def heads(path: str, count: int) -> Source:
    """Θ (H, P, D) from the weight (H·D, P) of one linear map to all heads."""
    weight = _reader(f"{path}.weight")

    def of(layer: Any) -> Tensor:
        return weight(layer).unflatten(0, (count, -1)).transpose(1, 2)  # type: ignore[no-any-return]

    return Source(f"{path}.weight.T, {count} heads", of, (path,))


def viewed(path: str, *shape: int) -> Source:
    """The parameter of that name in another shape."""
    parameter = _reader(path)
    return Source(path, lambda layer: parameter(layer).view(shape))


# Methods of messages: a subclass or an object with one of its own is run by PyG.
STEPS = ("message", "aggregate", "message_and_aggregate", "update", "propagate", "edge_update")
HOOKS = tuple(
    f"_{step}_forward_{when}hooks"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for when in ("pre_", "")
)
_PYGS = ("_orig_propagate", "_jinja_propagate")
OF_CALLS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Watch:
    """The modules of a layer when its contraction was made, and what sees calls that it skips."""

    def __init__(self, layer: Module, skipped: Iterable[Module]) -> None:
        parts = list(dict.fromkeys(skipped))
        self._places = [
            (part._modules, list(part._modules.values()))
            for part in layer.modules()
            if part._modules
        ]
        self._hooks = [getattr(part, name) for part in parts for name in OF_CALLS]
        self._hooks += [vars(layer)[name] for name in HOOKS]
        self._parts = parts
        self._biases = [
            (part._parameters, part._parameters["bias"] is None)
            for part in parts
            if "bias" in part._parameters
        ]

    def is_changed(self) -> bool:
        """Whether a module, or a bias of one, was put in, replaced or removed since."""
        for place, parts in self._places:
            if list(place.values()) != parts:
                return True
        return any((own.get("bias") is None) is not without for own, without in self._biases)

    def is_seen(self) -> bool:
        """Whether a hook, or a ``forward`` of its own, sees a call that the contraction skips."""
        for part in self._parts:
            if "forward" in part.__dict__:
                return True
        return any(self._hooks)


class Tied(NamedTuple):
    """The contraction of a layer, and what is looked at again at each call.

    Attributes:
        conv: it; None if there is none.
        watch: the modules that it was made for.
        reason: why there is none, if the recipe says so.
    """

    conv: OuterConv | ModuleList | None
    watch: Watch
    reason: str = ""


@torch.compiler.disable  # type: ignore[untyped-decorator]
def make_tied(layer: Any) -> Tied:
    """The OuterConv of a layer, and a watch over the linear maps whose weights it reads."""
    if any(layer._of_options()):
        return Tied(None, Watch(layer, layer.skipped()))
    # No memory is written, no random number drawn, and neither tracers nor torch.func see it.
    try:
        with _disable_current_modes(), temporarily_clear_interpreter_stack(), torch.device("meta"):
            conv, sources = layer.recipe()
    except Refused as refused:  # PyG's layers take options that its constructor refuses
        return Tied(None, Watch(layer, layer.skipped()), str(refused))
    paths = list(dict.fromkeys(path for source in sources.values() for path in source.linears))
    maps = [attrgetter(path)(layer) for path in paths]
    watch = Watch(layer, [*layer.skipped(), *maps])
    read = "\n".join([*(source.text for source in sources.values()), *layer.outside()])
    for path, part in zip(paths, maps, strict=True):
        if (part.bias is not None) is not (f"{path}.bias" in read):
            return Tied(None, watch)
    tie(conv, layer, sources)
    return Tied(conv, watch)


def tie(module: Module, layer: Module, sources: Mapping[str, Source]) -> None:
    """Replace all parameters and buffers of ``module`` by functions of ``layer``.

    Afterwards ``module`` holds none: each is computed where it is read, so that both modules use
    the same weights, on whatever device they are; before, its own may be on ``meta``. Its
    ``training`` and ``parameters()`` are those of ``layer``.
    """
    named = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    if named != set(sources):
        raise RefusedValue("every parameter has a source", sorted(named), sorted(sources))
    for path, part in list(module.named_modules()):
        own = {}
        for tensors in (part._parameters, part._buffers):
            for name in [name for name, value in tensors.items() if value is not None]:
                own[name] = sources[f"{path}.{name}" if path else name].of
                del tensors[name]
        part.__dict__.update(_layer=layer, _sources=own)
        part.__class__ = _tied(type(part), tuple(own))  # type: ignore[arg-type]


@cache
def _tied(kind: type[Module], names: tuple[str, ...]) -> type[Module]:
    """A subclass with properties in the place of parameters, as torch's parametrizations make."""
    namespace: dict[str, Any] = {name: _property(name) for name in names}
    namespace["training"] = property(lambda self: self._layer.training)
    # Dtype and device of a call without features are those of the weights.
    namespace["parameters"] = lambda self, recurse=True: self._layer.parameters(recurse)
    return type(kind.__name__, (kind,), {"__module__": kind.__module__, **namespace})


def _property(name: str) -> property:
    return property(lambda self: self._sources[name](self._layer))


def own_methods(layer: Module) -> list[str]:
    """The methods that were put onto a layer, in the place of those of its class.

    PyG puts methods of its own there, for explainers and for decomposed layers.
    """
    kind = type(layer)
    pygs = generated(kind)
    return [
        name
        for name, value in vars(layer).items()
        if name != "forward" and callable(getattr(kind, name, None))
        if getattr(value, "__func__", value) not in pygs
    ]


def generated(kind: type) -> list[Any]:
    """The functions that PyG puts in the place of ``propagate``, in a class and in its bases."""
    pygs: list[Any] = [MessagePassing.propagate]
    for base in kind.__mro__:
        pygs += [vars(base)[name] for name in _PYGS if name in vars(base)]
    return pygs


def is_recorded() -> bool:
    """Whether torch.export or torch.jit records a call, to run it again with other inputs."""
    return is_exporting() or torch.jit.is_tracing()
