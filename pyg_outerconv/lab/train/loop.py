"""Training one model from one seed, in steps that can be stopped and taken up again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch_geometric.data import Data
from torch_geometric.nn import CorrectAndSmooth
from torch_geometric.seed import seed_everything

from ...errors import RefusedValue
from ...scale.processes import ALONE, Processes, noticing_loss
from ...scale.samples import stream
from ..settings import Settings, smoothing_of
from .inputs import Batch, Share, as_csr
from .model import Contender
from .results import METRICS, SMOOTHED, majority
from .splits import Split

CURVES = ("train_loss", "val_loss", "train_metric", "val_metric")
UNSEEN = -1  # in the place of the class of a node that training must not see


class Diverged(RefusedValue):
    """The loss on validation nodes is no longer a number."""


@dataclass
class Best:
    """The best epoch so far by validation, its loss and metric, its parameters."""

    epoch: int = 0
    val_loss: float = math.inf
    val_metric: float = -math.inf
    parameters: dict[str, Tensor] = field(default_factory=dict)


class SeedRun:
    """One model under training: Adam on the cross entropy of the training nodes.

    After every epoch, or every ``evaluate_every`` of them, the model is evaluated on training and
    validation nodes. The classes of all other nodes are removed before training begins;
    :meth:`test` is given those of the test nodes when it has ended, and evaluates the parameters of
    the best epoch.

    Args:
        smoothing: corrects and smooths what the best parameters say, or None.
    """

    def __init__(
        self,
        contender: Contender,
        y: Tensor,
        num_classes: int,
        split: Split,
        settings: Settings,
        seed: int,
        processes: Processes = ALONE,
        stop: Callable[[], bool] = lambda: False,
        smoothing: Smoothing | None = None,
    ) -> None:
        seed_everything(seed)
        self.processes, self.stop = processes, stop
        self.share = Share(max(settings.accumulate, 1), processes.rank, processes.size)
        self.contender, self.settings, self.seed = contender, settings, seed
        self.metric = METRICS[settings.metric]
        # Positions rather than masks, so that they are not counted out at every epoch.
        parts = {"train": split.train, "val": split.validation}
        self.nodes = {k: mask.nonzero().view(-1).to(settings.device) for k, mask in parts.items()}
        seen = y.masked_fill(~(split.train | split.validation), UNSEEN)
        self.y = seen.to(settings.device)
        self.wanted = {k: self.y[nodes] for k, nodes in self.nodes.items()}
        self.smoothing = smoothing
        training = self.nodes["train"], self.wanted["train"]
        self.inputs = contender.inputs.with_classes(*training, num_classes)
        self.class_weights = _class_weights(self.wanted["train"], num_classes, settings)
        self.num_classes = num_classes
        self.model = contender.model(num_classes, settings)
        # Models differ in how much randomness their parameters take. From here on they get the
        # same, so that contenders of one seed are paired in their dropout too (but for dropout of
        # input that one of them keeps sparse: it draws the non-zeros alone).
        seed_everything(seed)
        self.optimizer = torch.optim.Adam(self.model.parameter_groups(settings), lr=settings.lr)
        self.loss = processes.wrap(SummedLoss(self.model, self.y, self.class_weights, settings))
        self.history: dict[str, list[float]] = {name: [] for name in CURVES}  # of evaluated epochs
        self.best = Best()
        self.epoch = 0  # how many are done
        self.seconds = 0.0

    @property
    def evaluated(self) -> bool:
        """Whether the model was evaluated after the last epoch."""
        return self.settings.evaluates(self.epoch)

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done, or ``patience`` epochs in a row brought no better one."""
        waited = self.epoch - self.best.epoch
        tired = self.evaluated and 0 < self.settings.patience <= waited
        return self.epoch >= self.settings.epochs or tired

    def step(self) -> None:
        """One epoch: its updates, then an evaluation if it is one that has it."""
        started = time.perf_counter()
        self.model.train()
        own = self.inputs.batches(self.nodes["train"], self.seed, self.epoch, self.share)
        state = self.seed, self.epoch
        update(self.loss, self.optimizer, own, self.share, self.processes, state, self.stop)
        if self.settings.evaluates(self.epoch + 1):
            # The first process evaluates for all, and so all stop after the same epoch.
            numbers = self._evaluate() if self.processes.leads else {}
            self._record(self.epoch + 1, self.processes.shared(numbers))
        self.epoch += 1
        self.seconds += time.perf_counter() - started

    def train(self, each_epoch: Callable[[SeedRun], None], stop: Callable[[], bool]) -> bool:
        """Train to the end, or to the epoch after which to stop; whether it is the end."""
        while not self.finished:
            self.step()
            each_epoch(self)
            if stop():
                return self.finished
        return True

    def _evaluate(self) -> dict[str, float]:
        nodes = torch.cat(list(self.nodes.values()))
        logits = self.inputs.predicted(self.model, nodes)
        parts = logits.split([part.numel() for part in self.nodes.values()])
        numbers = {}
        for (part, wanted), own in zip(self.wanted.items(), parts, strict=True):
            numbers[f"{part}_loss"] = float(F.cross_entropy(own, wanted, self.class_weights))
            numbers[f"{part}_metric"] = self.metric(own, wanted)
        return numbers

    def _record(self, epoch: int, numbers: dict[str, float]) -> None:
        for name, values in self.history.items():
            values.append(numbers[name])
        loss, metric = numbers["val_loss"], numbers["val_metric"]
        if not math.isfinite(loss):
            raise Diverged(
                f"training diverged in epoch {epoch} of seed {self.seed}",
                "a finite loss (try a smaller --lr)",
                loss,
            )
        best = self.best
        if rank(self.settings, loss, metric) < rank(self.settings, best.val_loss, best.val_metric):
            state = self.model.state_dict()
            kept = {name: value.detach().clone() for name, value in state.items()}
            self.best = Best(epoch, loss, metric, kept)

    def test(self, y: Tensor, mask: Tensor) -> dict[str, float]:
        """The metric of the best parameters on the test nodes, and that of the majority class.

        If predictions are corrected and smoothed, also the metrics of these on validation and test
        nodes, made of the classes of training nodes alone.
        """
        self.model.load_state_dict(self.best.parameters)
        nodes = mask.nonzero().view(-1)
        wanted, own = y[nodes], nodes.to(self.settings.device)
        most = majority(self.settings.metric, self.wanted["train"].cpu(), wanted, self.num_classes)
        metrics = {"majority": most}
        if self.smoothing is None:
            logits = self.inputs.predicted(self.model, own)
        else:
            everywhere = self.inputs.predicted(self.model)
            logits = everywhere[own]
            smoothed = self.smoothing(everywhere, self.nodes["train"], self.wanted["train"])
            val = self.metric(smoothed[self.nodes["val"]], self.wanted["val"])
            metrics |= {SMOOTHED["val_metric"]: val}
            metrics |= {SMOOTHED["test_metric"]: self.metric(smoothed[own].cpu(), wanted)}
        return {"test_metric": self.metric(logits.cpu(), wanted), **metrics}

    def result(self) -> dict[str, Any]:
        """The numbers of this seed, as ``metrics.json`` has them beside those of :meth:`test`."""
        return {
            "model": self.contender.key,
            "seed": self.seed,
            "val_metric": self.best.val_metric,
            "val_loss": self.best.val_loss,
            "best_epoch": self.best.epoch,
            "epochs": self.epoch,
            "seconds": round(self.seconds, 3),
            "history": self.history,
        }

    # Stopping and taking up again -------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on, as tensors and plain Python."""
        return {
            "model": self.contender.key,
            "seed": self.seed,
            "epoch": self.epoch,
            "seconds": self.seconds,
            "parameters": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
            "best": vars(self.best),
            "random": random_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state` was taken."""
        self.model.load_state_dict(state["parameters"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.history, self.best = state["history"], Best(**state["best"])
        self.epoch, self.seconds = state["epoch"], state["seconds"]
        restore_random_state(state["random"])


def rank(settings: Settings, val_loss: float, val_metric: float) -> tuple[float, ...]:
    """Sorts epochs, and seeds, by validation: the best first."""
    return (val_loss,) if settings.select == "loss" else (-val_metric, val_loss)


def _class_weights(wanted: Tensor, num_classes: int, settings: Settings) -> Tensor | None:
    """(C,) N / (C · nodes of the class) over N training nodes; 0 for a class without any."""
    if settings.class_weights == "none":
        return None
    counts = torch.bincount(wanted, minlength=num_classes)
    weights = wanted.numel() / (num_classes * counts.clamp(min=1))
    return torch.where(counts > 0, weights, 0.0)


def random_state() -> dict[str, Tensor]:
    """Torch's random states, of the CPU and of every CUDA device in use."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for number, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"cuda:{number}"] = state
    return states


def restore_random_state(states: dict[str, Tensor]) -> None:
    """Restore the state that :func:`random_state` returned."""
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)


# Updates ------------------------------------------------------------------------------------------


class Stopped(Exception):  # noqa: N818 - no error, a wish
    """Training was asked to stop within an epoch, of several processes one, and all of them do."""


class SummedLoss(Module):
    """Σ_n w_{y_n} · cross entropy of the logits of n, over the rows of a batch.

    Every parameter takes part, with a gradient of 0 where the batch does not use it, so that each
    process has as many gradients to add up as the others.
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
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.narrow):
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
    """
    summed = loss if isinstance(loss, SummedLoss) else loss.module
    assert isinstance(summed, SummedLoss)
    weight = 0.0
    for place, batch in enumerate(batches):
        if place % share.each == 0:
            optimizer.zero_grad()
            weight = 0.0
        if batch is not None and summed.of_samples:  # dropout depends on the number of the sample
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


# When training has ended --------------------------------------------------------------------------

SMALLEST = 1e-12  # a share of a class, so that its logarithm is a number
Smoothing = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Logits (N, C) of logits (N, C), of the training nodes (T,) and of their classes (T,)."""


def smoothing_on(data: Data, settings: Settings) -> Smoothing | None:
    """PyG's post-processing of logits, without parameters, from the `"Combining Label Propagation
    And Simple Models Out-performs Graph Neural Networks" <https://arxiv.org/abs/2010.13993>`_ paper
    (equations 4 to 6), on a graph; None where the settings have none.

    The errors of the training nodes are spread along the edges, with the norm of GCN and without
    self-loops, and added to the shares of the classes, in the paper's "Autoscale" or times γ. Then
    training nodes take their classes, and all shares are spread.
    """
    options = smoothing_of(settings.correct_and_smooth)
    if options is None:
        return None
    weight = data.get("edge_weight")
    # In the place of edges a matrix, so that nothing holds their number times C.
    matrix = torch.sparse_coo_tensor(
        data.edge_index.flip(0),
        torch.ones(data.num_edges) if weight is None else weight,
        (data.num_nodes, data.num_nodes),
        check_invariants=False,
    )
    matrix, process = as_csr(matrix).to(settings.device), CorrectAndSmooth(**options)

    @torch.no_grad()
    def smoothed(logits: Tensor, nodes: Tensor, classes: Tensor) -> Tensor:
        shares = logits.softmax(-1).clamp(min=SMALLEST)  # where all are right γ would be 0 / 0
        smoothed_shares: Tensor = process(shares, classes, nodes, matrix)
        return smoothed_shares.clamp(min=SMALLEST).log()

    return smoothed
