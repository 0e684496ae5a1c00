"""Registration by definition: files of a folder are imported, and what is in them registers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import import_module
from pkgutil import iter_modules


def import_files(package: str, path: Iterable[str], but: Collection[str] = ()) -> None:
    """Import the files of a package, so that what stands in them is known by name.

    Args:
        package: its name.
        path: its ``__path__``.
        but: names of files to leave alone.
    """
    for file in iter_modules(path, f"{package}."):
        if not file.ispkg and file.name.rpartition(".")[2] not in but:
            import_module(file.name)
