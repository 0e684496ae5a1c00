"""The choice of a backend for a call, records of calls, and the backends as a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from ..errors import RefusedValue
from ..signatures import typed
from . import mode
from .backend import BACKENDS, CHOSEN, Backend, Request
from .csr import CSR

# Shared by all threads, so that calls in the threads of autograd are recorded too.
RECORDERS: list[list[Call]] = []


@dataclass(frozen=True)
class Call:
    """A call of a primitive: its name, the name of the backend, and the request."""

    primitive: str
    backend: str
    request: Request


@typed
def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        ValueError: no backend has that name, or a package that it needs is not installed.
    """
    backend = BACKENDS.require(name)
    if missing := backend.missing():
        raise RefusedValue(f"backend {name!r} cannot run here: {'; '.join(missing)}")
    return backend


@typed
@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Serve every call in the block with the backend of that name; calls it cannot serve raise.

    The environment variable ``PYG_OUTERCONV_BACKEND``, read when the package is imported, does the
    same for a process.

    Raises:
        ValueError: no backend has that name, or a package that it needs is not installed.
    """
    get_backend(name)
    before, mode.asked.backend = getattr(mode.asked, "backend", None), name
    try:
        yield
    finally:
        mode.asked.backend = before


@contextmanager
def record() -> Iterator[list[Call]]:
    """Record the calls of primitives in the block, including those of backward passes."""
    calls: list[Call] = []
    RECORDERS.append(calls)
    try:
        yield calls
    finally:
        # Remove by identity, for two empty lists are equal.
        RECORDERS[:] = [recorder for recorder in RECORDERS if recorder is not calls]


def log_call(backend: Backend, request: Request) -> None:
    """Add a call to all active records."""
    for recorder in list(RECORDERS):
        recorder.append(Call(request.primitive, backend.name, request))


def forced() -> str | None:
    """The backend named by this thread's ``use_backend``, else by the environment variable."""
    return getattr(mode.asked, "backend", None) or mode.BACKEND_OF_PROCESS


def by_priority() -> list[Backend]:
    """The backends in the order in which they are tried."""
    return sorted(BACKENDS.values(), key=lambda backend: (-backend.priority, backend.name))


def choose(request: Request) -> Backend:
    """The backend for a request: the one asked for by name, else the first by priority that can."""
    if name := forced():
        backend = get_backend(name)
        if reasons := backend.why_not(request):
            raise RefusedValue(f"backend {name!r} cannot serve {request}: {'; '.join(reasons)}")
        return backend
    refusals = []
    for backend in by_priority():
        reasons = backend.why_not(request)
        if backend.priority <= 0:
            reasons.append("runs only when asked for by name")
        if not reasons:
            return backend
        refusals.append(f"{backend.name}: {'; '.join(reasons)}")
    raise RefusedValue(f"no backend serves {request}\n  " + "\n  ".join(refusals))


def request_of(
    primitive: str, ptr: Tensor, index: Tensor, num_cols: int, x: Tensor, reduction: str = "sum"
) -> Request:
    """The :class:`Request` of a call with an operand ``x`` (rows, H, channels) or (rows, H)."""
    heads, channels = (*x.shape[1:], 1)[:2]
    shape = (ptr.numel() - 1, num_cols)
    kinds = x.device.type, x.dtype, index.dtype
    return Request(primitive, *kinds, shape, index.numel(), channels, heads, reduction)


def pick(primitive: str, csr: CSR, x: Tensor, reduction: str = "sum") -> str:
    """The name of the backend that :func:`choose` chooses for a call; choices are cached.

    It is asked for before autograd, so that the backward pass takes the same one.
    """
    asked = getattr(mode.asked, "backend", None) or mode.BACKEND_OF_PROCESS
    key = (primitive, x.device.type, x.dtype, csr.index.dtype, reduction, asked)
    if torch.compiler.is_compiling():
        return _constant_choice(*key)  # type: ignore[no-any-return]
    name = CHOSEN.get(key)
    if name is None:
        ptr, index = csr.ptr, csr.index
        request = request_of(primitive, ptr, index, csr.shape[1], x, reduction)
        name = CHOSEN[key] = choose(request).name
    return name


# A compiler would guard on the cached choices, and compile each model a second time.
@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant_choice(
    primitive: str,
    device: str,
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    reduction: str,
    asked: str | None,
) -> str:
    """:func:`pick` for traced calls, whose sizes are not known; none of the reasons reads them."""
    key = (primitive, device, dtype, index_dtype, reduction, asked)
    if key not in CHOSEN:
        CHOSEN[key] = choose(Request(*key[:4], (1, 1), 1, 1, reduction=reduction)).name
    return CHOSEN[key]


# Backends as a table -----------------------------------------------------------------------------


_HEAD = (
    "backend",
    "state",
    "picked",
    "devices",
    "dtypes",
    "primitives",
    "reductions",
    "deterministic",
    "tolerance",
)


def backends() -> str:
    """A table of the backends, followed by the reasons why some of them cannot run here.

    The state of a backend is 'here', 'missing' (a package has to be installed), or 'no device'. The
    tolerance is the largest difference from the backend ``reference`` in float32, relative to the
    largest entry of the result.
    """
    rows: list[tuple[list[str], ...]] = [tuple([word] for word in _HEAD)]
    notes = []
    for backend in by_priority():
        state, reasons = _state(backend)
        notes += [f"{backend.name}: {note}" for note in (*reasons, *backend.remarks())]
        rows.append(
            (
                [backend.name],
                [state],
                ["automatic" if backend.priority > 0 else "by name"],
                sorted(backend.devices),
                sorted(str(dtype).removeprefix("torch.") for dtype in backend.dtypes),
                sorted(backend.primitives),
                sorted(backend.reductions),
                sorted(backend.deterministic),
                [f"{backend.tolerance:g}"],
            )
        )
    widths = [
        max(len(line) for row in rows for line in row[column]) for column in range(len(_HEAD))
    ]
    blocks = []
    for row in rows:
        lines = zip_longest(*row, fillvalue="")
        blocks.append(
            "\n".join(
                "  ".join(
                    cell.ljust(width) for cell, width in zip(line, widths, strict=True)
                ).rstrip()
                for line in lines
            )
        )
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def _state(backend: Backend) -> tuple[str, list[str]]:
    """The state of a backend, and the reasons why it cannot run; none where it can."""
    if missing := backend.missing():
        return "missing", missing
    if not any(_is_here(device) for device in backend.devices):
        return "no device", [f"there is no {' or '.join(sorted(backend.devices))} device here"]
    return "here", []


def _is_here(device: str) -> bool:
    """Whether this machine has a device of the type 'cpu', 'cuda', 'mps' or 'xpu'."""
    module = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}.get(device)
    return device == "cpu" or (module is not None and bool(module.is_available()))
