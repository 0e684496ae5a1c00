"""Colours of values, labels and marks."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, to_hex
from numpy.typing import NDArray

NEGATIVE, ZERO, POSITIVE = "#b2182b", "#dcdcdc", "#1f5fa8"
ABSENT = "#ffffff"
LINE = "#9a9a9a"
NO_NODE = "#6b6b6b"
MARK, REACHED, QUIET = "#d9822b", "#3b7dd8", "#e4e4e4"


def value_colours(values: NDArray[np.float64]) -> tuple[Colormap, Normalize]:
    """The colour map of values: grey at zero, blue for positive and red for negative values.

    Masked values are white, to distinguish absent entries from zeros.
    """
    present = np.ma.compressed(np.ma.masked_invalid(values))
    most = float(np.abs(present).max()) if present.size else 0.0
    most = most or 1.0
    if present.size and present.min() < 0:
        colours, norm = [NEGATIVE, ZERO, POSITIVE], Normalize(-most, most)
    else:
        colours, norm = [ZERO, POSITIVE], Normalize(0, most)
    colour_map = LinearSegmentedColormap.from_list("values", colours)
    return colour_map.with_extremes(bad=ABSENT), norm


def label_colours(number: int) -> list[str]:
    """``number`` distinct colours for labels, as hexadecimal text."""
    if number <= 10:
        return [to_hex(colormaps["tab10"](place)) for place in range(number)]
    return [to_hex(colour) for colour in colormaps["turbo"](np.linspace(0.05, 0.95, number))]
