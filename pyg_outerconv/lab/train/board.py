"""Scalars of a run for TensorBoard."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue

if TYPE_CHECKING:
    from .loop import SeedRun

BOARD = "tensorboard"


class Board:
    """Writes losses and metrics of each epoch; ``tensorboard --logdir RUN_DIR`` shows them.

    Args:
        folder: a new one is made for each model and seed in it. Epochs that a run repeats, after it
            was killed, take the place of those that were written before.

    Raises:
        ValueError: tensorboard is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise RefusedValue(
                "--tensorboard writes by tensorboard",
                "pip install 'pyg_outerconv[scale]'",
                "no tensorboard",
            )
        self.folder, self._key = folder, ""
        self._writer: Any = None

    def write(self, run: SeedRun) -> None:
        """The numbers of the last epoch of a run, if it was evaluated."""
        if not run.evaluated:
            return
        key = f"{run.contender.key}-{run.seed}"
        if key != self._key:
            self.close()
            self._key, self._writer = key, self._open(key, run.epoch)
        for name, values in run.history.items():
            self._writer.add_scalar(name, values[-1], run.epoch)
        self._writer.flush()

    def _open(self, key: str, epoch: int) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self.folder / key), purge_step=epoch)

    def close(self) -> None:
        """Close the file of the last seed."""
        if self._writer is not None:
            self._writer.close()
