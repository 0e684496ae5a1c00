"""The cost of a contraction: flops and bytes, and the time that they are predicted to take."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ..graph.sparse_matrix import SparseMatrix
from ..kernels.tiles import TILE_ELEMENTS
from ..signatures import typed
from .problem import Problem

CACHE_LINE = 64  # bytes

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Constants:
    """The speed of a device in float32.

    Attributes:
        dense_flops: flops per second of products with tall matrices.
        gather: pairs (bytes of an operand, seconds to read one of its bytes through an index),
            ascending, interpolated linearly in the logarithm of the size.
        move: pairs (bytes of an intermediate result, seconds to allocate, write and read one of its
            bytes), ascending and interpolated likewise.
        call_seconds: seconds of a call of a primitive, independent of its size.
        group_seconds: seconds of each small product in a grouped product.
    """

    dense_flops: float
    gather: Table
    move: Table
    call_seconds: float
    group_seconds: float


def _interpolate(table: Table, size: float) -> float:
    below = table[0]
    if size <= below[0]:
        return below[1]
    for above in table[1:]:
        if size <= above[0]:
            share = math.log(size / below[0]) / math.log(above[0] / below[0])
            return below[1] + share * (above[1] - below[1])
        below = above
    return below[1]


# Orders of magnitude: a desktop processor, and a large GPU.
_OF_DEVICES = {
    "cpu": Constants(
        dense_flops=1.0e11,
        gather=((1e6, 1.2e-11), (8e6, 2.5e-11), (32e6, 6e-11), (256e6, 1.5e-10)),
        move=((16e6, 5e-11), (64e6, 4e-10)),
        call_seconds=5e-5,
        group_seconds=1e-5,
    ),
    "cuda": Constants(
        dense_flops=3.0e13,
        gather=((4e7, 3e-13), (1e9, 8e-13)),
        move=((4e7, 7e-13), (1e9, 7e-13)),
        call_seconds=3e-5,
        group_seconds=1e-5,
    ),
}


def constants(device: str) -> Constants:
    """The constants of a device type; those of a GPU if the type is unknown."""
    return _OF_DEVICES.get(device) or _OF_DEVICES["cuda"]


@dataclass(frozen=True)
class Operations:
    """The operations of a contraction that its time depends on.

    Attributes:
        dense_flops: flops of products with Θ and other dense matrices.
        gathers: pairs (bytes that sparse products read through an index, bytes of the operand they
            are read from). Reading from an operand that fits a cache is faster.
        moves: pairs (bytes of intermediate results allocated, written and read, bytes of the tensor
            they belong to). Large tensors get new memory every time.
        picks: pairs as in ``gathers``, for rows gathered or scattered outside of sparse products,
            and for the unused parts of cache lines that sparse products read.
        calls: number of calls of primitives.
        groups: number of separate small products.
    """

    dense_flops: float = 0.0
    gathers: Table = ()
    moves: Table = ()
    picks: Table = ()
    calls: float = 0.0
    groups: float = 0.0

    def __add__(self, other: Operations) -> Operations:
        return Operations(*(getattr(self, name) + getattr(other, name) for name in _OPERATIONS))

    def __mul__(self, times: float) -> Operations:
        gathers, moves, picks = [
            tuple([(count * times, whole) for count, whole in table])
            for table in (self.gathers, self.moves, self.picks)
        ]
        ends = self.calls * times, self.groups * times
        return Operations(self.dense_flops * times, gathers, moves, picks, *ends)

    @property
    def gathered(self) -> float:
        """Bytes read through an index."""
        return sum(count for count, _ in self.gathers)

    def seconds(self, constants: Constants) -> float:
        """The predicted time in seconds."""
        memory = 0.0
        for count, operand in self.gathers + self.picks:
            memory += count * _interpolate(constants.gather, operand)
        for count, whole in self.moves:
            memory += count * _interpolate(constants.move, whole)
        return (
            self.dense_flops / constants.dense_flops
            + memory
            + self.calls * constants.call_seconds
            + self.groups * constants.group_seconds
        )


_OPERATIONS = tuple(field.name for field in fields(Operations))


@dataclass(frozen=True)
class Cost:
    """Operations of the forward pass and, if gradients are required, of the backward pass.

    Attributes:
        forward, backward: the operations of each pass.
        memory: bytes allocated beside the input, the output and their gradients.
    """

    forward: Operations
    backward: Operations
    memory: float = 0.0

    @staticmethod
    def of(forward: Operations | None = None, back: float = 0.0, memory: float = 0.0) -> Cost:
        """The cost of operations whose backward pass is ``back`` times as many of them."""
        # No defaults of fields: torch.compile cannot trace those that are objects.
        forward = Operations() if forward is None else forward
        return Cost(forward, forward * back, memory)

    @property
    def work(self) -> Operations:
        """The operations of both passes."""
        return self.forward + self.backward

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.forward + other.forward,
            self.backward + other.backward,
            self.memory + other.memory,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.forward * times, self.backward * times, self.memory * times)


def moving(*sizes: float) -> Operations:
    """Intermediate results of ``sizes`` bytes, allocated, written and read."""
    return Operations(moves=tuple((size, size) for size in sizes))


def picking_in_turn(size: float, groups: float) -> Operations:
    """Rows of ``size`` bytes in all, gathered or scattered group by group.

    Indices ascend within a group, so that one tile of the operand is in use at a time. Each row is
    read, written to its tile, read by the product and written again: four accesses.
    """
    return Operations(picks=((4.0 * size, 4.0 * TILE_ELEMENTS),), groups=groups)


# Products with Θ and with A_k --------------------------------------------------------------------


def dense_product(problem: Problem, rows: float, wanted: bool, calls: float = 1) -> Cost:
    """The product of ``rows`` rows with matrices Θ_k; ``wanted``: the rows require gradients."""
    flops = 2.0 * rows * problem.in_channels * problem.parameter.shape[3]
    return Cost.of(Operations(flops, calls=calls), wanted + problem.gradients[1])


def transform(problem: Problem, rows: float) -> Cost:
    """X Θ_k for ``rows`` pairs of a source and a label."""
    of_x, of_theta, _ = problem.gradients
    if problem.has_features:
        return dense_product(problem, rows, of_x)
    width = problem.out_channels * problem.itemsize
    if isinstance(problem.x, SparseMatrix):
        wide = float(problem.num_labels * width)
        read = problem.x.num_entries * wide, problem.in_channels * wide
        return Cost.of(Operations(gathers=(read,), calls=1), of_x + of_theta)
    return Cost.of(moving(rows * width), of_theta)


def sparse_product(
    problem: Problem,
    width: int,
    rows: tuple[float, float],
    wanted: bool,
    entries: float | None = None,
) -> Cost:
    """A sparse product of ``width`` channels."""
    count = float(problem.num_edges) if entries is None else entries
    line = float(width * problem.num_columns * problem.itemsize)
    # MKL takes longer for rows that end within a cache line.
    vain = count * (-line % CACHE_LINE + CACHE_LINE) if line % CACHE_LINE else 0.0
    forward, transposed = (
        Operations(gathers=((count * line, end * line),), picks=((vain, end * line),), calls=1)
        for end in rows
    )
    return Cost(forward, transposed * wanted + forward * problem.gradients[2])


class Steps:
    """The steps of an order, in turn; what each costs backwards follows from what learns before it.

    Attributes:
        parts: what each step does, in words, and its cost.
        learns: whether what the next step gets requires gradients; at first that is X.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.parts: list[tuple[str, Cost]] = []
        self.learns, self._of_theta, self._of_basis = problem.gradients

    @property
    def cost(self) -> Cost:
        """The cost of all steps."""
        return sum((cost for _, cost in self.parts), Cost.of())

    def add(self, words: str, cost: Cost) -> Steps:
        """A step of any other kind."""
        self.parts.append((words, cost))
        return self

    def work(
        self, words: str, forward: Operations, back: float = 0.0, memory: float = 0.0
    ) -> Steps:
        """Operations whose backward pass is ``back`` times as many of them."""
        return self.add(words, Cost.of(forward, back, memory))

    def transform(self, rows: float) -> Steps:
        """X Θ_k for ``rows`` pairs of a source and a label."""
        self.add("X Θ", transform(self.problem, rows))
        self.learns = self.learns or self._of_theta
        return self

    def theta(self, rows: float, calls: float = 1) -> Steps:
        """H Θ_k for ``rows`` rows of a result H."""
        self.add("Θ", dense_product(self.problem, rows, self.learns, calls))
        self.learns = self.learns or self._of_theta
        return self

    def sparse(self, width: int, rows: tuple[float, float], entries: float | None = None) -> Steps:
        """A sparse product at a width; see :func:`sparse_product`."""
        self.add("Aᵀ", sparse_product(self.problem, width, rows, self.learns, entries))
        self.learns = self.learns or self._of_basis
        return self

    def hold(self, numbers: float, copies: float = 1) -> Steps:
        """The result so far, of so many numbers, allocated, written and read."""
        size = numbers * self.problem.itemsize
        return self.work("a result", moving(size) * copies, self.learns, size)


# Sparse features ---------------------------------------------------------------------------------

# The time of a flop of X Θ with X sparse, divided by that of a flop of the dense product. Measured
# on two cores in float32 with 16 and 64 outputs and 1 % to 20 % of non-zeros, the gradient of Θ
# included: from 2 (where memory bounds the dense product) to 5.
SPARSE_FEATURE_FLOP = 5.0

# A product with a dense X of fewer numbers takes less time than the call of a sparse kernel.
SMALL = 1 << 16


@typed
def predicted_share(num_entries: int, shape: tuple[int, int]) -> float:
    """The predicted time of X Θ and of the gradient of Θ with sparse X, over dense X.

    Args:
        num_entries: the number of stored entries of X.
        shape: (M, P).
    """
    return SPARSE_FEATURE_FLOP * num_entries / max(1, shape[0] * shape[1])


@typed
def sparse_pays(num_entries: int, shape: tuple[int, int]) -> bool:
    """Whether sparse X is predicted to be faster: it is large enough and sparse enough.

    Args:
        num_entries, shape: see :func:`predicted_share`.
    """
    large = shape[0] * shape[1] >= SMALL
    return large and predicted_share(num_entries, shape) < 1.0
