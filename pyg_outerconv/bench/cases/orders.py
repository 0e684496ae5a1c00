"""Every legal contraction order on the problems of the other cases, and the one that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ...basis import GCN, Basis, Chebyshev, Family, Relation, Walk
from ...contract import Problem, candidates, contract, contraction_path
from ...contract.choose import Candidate
from ...nn import OuterConv
from ..case import Contender, Point, Setup, case, layer_contender
from ..context import Context
from ..graphs import random_graph, uniform_types, zipf_types
from ..machine import free_memory
from ..names import FORWARD, TRAINING
from ..targets import GoodChoice, chosen_key

# An order that is predicted to take as many times as long as another is not measured.
HOPELESS = 30


@dataclass(frozen=True)
class Shape:
    """A problem: nodes, edges into each, channels in and out, what basis, what form of Θ."""

    nodes: int
    degree: int
    channels: tuple[int, int]
    make: Callable[[Context, Tensor, int], tuple[Basis, Family]]
    theta: str = "full"


def _gcn(context: Context, edges: Tensor, nodes: int) -> tuple[Basis, Family]:
    family = GCN()
    return family.basis(edges, size=(nodes, nodes), dtype=context.dtype), family


def _chebyshev(context: Context, edges: Tensor, nodes: int) -> tuple[Basis, Family]:
    family = Chebyshev(5, lambda_max=2.0)
    return family.basis(edges, size=(nodes, nodes), dtype=context.dtype), family


def _walk(context: Context, edges: Tensor, nodes: int) -> tuple[Basis, Family]:
    family = Walk(3)
    return family.basis(edges, size=(nodes, nodes), dtype=context.dtype), family


def _relations(labels: int, zipf: bool = False) -> Callable[..., tuple[Basis, Family]]:
    def make(context: Context, edges: Tensor, nodes: int) -> tuple[Basis, Family]:
        draw = zipf_types if zipf else uniform_types
        types = draw(edges.size(1), labels, context.generator()).to(edges.device)
        family = Relation(labels, "sum")
        return family.basis(edges, edge_type=types, size=(nodes, nodes)), family

    return make


SHAPES: dict[str, Shape] = {
    "gcn 100k 64-64": Shape(100_000, 12, (64, 64), _gcn),
    "gcn 100k 16-128": Shape(100_000, 12, (16, 128), _gcn),
    "gcn 100k 128-16": Shape(100_000, 12, (128, 16), _gcn),
    "gcn 10k 256-32": Shape(10_000, 40, (256, 32), _gcn),
    "gcn 2k 1433-16": Shape(2_000, 5, (1433, 16), _gcn),
    "gcn 2k 16-7": Shape(2_000, 5, (16, 7), _gcn),
    "gcn 1k dense": Shape(1_000, 500, (64, 64), _gcn),
    "chebyshev 100k 64-64": Shape(100_000, 12, (64, 64), _chebyshev),
    "chebyshev 50k 128-16": Shape(50_000, 12, (128, 16), _chebyshev),
    "chebyshev 50k 16-128": Shape(50_000, 12, (16, 128), _chebyshev),
    "walk 50k 64-64": Shape(50_000, 12, (64, 64), _walk),
    "walk 50k 64-8": Shape(50_000, 12, (64, 8), _walk),
    "relation 8, 100k 64-64": Shape(100_000, 12, (64, 64), _relations(8)),
    "relation 40, 100k 64-64": Shape(100_000, 12, (64, 64), _relations(40)),
    "relation 8, 50k 16-64": Shape(50_000, 12, (16, 64), _relations(8)),
    "relation 8, 50k 64-16": Shape(50_000, 12, (64, 16), _relations(8)),
    "relation 3, 10k dense": Shape(10_000, 100, (64, 64), _relations(3)),
    "relation 90, 8k 16-16": Shape(8_000, 7, (16, 16), _relations(90, zipf=True)),
    "relation 474, 15k 64-64": Shape(14_541, 37, (64, 64), _relations(474, zipf=True)),
    "relation 474 of 30 bases": Shape(
        14_541, 37, (64, 64), _relations(474, zipf=True), "basis-decomposed(num_bases=30)"
    ),
    "relation 8 of 2 bases": Shape(
        50_000, 12, (64, 64), _relations(8), "basis-decomposed(num_bases=2)"
    ),
    "relation 8 in 4 blocks": Shape(
        50_000, 12, (64, 64), _relations(8), "block-diagonal(num_blocks=4)"
    ),
}


def problems(context: Context) -> tuple[str, ...]:
    """All of them; every third in a quick run."""
    return tuple(SHAPES)[:: 3 if context.quick else 1]


def _too_much(candidate: Candidate, least: float, room: float) -> str | None:
    """Why an order that may solve a problem is not measured on it."""
    assert candidate.cost is not None  # it may
    if candidate.cost.memory > room:
        return f"holds {candidate.cost.memory / 2**30:.0f} GiB"
    if candidate.seconds > HOPELESS * least:
        return f"predicted to take {candidate.seconds / least:.0f} times as long as another"
    return None


@case(
    "orders",
    "orders",
    "every legal contraction order, by name; the one that the cost model chooses comes first",
    axis="problem",
    points=problems,
    targets=(GoodChoice(0.9, 0.15, TRAINING), GoodChoice(0.9, 0.15, FORWARD)),
)
def every_order(context: Context, point: Point) -> Setup:
    """A contender for each order that may solve the problem and fits into memory."""
    shape, generator = SHAPES[str(point)], context.generator()
    nodes = context.size(shape.nodes, at_least=8)
    edge_index = random_graph(nodes, shape.degree * nodes, generator).to(context.device)
    basis, family = shape.make(context, edge_index, nodes)
    p, q = shape.channels
    x = context.randn(nodes, p, generator=generator).requires_grad_()
    direction = context.randn(nodes, q, generator=generator)
    conv = OuterConv(p, q, family, theta=shape.theta, bias=False)
    conv = conv.to(context.device, context.dtype)

    def choice() -> str:
        (chosen,) = contraction_path(basis, x, conv.theta.parameter()).chosen
        return chosen

    chosen = choice()
    with torch.no_grad():
        chosen_forward = choice()
    room = free_memory(context.device) / 4
    contenders: list[Contender] = []
    absent: dict[str, str] = {}
    predicted = []
    found = candidates(Problem(basis, x, conv.theta.parameter()))
    least = min(candidate.seconds for candidate in found)
    for candidate in sorted(found, key=lambda candidate: candidate.order.name != chosen):
        name = candidate.order.name
        if candidate.cost is None:
            absent[name] = "; ".join(candidate.reasons)
            continue
        predicted.append(f"{name} {1e3 * candidate.seconds:.3g}")
        if name != chosen and (reason := _too_much(candidate, least, room)):
            absent[name] = reason
            continue

        def forward(name: str = name) -> Tensor:
            return contract(basis, x, conv.theta.parameter(), order=name)

        contenders.append(layer_contender(name, forward, x, conv.parameters(), direction, own=True))
    sizes: dict[str, float | int | str] = {
        "nodes": nodes,
        "edges": edge_index.size(1),
        "P": p,
        "Q": q,
        "labels": basis.num_bases,
        "theta": shape.theta,
        chosen_key(TRAINING): chosen,
        chosen_key(FORWARD): chosen_forward,
    }
    note = f"{point}: predicted ms, {TRAINING}: {', '.join(predicted)}"
    return Setup(contenders, sizes, absent, notes=(note,))
