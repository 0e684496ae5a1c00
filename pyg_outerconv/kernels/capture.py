"""CUDA graphs and streams: whether work is being captured, and which stream it is put on.

While the work of a stream is captured as a graph nothing runs: numbers cannot be read, and what a
call makes has no numbers before the graph is replayed. So values are not checked then and nothing
is cached; what was cached before is used, and kept (:mod:`pyg_outerconv.memo`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import RefusedValue


def _is_capturing() -> bool:
    # Asked in this order: compilers trace none of it, and a forked process must not ask the device.
    if torch.compiler.is_compiling() or not torch.cuda.is_initialized():
        return False
    return torch.cuda.is_current_stream_capturing()


HAS_CUDA = torch.backends.cuda.is_built()
"""Whether torch knows of CUDA."""

# Without CUDA a builtin that says no, for it is asked wherever something is stored.
is_capturing: Callable[[], bool] = _is_capturing if HAS_CUDA else bool
"""Whether the current CUDA stream is captured; it asks no device where none is in use."""


def unsafe_to_capture() -> dict[str, Any]:
    """Options of an operator of torch that reads numbers, so that compilers capture none of it."""
    tag = getattr(torch.Tag, "cudagraph_unsafe", None)  # which older versions of torch lack
    return {} if tag is None else {"tags": (tag,)}


def refuse_captured(tensor: Tensor, what: str) -> None:
    """Refuse to count ``what`` while a CUDA graph is captured, which waiting would break."""
    if tensor.is_cuda and is_capturing():
        raise RefusedValue(
            f"{what} are not counted while a CUDA graph is captured",
            "a call over the same edges before, whose basis is kept (not with cached=False)",
            "edges that no layer has seen",
        )


def stream_on(device: torch.device | None) -> int:
    """A number for the current stream of a CUDA device, by default the current one; 0 without.

    A compiler has none.
    """
    if torch.compiler.is_compiling() or (device is None and not torch.cuda.is_initialized()):
        return 0
    return torch.cuda.current_stream(device).cuda_stream
