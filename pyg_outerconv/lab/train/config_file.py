"""Settings of a run as a TOML file, which ``outerconv train --config`` reads."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ...errors import RefusedType, RefusedValue, unknown
from ...files import as_path, read_bytes


def read_toml(path: str | Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ValueError: it cannot be read, or is no TOML; or Python is older than 3.11, and tomli is
            not installed.
    """
    place = as_path(path, "a configuration")
    try:
        text = read_bytes(place).decode()
    except OSError as error:
        raise RefusedValue(f"{place} must be readable", "a TOML file", error.strerror) from error
    except UnicodeDecodeError as error:
        raise RefusedValue(f"{place} must be TOML", "text in UTF-8", error) from error
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib
        except ModuleNotFoundError as error:
            raise RefusedValue(
                "TOML is read with tomli, not installed here: pip install 'pyg_outerconv[train]'"
            ) from error
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # no TOML, a number too long, nested too deep
        raise RefusedValue(f"{place} must be TOML", "such as: depth = 2", error) from error


def read_settings(path: str | Path, known: dict[str, str]) -> dict[str, Any]:
    """The settings in a TOML file: names and plain values.

    Args:
        path: of the file.
        known: the type of each setting by its name.

    Raises:
        ValueError: the file cannot be read, or has a name that is no setting.
        TypeError: a value is no text, number or switch, as the setting is.
    """
    content = read_toml(path)
    for name, value in content.items():
        if name not in known:
            raise RefusedValue(f"{path}: {unknown('setting', name, known)}")
        if not isinstance(value, str if known[name] == "str" else int | float):  # bool is an int
            raise RefusedType(f"{path}: {name} has a type", known[name], type(value).__name__)
    return content


def write_toml(values: dict[str, Any], remark: str = "") -> str:
    """Names and plain values as TOML, below a remark.

    >>> print(write_toml({"family": "gcn", "lr": 0.01, "peer": False}, "two layers"), end="")
    # two layers
    family = "gcn"
    lr = 0.01
    peer = false
    """
    lines = [f"# {line}".rstrip() for line in remark.splitlines()]
    return (
        "\n".join([*lines, *(f"{name} = {_said(value)}" for name, value in values.items())]) + "\n"
    )


def _said(value: Any) -> str:
    """Text, numbers and switches are written in TOML as in JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
