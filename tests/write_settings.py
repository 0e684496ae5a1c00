"""``python tests/write_settings.py`` writes the table of settings in docs/train.md."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from pyg_outerconv.lab.fields import explained, flag_of
from pyg_outerconv.lab.settings import Settings

FILE = Path(__file__).resolve().parents[1] / "docs" / "train.md"
HEAD = "| setting | option | value | meaning |\n|---|---|---|---|\n"


def table() -> str:
    """A row for each setting that is an option, made from its field."""
    rows = []
    for one in fields(Settings):
        if one.metadata.get("help"):
            bounds = (f"{sign} {bound:,}" for sign, bound in one.metadata["bounds"].items())
            value = ", ".join([str(one.type), *bounds])
            rows.append(f"| `{one.name}` | `{flag_of(one)}` | {value} | {explained(one)} |\n")
    return HEAD + "".join(rows)


def main() -> None:
    page = FILE.read_text(encoding="utf-8")
    known = re.compile(re.escape(HEAD) + r"(\|.*\n)*")
    assert known.search(page), f"{FILE} has no table of settings"
    FILE.write_text(known.sub(lambda found: table(), page), encoding="utf-8")


if __name__ == "__main__":
    main()
