"""The forms of the parameter Θ: full, or a cheaper parametrisation of K matrices P × Q."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter, is_lazy

from ..contract import Mixture, ThetaValue
from ..errors import RefusedValue, refusal, unknown

FORMS: dict[str, type[Theta]] = {}


class Theta(torch.nn.Module):
    """K matrices Θ_k of size P × Q; called, it returns them as a (K, G, P/G, Q/G) tensor.

    Θ_k is block-diagonal with G blocks, G = 1 being a full matrix.

    A form names its parameters and their shapes, and says how Θ is made of them. With
    ``in_channels=-1`` the parameters take their shapes from the first input.

    Attributes:
        name: what users call the form.
        argument: what its option is called; None for a form without one.

    Args:
        num_labels: K.
        in_channels: P, or -1.
        out_channels: Q.
        option: the number that the form needs, if it has an ``argument``.

    Raises:
        ValueError: an option is out of range or does not divide the channels.
    """

    name: ClassVar[str]
    argument: ClassVar[str | None] = None

    def __init__(
        self, num_labels: int, in_channels: int, out_channels: int, option: int = 1
    ) -> None:
        super().__init__()
        self.num_labels, self.in_channels, self.out_channels = num_labels, in_channels, out_channels
        self.option = option
        self.check()
        for key in self.shapes(1):
            self.register_parameter(key, UninitializedParameter())  # type: ignore[arg-type]
        if in_channels >= 0:
            self.materialize(in_channels)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        FORMS[cls.name] = cls

    def check(self) -> None:
        """Refuse options that do not fit (P may still be -1). Raises ValueError."""
        if self.option < 1:
            raise RefusedValue(
                refusal(f"theta {self.name!r} needs its {self.argument}", ">= 1", self.option)
            )

    @abstractmethod
    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, the last two being fan-in and fan-out."""

    def materialize(self, in_channels: int) -> None:
        """Give the parameters their shapes and initial values, once P is known."""
        before, self.in_channels = self.in_channels, in_channels
        try:
            self.check()
        except ValueError:
            self.in_channels = before
            raise
        for key, shape in self.shapes(in_channels).items():
            parameter = getattr(self, key)
            if isinstance(parameter, UninitializedParameter):
                parameter.materialize(shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform values, fan-in and fan-out being the last two sizes."""
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
        self.require_shape()
        return self.build()

    def require_shape(self) -> None:
        """Raises RuntimeError while P is unknown."""
        if self.in_channels < 0:
            raise RuntimeError("Theta has no values before the first input tells in_channels")

    def parameter(self) -> ThetaValue:
        """Θ as the contraction takes it: a tensor, or a mixture of few matrices.

        Raises:
            RuntimeError: P is unknown.
        """
        return self()  # type: ignore[no-any-return]

    @abstractmethod
    def build(self) -> Tensor:
        """Θ made of the parameters."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for key, parameter in self._parameters.items():
            assert parameter is not None  # forms register no None
            kept = keep_vars or is_lazy(parameter)
            destination[prefix + key] = parameter if kept else parameter.detach()

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        first = next(iter(self.shapes(1)))
        value = state.get(prefix + first)
        if value is not None and is_lazy(value):
            self.in_channels = -1
            for key in self.shapes(1):
                self.register_parameter(key, UninitializedParameter())  # type: ignore[arg-type]
        elif value is not None and is_lazy(getattr(self, first)):
            for key in self.shapes(1):
                getattr(self, key).materialize(state[prefix + key].shape)
            self.in_channels = self.infer_in_channels()
        super()._load_from_state_dict(state, prefix, *args)

    def infer_in_channels(self) -> int:
        """P, read off the parameters' shapes."""
        with torch.no_grad():
            theta = self.build()
        return theta.size(1) * theta.size(2)

    def extra_repr(self) -> str:
        """K, P and Q, and the option of the form."""
        option = "" if self.argument is None else f", {self.argument}={self.option}"
        return f"{self.num_labels}, {self.in_channels}, {self.out_channels}{option}"


class Full(Theta):
    """Θ_k free: K·P·Q numbers."""

    name = "full"

    weight: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, Q)."""
        return {"weight": (self.num_labels, in_channels, self.out_channels)}

    def build(self) -> Tensor:
        """The weight."""
        return self.weight.unsqueeze(1)

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Label by label and transposed, as PyG's Linear holds its weight.

        So a seed gives GCNConv, ChebConv and an equal OuterConv the same initial weights.
        """
        for matrix in parameter:
            drawn = matrix.new_empty(matrix.shape[::-1]).uniform_(-bound, bound)
            matrix.copy_(drawn.t())


class Shared(Theta):
    """Θ_k = V for every label: P·Q numbers. The bases are summed first."""

    name = "shared"

    weight: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (P, Q)."""
        return {"weight": (in_channels, self.out_channels)}

    def parameter(self) -> ThetaValue:
        """One matrix, with coefficient 1 for every label."""
        self.require_shape()
        ones = self.weight.new_ones((self.num_labels, 1))
        return Mixture(ones, self.weight[None, None])

    def build(self) -> Tensor:
        """The weight, once for each label."""
        return self.weight.expand(self.num_labels, 1, -1, -1)


class BasisDecomposed(Theta):
    """Θ_k = Σ_b c_kb V_b with ``num_bases`` matrices V_b: K·B + B·P·Q numbers.

    From the `"Modeling Relational Data with Graph Convolutional Networks"
    <https://arxiv.org/abs/1703.06103>`_ paper, equation 3.
    """

    name, argument = "basis-decomposed", "num_bases"

    weight: Tensor
    comp: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (B, P, Q), comp (K, B)."""
        return {
            "weight": (self.option, in_channels, self.out_channels),
            "comp": (self.num_labels, self.option),
        }

    def parameter(self) -> ThetaValue:
        """The mixture of the matrices V_b."""
        self.require_shape()
        return Mixture(self.comp, self.weight.unsqueeze(1))

    def build(self) -> Tensor:
        """The combinations."""
        flat = self.comp @ self.weight.flatten(1)
        return flat.view(self.num_labels, 1, *self.weight.shape[1:])


class LowRank(Theta):
    """Θ_k = U_k V_k of ``rank`` r at most: K·r·(P + Q) numbers."""

    name, argument = "low-rank", "rank"

    down: Tensor
    up: Tensor

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """down (K, P, r), up (K, r, Q)."""
        return {
            "down": (self.num_labels, in_channels, self.option),
            "up": (self.num_labels, self.option, self.out_channels),
        }

    def build(self) -> Tensor:
        """The products."""
        return (self.down @ self.up).unsqueeze(1)


class Grouped(Theta):
    """Θ_k block-diagonal with G = ``groups`` blocks of P/G × Q/G: K·P·Q/G numbers."""

    name, argument = "grouped", "groups"

    weight: Tensor

    def check(self) -> None:
        """G divides P and Q."""
        super().check()
        for what, count in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if count >= 0 and count % self.option:
                raise RefusedValue(
                    refusal(
                        f"{self.argument} must divide {what}", f"a divisor of {count}", self.option
                    )
                )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, G, P/G, Q/G)."""
        return {
            "weight": (
                self.num_labels,
                self.option,
                in_channels // self.option,
                self.out_channels // self.option,
            )
        }

    def build(self) -> Tensor:
        """The weight."""
        return self.weight


class BlockDiagonal(Grouped):
    """Θ_k block-diagonal with ``num_blocks`` blocks: R-GCN's name for groups (its equation 4)."""

    name, argument = "block-diagonal", "num_blocks"


class Depthwise(Theta):
    """Every input channel on its own: K·Q numbers; Q a multiple of P."""

    name = "depthwise"

    weight: Tensor

    def check(self) -> None:
        """P divides Q."""
        super().check()
        if self.in_channels > 0 and self.out_channels % self.in_channels:
            raise RefusedValue(
                refusal(
                    "depthwise needs out_channels that in_channels divides",
                    f"a multiple of {self.in_channels}",
                    self.out_channels,
                )
            )

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """weight (K, P, 1, Q/P)."""
        return {
            "weight": (self.num_labels, in_channels, 1, self.out_channels // max(in_channels, 1))
        }

    def build(self) -> Tensor:
        """The weight."""
        return self.weight


_SPEC = re.compile(r"([a-z-]+)(?::(\d{1,9})|\((?:(\w+)\s*=\s*)?(\d{1,9})\))?")


def make_theta(spec: str, num_labels: int, in_channels: int, out_channels: int) -> Theta:
    """The form that a text names: ``'full'``, ``'shared'``, ``'depthwise'``,
    ``'basis-decomposed(num_bases=30)'``, ``'block-diagonal(num_blocks=4)'``,
    ``'low-rank(rank=8)'``, ``'grouped(groups=4)'``, or shorter ``'low-rank:8'``.

    Raises:
        ValueError: the form is unknown, its option is missing, superfluous, or does not fit.
    """
    match = _SPEC.fullmatch(str(spec).strip())
    name = match[1] if match else re.split(r"[:(]", str(spec))[0]
    if name not in FORMS:
        raise RefusedValue(unknown("form of theta", name, FORMS))
    form, number = FORMS[name], (match[2] or match[4]) if match else None
    fits = match is not None and (form.argument is None) == (number is None)
    if not fits or (match is not None and match[3] not in (None, form.argument)):
        wanted = name if form.argument is None else f"{name}({form.argument}=...)"
        raise RefusedValue(
            refusal(
                f"theta {name!r} is written with its option and no other", repr(wanted), repr(spec)
            )
        )
    return form(num_labels, in_channels, out_channels, *([int(number)] if number else []))
