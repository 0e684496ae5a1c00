"""Registration by definition: files of a folder are imported, and what is in them registers."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pkgutil import walk_packages


def import_files(package: str, path: Iterable[str]) -> None:
    """Import every file below a package, so that what stands in them is known by name.

    Args:
        package: its name.
        path: its ``__path__``.
    """
    for file in walk_packages(path, f"{package}."):
        import_module(file.name)
