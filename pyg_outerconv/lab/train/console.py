"""What a command that runs for long prints: it goes on when nobody reads it any more."""

from __future__ import annotations

import sys
from contextlib import suppress

from ...files import silence


class Console:
    """Prints for a command.

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
