"""Figures without a display, limits on their size, and writing them to files."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..errors import RefusedValue, refusal, unknown

FORMATS = ("png", "svg")
DPI = 120
MAX_ENTRIES = 2_000_000  # each entry takes at least one pixel
MAX_SIDE = 1_500
_SMALLEST_PANEL = 2.1  # inches


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of the given size in inches, independent of pyplot's state."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=DPI)
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

    Raises:
        ValueError: there are more than ``MAX_ENTRIES`` entries, or a side exceeds ``MAX_SIDE``.
    """
    if entries > MAX_ENTRIES:
        raise RefusedValue(
            refusal(f"a picture has a limit of {what}", f"<= {MAX_ENTRIES}", f"{entries}; {advice}")
        )
    if max(sides, default=0) > MAX_SIDE:
        raise RefusedValue(
            refusal(
                "a panel has a limit of rows and of columns",
                f"<= {MAX_SIDE}",
                f"{max(sides)}; {advice}",
            )
        )


def check_format(path: str | Path) -> str:
    """The format of a file by its extension, 'png' or 'svg'.

    Raises:
        ValueError: the extension is neither PNG nor SVG.
    """
    extension = Path(path).suffix.removeprefix(".")
    if extension.lower() not in FORMATS:
        raise RefusedValue(unknown("extension of a picture", extension, FORMATS))
    return extension.lower()


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG or SVG, by the extension; reproducible byte by byte.

    Raises:
        ValueError: the extension is another one, or the file cannot be written.
    """
    kind = check_format(path)
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    with rc_context({"svg.hashsalt": "outerconv", "svg.fonttype": "none"}):
        try:
            figure.savefig(path, format=kind, dpi=DPI, metadata=metadata)
        except OSError as error:
            raise RefusedValue(
                refusal(
                    "a picture is written to a file", "a writable path", f"{path}: {error.strerror}"
                )
            ) from error
