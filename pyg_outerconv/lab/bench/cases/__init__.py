"""The cases, one file a group. Importing a file registers its cases."""

from __future__ import annotations

import importlib

FILES = "layers attention epochs density orders grid small"


def register_all() -> None:
    """Register the cases of every file, once."""
    for file in FILES.split():
        importlib.import_module(f".{file}", __name__)
