"""Figures of pages: SVG that needs nothing from outside, and reads in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from ...plot.canvas import new_figure, rendered

INK = "#010203"  # drawn in this colour, and then left to the page
COLOURS = ("#3b7dd8", "#d9822b", "#4c9f70", "#b5567a", "#8a6fc1", "#7a7a7a", "#b59f3b", "#4aa3b5")
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), INK),
    **dict.fromkeys(("xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
}


@dataclass
class Drawn:
    """A figure, and once it is drawn its ``svg`` element."""

    figure: Figure
    svg: str = ""


@contextmanager
def drawing(salt: str, width: float, height: float) -> Iterator[Drawn]:
    """A block that draws a figure of a size in inches; equal salts give equal elements."""
    with rc_context(_STYLE):
        drawn = Drawn(new_figure(width, height))
        yield drawn
        text = rendered(drawn.figure, "svg", salt, transparent=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    # In HTML the elements of an svg are known by their names alone.
    drawn.svg = text.replace("xlink:href", "href").replace(INK, "currentColor").strip()
