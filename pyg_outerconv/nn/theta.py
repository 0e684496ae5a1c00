"""The base class of the forms of Θ: a module that builds K matrices P × Q from its parameters."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter, is_lazy

from ..errors import RefusedValue
from ..registry import Named, Registry
from ..theta import ThetaValue, full
from .checks import check_channels

FORMS: Registry[type[ThetaModule]] = Registry("form of theta", "low-rank(rank=8)", in_order=True)
"""All forms of Θ by name."""


def view_of(parameter: Tensor) -> Tensor:
    """A view of a parameter, which several threads may index.

    torch can deadlock if one thread indexes a leaf tensor, holding Python's lock, while another
    thread starts a graph from it.
    """
    return parameter.view_as(parameter)


class ThetaModule(Named, torch.nn.Module, registry=FORMS):
    """K matrices Θ_k of size P × Q; called, it returns them as a (K, G, P/G, Q/G) tensor.

    Θ_k is block-diagonal with G blocks, G = 1 being a full matrix.

    A subclass names its parameters and their shapes (:meth:`shapes`) and makes Θ of them
    (:meth:`build`, or :meth:`parameter` where Θ is not one tensor). With ``in_channels=-1`` the
    first input determines the shapes.

    Attributes:
        name: the name of the form in the option ``theta``.
        argument: the name of its option; None for a form without one.

    Args:
        num_labels: K.
        in_channels: P, or -1.
        out_channels: Q.
        option: the value of the option ``argument``.
        max_parameters: upper bound on the number of parameters, or None.

    Raises:
        ValueError: an option is out of range or does not divide the channels, or there would be
            too many parameters.
    """

    name: ClassVar[str]
    argument: ClassVar[str | None] = None

    def __init__(
        self,
        num_labels: int,
        in_channels: int,
        out_channels: int,
        option: int = 1,
        max_parameters: int | None = None,
    ) -> None:
        super().__init__()
        check_channels("num_labels", num_labels, 0)
        check_channels("out_channels", out_channels, -1 if self.name == "identity" else 0)
        self.num_labels, self.in_channels, self.out_channels = num_labels, in_channels, out_channels
        self.option, self.max_parameters = option, max_parameters
        self.initial: Callable[[ThetaModule], None] | None = None  # in the place of Glorot's values
        self.check()
        for key in self.shapes(1):
            self.register_parameter(key, UninitializedParameter())  # type: ignore[arg-type]
        if in_channels >= 0:
            self.materialize(in_channels)

    @classmethod
    def types_in_text(cls) -> dict[str, Any]:
        """The option of the form, an integer."""
        return {} if cls.argument is None else {cls.argument: int}

    def check(self) -> None:
        """Raise ValueError if the option does not fit the channels; P may still be -1."""
        if self.option < 1:
            raise RefusedValue(
                f"theta {self.name!r} needs its {self.argument}", ">= 1", self.option
            )

    def _check_count(self) -> None:
        count = sum(math.prod(shape) for shape in self.shapes(self.in_channels).values())
        if self.max_parameters is not None and count > self.max_parameters:
            raise RefusedValue(
                "a layer has no more parameters than its family's max_parameters, "
                "which can be set higher",
                f"at most {self.max_parameters}",
                f"{count}, of {self.num_labels} labels",
            )

    @abstractmethod
    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, the last two being fan-in and fan-out."""

    def materialize(self, in_channels: int) -> None:
        """Allocate and initialise the parameters for P channels."""
        self._allocate(in_channels)
        self.reset_parameters()

    def _allocate(self, in_channels: int, shapes: dict[str, tuple[int, ...]] | None = None) -> None:
        """Allocate the parameters for P channels, of these shapes where a checkpoint has them."""
        before, self.in_channels = self.in_channels, in_channels
        own = self.shapes(in_channels)
        try:
            self.check()
            self._check_count()
            if shapes not in (None, own):
                raise RefusedValue(f"parameters of theta {self.name!r} have shapes", own, shapes)
        except ValueError:
            self.in_channels = before
            raise
        for key, shape in own.items():
            parameter = getattr(self, key)
            if isinstance(parameter, UninitializedParameter):
                parameter.materialize(shape)

    def reset_parameters(self) -> None:
        """Glorot-uniform values, fan-in and fan-out being the last two sizes."""
        if self.initial is not None:
            if not any(is_lazy(parameter) for parameter in self.parameters(recurse=False)):
                self.initial(self)
            return
        for parameter in self.parameters(recurse=False):
            if not is_lazy(parameter) and parameter.numel():
                bound = math.sqrt(6.0 / (parameter.size(-2) + parameter.size(-1)))
                with torch.no_grad():
                    self.draw(parameter, bound)

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Fill a parameter with uniform values in [-bound, bound]."""
        parameter.uniform_(-bound, bound)

    def forward(self) -> Tensor:
        """Θ, (K, G, P/G, Q/G). Raises RuntimeError while P is unknown."""
        if self.in_channels < 0:
            self.require_shape()
        return self.build()

    def require_shape(self) -> None:
        """Raises RuntimeError while P is unknown."""
        if self.in_channels < 0:
            raise RuntimeError("Theta has no values before the first input tells in_channels")

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Θ as the contraction takes it: a tensor, a mixture, or values and outputs of heads.

        A form without parameters takes dtype and device from ``like``; other forms ignore it.

        Raises:
            RuntimeError: P is unknown.
        """
        return self()  # type: ignore[no-any-return]

    def build(self) -> Tensor:
        """Θ as a tensor (K, G, P/G, Q/G). A subclass defines this or :meth:`parameter`."""
        return full(self.parameter())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for key, parameter in self._parameters.items():
            assert parameter is not None  # forms register no None
            kept = keep_vars or is_lazy(parameter)
            destination[prefix + key] = parameter if kept else parameter.detach()

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        own = {key: state[prefix + key] for key in self.shapes(1) if prefix + key in state}
        waits = any(is_lazy(parameter) for parameter in self.parameters(recurse=False))
        if any(is_lazy(value) for value in own.values()):
            self.in_channels = -1
            for key in self.shapes(1):
                self.register_parameter(key, UninitializedParameter())  # type: ignore[arg-type]
        elif own and waits:
            shapes = {key: tuple(value.shape) for key, value in own.items()}
            try:
                self._allocate(self.channels_of(next(iter(shapes.values()))), shapes)
            except RefusedValue as error:  # load_state_dict raises what it collects here
                args[-1].append(f"{prefix.removesuffix('.')}: {error}")
                return
        super()._load_from_state_dict(state, prefix, *args)

    def channels_of(self, shape: tuple[int, ...]) -> int:
        """P, from the shape of the first parameter."""
        return shape[1] if len(shape) > 1 else 0

    def extra_repr(self) -> str:
        """K, P and Q, and the option of the form."""
        option = "" if self.argument is None else f", {self.argument}={self.option}"
        return f"{self.num_labels}, {self.in_channels}, {self.out_channels}{option}"
