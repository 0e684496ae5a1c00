"""What pictures need beside the core install."""

from __future__ import annotations

import importlib.util

from ..errors import RefusedValue


def check_matplotlib() -> None:
    """Refuse to draw where matplotlib is not installed.

    Raises:
        ValueError: naming the extra that brings it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RefusedValue(
            "pictures need matplotlib, not installed here: pip install 'pyg_outerconv[plot]'"
        )
