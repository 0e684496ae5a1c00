"""What a contraction costs: work in flops and bytes, and the time it is predicted to take."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kernels.tiles import TILE_ELEMENTS
from .machine import Constants


@dataclass(frozen=True)
class Work:
    """What is to be done, as far as time depends on it.

    Attributes:
        dense_flops: of products with Θ and other dense matrices.
        gathers: pairs (bytes read through an index, bytes of the operand that they are read from)
            of products with sparse matrices: reading is faster from an operand that fits a cache.
        moves: pairs (bytes, bytes of the tensor that they are part of) of intermediate results that
            are allocated, written and read: memory of large ones is new every time.
        picks: pairs as in ``gathers``, of rows that are gathered or scattered beside sparse
            products, and of what these read in vain because a cache reads whole lines.
        calls: primitives that are called.
        groups: separate small products.
    """

    dense_flops: float = 0.0
    gathers: tuple[tuple[float, float], ...] = ()
    moves: tuple[tuple[float, float], ...] = ()
    picks: tuple[tuple[float, float], ...] = ()
    calls: float = 0.0
    groups: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.dense_flops + other.dense_flops,
            self.gathers + other.gathers,
            self.moves + other.moves,
            self.picks + other.picks,
            self.calls + other.calls,
            self.groups + other.groups,
        )

    def __mul__(self, times: float) -> Work:
        return Work(
            self.dense_flops * times,
            tuple((count * times, operand) for count, operand in self.gathers),
            tuple((count * times, whole) for count, whole in self.moves),
            tuple((count * times, operand) for count, operand in self.picks),
            self.calls * times,
            self.groups * times,
        )

    @property
    def gathered(self) -> float:
        """Bytes read through an index."""
        return sum(count for count, _ in self.gathers)

    @property
    def moved(self) -> float:
        """Bytes of intermediate results."""
        return sum(count for count, _ in self.moves)

    def seconds(self, constants: Constants) -> float:
        """The predicted time."""
        memory = 0.0
        for count, operand in self.gathers + self.picks:
            memory += count * constants.gathering(operand)
        for count, whole in self.moves:
            memory += count * constants.moving(whole)
        return (
            self.dense_flops / constants.dense_flops
            + memory
            + self.calls * constants.call_seconds
            + self.groups * constants.group_seconds
        )


def moving(*sizes: float) -> Work:
    """The work of intermediate results of these sizes in bytes."""
    return Work(moves=tuple((size, size) for size in sizes))


def picking_in_turn(size: float, groups: float) -> Work:
    """The work of rows of ``size`` bytes that are gathered or scattered group by group.

    Within a group they ascend, so that only a tile of the operand is in use; but each row is read,
    written to its tile, read by the product, and so on: four times in all.
    """
    return Work(picks=((4.0 * size, 4.0 * TILE_ELEMENTS),), groups=groups)


@dataclass(frozen=True)
class Cost:
    """Work of the forward pass and, where gradients are wanted, of the backward pass.

    Attributes:
        forward, backward: the work.
        memory: bytes that are held beside input, output and their gradients.
    """

    forward: Work = field(default_factory=Work)
    backward: Work = field(default_factory=Work)
    memory: float = 0.0

    @property
    def work(self) -> Work:
        """Of both passes."""
        return self.forward + self.backward
