"""A named graph of any size, written chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RefusedValue, unknown
from ..signatures import typed
from .mapped import PARTS, ArrayWriter

COMMUNITY = 2000  # nodes at most
WITHIN, ALIKE = 0.5, 0.3  # shares of edges within a community, and within a class elsewhere
SHAPE = 2.5  # of the Pareto distribution of degrees
SHARES = (0.0, 0.1, 0.05, 0.05)  # of nodes in each part of the split but the first
_CHUNK = 2**17  # nodes


@typed
def generate(
    folder: str | Path,
    name: str = "blocks",
    nodes: int = 10_000,
    edges: int = 100_000,
    features: int = 64,
    classes: int = 16,
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> None:
    r"""Write a graph by a generator of that name; equal arguments give equal files.

    ``blocks`` is a degree-corrected stochastic block model of directed multigraphs (`Karrer and
    Newman <https://arxiv.org/abs/1008.3926>`_, equation 2, with a fixed number of edges). Nodes
    follow one another in communities of S = min(2000, N // C), community g has class g mod C. Node
    n has :math:`d_n` of the E edges with probability :math:`\propto\theta_n`, Pareto distributed
    with shape 2.5. The source of an edge is in the community of its target with probability 0.5, in
    another one of the same class with 0.3, anywhere with 0.2; within a community its place is
    :math:`\lfloor S u^2 \rfloor` for uniform u, so that some nodes have many more edges than
    others. Features are :math:`x_n = \mu_{y_n} + \epsilon_n`, with :math:`\mu_c \sim
    \mathcal{N}(0, I/P)` and :math:`\epsilon_n \sim \mathcal{N}(0, I)`: alone they say little of
    the class, their means over neighbours much more. Of the nodes 10 % train, 5 % validate and
    5 % test.

    A chunk of nodes and its edges is in memory at a time.

    Args:
        folder: new or empty, see :mod:`pyg_outerconv.scale.mapped`.
        name: ``'blocks'``.
        nodes: N.
        edges: E.
        features: P.
        classes: C.
        seed: of all random numbers.
        log: takes lines of text.

    Raises:
        ValueError: a number is out of range, or the folder cannot be written.
    """
    if name != "blocks":
        raise RefusedValue(unknown("generator", name, ("blocks",)))
    for what, value, least in (
        ("nodes", nodes, 1),
        ("edges", edges, 0),
        ("features", features, 1),
        ("classes", classes, 2),
        ("seed", seed, 0),
    ):
        if value < least:
            raise RefusedValue(f"{what} of a generated graph", f">= {least}", value)
    if nodes < classes:
        raise RefusedValue("every class of a generated graph has nodes", f">= {classes}", nodes)
    community = min(COMMUNITY, nodes // classes)
    with ArrayWriter(folder) as writer:
        ptr = writer.create("ptr", "int64", nodes + 1)
        source = writer.create("source", "int32" if nodes < 2**31 else "int64", edges)
        x = writer.create("x", "float32", nodes, features)
        y, split = writer.create("y", "int64", nodes), writer.create("split", "uint8", nodes)
        means = np.random.default_rng([seed, 0]).normal(size=(classes, features)) / features**0.5
        for chunk, start in enumerate(range(0, nodes, _CHUNK)):
            draw, end = np.random.default_rng([seed, 1, chunk]), min(start + _CHUNK, nodes)
            own = np.arange(start, end)
            first, last = edges * start // nodes, edges * end // nodes
            weight = draw.pareto(SHAPE, own.size) + 1
            count = draw.multinomial(last - first, weight / weight.sum())
            ptr[start + 1 : end + 1] = first + np.cumsum(count)
            source[first:last] = _sources(draw, np.repeat(own, count), nodes, community, classes)
            y[start:end] = kinds = own // community % classes
            x[start:end] = means[kinds] + draw.standard_normal(
                (own.size, features), dtype=np.float32
            )
            split[start:end] = draw.choice(len(PARTS), own.size, p=(1 - sum(SHARES), *SHARES[1:]))
            log(f"{end} of {nodes} nodes, {last} of {edges} edges")
        facts = {"nodes": nodes, "edges": edges, "features": features, "seed": seed}
        writer.finish({"generator": name, "num_classes": classes, **facts})


def _sources(draw: Any, target: Any, nodes: int, community: int, classes: int) -> Any:
    """The source of each edge, given its target."""
    number = -(-nodes // community)
    home, kind = target // community, draw.random(target.size)
    # Of G communities those of class c are c, c + C, c + 2C, …
    cycles = -(-(number - home % classes) // classes)
    alike = home % classes + classes * (draw.random(target.size) * cycles).astype(np.int64)
    chosen = np.where(kind < WITHIN, home, alike)
    size = np.minimum(community, nodes - chosen * community)
    place = chosen * community + (size * draw.random(target.size) ** 2).astype(np.int64)
    anywhere = draw.integers(0, nodes, target.size)
    return np.where(kind < WITHIN + ALIKE, place, anywhere)
