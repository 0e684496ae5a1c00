"""``outerconv …``: train, predict, show, bench, datasets, families, backends.

Exit codes: 0; 1 for a benchmark with errors, or when memory is not enough; 2 for input that is
refused, with one line that says why; 130 after Ctrl-C, 143 after SIGTERM, 141 when the reader of
the output has left (``train`` goes on then).
A command is a class with an entry in ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
from collections.abc import Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any, NoReturn

import torch

from . import backend_table, data
from .bench.command import Bench
from .errors import Refused
from .families import FAMILIES
from .files import silence
from .show import Show
from .train import family_options
from .train.command import STOPPED, Train
from .train.predict_command import Predict

OUT_OF_MEMORY = 1
REFUSED = 2
_SIGPIPE = 13  # not every system has it


class Parser(argparse.ArgumentParser):
    """Refuses in one line, where argparse prints its usage too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(REFUSED, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code."""
    parser = Parser(prog="outerconv", description="Convolutions as outer products, on graphs.")
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=Parser
    )
    for name, command in COMMANDS.items():
        help_line = (command.__doc__ or "").splitlines()[0]
        sub = commands.add_parser(name, help=help_line, description=help_line)
        command.add_arguments(sub)
    for stream in (sys.stdout, sys.stderr):  # a log is read while the run goes on, in any encoding
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as leaving:  # help, or a refusal that was printed
        return int(leaving.code or 0)
    try:
        return COMMANDS[arguments.command].run(arguments)
    except Refused as error:
        print(
            f"outerconv {arguments.command}: error: {' '.join(str(error).split())}", file=sys.stderr
        )
        return REFUSED
    except KeyboardInterrupt:
        print(f"outerconv {arguments.command}: interrupted", file=sys.stderr)
        return STOPPED + signal.SIGINT
    except BrokenPipeError:  # keep Python from trying again
        silence(sys.stdout)
        return STOPPED + _SIGPIPE
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split()[:20])
        print(
            f"outerconv {arguments.command}: error: memory is not enough ({reason})",
            file=sys.stderr,
        )
        return OUT_OF_MEMORY


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an error says so: torch has a kind of its own for GPUs alone."""
    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


class Datasets:
    """List what can be read, and whether it is here."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags of this command."""
        parser.add_argument(
            "--root", help=f"folder of the data; else {data.ROOT_VARIABLE}, else a cache folder"
        )
        parser.add_argument("--verify", action="store_true", help="compare files with checksums")

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Print a table, or the state of every file."""
        root = data.data_root(arguments.root)
        if arguments.verify:
            return _verify(root)
        rows: list[tuple[str, ...]] = [
            ("name", "nodes", "edges", "features", "classes", "relations", "splits", "here")
        ]
        for name, entry in data.registry().items():
            counts = [str(entry.counts[key] or "-") for key in rows[0][1:6]]
            here = [split for split in entry.splits if data.is_here(name, root, split)]
            place = (
                "embedded"
                if entry.folder is None
                else "no"
                if not here
                else entry.folder
                if len(here) == len(entry.splits)
                else f"{entry.folder}, for {', '.join(here)}"
            )
            rows.append((name, *counts, ", ".join(entry.splits), place))
        print(f"data root: {root}\n\n{_columns(rows)}")
        return 0


def _verify(root: Path) -> int:
    """Print every file that is not as expected; refuse (2) if one differs or cannot be read."""
    differ = []
    for name, entry in data.registry().items():
        states = data.verify(name, root)
        counts = {state: list(states.values()).count(state) for state in states.values()}
        summary = ", ".join(f"{number} {state}" for state, number in counts.items())
        print(f"{name}: {summary or 'embedded'}{f' ({entry.note})' if entry.note else ''}")
        for file, state in states.items():
            if state in ("differs", "cannot be read"):
                differ.append(f"{entry.home(root) / file}")
    if differ:
        print(
            f"outerconv datasets: error: files must have the sha256 of the registry: expected "
            f"none that differs or cannot be read, got {', '.join(differ)}",
            file=sys.stderr,
        )
        return REFUSED
    return 0


class Families:
    """List families with their options and equations."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add no flags."""

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Print a table."""
        rows = [("family", "matrices", "flags, with defaults")]
        for name, family in sorted(FAMILIES.items()):
            known = family_options.defaults(family)
            flags = [
                f"{family_options.flag(option)} {'(required)' if default is MISSING else default}"
                for option, default in known.items()
            ]
            said = "in Python" if family_options.needs_python(family) else "  ".join(flags) or "-"
            rows.append((name, family.equation, said))
        print(_columns(rows))
        print(
            "\n--directed makes a pair of any family; stack(gcn, walk(2)) and "
            "directed(gcn(norm='rw')) are\nwritten as text: --family \"stack(gcn, walk(2))\""
        )
        return 0


class Backends:
    """List what runs the primitives here, and why the rest does not."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add no flags."""

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Print a table."""
        print(backend_table.backends())
        return 0


def _columns(rows: list[Any]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )


COMMANDS: dict[str, Any] = {
    "train": Train,
    "predict": Predict,
    "show": Show,
    "bench": Bench,
    "datasets": Datasets,
    "families": Families,
    "backends": Backends,
}
