"""The forms of Θ: modules that make K matrices P × Q of their parameters, and their names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter, is_lazy

from ..errors import RefusedValue
from ..registry import Named, Registry
from ..signatures import typed
from ..theta import Theta, ThetaValue, full
from .checks import check_channels

FORMS: Registry[type[ThetaModule]] = Registry("form of theta", "low-rank(rank=8)", in_order=True)
"""All forms of Θ by name."""

DRAWN = 2**20
"""Numbers that are drawn at once, beside the parameter."""

DRAWN_APART = 1000
"""Up to so many labels are drawn one by one where a draw of all is another than those of each."""


def view_of(parameter: Tensor) -> Tensor:
    """A view of a parameter, which several threads may index.

    torch can deadlock if one thread indexes a leaf tensor, holding Python's lock, while another
    thread starts a graph from it.
    """
    return parameter.view_as(parameter)


class ThetaModule(Named, torch.nn.Module, registry=FORMS):
    """K matrices Θ_k of size P × Q; called, it returns them as a (K, G, P/G, Q/G) tensor.

    Θ_k is block-diagonal with G blocks, G = 1 being a full matrix.

    A subclass names its parameters and their shapes (``layout``, or :meth:`shapes`) and makes Θ of
    them (:meth:`forward`, or :meth:`parameter` where Θ is not one tensor). With ``in_channels=-1``
    the first input determines the shapes.

    Attributes:
        name: the name of the form in the option ``theta``.
        argument: the name of its option; None for a form without one.
        layout: the sizes of each parameter, as ``"weight R P Q; comp K R"``: of K, P, Q, the option
            R, 1, and quotients of these. The last two are fan-in and fan-out.

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
    layout: ClassVar[str] = ""

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
        self.start: tuple[float, ...] | None = None  # the coefficients of one matrix, as a family's
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

    def shapes(self, in_channels: int) -> dict[str, tuple[int, ...]]:
        """The shape of each parameter, the last two being fan-in and fan-out."""
        dimensions = {
            "K": self.num_labels,
            "P": in_channels,
            "Q": self.out_channels,
            "R": self.option,
        }

        def size(text: str) -> int:
            whole, _, part = text.partition("/")
            count = dimensions.get(whole, 1)
            return count // max(dimensions[part], 1) if part else count

        parts = [part.split() for part in self.layout.split(";") if part]
        return {key: tuple(map(size, sizes)) for key, *sizes in parts}

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
        """Glorot-uniform values, fan-in and fan-out being the last two sizes.

        The coefficients of one matrix begin as the family says, if it does.
        """
        if self.initial is not None:
            if not any(is_lazy(parameter) for parameter in self.parameters(recurse=False)):
                self.initial(self)
            return
        for parameter in self.parameters(recurse=False):
            if not is_lazy(parameter) and parameter.numel():
                bound = math.sqrt(6.0 / (parameter.size(-2) + parameter.size(-1)))
                with torch.no_grad():
                    self.draw(parameter, bound)
        self._set_start()

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Fill a parameter with uniform values in [-bound, bound]."""
        parameter.uniform_(-bound, bound)

    def start_with(self, coefficients: Sequence[float]) -> None:
        """Begin with these coefficients of labels, one each, in a form that has one matrix."""
        self.start = tuple(coefficients)
        self._set_start()

    def _set_start(self) -> None:
        comp = self._parameters.get("comp")
        if self.start is None or comp is None or is_lazy(comp) or self.option > 1:
            return
        with torch.no_grad():
            comp.copy_(comp.new_tensor(self.start).unsqueeze(1).expand_as(comp))

    def forward(self) -> Tensor:
        """Θ, (K, G, P/G, Q/G). A subclass defines this or :meth:`parameter`.

        Raises:
            RuntimeError: P is unknown.
        """
        self.require_shape()
        return full(self.parameter())

    def matrices(self) -> Tensor:
        """Θ of full matrices without its axis of blocks, (K, P, Q)."""
        return self().squeeze(1)  # type: ignore[no-any-return]

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
        """P, from the shape of the first parameter; 0 if that has too few axes."""
        _, *sizes = (self.layout or "weight K P").partition(";")[0].split()
        place = next(place for place, size in enumerate(sizes) if size.startswith("P"))
        channels = shape[place] if len(shape) > place else 0
        return channels * (self.option if sizes[place] == "P/R" else 1)

    def extra_repr(self) -> str:
        """K, P and Q, and the option of the form."""
        option = "" if self.argument is None else f", {self.argument}={self.option}"
        return f"{self.num_labels}, {self.in_channels}, {self.out_channels}{option}"


# The forms ----------------------------------------------------------------------------------------


class FullTheta(ThetaModule):
    """Θ_k without constraints: K·P·Q numbers."""

    name = "full"
    layout = "weight K P Q"

    weight: Tensor

    def forward(self) -> Tensor:
        self.require_shape()
        return self.weight.unsqueeze(1)

    def matrices(self) -> Tensor:
        if self.in_channels < 0 or self._forward_pre_hooks or self._forward_hooks:
            return super().matrices()
        weight = self._parameters.get("weight")  # half the time of an attribute of a module
        return self.weight if weight is None else weight  # of a parametrisation

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Its matrices."""
        return Theta(self.matrices())

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Draw label by label and transposed, in the layout of PyG's Linear.

        With equal seeds GCNConv, ChebConv and an equal OuterConv then have equal initial weights.
        A CPU draws number by number, so that many labels are drawn at once there; elsewhere the
        draws of more labels than any layer of PyG's draws apart are of their own.
        """
        at_once = parameter.is_cpu or parameter.size(0) > DRAWN_APART
        step = max(1, DRAWN // max(1, parameter[0].numel())) if at_once else 1
        for part in parameter.split(step):
            drawn = part.new_empty((len(part), *parameter.shape[:0:-1])).uniform_(-bound, bound)
            part.copy_(drawn.mT)


class SharedTheta(ThetaModule):
    """Θ_k = V for every label: P·Q numbers. The bases are summed first."""

    name = "shared"
    layout = "weight P Q"

    weight: Tensor

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """One matrix, with coefficient 1 for every label."""
        self.require_shape()
        ones = self.weight.new_ones((self.num_labels, 1))
        return Theta(self.weight.unsqueeze(0).unsqueeze(0), ones)


class BasisDecomposedTheta(ThetaModule):
    """Θ_k = Σ_b c_kb V_b with ``num_bases`` matrices V_b: K·B + B·P·Q numbers.

    From the `"Modeling Relational Data with Graph Convolutional Networks"
    <https://arxiv.org/abs/1703.06103>`_ paper, equation 3.
    """

    name, argument = "basis-decomposed", "num_bases"
    layout = "weight R P Q; comp K R"

    weight: Tensor
    comp: Tensor

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The mixture of the matrices V_b."""
        self.require_shape()
        return Theta(self.weight.unsqueeze(1), view_of(self.comp))


class ChannelwiseTheta(ThetaModule):
    """Θ_k = W diag(c_k): one matrix, and a number for each label and output channel, P·Q + K·Q.

    So each channel of X W has a filter Σ_k c_kq A_k of its own, as in the `"How Powerful are
    Spectral Graph Neural Networks" <https://arxiv.org/abs/2205.11172>`_ paper (JacobiConv). The
    numbers begin as the family says, else as ones. With one filter for all channels it is
    ``basis-decomposed(num_bases=1)``.
    """

    name = "channelwise"
    layout = "weight P Q; comp K Q"

    weight: Tensor
    comp: Tensor

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Uniform values of W, and ones."""
        if parameter is self.comp:
            parameter.fill_(1.0)
        else:
            super().draw(parameter, bound)

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """A mixture of one matrix, with numbers for each output channel."""
        self.require_shape()
        return Theta(self.weight.unsqueeze(0).unsqueeze(0), view_of(self.comp).unsqueeze(1))


class LowRankTheta(ThetaModule):
    """Θ_k = U_k V_k of ``rank`` r at most: K·r·(P + Q) numbers."""

    name, argument = "low-rank", "rank"
    layout = "down K P R; up K R Q"

    down: Tensor
    up: Tensor

    def forward(self) -> Tensor:
        self.require_shape()
        return (self.down @ self.up).unsqueeze(1)


class GroupedTheta(ThetaModule):
    """Θ_k block-diagonal with G = ``groups`` blocks of P/G × Q/G: K·P·Q/G numbers."""

    name, argument = "grouped", "groups"
    layout = "weight K R P/R Q/R"

    weight: Tensor

    def check(self) -> None:
        """G divides P and Q."""
        super().check()
        for what, count in (("in_channels", self.in_channels), ("out_channels", self.out_channels)):
            if count >= 0 and count % self.option:
                raise RefusedValue(
                    f"{self.argument} must divide {what}", f"a divisor of {count}", self.option
                )

    def forward(self) -> Tensor:
        self.require_shape()
        return view_of(self.weight)


class BlockDiagonalTheta(GroupedTheta):
    """Θ_k block-diagonal with ``num_blocks`` blocks: R-GCN's name for groups (its equation 4)."""

    name, argument = "block-diagonal", "num_blocks"


class DepthwiseTheta(ThetaModule):
    """Each input channel is transformed separately: K·Q numbers; Q is a multiple of P."""

    name = "depthwise"
    layout = "weight K P 1 Q/P"

    weight: Tensor

    def check(self) -> None:
        """P divides Q."""
        super().check()
        if self.in_channels > 0 and self.out_channels % self.in_channels:
            raise RefusedValue(
                "depthwise needs out_channels that in_channels divides",
                f"a multiple of {self.in_channels}",
                self.out_channels,
            )

    def forward(self) -> Tensor:
        self.require_shape()
        return view_of(self.weight)


class IdentityTheta(ThetaModule):
    """Θ_k = I for every label: no parameters, Q = P. For pooling and fixed propagation.

    ``out_channels=-1`` stands for P.
    """

    name = "identity"

    def check(self) -> None:
        """Q = P, or -1."""
        if self.in_channels >= 0 and self.out_channels not in (-1, self.in_channels):
            raise RefusedValue(
                "theta 'identity' has as many out_channels as in_channels",
                f"{self.in_channels}, or -1",
                self.out_channels,
            )

    def materialize(self, in_channels: int) -> None:
        """Set P, and Q = P."""
        super().materialize(in_channels)
        self.out_channels = in_channels

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """The identity as a mixture, which needs no product; without ``like`` in default dtype."""
        self.require_shape()
        like = torch.empty(0) if like is None else like
        return Theta.identity(self.num_labels, self.in_channels, like)


_SHORT = re.compile(r":(\d+)\s*$")


@typed
def make_theta(
    spec: str,
    num_labels: int,
    in_channels: int,
    out_channels: int,
    max_parameters: int | None = None,
) -> ThetaModule:
    """The form that a text names: ``'full'``, ``'shared'``, ``'depthwise'``, ``'identity'``,
    ``'columns'``, ``'channelwise'``, ``'basis-decomposed(num_bases=30)'``,
    ``'block-diagonal(num_blocks=4)'``, ``'low-rank(rank=8)'``, ``'grouped(groups=4)'``, or shorter
    ``'low-rank:8'``.

    Args:
        spec: the text.
        num_labels, in_channels, out_channels: K, P, which may be -1 until the first input, and Q.
        max_parameters: the most parameters that it may have; None for any number.

    Raises:
        ValueError: the form is unknown, its option is missing, superfluous, or does not fit; or it
            would have more than ``max_parameters``.
    """
    form = FORMS.kind_in(str(spec))
    name, option = form.name, form.argument
    wanted = name if option is None else f"{name}({option}=...)"
    rule = f"theta {name!r} is written with its option and no other"
    refused = RefusedValue(rule, repr(wanted), repr(spec))
    try:
        _, numbers, named = FORMS.read(_SHORT.sub(r"(\1)", str(spec)))
    except RefusedValue as error:
        raise refused from error
    numbers += named.values()
    if len(numbers) != (option is not None) or not all(0 <= number < 10**9 for number in numbers):
        raise refused
    number = numbers[0] if numbers else 1
    return form(num_labels, in_channels, out_channels, number, max_parameters)


class ColumnsTheta(ThetaModule):
    """Θ_k is zero outside its block of Q/K columns: K·P·(Q/K) = P·Q numbers.

    The output is the concatenation of the results of all labels, Q/K channels each.
    """

    name = "columns"
    layout = "weight K P Q/K"

    weight: Tensor

    def check(self) -> None:
        """K divides Q."""
        if self.out_channels % self.num_labels:
            raise RefusedValue(
                "columns are as many for each label",
                f"out_channels a multiple of {self.num_labels}",
                self.out_channels,
            )

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values of heads that are concatenated."""
        if self.in_channels < 0:
            self.require_shape()
        return Theta(self.weight, heads="concat")


class ValueOutputTheta(ThetaModule):
    """Θ_k = V_k O_k: values of V = ``channels`` numbers, and an output projection.

    K·V·(P + Q) numbers, as in ``low-rank``, but the products V_k O_k are not computed: label k is
    propagated at width V. These are the value and output projections of *Attention Is All You Need*
    (section 3.2.2). Initial weights are those of one linear map P → K·V and one K·V → Q.
    """

    name, argument = "value-output", "channels"
    layout = "value K P R; output K R Q"

    value: Tensor
    output: Tensor

    def draw(self, parameter: Tensor, bound: float) -> None:
        """Glorot-uniform, with fan-in or fan-out of all labels together."""
        wide, narrow = self.num_labels * self.option, parameter.size(1) + parameter.size(2)
        bound = math.sqrt(6.0 / (narrow - self.option + wide))
        parameter.uniform_(-bound, bound)

    def parameter(self, like: Tensor | None = None) -> ThetaValue:
        """Values and outputs, not multiplied."""
        self.require_shape()
        return Theta(self.value, outer=view_of(self.output))
