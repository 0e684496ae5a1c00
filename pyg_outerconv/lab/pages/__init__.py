"""Pages from templates: HTML that loads nothing from outside, with its figures; and Markdown."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def render_page(template: Path, filters: dict[str, Any] | None = None, **values: Any) -> str:
    """The page of a template, which may use ``macros.html`` and ``page.css`` of this folder.

    In HTML text is escaped; in Markdown it is not, but by ``plain`` of ``lab.train.results``.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=template.suffix == ".html",
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters or {}
    source = template.read_text(encoding="utf-8")
    return environment.from_string(source).render(**values).strip() + "\n"


# Drawn in this colour, and then left to the page, so that it reads in light and in dark.
INK = "#010203"
COLOURS = ("#3b7dd8", "#d9822b", "#4c9f70", "#b5567a", "#8a6fc1", "#7a7a7a", "#b59f3b", "#4aa3b5")
_STYLE = {
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def svg_style(salt: str) -> Any:
    """Settings of matplotlib for a figure of a page; equal salts give equal files."""
    return {**_STYLE, "svg.hashsalt": salt}


def as_svg(figure: Figure) -> str:
    """The figure as an ``svg`` element that needs nothing from outside the page."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # In HTML the elements of an svg are known by their names alone.
    text = text.replace("xlink:href", "href").replace(INK, "currentColor")
    return text.strip()
