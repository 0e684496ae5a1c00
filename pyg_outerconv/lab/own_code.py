"""Families and scores of one's own: modules that commands import, which register themselves."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import RefusedValue

_imported: dict[str, ModuleType] = {}


def import_own(names: Sequence[str]) -> None:
    """Import modules, whose families, scores and normalisers then have names in text."""
    for name in names:
        if name in _imported:
            continue
        tables = _tables()
        before = [dict(table) for table in tables]
        try:
            is_file = name.endswith(".py") or os.sep in name
            module = _file(name) if is_file else _module(name)
            _refuse_taken(name, tables, before)
        except BaseException:
            for table, snapshot in zip(tables, before, strict=True):
                table.clear()
                table.update(snapshot)
            raise
        _imported[name] = module


def imported() -> str:
    """The names that were imported, with commas between them, as a run's settings hold them."""
    return ",".join(_imported)


def flags_for(names: str) -> list[str]:
    """The words of a command line that import these modules."""
    return [word for name in names.split(",") if name for word in ("--import", name)]


def require_imported(names: str) -> None:
    """Refuse to go on without the modules that a run was made with.

    A run folder says their names, and code is imported from nowhere but by the user's word.
    """
    imported_names = {Path(name).name for name in _imported}
    lacking = [name for name in names.split(",") if name and Path(name).name not in imported_names]
    if lacking:
        flags = shlex.join(flags_for(",".join(lacking)))
        raise RefusedValue("the run was made with code of its own", flags, "no such option")


def _file(name: str) -> ModuleType:
    path = Path(name).expanduser().resolve()
    if not path.is_file():
        raise RefusedValue("--import is a module or a file of Python code", "a file", name)
    imported_module = sys.modules.get(path.stem)
    if imported_module is not None:
        if getattr(imported_module, "__file__", None) == str(path):
            return imported_module
        rule = f"a file for --import has a name that no other module has, such as my_{path.name}"
        raise RefusedValue(rule, "another name", f"{name}, and {path.stem} is imported already")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RefusedValue("--import is a module or a file of Python code", "a file .py", name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for the names in type hints
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.stem]
        raise _failed(name, error) from error
    return module


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            expected = "a module of Python's path or of this folder, or a file .py"
            raise RefusedValue("--import is a module that can be found", expected, name) from error
        raise _failed(name, error) from error
    except Exception as error:
        raise _failed(name, error) from error
    finally:
        sys.path.remove(here)


def _failed(name: str, error: Exception) -> RefusedValue:
    """The refusal of code that raises an error, with its last line."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else name
    if isinstance(error, SyntaxError) and error.lineno is not None:
        place = f"{Path(error.filename or name).name}, line {error.lineno}"
    got = f"{type(error).__name__}: {error} ({place})"
    return RefusedValue(f"the code of --import {name} must run", "no error", got)


def _tables() -> list[dict[str, Any]]:
    """What families, scores and normalisers register themselves in."""
    from ..attention import NORMALISERS, SCORES
    from ..families import FAMILIES

    return [FAMILIES, SCORES, NORMALISERS]  # type: ignore[list-item]


def _refuse_taken(name: str, tables: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    for table, snapshot in zip(tables, before, strict=True):
        for key, old in snapshot.items():
            if table[key] is not old and table[key].__module__ != old.__module__:
                rule = f"what --import {name} defines has a name of its own"
                got = f"{key!r}, which {old.__module__} defines"
                raise RefusedValue(rule, "another name", got)
