"""Pictures of bases by matplotlib: matrices, shifts, flattenings, receptive fields and graphs.

``basis.py`` extracts arrays from a basis for :meth:`.Basis.plot`; the other files draw arrays.
Importing this package does not import matplotlib; call :func:`check_matplotlib` before importing
the files that draw.
"""

from __future__ import annotations

import importlib.util

from ..errors import RefusedValue

__all__ = ["check_matplotlib"]


def check_matplotlib() -> None:
    """Refuse to draw if matplotlib is not installed.

    Raises:
        ValueError: matplotlib is missing; the message names the extra that installs it.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise RefusedValue(
            "pictures need matplotlib, not installed here: pip install 'pyg_outerconv[plot]'"
        )
