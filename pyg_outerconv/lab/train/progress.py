"""Progress of a run on a terminal; Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from tqdm import tqdm

from ...files import STOPPED
from .loop import SeedRun


class Progress:
    """A bar over the epochs of each seed on a terminal; a line for each seed, wherever it goes.

    Args:
        log: takes the lines.
        show_bar: whether to draw a bar; None draws one if stderr is a terminal.
    """

    def __init__(self, log: Callable[[str], None], show_bar: bool | None = None) -> None:
        self.log = log
        self.show_bar = sys.stderr.isatty() if show_bar is None else show_bar
        self._bar: Any = None

    def begin(self, run: SeedRun) -> None:
        """A seed begins, or goes on."""
        if self.show_bar:
            self._bar = tqdm(
                total=run.settings.epochs,
                initial=run.epoch,
                leave=False,
                desc=f"{run.contender.key} seed {run.seed}",
                unit="epoch",
            )

    def epoch(self, run: SeedRun) -> None:
        """An epoch is done."""
        if self._bar is not None:
            if run.evaluated:
                self._bar.set_postfix(
                    val_loss=f"{run.history['val_loss'][-1]:.3f}",
                    best_val=f"{run.best.val_metric:.3f}",
                    refresh=False,
                )
            self._bar.update()

    def end(self) -> None:
        """The seed is finished or interrupted: the bar goes."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def report(self, result: dict[str, Any], metric: str) -> None:
        """Log the result of a seed."""
        self.log(
            f"{result['model']} seed {result['seed']}: test {metric} "
            f"{100 * result['test_metric']:.2f} % at epoch {result['best_epoch']} of "
            f"{result['epochs']}, {result['seconds']:.1f} s"
        )


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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
