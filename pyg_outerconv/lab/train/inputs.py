"""What a model is called with: the whole graph, or batches of it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...nn.models import evaluating


@dataclass(frozen=True)
class Batch:
    """One call of a model in training.

    Attributes:
        x: (M, P) features, dense or sparse; None where the graph has none.
        structure: the argument of the layers beside the features.
        rows: (B,) the rows of the model's output that the loss is made of.
        nodes: (B,) the nodes of the dataset that these rows are of.
        number: its place in the epoch.
    """

    x: Tensor | None
    structure: Any
    rows: Tensor
    nodes: Tensor
    number: int = 0


@dataclass(frozen=True)
class Share:
    """The batches of an epoch that one process computes.

    An update adds up the gradients of ``together`` batches, which all processes have in equal
    parts, in turns.

    Attributes:
        together: number of batches of an update, a multiple of ``size``.
        rank: the process.
        size: number of processes.
    """

    together: int = 1
    rank: int = 0
    size: int = 1

    @property
    def each(self) -> int:
        """Number of batches of an update that a process computes."""
        return self.together // self.size

    def numbers(self, count: int) -> list[int | None]:
        """The batches of this process out of ``count``, ``each`` of them for every update.

        None stands for those that the last update lacks, so that all processes have as many.
        """
        padded = math.ceil(count / self.together) * self.together
        mine = range(self.rank, padded, self.size)
        return [number if number < count else None for number in mine]


WHOLE = Share()


class Inputs(ABC):
    """The features and the structure of a dataset, as a model of one kind of layer reads them."""

    @abstractmethod
    def batches(
        self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE
    ) -> Iterator[Batch | None]:
        """The batches of an epoch: each of the training nodes (T,) is in exactly one.

        They depend on nothing but the arguments, so that a resumed run gets the same. None stands
        for a batch that the last update lacks, see :meth:`Share.numbers`.
        """

    @abstractmethod
    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """(B, C) of the nodes (B,), or of all, by a model in evaluation mode, with the weights of
        the whole graph.
        """

    def try_out(self, model: Module) -> None:
        """Call a model in evaluation mode once, as training does."""
        self.logits(model)

    def predicted(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        """:meth:`logits` in evaluation mode, without gradients; the model's mode is restored."""
        with evaluating(model):
            return self.logits(model, nodes)


@dataclass(frozen=True)
class WholeGraph(Inputs):
    """All of the graph at every call: one batch an epoch.

    Attributes:
        x: (N, P) features, dense or sparse; None where the graph has none.
        structure: the argument of the layers beside the features.
    """

    x: Tensor | None
    structure: Any

    def batches(
        self, nodes: Tensor, seed: int, epoch: int, share: Share = WHOLE
    ) -> Iterator[Batch | None]:
        yield Batch(self.x, self.structure, nodes, nodes)

    def logits(self, model: Module, nodes: Tensor | None = None) -> Tensor:
        out: Tensor = model(self.x, self.structure)
        return out if nodes is None else out[nodes]
