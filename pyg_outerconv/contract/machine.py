"""The speed of a machine, as the cost model needs it: built in, or measured once and kept."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from ..errors import RefusedValue, refusal
from ..places import cache_folder

FORMAT = 1

Table = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Constants:
    """How fast a device is in one floating point type.

    Attributes:
        dense_flops: of products with tall matrices, a second.
        gather: pairs (bytes of an operand, seconds to read one of its bytes through an index),
            ascending; between them the logarithm of the size interpolates.
        move: pairs (bytes of an intermediate result, seconds to allocate, write and read one of its
            bytes), likewise.
        call_seconds: of calling a primitive, whatever its size.
        group_seconds: of each separate small product in a grouped one.
        source: 'built in', or 'measured'.
    """

    dense_flops: float
    gather: Table
    move: Table
    call_seconds: float
    group_seconds: float
    source: str = "built in"

    def gathering(self, operand: float) -> float:
        """Seconds to read a byte through an index from an operand of that many bytes."""
        return _between(self.gather, operand)

    def moving(self, whole: float) -> float:
        """Seconds to make a byte of an intermediate result of that many bytes."""
        return _between(self.move, whole)


def _between(table: Table, size: float) -> float:
    below = table[0]
    if size <= below[0]:
        return below[1]
    for above in table[1:]:
        if size <= above[0]:
            share = math.log(size / below[0]) / math.log(above[0] / below[0])
            return below[1] + share * (above[1] - below[1])
        below = above
    return below[1]


# Orders of magnitude, good enough to choose by where nothing was measured: a desktop processor,
# and a large GPU. In float32.
_BUILT_IN = {
    "cpu": Constants(
        dense_flops=1.0e11,
        gather=((1e6, 1.2e-11), (8e6, 2.5e-11), (32e6, 6e-11), (256e6, 1.5e-10)),
        move=((16e6, 5e-11), (64e6, 4e-10)),
        call_seconds=5e-5,
        group_seconds=1e-5,
    ),
    "cuda": Constants(
        dense_flops=3.0e13,
        gather=((4e7, 3e-13), (1e9, 8e-13)),
        move=((4e7, 7e-13), (1e9, 7e-13)),
        call_seconds=3e-5,
        group_seconds=1e-5,
    ),
}

_measured: dict[str, Constants] = {}


def key_of(device: str, dtype: torch.dtype) -> str:
    """What constants of a device type and a floating point type are kept under."""
    return f"{device} {str(dtype).removeprefix('torch.')}"


def constants(device: str, dtype: torch.dtype) -> Constants:
    """Those of this machine: measured ones if there are any, else the built-in ones."""
    known = _measured.get(key_of(device, dtype)) or _measured.get(key_of(device, torch.float32))
    return known or _BUILT_IN.get(device) or _BUILT_IN["cuda"]


def constants_file() -> Path:
    """Where measured constants are kept."""
    return cache_folder() / "constants.json"


def keep(device: str, dtype: torch.dtype, found: Constants) -> Path:
    """Use ``found`` from now on, and write it down for other processes.

    Raises:
        ValueError: the file cannot be written.
    """
    _measured[key_of(device, dtype)] = found
    path = constants_file()
    content = {
        "format": FORMAT,
        "torch": torch.__version__,
        "constants": {key: asdict(value) for key, value in _measured.items()},
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    except OSError as error:
        raise RefusedValue(
            refusal("measured constants are kept in a file", f"{path} to be writable", error)
        ) from error
    return path


def read() -> None:
    """Take up what was kept. A file that cannot be understood is left alone, with a warning."""
    path = constants_file()
    if not path.is_file():
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']}")
        for key, value in content["constants"].items():
            gather, move = (_table(value.pop(name)) for name in ("gather", "move"))
            _measured[key] = Constants(gather=gather, move=move, **value)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        warnings.warn(
            f"the constants in {path} are not used ({type(error).__name__}: {error}); "
            "'outerconv calibrate' measures them anew",
            stacklevel=2,
        )


def _table(rows: list[list[float]]) -> Table:
    return tuple((float(size), float(rate)) for size, rate in rows)


read()
