"""HTML pages that load nothing from outside: their templates share macros and a style."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render_page(template: Path, filters: dict[str, Any] | None = None, **values: Any) -> str:
    """The page of a template, which may use ``macros.html`` and ``page.css`` of this folder."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters or {}
    source = template.read_text(encoding="utf-8")
    return environment.from_string(source).render(**values).lstrip() + "\n"
