"""Tensors for features between layers, in memory or in files that vanish with them."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import RefusedValue
from ..files import reserve
from ..signatures import typed


class Scratch:
    """Allocates tensors in memory, or mapped to files of a folder.

    A mapped file has no name once it is open, so that its space is free again when the tensor goes,
    or when the process is killed.

    Args:
        folder: an existing folder for the files; None for memory.
    """

    @typed
    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = folder

    def empty(self, *shape: int, like: Tensor) -> Tensor:
        """A tensor of this shape, of the dtype of ``like``; in memory on its device.

        Raises:
            ValueError: the disk is full, or the folder cannot be written.
        """
        if self.folder is None or not math.prod(shape):
            return torch.empty(shape, dtype=like.dtype, device=like.device)
        kind = torch.empty(0, dtype=like.dtype).numpy().dtype
        try:
            number, path = tempfile.mkstemp(prefix="outerconv-", dir=self.folder)
            try:
                with os.fdopen(number, "r+b") as file:
                    reserve(file, kind.itemsize * math.prod(shape))
                    return torch.from_numpy(np.memmap(file, kind, "r+", shape=shape))
            finally:
                os.unlink(path)
        except OSError as error:
            rule = "features between layers are written to files"
            raise RefusedValue(rule, f"a folder with space at {self.folder}", error) from error
