"""What a command that runs for long says, and how it is asked to stop."""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...errors import RefusedValue
from ...files import STOPPED, silence

if TYPE_CHECKING:
    from .loop import SeedRun


class Console:
    """Prints for a command, which goes on when nobody reads it any more.

    Args:
        command: its name, such as ``'train'``.
    """

    def __init__(self, command: str) -> None:
        self.command = command

    def say(self, line: str) -> None:
        """Print a line; a reader that has left, as after ``| head -1``, ends nothing."""
        try:
            print(line)
        except BrokenPipeError:
            silence(sys.stdout)
            self.complain(f"nobody reads the output any more; {self.command} goes on")

    def complain(self, line: str) -> None:
        """Print a line to stderr."""
        with suppress(BrokenPipeError):
            print(f"outerconv {self.command}: {line}", file=sys.stderr)


def curves_into(folder: Path) -> Callable[[SeedRun], None]:
    """What writes the numbers of an evaluated epoch; ``tensorboard --logdir RUN_DIR`` shows them.

    Args:
        folder: gets a folder for each model and seed. Epochs that a run repeats, after it was
            killed, take the place of those that were written before.
    """
    if importlib.util.find_spec("tensorboard") is None:
        raise RefusedValue(
            "--tensorboard writes by tensorboard",
            "pip install 'pyg_outerconv[scale]'",
            "no tensorboard",
        )
    writers: dict[str, Any] = {}

    def write(run: SeedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not run.evaluated:
            return
        key = f"{run.contender.key}-{run.seed}"
        if key not in writers:
            for last in writers.values():
                last.close()
            writers[key] = SummaryWriter(str(folder / key), purge_step=run.epoch)
        for name, values in run.history.items():
            writers[key].add_scalar(name, values[-1], run.epoch)
        writers[key].flush()

    return write


class StopOnInterrupt:
    """Within the block Ctrl-C or SIGTERM asks to stop after the epoch; a second one stops at once.

    So the state that is kept is that of a whole epoch. Outside the main thread, where signals do
    not arrive, it does nothing.

    Args:
        patient: further signals do not stop at once, because ``torchrun`` passes on what a terminal
            has sent to its processes already. It kills those that do not stop within half a minute.

    Attributes:
        number: of the signal that asked, 0 for none.
    """

    def __init__(self, patient: bool = False) -> None:
        self.number, self.patient = 0, patient
        self._before: dict[int, Any] = {}
        self._active = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> StopOnInterrupt:
        if self._active:
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.number and self.patient:
            return
        if self.number and number == signal.SIGTERM:
            raise SystemExit(STOPPED + number)
        if self.number:
            raise KeyboardInterrupt
        self.number = number

    def __call__(self) -> bool:
        """Whether to stop."""
        return bool(self.number)
