"""Files: read whole within bounds, replaced atomically; the folders of data and of the cache.

What is written here carries a checksum, compared before anything else is looked at, so that damage
and edits are noticed; and nothing that is read can run code. A checksum is against accidents: who
can write a file can give it another checksum too. What cannot be read or written raises OSError,
what is not as it should be ValueError.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import time
import uuid
import warnings
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from .errors import RefusedValue

LIMIT = 2**32  # bytes of one file
UNPACKED_LIMIT = 2**32  # bytes of what an archive says that it holds
ROOT_VARIABLE, CACHE_VARIABLE = "PYG_OUTERCONV_DATA", "PYG_OUTERCONV_CACHE"
STOPPED = 128  # and the number of the signal: the exit code of a process that one has stopped
_STARTED = time.time()
_ZEROS = 2**24  # bytes that are written at once

# Reading --------------------------------------------------------------------------------------


def as_path(text: str | Path, name: str) -> Path:
    """A path that a user wrote; ``~`` is a home folder."""
    if not str(text):
        raise RefusedValue(f"{name} must name a folder or a file", "a name", "an empty text")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise RefusedValue(
            f"{name} must name a folder or a file", "a home folder", str(text)
        ) from error
    if "\0" in str(path):
        raise RefusedValue(
            f"{name} must name a folder or a file", "no NUL character", repr(str(text))
        )
    return path


def read_bytes(path: Path, limit: int = LIMIT) -> bytes:
    """The content of a regular file of bounded size; a pipe is not waited for."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        file_status = os.fstat(descriptor)
        if not stat.S_ISREG(file_status.st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        if file_status.st_size > limit:
            reason = f"{file_status.st_size} bytes, and at most {limit} are read"
            raise OSError(errno.EFBIG, reason, str(path))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def open_archive(content: bytes, limit: int = UNPACKED_LIMIT) -> zipfile.ZipFile:
    """Open a zip file whose declared unpacked size is within a limit; nothing is unpacked."""
    try:
        archive = zipfile.ZipFile(BytesIO(content))
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise RefusedValue("an archive must be whole", "a zip file", error) from error
    declared = sum(member.file_size for member in archive.infolist())
    if declared > limit:
        raise RefusedValue("an archive is unpacked within a bound", f"<= {limit} bytes", declared)
    return archive


# JSON with a checksum -----------------------------------------------------------------------------

_LIST_OF_NUMBERS = re.compile(r"\[[^\[\]{}\"]+\]")  # on one line, to be read by people


def checksum(content: dict[str, Any]) -> str:
    """The sha256 of JSON's values, however they are written."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def save_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by JSON with its checksum."""
    sealed = {**content, "checksum": checksum(content)}
    text = json.dumps(sealed, indent=1, allow_nan=False) + "\n"
    text = _LIST_OF_NUMBERS.sub(lambda match: " ".join(match[0].split()), text)
    replace(path, text.encode())


def load_json(path: Path) -> dict[str, Any]:
    """Read a file of :func:`save_json`."""
    try:
        content = json.loads(read_bytes(path).decode())
        is_intact = isinstance(content, dict) and content.pop("checksum", None) == checksum(content)
    except (ValueError, RecursionError) as error:
        raise _foreign(path, "JSON", " ".join(str(error).split())) from error
    if not is_intact:
        raise _foreign(path, "the checksum of its content", "none or another: it was changed")
    return content


# Tensors with a checksum --------------------------------------------------------------------------

# A zip file ends with the length of a comment, and the comment: there the checksum is, where it
# keeps nobody from reading the file with torch.load.
_COMMENT = 64
_END = b"PK\x05\x06"
_END_SIZE = 22


def save_tensors(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by tensors and plain Python, which ``torch.load(weights_only=True)`` reads."""
    import torch

    buffer = BytesIO()
    torch.save(content, buffer)
    packed = buffer.getvalue()
    assert packed[-_END_SIZE:].startswith(_END), "torch.save writes a zip file without comment"
    digest = hashlib.sha256(packed).hexdigest().encode()
    replace(path, packed[:-2] + _COMMENT.to_bytes(2, "little") + digest)


def load_tensors(path: Path) -> dict[str, Any]:
    """Read a file of :func:`save_tensors` to the CPU; nothing in it is run."""
    import torch

    sealed = read_bytes(path)
    packed = sealed[: -_COMMENT - 2] + b"\0\0"
    if hashlib.sha256(packed).hexdigest().encode() != sealed[-_COMMENT:]:
        raise _foreign(path, "the checksum of its content", "none or another: it was changed")
    open_archive(packed).close()
    try:
        with warnings.catch_warnings():  # torch warns of foreign files that it then refuses
            warnings.simplefilter("ignore")
            content = torch.load(BytesIO(packed), map_location="cpu", weights_only=True)
    except Exception as error:  # torch's reader, and the pickle in it, fail in many ways
        reason = f"a file that torch cannot read ({type(error).__name__})"
        raise _foreign(path, "tensors and plain Python", reason) from error
    if not isinstance(content, dict):
        raise _foreign(path, "a dictionary", type(content).__name__)
    return content


def _foreign(path: Path, expected: str, got: str) -> RefusedValue:
    return RefusedValue(f"{path} must be as outerconv wrote it", expected, got)


# Writing ----------------------------------------------------------------------------------------


def replace(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees the old content or the new, the old if it fails."""
    temporary = path.with_name(temporary_name(path.name))
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def reserve(file: BinaryIO, size: int) -> None:
    """Give a file a size, and take its space on the disk, before it is mapped.

    A mapped file without its space has none to ask for: what is written to it on a full disk kills
    the process.
    """
    if size >= 2**63:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for start in range(file.seek(0, os.SEEK_END), size, _ZEROS):
        file.write(bytes(min(_ZEROS, size - start)))
    file.flush()


def write_out(path: Path, content: bytes) -> None:
    """Write what a user asked for: a regular file is replaced as a whole, through links.

    Anything else, such as ``/dev/stdout``, is written to.
    """
    if path.is_file() or not path.exists():
        replace(path.resolve(), content)
    else:
        path.write_bytes(content)


def leftovers(folder: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Temporary files of :func:`replace`, of killed processes or of those that write now.

    Args:
        folder: where to look.
        names: of the files that were to be replaced; None for all.
    """
    name_pattern = ".+" if names is None else "|".join(map(re.escape, names))
    temporary = re.compile(rf"\.({name_pattern})\.\d+(\.\w+)?")
    return [path for path in folder.iterdir() if temporary.fullmatch(path.name)]


def is_gone(temporary: Path) -> bool:
    """Whether the process that wrote a temporary file, whose number is in its name, has ended."""
    (number,) = re.findall(r"\.(\d+)(?:\.\w+)?$", temporary.name)
    if int(number) == os.getpid():  # or was written by another one that had this number before
        return temporary.stat().st_mtime < _STARTED
    if os.name == "nt":  # where signal 0 is none, and files in use cannot be removed
        return True
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False
    return False


def sweep(folder: Path, names: Iterable[str] | None = None) -> None:
    """Remove the :func:`leftovers` of ended processes, as far as they can be removed."""
    for path in leftovers(folder, names):
        with suppress(OSError):
            if not is_gone(path):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def silence(stream: TextIO) -> None:
    """Discard all further output of a stream whose reader, such as ``head``, has left."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def temporary_name(name: str) -> str:
    """The name of a temporary file for a file, with the number of this process."""
    return f".{name}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


# Folders ------------------------------------------------------------------------------------------


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
