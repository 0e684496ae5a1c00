"""The optional dependency of pictures."""

from __future__ import annotations

import importlib.util

from ..errors import RefusedValue


def check_matplotlib() -> None:
    """Refuse to draw if matplotlib is not installed.

    Raises:
        ValueError: matplotlib is missing; the message names the extra that installs it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RefusedValue(
            "pictures need matplotlib, not installed here: pip install 'pyg_outerconv[plot]'"
        )
