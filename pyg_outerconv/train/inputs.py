"""What a model is called with: the whole graph, or batches of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module


@dataclass(frozen=True)
class Batch:
    """One call of a model in training.

    Attributes:
        x: (M, P) features, dense or sparse; None where the graph has none.
        structure: the argument of the layers beside the features.
        rows: (B,) the rows of the model's output that the loss is made of.
        nodes: (B,) the nodes of the dataset that these rows are of.
    """

    x: Tensor | None
    structure: Any
    rows: Tensor
    nodes: Tensor


class Inputs(ABC):
    """The features and the structure of a dataset, as a model of one kind of layer reads them."""

    @abstractmethod
    def batches(self, nodes: Tensor, seed: int, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch: each of the training nodes (T,) is in exactly one.

        They depend on nothing but the arguments, so that a resumed run gets the same.
        """

    @abstractmethod
    def logits(self, model: Module, nodes: Tensor) -> Tensor:
        """(B, C) of the nodes (B,), by a model in evaluation mode, with the weights of the whole
        graph.
        """

    def predicted(self, model: Module, nodes: Tensor) -> Tensor:
        """:meth:`logits` in evaluation mode, without gradients; the model's mode is restored."""
        training = model.training
        try:
            with torch.no_grad():
                return self.logits(model.eval(), nodes)
        finally:
            model.train(training)


@dataclass(frozen=True)
class WholeGraph(Inputs):
    """All of the graph at every call: one batch an epoch.

    Attributes:
        x: (N, P) features, dense or sparse; None where the graph has none.
        structure: the argument of the layers beside the features.
    """

    x: Tensor | None
    structure: Any

    def batches(self, nodes: Tensor, seed: int, epoch: int) -> Iterator[Batch]:
        yield Batch(self.x, self.structure, nodes, nodes)

    def logits(self, model: Module, nodes: Tensor) -> Tensor:
        out: Tensor = model(self.x, self.structure)[nodes]
        return out
