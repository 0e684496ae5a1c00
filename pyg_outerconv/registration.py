"""Import all files of a package, so that the classes defined in them register themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import import_module
from pkgutil import iter_modules


def import_files(package: str, path: Iterable[str], but: Collection[str] = ()) -> None:
    """Import the files of a package by its full name and ``__path__``, but not its subpackages.

    Files whose names, without ``.py``, are in ``but`` are not imported.
    """
    for file in iter_modules(path, f"{package}."):
        if not file.ispkg and file.name.rpartition(".")[2] not in but:
            import_module(file.name)
