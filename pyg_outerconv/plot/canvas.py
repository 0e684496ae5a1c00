"""Figures without a display, limits on their size, colours, and writing figures to files."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from ..errors import RefusedValue, unknown
from ..files import write_out

FORMATS = ("png", "svg")
DPI = 120
MAX_ENTRIES = 2_000_000  # each entry takes at least one pixel
MAX_SIDE = 1_500
_SMALLEST_PANEL = 2.1  # inches
_MAX_LINES = 60  # per side; more lines would hide the cells

NEGATIVE, ZERO, POSITIVE = "#b2182b", "#dcdcdc", "#1f5fa8"
THIN = "#b3b7bd"  # of a line whose value is about zero, on white
ABSENT = "#ffffff"
LINE = "#9a9a9a"
MARK, REACHED, QUIET = "#d9822b", "#3b7dd8", "#e4e4e4"


class _PlainFigure(Figure):
    """A figure in which text is text: a ``$`` in a name begins no formula.

    Ticks of logarithmic axes alone are formulas, which matplotlib writes.
    """

    def draw(self, renderer: RendererBase) -> None:
        axes = [one for both in self.axes for one in (both.xaxis, both.yaxis)]
        powers = {
            label
            for one in axes
            if one.get_scale() == "log"
            for label in one.get_ticklabels(which="both")
        }
        for text in self.findobj(Text):
            text.set_parse_math(text in powers)
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        """What a notebook shows of a figure that is the last value of a cell."""
        return rendered(self)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of the given size in inches, independent of pyplot's state."""
    figure = _PlainFigure(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def panel_size(rows: int, columns: int) -> tuple[float, float]:
    """Width and height in inches of a panel with at least one pixel for each entry of an image."""
    longest = max(rows, columns, 1)
    long_side = max(_SMALLEST_PANEL, longest / DPI)
    # A flat image gets a flat panel, but one with room for its title and ticks.
    return max(0.5, long_side * columns / longest), max(0.5, long_side * rows / longest)


def check_entries(what: str, entries: int, sides: tuple[int, ...], advice: str) -> None:
    """Refuse an image that is too large to be legible.

    Args:
        what: the counted product, in letters, for the message.
        entries: the number of entries in all panels.
        sides: rows and columns of every panel.
        advice: how to draw a smaller picture, for the message.
    """
    if entries > MAX_ENTRIES:
        raise RefusedValue(
            f"a picture has a limit of {what}", f"<= {MAX_ENTRIES}", f"{entries}; {advice}"
        )
    if max(sides, default=0) > MAX_SIDE:
        raise RefusedValue(
            "a panel has a limit of rows and of columns",
            f"<= {MAX_SIDE}",
            f"{max(sides)}; {advice}",
        )


def check_format(path: str | Path) -> str:
    """The format of a file by its extension, 'png' or 'svg'."""
    extension = Path(path).suffix.removeprefix(".")
    if extension.lower() not in FORMATS:
        raise RefusedValue(unknown("extension of a picture", extension, FORMATS))
    return extension.lower()


def rendered(figure: Figure, kind: str = "png", salt: str = "outerconv", **options: Any) -> bytes:
    """A figure as PNG or SVG, reproducible byte by byte; equal salts give equal elements."""
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    picture = BytesIO()
    with rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(picture, format=kind, dpi=DPI, metadata=metadata, **options)
    return picture.getvalue()


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by the extension, as a whole."""
    picture = rendered(figure, check_format(path))
    try:
        write_out(Path(path), picture)
    except OSError as error:
        raise RefusedValue(
            "a picture is written to a file", "a writable path", f"{path}: {error.strerror}"
        ) from error


def value_colours(values: NDArray[np.float64], zero: str = ZERO) -> tuple[Colormap, Normalize]:
    """The colour map of values: grey at zero, blue for positive and red for negative values.

    Masked values are white, to distinguish absent entries from zeros.
    """
    present = np.ma.compressed(np.ma.masked_invalid(values))
    most = float(np.abs(present).max()) if present.size else 0.0
    most = most or 1.0
    if present.size and present.min() < 0:
        colours, norm = [NEGATIVE, zero, POSITIVE], Normalize(-most, most)
    else:
        colours, norm = [zero, POSITIVE], Normalize(0, most)
    colour_map = LinearSegmentedColormap.from_list("values", colours)
    return colour_map.with_extremes(bad=ABSENT), norm


def label_colours(number: int) -> list[str]:
    """``number`` distinct colours for labels, as hexadecimal text."""
    if number <= 10:
        return [to_hex(colormaps["tab10"](place)) for place in range(number)]
    return [to_hex(colour) for colour in colormaps["turbo"](np.linspace(0.05, 0.95, number))]


def image_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the image: the last axis runs right, all others run down."""
    return prod(shape[:-1]), shape[-1]


def lines(axes: Axes, sides: tuple[int, int], steps: tuple[int, int], width: float) -> None:
    """Draw lines every ``steps`` rows and columns of an image, unless they are too many."""
    rows, columns = sides
    if max(rows // steps[0], columns // steps[1]) > _MAX_LINES:
        return
    across = np.arange(steps[0], rows, steps[0]) - 0.5
    down = np.arange(steps[1], columns, steps[1]) - 0.5
    axes.hlines(across, -0.5, columns - 0.5, colors=LINE, linewidth=width)
    axes.vlines(down, -0.5, rows - 0.5, colors=LINE, linewidth=width)
