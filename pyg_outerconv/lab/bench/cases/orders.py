"""Every legal contraction order on the problems of the other cases, and the one that is chosen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ....basis import Basis, EdgeBasis
from ....contract import Problem, contract
from ....contract.plan import Candidate, candidates, choose_order
from ....families import parse_family
from ....graph import Features, SparseFeatures
from ....nn import OuterConv
from ....theta import as_theta
from ..case import FORWARD, TRAINING, Contender, Context, Point, Setup, Sizes, case, free_memory
from ..graphs import random_graph, uniform_types, zipf_types
from ..sides import contender
from ..targets import chosen_key, good_choice

# An order that is predicted to take as many times as long as another is not measured.
HOPELESS = 30


@dataclass(frozen=True)
class Shape:
    """A problem; types of edges come as often as each other, or as :func:`zipf_types` has them."""

    nodes: int
    degree: int
    channels: tuple[int, int]
    family: str
    zipf: bool = False
    theta: str = "full"
    dtype: torch.dtype | None = None
    aggr: str = "sum"
    density: float = 1.0
    learns: str = "x"


SHAPES: dict[str, Shape] = {
    "gcn 100k 64-64": Shape(100_000, 12, (64, 64), "gcn"),
    "gcn 100k 16-128": Shape(100_000, 12, (16, 128), "gcn"),
    "gcn 100k 128-16": Shape(100_000, 12, (128, 16), "gcn"),
    "gcn 10k 256-32": Shape(10_000, 40, (256, 32), "gcn"),
    "gcn 2k 1433-16": Shape(2_000, 5, (1433, 16), "gcn"),
    "gcn 2k 16-7": Shape(2_000, 5, (16, 7), "gcn"),
    "gcn 1k dense": Shape(1_000, 500, (64, 64), "gcn"),
    "chebyshev 100k 64-64": Shape(100_000, 12, (64, 64), "chebyshev(5, lambda_max=2.0)"),
    "chebyshev 50k 128-16": Shape(50_000, 12, (128, 16), "chebyshev(5, lambda_max=2.0)"),
    "chebyshev 50k 16-128": Shape(50_000, 12, (16, 128), "chebyshev(5, lambda_max=2.0)"),
    "walk 50k 64-64": Shape(50_000, 12, (64, 64), "walk(3)"),
    "walk 50k 64-8": Shape(50_000, 12, (64, 8), "walk(3)"),
    "relation 8, 100k 64-64": Shape(100_000, 12, (64, 64), "relation(8, None)"),
    "relation 40, 100k 64-64": Shape(100_000, 12, (64, 64), "relation(40, None)"),
    "relation 8, 50k 16-64": Shape(50_000, 12, (16, 64), "relation(8, None)"),
    "relation 8, 50k 64-16": Shape(50_000, 12, (64, 16), "relation(8, None)"),
    "relation 3, 10k dense": Shape(10_000, 100, (64, 64), "relation(3, None)"),
    "relation 90, 8k 16-16": Shape(8_000, 7, (16, 16), "relation(90, None)", zipf=True),
    "relation 474, 15k 64-64": Shape(14_541, 37, (64, 64), "relation(474, None)", zipf=True),
    "relation 474 of 30 bases": Shape(
        *(14_541, 37, (64, 64), "relation(474, None)"),
        zipf=True,
        theta="basis-decomposed(num_bases=30)",
    ),
    "relation 8 of 2 bases": Shape(
        50_000, 12, (64, 64), "relation(8, None)", theta="basis-decomposed(num_bases=2)"
    ),
    "relation 8 in 4 blocks": Shape(
        50_000, 12, (64, 64), "relation(8, None)", theta="block-diagonal(num_blocks=4)"
    ),
    # Ten more, of other types, gradients, features, reductions and forms of Θ.
    "gcn 20k 32-48, degree 100": Shape(20_000, 100, (32, 48), "gcn"),
    "gcn 50k 300-32, x given": Shape(50_000, 8, (300, 32), "gcn", learns="nothing"),
    "relation 10, 10k sparse x": Shape(10_000, 8, (1000, 16), "relation(10, None)", density=0.01),
    "relation 20, 30k float64": Shape(
        30_000, 6, (48, 24), "relation(20, None)", dtype=torch.float64
    ),
    "relation 5, 20k max": Shape(20_000, 10, (32, 32), "relation(5, None)", aggr="max"),
    "relation 40 of 4 bases": Shape(
        30_000, 10, (32, 64), "relation(40, None)", theta="basis-decomposed(num_bases=4)"
    ),
    "relation 30, values learn": Shape(20_000, 12, (32, 16), "relation(30, None)", learns="values"),
    "relation 8, depthwise": Shape(50_000, 10, (64, 64), "relation(8, None)", theta="depthwise"),
    "walk 10 of the identity": Shape(20_000, 8, (64, 64), "walk(10)", theta="identity"),
    "chebyshev 8 of 2 bases": Shape(
        20_000, 8, (16, 64), "chebyshev(8, lambda_max=2.0)", theta="basis-decomposed(num_bases=2)"
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
    "every legal contraction order, by name; the one that the plain rule takes comes first",
    axis="problem",
    points=problems,
    targets=(good_choice(0.9, 0.15, TRAINING), good_choice(0.9, 0.15, FORWARD)),
)
def every_order(context: Context, point: Point) -> Setup:
    """A contender for each order that may solve the problem and fits into memory."""
    shape = SHAPES[str(point)]
    context = replace(context, dtype=shape.dtype or context.dtype)
    basis, x, conv = _drawn(context, shape)
    direction = context.randn(basis.size[1], shape.channels[1], generator=context.generator())

    def choice_and_candidates() -> tuple[str, list[Candidate]]:
        problem = Problem(basis, x, as_theta(conv.theta.parameter()), shape.aggr)
        return choose_order(problem).name, candidates(problem)

    with torch.no_grad():
        forward_taken, of_forward = choice_and_candidates()
    taken, of_training = choice_and_candidates()
    priced = [min(some, key=lambda one: one.seconds) for some in (of_training, of_forward)]
    room, least = free_memory(context.device) / 4, priced[0].seconds
    operands = (x, getattr(basis, "value", None), *conv.parameters())
    learning = [one for one in operands if isinstance(one, Tensor) and one.requires_grad]
    contenders: list[Contender] = []
    absent: dict[str, str] = {}
    for candidate in sorted(of_training, key=lambda candidate: candidate.order.name != taken):
        name = candidate.order.name
        if candidate.cost is None:
            absent[name] = "; ".join(candidate.reasons)
            continue
        if name != taken and (reason := _too_much(candidate, least, room)):
            absent[name] = reason
            continue

        def forward(name: str = name) -> Tensor:
            return contract(basis, x, conv.theta.parameter(), order=name, aggr=shape.aggr)

        new_contender = contender(name, forward, learning, direction, own=True, compared=None)
        contenders.append(new_contender)
    sizes: Sizes = {
        "nodes": basis.size[1],
        "edges": shape.degree * basis.size[1],
        "P": shape.channels[0],
        "Q": shape.channels[1],
        "labels": basis.num_bases,
        "theta": shape.theta,
        chosen_key(TRAINING): taken,
        chosen_key(FORWARD): forward_taken,
        f"cheapest by costs, {TRAINING}": priced[0].order.name,
        f"cheapest by costs, {FORWARD}": priced[1].order.name,
    }
    return Setup(contenders, sizes, absent)


def _drawn(context: Context, shape: Shape) -> tuple[Basis, Features, OuterConv]:
    generator, (p, q) = context.generator(), shape.channels
    nodes = context.size(shape.nodes, at_least=8)
    edge_index = random_graph(nodes, shape.degree * nodes, generator).to(context.device)
    family, beside = parse_family(shape.family), dict[str, Any]()
    if family.makes_use_of("edge_type"):
        draw = zipf_types if shape.zipf else uniform_types
        types = draw(edge_index.size(1), family.num_bases, context.generator())
        beside = {"edge_type": types.to(context.device)}
    basis = family.basis(edge_index, size=(nodes, nodes), dtype=context.dtype, **beside)
    if shape.learns == "values" and isinstance(basis, EdgeBasis):
        basis = basis.with_values(basis.values(context.dtype).clone().requires_grad_())
    dense = context.randn(nodes, p, generator=generator)
    x: Features = dense
    if shape.density < 1:
        there = torch.rand(nodes, p, generator=generator).to(dense.device) < shape.density
        x = SparseFeatures.of((dense * there).to_sparse_csr())
    elif shape.learns != "nothing":
        x = dense.requires_grad_()
    conv = OuterConv(p, q, family, theta=shape.theta, bias=False)
    return basis, x, conv.to(context.device, context.dtype)
