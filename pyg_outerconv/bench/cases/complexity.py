"""How layers grow with the length of a sequence, and with its channels.

The table of complexities per layer in *Attention Is All You Need* (section 4, table 1): recurrent
O(n·d²), convolutional O(k·n·d²), self-attention O(n²·d), for n places of d channels and k taps.
Projections to queries, keys and values add O(n·d²) to self-attention, which the table leaves out,
so that here it is scores, softmax and sums alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...attention import Softmax
from ...basis.attention_basis import AttentionBasis
from ...basis.band import Band
from ...contract import contract
from ...families import Grid
from ...nn import OuterConv
from ...theta import ValueOutput
from ..case import Contender, Point, Setup, case
from ..context import Context
from ..exponents import Exponent
from ..names import OURS, TRAINING

LENGTH, CHANNELS, TAPS = 1024, 64, 3
RECURRENT = "torch.nn.RNN"


def lengths(context: Context) -> list[int]:
    """n from 512 to 8,192, a factor of two apart."""
    most = 12 if context.quick else 14
    return [context.size(1 << power, at_least=4, quick=False) for power in range(9, most)]


def widths(context: Context) -> list[int]:
    """d from 32 to 512, a factor of two apart."""
    most = 8 if context.quick else 10
    return [1 << power for power in range(5, most)]


def growth(context: Context, point: Point, layer: str, grows: str) -> Setup:
    """One layer, one sequence."""
    assert isinstance(point, int)  # lengths, widths
    length, channels = (point, CHANNELS) if grows == "length" else (LENGTH, point)
    if context.scale < 1:
        length = min(length, context.size(LENGTH, at_least=4))
    generator = context.generator()
    x = context.randn(length, channels, generator=generator).requires_grad_()
    direction = context.randn(length, channels, generator=generator)
    kind = KINDS[layer]
    forward, parameters = kind.make(x, context)

    def training() -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), [x, *parameters], direction)

    contender = Contender(kind.contender, {TRAINING: training}, own=kind.contender == OURS)
    return Setup([contender], {"length": length, "channels": channels})


Layer = tuple[Callable[[], Tensor], list[Tensor]]


def _attention(x: Tensor, context: Context) -> Layer:
    """Queries, keys and values are x itself."""
    length, channels = x.shape
    over = Band(length, length, on=x.device)
    eye = torch.eye(channels, dtype=x.dtype, device=x.device).unsqueeze(0)
    head = x.unsqueeze(1)

    def forward() -> Tensor:
        basis = AttentionBasis(over, head, head, Softmax(), channels**-0.5)
        return contract(basis, x, ValueOutput(eye, adds=True), values=head)

    return forward, []


def _convolution(x: Tensor, context: Context) -> Layer:
    conv = OuterConv(x.size(1), x.size(1), Grid((TAPS,), padding=TAPS // 2), cached=True)
    conv = conv.to(x.device, x.dtype)
    return lambda: conv(x, (x.size(0),)), list(conv.parameters())


def _recurrent(x: Tensor, context: Context) -> Layer:
    rnn = torch.nn.RNN(x.size(1), x.size(1)).to(x.device, x.dtype)
    return lambda: rnn(x)[0], list(rnn.parameters())


@dataclass(frozen=True)
class Kind:
    """A kind of layer, and the exponents of n and of d in its operations."""

    make: Callable[[Tensor, Context], Layer]
    what: str
    of_length: float
    of_channels: float
    contender: str = OURS


KINDS = {
    "attention": Kind(_attention, "self-attention, O(n²·d)", 2, 1),
    "convolution": Kind(_convolution, "a convolution of 3 taps, O(k·n·d²)", 1, 2),
    "recurrent": Kind(_recurrent, "torch's recurrent layer, O(n·d²)", 1, 2, RECURRENT),
}

for layer, kind in KINDS.items():
    case(
        f"growth-{layer}-length",
        "complexity",
        f"{kind.what}, of {CHANNELS} channels",
        axis="length",
        points=lengths,
        targets=(Exponent(kind.of_length, kind.contender),),
        layer=layer,
        grows="length",
    )(growth)
    case(
        f"growth-{layer}-channels",
        "complexity",
        f"{kind.what}, of {LENGTH} places",
        axis="channels",
        points=widths,
        targets=(Exponent(kind.of_channels, kind.contender),),
        layer=layer,
        grows="channels",
    )(growth)
