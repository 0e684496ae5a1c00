"""The cost of a contraction: work in flops and bytes, and the predicted time."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..kernels.tiles import TILE_ELEMENTS
from .machine import Constants


@dataclass(frozen=True)
class Work:
    """The operations of a contraction that its time depends on.

    Attributes:
        dense_flops: flops of products with Θ and other dense matrices.
        gathers: for sparse products, pairs (bytes read through an index, bytes of the operand they
            are read from). Reading from an operand that fits a cache is faster.
        moves: for intermediate results, pairs (bytes allocated, written and read, bytes of the
            tensor they belong to). Large tensors get new memory every time.
        picks: pairs as in ``gathers``, for rows that are gathered or scattered outside of sparse
            products, and for the unused parts of cache lines that sparse products read.
        calls: number of calls of primitives.
        groups: number of separate small products.
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
        """The predicted time in seconds."""
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
    """The work of allocating, writing and reading intermediate results of ``sizes`` bytes."""
    return Work(moves=tuple((size, size) for size in sizes))


def picking_in_turn(size: float, groups: float) -> Work:
    """The work of gathering or scattering rows of ``size`` bytes in all, group by group.

    Indices ascend within a group, so that one tile of the operand is in use at a time. Each row is
    read, written to its tile, read by the product and written again: four accesses.
    """
    return Work(picks=((4.0 * size, 4.0 * TILE_ELEMENTS),), groups=groups)


@dataclass(frozen=True)
class Cost:
    """Work of the forward pass and, if gradients are required, of the backward pass.

    Attributes:
        forward, backward: the work of each pass.
        memory: bytes allocated beside the input, the output and their gradients.
    """

    forward: Work = field(default_factory=Work)
    backward: Work = field(default_factory=Work)
    memory: float = 0.0

    @property
    def work(self) -> Work:
        """The work of both passes."""
        return self.forward + self.backward
