"""Command lines that run in processes of their own, which are killed at a chosen moment."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import psutil
from fresh import Fresh

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

    def __init__(self, asked: TextIO, told: TextIO) -> None:
        self.asked, self.told = asked, told

    def __call__(self, line: list[str], number: int = 0, after: float = 0.0, whom: int = 0) -> int:
        """Run one, and return how it ended; kill it after so many seconds, or one that it started.

        Whatever still runs a minute later hangs, and is killed with all that it started.
        """
        self.asked.write(json.dumps(line) + "\n")
        self.asked.flush()
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
        return int(self.told.readline())


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


# What comes before a program: its lines come through a pipe of this name, and go through another.
PIPES = """
import os, sys
sys.path.insert(0, os.getcwd())
os.chdir(sys.argv[1])
os.dup2(os.open("told", os.O_WRONLY), 1)
sys.stdin = open("asked")
"""


@contextmanager
def running(fresh: Fresh, program: str) -> Iterator[Runner]:
    """A runner in the current folder, of a program such as :func:`forking` gives."""
    for name in ("asked", "told"):
        os.mkfifo(name)
    begun = fresh.begin(PIPES + program, str(Path.cwd()))
    with open("told") as told, open("asked", "w") as asked:
        assert told.readline() == "ready\n", begun.err.read_text()
        yield Runner(asked, told)
    assert fresh.end(begun).returncode == 0


HOW = (signal.SIGKILL, signal.SIGTERM)
