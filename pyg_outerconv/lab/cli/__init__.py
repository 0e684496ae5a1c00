"""The command ``outerconv``, whose own commands are those of ``commands.py``.

Exit codes: 0; 1 for a benchmark with errors or when memory is not enough; 2 for refused input, with
one line that says why; 130 after Ctrl-C, 143 after SIGTERM; 141 when the reader of the output has
left (``train`` goes on then).

The files of this folder declare commands and options. They import torch and the rest of the package
only when a command runs, so that help and refused options answer at once.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ... import __version__
from ...errors import Refused
from ...files import STOPPED, silence
from . import commands

OUT_OF_MEMORY = 1
REFUSED = 2
SIGPIPE = 13  # the signal module of Windows has no such name


@click.group(
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="pyg_outerconv %(version)s")
def outerconv() -> None:
    """Convolutions as outer products, on graphs."""


for _command in vars(commands).values():
    if isinstance(_command, click.Command):
        outerconv.add_command(_command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    for stream in (sys.stdout, sys.stderr):  # a log is read while the run goes on, in any encoding
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="replace")
    words = list(sys.argv[1:] if argv is None else argv)
    context: click.Context | None = None
    try:
        with _few_warnings(), outerconv.make_context("outerconv", words.copy()) as context:
            return int(outerconv.invoke(context) or 0)
    except click.exceptions.Exit as leaving:  # after --help
        return leaving.exit_code
    except click.UsageError as error:
        path = "outerconv" if error.ctx is None else error.ctx.command_path
        return _refuse(path, f"{_usage(error)} (see {path} --help)")
    except Refused as error:
        return _refuse(_path(context), str(error))
    except KeyboardInterrupt:
        print(f"{_path(context)}: interrupted", file=sys.stderr)
        return STOPPED + signal.SIGINT
    except BrokenPipeError:  # keep Python from trying again
        silence(sys.stdout)
        return STOPPED + SIGPIPE
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split()[:20])
        _refuse(_path(context), f"memory is not enough ({reason})")
        return OUT_OF_MEMORY


@contextmanager
def _few_warnings() -> Iterator[None]:
    """Show each warning once, by the first process of torchrun, and none of future versions.

    The last are for those who write the package that warns; ``python -W`` shows them.
    """
    shown = set[tuple[str, type[Warning]]]()
    show, is_first = warnings.showwarning, os.environ.get("RANK", "0") == "0"

    def show_once(
        message: Warning | str, category: type[Warning], *where: Any, **named: Any
    ) -> None:
        if is_first and (str(message), category) not in shown:
            shown.add((str(message), category))
            show(message, category, *where, **named)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning, append=True)
        warnings.showwarning = show_once
        yield


def _path(context: click.Context | None) -> str:
    """The command that runs, such as ``outerconv train``."""
    command = None if context is None else context.invoked_subcommand
    return f"outerconv {command or ''}".rstrip()


def _refuse(path: str, message: str) -> int:
    print(f"{path}: error: {' '.join(message.split())}", file=sys.stderr)
    return REFUSED


def _usage(error: click.UsageError) -> str:
    """What click says of an error, and where an option of a family is written."""
    message = error.format_message().rstrip(".")
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return message
    if "--family" not in (flag for one in error.ctx.command.params for flag in one.opts):
        return message
    return f'{message}; options of a family are written in its text: --family "walk(length=3)"'


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out, on a CPU or on a GPU."""
    import torch

    kinds = (MemoryError, torch.cuda.OutOfMemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)
