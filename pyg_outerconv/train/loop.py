"""Training one model from one seed, in steps that can be stopped and taken up again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.seed import seed_everything

from ..errors import RefusedValue
from .model import Contender
from .settings import Settings
from .splits import Split

CURVES = ("train_loss", "val_loss", "train_accuracy", "val_accuracy", "test_accuracy")


@dataclass
class Best:
    """The epoch of the lowest validation loss so far, its losses and accuracies, its parameters."""

    epoch: int = 0
    val_loss: float = math.inf
    val_accuracy: float = 0.0
    test_accuracy: float = 0.0
    parameters: dict[str, Tensor] = field(default_factory=dict)


class SeedRun:
    """One model under training: Adam on the cross entropy of the training nodes.

    The protocol is that of PyG's citation benchmark: after every epoch the model is evaluated, and
    the test accuracy that counts is the one at the lowest validation loss.

    Args:
        contender: the layer, the structure and the features.
        y: (N,) classes.
        split: training, validation and test nodes.
        settings: the configuration of the run.
        seed: of Python's, numpy's and torch's random states.
    """

    def __init__(
        self,
        contender: Contender,
        y: Tensor,
        num_classes: int,
        split: Split,
        settings: Settings,
        seed: int,
    ) -> None:
        seed_everything(seed)
        self.contender, self.settings, self.seed = contender, settings, seed
        # Positions rather than masks, so that they are not counted out at every epoch.
        places = {"train": split.train, "val": split.validation, "test": split.test}
        self.nodes = {k: mask.nonzero().view(-1).to(settings.device) for k, mask in places.items()}
        self.wanted = {k: y.to(settings.device)[nodes] for k, nodes in self.nodes.items()}
        self.model = contender.model(num_classes, settings)
        # Models differ in how much randomness their parameters take. From here on they get the
        # same, so that contenders of one seed are paired in their dropout too (but for dropout of
        # input that one of them keeps sparse: it draws the non-zeros alone).
        seed_everything(seed)
        self.optimizer = torch.optim.Adam(self.model.parameter_groups(settings), lr=settings.lr)
        self.history: dict[str, list[float]] = {name: [] for name in CURVES}
        self.best = Best()
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        """How many epochs are done."""
        return len(self.history["val_loss"])

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done, or early stopping calls.

        The rule: after half of the epochs, stop as soon as the validation loss exceeds its mean
        over the ``patience`` epochs before.
        """
        if self.epoch >= self.settings.epochs:
            return True
        patience = self.settings.patience
        if not patience or self.epoch <= self.settings.epochs // 2:
            return False
        *_, latest = losses = self.history["val_loss"]
        before = losses[-(patience + 1) : -1]
        return bool(before) and latest > sum(before) / len(before)

    def step(self) -> None:
        """One epoch: an update, then an evaluation.

        Raises:
            ValueError: the loss is no longer a number.
        """
        started = time.perf_counter()
        self.model.train()
        self.optimizer.zero_grad()
        logits = self.model(self.contender.x, self.contender.structure)
        F.cross_entropy(logits[self.nodes["train"]], self.wanted["train"]).backward()
        self.optimizer.step()
        self._record(self._evaluate())
        self.seconds += time.perf_counter() - started

    @torch.no_grad()
    def _evaluate(self) -> dict[str, float]:
        self.model.eval()
        logits = self.model(self.contender.x, self.contender.structure)
        numbers = {}
        for part, wanted in self.wanted.items():
            there = logits[self.nodes[part]]
            if f"{part}_loss" in CURVES:
                numbers[f"{part}_loss"] = float(F.cross_entropy(there, wanted))
            numbers[f"{part}_accuracy"] = accuracy(there.argmax(-1), wanted)
        return numbers

    def _record(self, numbers: dict[str, float]) -> None:
        for name, values in self.history.items():
            values.append(numbers[name])
        if not math.isfinite(numbers["val_loss"]):
            raise RefusedValue(
                f"training diverged in epoch {self.epoch} of seed {self.seed}",
                "a finite loss (try a smaller --lr)",
                numbers["val_loss"],
            )
        if numbers["val_loss"] < self.best.val_loss:
            self.best = Best(
                self.epoch,
                numbers["val_loss"],
                numbers["val_accuracy"],
                numbers["test_accuracy"],
                {name: value.detach().clone() for name, value in self.model.state_dict().items()},
            )

    def result(self) -> dict[str, Any]:
        """The numbers of this seed, as ``metrics.json`` has them."""
        return {
            "model": self.contender.key,
            "seed": self.seed,
            "test_accuracy": self.best.test_accuracy,
            "val_accuracy": self.best.val_accuracy,
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
        self.seconds = state["seconds"]
        restore_random_state(state["random"])


def train(run: SeedRun, each_epoch: Callable[[SeedRun], None], stop: Callable[[], bool]) -> bool:
    """Train to the end.

    Args:
        run: possibly under way already.
        each_epoch: called after every epoch.
        stop: called after every epoch; True ends training.

    Returns:
        whether the run is finished.
    """
    while not run.finished:
        run.step()
        each_epoch(run)
        if stop():
            return run.finished
    return True


def accuracy(predicted: Tensor, wanted: Tensor) -> float:
    """The share of equal entries of two vectors."""
    return int((predicted == wanted).sum()) / wanted.numel()


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
