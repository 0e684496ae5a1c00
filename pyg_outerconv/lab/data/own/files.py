"""Reading files that a user named."""

from __future__ import annotations

from pathlib import Path

from ....errors import RefusedValue
from ....files import read_bytes


def content_of(path: Path) -> bytes:
    """The content of a file.

    Raises:
        ValueError: it cannot be read, or is empty.
    """
    try:
        content = read_bytes(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedValue(f"{path} must be readable", "a file", reason) from error
    if not content:
        raise RefusedValue(f"{path} must have content", "a table or arrays", "an empty file")
    return content
