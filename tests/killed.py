"""Command lines that run in processes of their own, which are killed at a chosen moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# Imports once, then forks for each command line: a kill hits the work, not the imports.
PARENT = """
import json, os, sys
from pyg_outerconv.lab.cli import main
{prelude}
print("ready", flush=True)
for number, line in enumerate(sys.stdin):
    {each}
    child = os.fork()
    if child == 0:
        os.dup2(os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        code = 1
        try:
            code = main(json.loads(line))
            sys.stdout.flush()
        finally:
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def kill(process: int, number: int, whom: int = 0) -> None:
    """Kill a process, or one of those that it has started."""
    with suppress(psutil.NoSuchProcess, IndexError):  # it has just ended by itself, or not begun
        agent = psutil.Process(process)
        [agent, *agent.children()][whom].send_signal(number)


class Strikes:
    """Kills that ended what ran, counted by whom they hit, and held against how many are wanted.

    Args:
        wanted: so many must strike; twice as many may be tried, and ten more.
    """

    def __init__(self, wanted: int) -> None:
        self.wanted, self.tried = wanted, 0
        self.struck: list[tuple[str, str]] = []
        self._most, self._began = 2 * wanted + 10, time.monotonic()

    @property
    def are_left(self) -> bool:
        """Whether fewer than wanted struck, and more may be tried."""
        return len(self.struck) < self.wanted and self.tried < self._most

    def note(self, number: int, has_struck: bool, whom: str = "") -> None:
        """Count a kill by this signal; it struck if something ran, and ended by it."""
        self.tried += 1
        if has_struck:
            self.struck.append((whom, signal.Signals(number).name))

    def told(self, runs: int) -> str:
        """A line on all of them, once as many struck as were wanted.

        Raises:
            AssertionError: fewer struck.
        """
        counted = Counter(" ".join(filter(None, one)) for one in self.struck)
        parts = ", ".join(f"{one} {count}" for one, count in sorted(counted.items()))
        line = f"{len(self.struck)} kills that struck, of {self.tried}, over {runs} runs: {parts}"
        assert len(self.struck) >= self.wanted, f"{line}; wanted {self.wanted}"
        return f"{line}; nothing unreadable, all ended as unbroken ones ({self._seconds:.0f} s)"

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began


class Runner:
    """Runs command lines in processes of their own; what the last one printed is in ``said``."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def __call__(self, line: list[str], number: int = 0, after: float = 0.0, whom: int = 0) -> int:
        """Run one, and return how it ended; kill it after so many seconds, or one that it started.

        Whatever still runs a minute later hangs, and is killed with all that it started.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        child = self._told()
        killers = [threading.Timer(MINUTE, _end, (child,))]
        if number:
            killers.append(threading.Timer(after, kill, (child, number, whom)))
        for killer in killers:
            killer.start()
        code = self._told()
        for killer in killers:
            killer.cancel()
            killer.join()
        return code

    def _told(self) -> int:
        """The next number: of the process that begins, or how it ended."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


MINUTE = 60.0


def _end(process: int) -> None:
    with suppress(psutil.NoSuchProcess):
        agent = psutil.Process(process)
        for one in (*agent.children(recursive=True), agent):
            one.kill()


def forking(prelude: str, each: str = "pass") -> str:
    """A program that forks for each command line.

    Args:
        prelude: Python that is run once, with its imports.
        each: Python that is run before each command line, whose ``number`` it knows.
    """
    return PARENT.format(prelude=prelude, each=each)


@contextmanager
def running(program: str) -> Iterator[Runner]:
    """A runner in the current folder, of a program such as :func:`forking` gives."""
    root = str(Path(__file__).resolve().parents[1])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Runner(process)
        process.stdin.close()


HOW = (signal.SIGKILL, signal.SIGTERM)
