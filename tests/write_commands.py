"""``python tests/write_commands.py`` writes docs/commands.md, of what the commands declare."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import click

from pyg_outerconv.lab.cli import outerconv
from pyg_outerconv.lab.cli.options import RUN, Sectioned
from pyg_outerconv.lab.fields import explained

FILE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
HEAD = """# Commands

What `outerconv NAME --help` says, of every command. Options of training are settings: a TOML file
for `--config`, a table of results, `winner.toml` of a search and `train.Settings` in Python take
them by the names of the second column. Written by `python tests/write_commands.py`.
"""
TABLE = "| option | setting | value | meaning |\n|---|---|---|---|\n"


def page() -> str:
    """A section for each command: its usage, what it does, and its options."""
    return HEAD + "".join(map(section, outerconv.commands.values()))


def section(command: click.Command) -> str:
    """What one command takes, as its fields say it."""
    assert isinstance(command, Sectioned)
    words = [one.make_metavar(click.Context(command)) for one in arguments(command)]
    usage = " ".join(["outerconv", str(command.name), *words])
    said = escaped(inspect.cleandoc(command.help or ""))
    text = f"\n## outerconv {command.name}\n\nUsage: `{usage}`.\n\n{said}\n"
    tables: dict[str, list[str]] = {}
    for title, row in options(command):
        tables.setdefault(title, []).append(row)
    for title, rows in tables.items():
        head = f"\n{title}:\n" if len(tables) > 1 else ""
        text += f"{head}\n{TABLE}{''.join(rows)}"
    return text


def arguments(command: click.Command) -> list[click.Parameter]:
    return [one for one in command.params if isinstance(one, click.Argument)]


def options(command: Sectioned) -> Iterator[tuple[str, str]]:
    """The section of each option, and its row."""
    by_name = {one.name: one for one in command.params}
    for some in command.kinds:
        taken = some.taken
        for one in fields(some.kind):
            option = by_name.get(some.key(one))
            if one not in taken or not isinstance(option, click.Option):
                continue
            flags = " / ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
            bounds = (f"{sign} {bound:,}" for sign, bound in one.metadata["bounds"].items())
            kind = str(one.type).partition(" | ")[0].removeprefix("tuple[").partition(",")[0]
            value = ", ".join([kind, *bounds])
            cells = flags, f"`{one.name}`", value, option.help or explained(one)
            yield getattr(option, "section", RUN), f"| {' | '.join(map(escaped, cells))} |\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: a word after < would begin a tag."""
    return re.sub(r"<(?=\w)", "&lt;", text.replace("|", "\\|"))


def main() -> None:
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
