"""Updates of a model: the loss of batches, their gradients added up over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from ...scale.processes import Processes, noticing_loss
from ...scale.samples import stream
from .inputs import Batch, Share
from .settings import Settings


class Stopped(Exception):  # noqa: N818 - no error, a wish
    """A process was asked to stop within an epoch, and all of them do."""


class SummedLoss(Module):
    """Σ_n w_{y_n} · cross entropy of the logits of n, over the rows of a batch.

    Every parameter takes part, with a gradient of 0 where the batch does not use it, so that each
    process has as many gradients to add up as the others.

    Args:
        model: what is trained.
        y: (N,) classes.
        class_weights: (C,) w, or None for ones.
        settings: batches and precision.
    """

    def __init__(
        self, model: Module, y: Tensor, class_weights: Tensor | None, settings: Settings
    ) -> None:
        super().__init__()
        self.model, self.y, self.class_weights = model, y, class_weights
        self.of_samples = settings.batches != "none"
        self.narrow, self.kind = settings.precision == "bfloat16", settings.device.split(":")[0]

    def forward(self, batch: Batch | None) -> Tensor:
        """The loss of a batch; 0 of None."""
        none = torch.zeros((), device=self.y.device)
        if self.of_samples:
            none = none + sum(0.0 * parameter.sum() for parameter in self.model.parameters())
        if batch is None:
            return none
        with self._precision():
            logits = self.model(batch.x, batch.structure)[batch.rows]
        wanted = self.y[batch.nodes]
        loss = F.cross_entropy(logits.float(), wanted, self.class_weights, reduction="sum")
        return loss + none

    def weight(self, batch: Batch | None) -> float:
        """Σ_n w_{y_n}; 0 of None."""
        if batch is None:
            return 0.0
        if self.class_weights is None:
            return float(batch.nodes.numel())
        return float(self.class_weights[self.y[batch.nodes]].sum())

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.kind, torch.bfloat16) if self.narrow else nullcontext()


def update(
    loss: Module,
    optimizer: Optimizer,
    batches: Iterable[Batch | None],
    share: Share,
    processes: Processes,
    state: tuple[int, int],
    stop: Callable[[], bool],
) -> None:
    """One epoch: for each ``share.together`` batches one step, by the mean loss of all their rows.

    Gradients of sums are added up, over batches and processes, and divided by the sum of weights,
    so that a row counts the same whichever batch and process it is in.

    Args:
        loss: a :class:`SummedLoss`, wrapped by ``processes``.
        optimizer: of its model.
        batches: those of this process, None where the last update has fewer.
        share: how updates are shared.
        processes: all of them.
        state: seed and epoch, on which, with the number of a sample, its dropout depends.
        stop: whether this process was asked to stop; asked between updates if there are others.

    Raises:
        Stopped: a process was asked to stop.
        WorkerLost: a process is gone.
    """
    summed = loss if isinstance(loss, SummedLoss) else loss.module
    assert isinstance(summed, SummedLoss)
    weight = 0.0
    for place, batch in enumerate(batches):
        if place % share.each == 0:
            optimizer.zero_grad()
            weight = 0.0
        if batch is not None and summed.of_samples:
            torch.manual_seed(stream(*state, batch.number, 2).initial_seed())
        weight += summed.weight(batch)
        is_last = (place + 1) % share.each == 0
        with nullcontext() if is_last else processes.without_sums(loss), noticing_loss():
            loss(batch).backward()
        if is_last:
            asked = processes.size > 1 and (stop() or processes.orphaned)
            total, stopping = processes.sums([weight, float(asked)])
            if stopping:
                raise Stopped
            for parameter in summed.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(processes.size / total)
            optimizer.step()
