"""How time grows: with the edges of a graph, with the length and the channels of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....attention import Softmax
from ....basis import EdgeBasis, Pattern
from ....basis.attention_basis import AttentionBasis
from ....basis.band import Band
from ....contract import contract
from ....families import Grid, Relation
from ....nn import OuterConv
from ....theta import Theta
from ..case import FORWARD, OURS, TRAINING, Contender, Context, Point, Setup, case
from ..memory import free_memory
from ..roofline import convolution
from ..sides import Sides
from ..targets import exponent, flat, under

MILLION = 1_000_000
DEGREE, NARROW, BAND = 12, 16, 64
# Preparation and a forward pass held 54 at their peak, measured; the rest is a margin.
BYTES_AN_EDGE = 100


def edge_counts(context: Context) -> list[int]:
    """From 1M to 100M edges as far as memory goes, to 4M in a quick run."""
    counts = (1, 2, 4) if context.quick else (1, 3, 10, 30, 100)
    sizes = [context.size(count * MILLION, at_least=DEGREE, quick=False) for count in counts]
    room = free_memory(context.device)
    return [size for size in sizes if size * BYTES_AN_EDGE < room] or sizes[:1]


def edges_in_order(edges: int, local: bool, generator: torch.Generator) -> tuple[Tensor, int]:
    """(2, E) int32 edges, 12 into each node, from anywhere or from the 64 nodes around it."""
    nodes = max(2, edges // DEGREE)
    index = torch.empty((2, nodes * DEGREE), dtype=torch.int32)
    torch.arange(nodes, dtype=torch.int32, out=index[1, :nodes])
    index[1] = index[1, :nodes].clone().repeat_interleave(DEGREE)
    if local:
        index[0].random_(0, BAND, generator=generator)
        index[0].add_(index[1]).sub_(BAND // 2).remainder_(nodes)
    else:
        index[0].random_(0, nodes, generator=generator)
    return index, nodes


def growing_graph(context: Context, point: Point, local: bool) -> Setup:
    """OuterConv on weighted edges whose pattern is sorted beforehand."""
    generator = context.generator()
    assert isinstance(point, int)  # edge_counts
    index, nodes = edges_in_order(point, local, generator)
    pattern = Pattern.build(index.to(context.device), size=(nodes, nodes))
    del index
    value = torch.rand(pattern.num_edges, generator=generator).to(context.device, context.dtype)
    basis = EdgeBasis(pattern, value)
    x = context.randn(nodes, NARROW, generator=generator)
    conv = OuterConv(NARROW, NARROW, Relation(1, None)).to(context.device, context.dtype)

    def forward() -> Tensor:
        with torch.no_grad():
            return conv(x, basis)

    size = (nodes, nodes, NARROW, NARROW)
    work = convolution(size, NARROW**2, pattern.num_edges, nodes, context.item_size)
    sizes = {"edges": pattern.num_edges, "nodes": nodes, "channels": NARROW}
    return Setup([Contender(OURS, {FORWARD: forward})], sizes, work={FORWARD: work[FORWARD]})


for _name, _local, _words, _ratio in (
    ("local", True, "a banded graph: every neighbour is at most 32 nodes away", 1.5),
    ("random", False, "a random graph: every neighbour is anywhere", 3),
):
    case(
        f"scaling-{_name}",
        "scaling",
        f"forward pass of one label on {_words}",
        axis="edges",
        points=edge_counts,
        targets=(flat("edges", _ratio), under(20)),
        memory=(OURS,),
        local=_local,
    )(growing_graph)


# Layers over the length of a sequence, and over its channels. The complexities of a layer are those
# of *Attention Is All You Need* (section 4, table 1): recurrent O(n·d²), convolutional O(k·n·d²),
# self-attention O(n²·d), for n places of d channels and k taps. Projections to queries, keys and
# values add O(n·d²) to self-attention, which the table leaves out, so that here it is scores,
# softmax and sums alone.
LENGTH, CHANNELS, TAPS = 1024, 64, 3
Layer = tuple[Callable[[], Tensor], list[Tensor]]


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
    sides, kind = Sides(context, (length, channels)), KINDS[layer]
    made = sides.add(kind.contender, *kind.make(sides.x, context), kind.contender == OURS)
    contender = replace(made, steps={TRAINING: made.steps[TRAINING]}, check=None)
    return Setup([contender], {"length": length, "channels": channels})


def _attention(x: Tensor, context: Context) -> Layer:
    """Queries, keys and values are x itself."""
    length, channels = x.shape
    over = Band(length, length, on=x.device)
    eye = torch.eye(channels, dtype=x.dtype, device=x.device)[None, None]
    head = x.unsqueeze(1)

    def forward() -> Tensor:
        basis = AttentionBasis(over, head, head, Softmax(), channels**-0.5)
        return contract(basis, x, Theta(eye, heads="sum"), values=head)

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
    "recurrent": Kind(_recurrent, "torch's recurrent layer, O(n·d²)", 1, 2, "torch.nn.RNN"),
}

for _layer, _kind in KINDS.items():
    for _axis, _points, _exponent, _words in (
        ("length", lengths, _kind.of_length, f"of {CHANNELS} channels"),
        ("channels", widths, _kind.of_channels, f"of {LENGTH} places"),
    ):
        case(
            f"growth-{_layer}-{_axis}",
            "complexity",
            f"{_kind.what}, {_words}",
            axis=_axis,
            points=_points,
            targets=(exponent(_exponent, _kind.contender),),
            layer=_layer,
            grows=_axis,
        )(growth)
