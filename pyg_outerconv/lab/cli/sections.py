"""A command whose help has its options in sections."""

from __future__ import annotations

from typing import Any

import click


class Sectioned(click.Command):
    """A command with a title above some of its options in the help.

    Args:
        sections: the first option of each section, and the title of the section. What stands before
            the first of these has click's own title.
    """

    def __init__(self, *args: Any, sections: dict[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.sections = sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section with its title."""
        title, rows = "Options", list[tuple[str, str]]()
        for parameter in self.get_params(ctx):
            if (first := self.sections.get(parameter.opts[0])) is not None:
                self._write(formatter, title, rows)
                title, rows = first, []
            if isinstance(parameter, click.Option) and (row := parameter.get_help_record(ctx)):
                rows.append(row)
        self._write(formatter, title, rows)

    @staticmethod
    def _write(formatter: click.HelpFormatter, title: str, rows: list[tuple[str, str]]) -> None:
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
