"""The folder of the data and the cache folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .files import as_path

ROOT_VARIABLE = "PYG_OUTERCONV_DATA"
CACHE_VARIABLE = "PYG_OUTERCONV_CACHE"


def data_root(root: str | Path | None = None) -> Path:
    """The folder of the data: ``root``, else ``PYG_OUTERCONV_DATA``, else a user cache folder."""
    if root:
        return as_path(root, "the root of data").resolve()
    if chosen := os.environ.get(ROOT_VARIABLE):
        return as_path(chosen, ROOT_VARIABLE).resolve()
    return cache_folder() / "data"


def cache_folder() -> Path:
    """The cache folder: ``PYG_OUTERCONV_CACHE``, else the cache folder of the platform."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return as_path(chosen, CACHE_VARIABLE).resolve()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "pyg_outerconv"
