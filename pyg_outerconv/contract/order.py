"""What a contraction order is: which problems it may solve, at what cost, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ..basis.edges import EdgeBasis
from ..kernels import Sparsity, spmm
from .problem import Problem

# Sparse products run at the speed of memory. On two cores, float32, 64 channels, one of their
# flops took ten times as long as one of a dense product.
SPARSE_FLOP = 10.0


@dataclass(frozen=True)
class Cost:
    """Work of one forward pass, and the memory that it needs beside input and output.

    Attributes:
        dense_flops: of products with Θ.
        sparse_flops: of products with A.
        elements: of the largest intermediate result.
    """

    dense_flops: float
    sparse_flops: float
    elements: float

    @property
    def time(self) -> float:
        """Comparable between orders of one problem; in dense flops."""
        return self.dense_flops + SPARSE_FLOP * self.sparse_flops


class Order(ABC):
    """A way to contract a leaf: which product comes first."""

    name: ClassVar[str]

    @abstractmethod
    def why_not(self, problem: Problem) -> list[str]:
        """Every reason why this order may not solve ``problem``; empty means that it may."""

    @abstractmethod
    def cost(self, problem: Problem) -> Cost:
        """What it would cost."""

    @abstractmethod
    def run(self, problem: Problem) -> Tensor:
        """Y (N, *batch, Q)."""


def multiply(sparsity: Sparsity, edges: EdgeBasis, x: Tensor) -> Tensor:
    """Sparse times dense with anything (C, ...) as x: (R, ...)."""
    value = edges.value
    if value is not None:
        value = value.to(x.dtype)
    out = spmm(sparsity, value, x.flatten(1))
    return out.view(out.size(0), *x.shape[1:])
