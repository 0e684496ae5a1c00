"""Where data is looked for, and where what is made of it is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .files import as_path

ROOT_VARIABLE = "PYG_OUTERCONV_DATA"
CACHE_VARIABLE = "PYG_OUTERCONV_CACHE"


def data_root(root: str | Path | None = None) -> Path:
    """Where data is: the given folder, else ``PYG_OUTERCONV_DATA``, else a user cache folder."""
    if root:
        return as_path(root, "the root of data").resolve()
    if chosen := os.environ.get(ROOT_VARIABLE):
        return as_path(chosen, ROOT_VARIABLE).resolve()
    return cache_folder() / "data"


def cache_folder() -> Path:
    """``PYG_OUTERCONV_CACHE``, else the platform's folder for what can be made again."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return as_path(chosen, CACHE_VARIABLE).resolve()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyg_outerconv"
