"""Which backend serves a call, and which one did."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import RefusedValue, unknown
from .backend import BACKENDS, Backend, Request

ENVIRONMENT_VARIABLE = "PYG_OUTERCONV_BACKEND"
# Read once: every call asks, and to look into the environment takes as long as a small product.
OF_PROCESS = os.environ.get(ENVIRONMENT_VARIABLE) or None

# The backends that were chosen, by all that they choose by; see :meth:`Backend.why_not`.
CHOSEN: dict[tuple[object, ...], str] = {}

# The innermost ``use_backend`` of each thread. Autograd's own threads need not see it: a backward
# pass uses the backend of its forward pass.
_forced = threading.local()
# A plain list, which autograd's own threads see.
RECORDERS: list[list[Call]] = []


@dataclass(frozen=True)
class Call:
    """A primitive that ran, the backend that ran it, and its request."""

    primitive: str
    backend: str
    request: Request


def get_backend(name: str) -> Backend:
    """The backend of that name.

    Raises:
        ValueError: no backend has that name, or something that it needs is missing here.
    """
    if name not in BACKENDS:
        raise RefusedValue(unknown("backend", name, BACKENDS))
    backend = BACKENDS[name]
    if missing := backend.missing():
        raise RefusedValue(f"backend {name!r} cannot run here: {'; '.join(missing)}")
    return backend


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Serve every call in the block with the backend of that name, or refuse it.

    The environment variable ``PYG_OUTERCONV_BACKEND``, which is read when the package is imported,
    does the same for a process.

    Raises:
        ValueError: the name is unknown, or what the backend needs is missing.
    """
    get_backend(name)
    before, _forced.name = getattr(_forced, "name", None), name
    try:
        yield
    finally:
        _forced.name = before


@contextmanager
def record() -> Iterator[list[Call]]:
    """Collect every primitive that runs in the block, backward passes included."""
    calls: list[Call] = []
    RECORDERS.append(calls)
    try:
        yield calls
    finally:
        # By identity: two empty lists are equal.
        RECORDERS[:] = [recorder for recorder in RECORDERS if recorder is not calls]


def log_call(backend: Backend, request: Request) -> None:
    """Tell the active recorders that ``backend`` served ``request``."""
    for recorder in list(RECORDERS):
        recorder.append(Call(request.primitive, backend.name, request))


def recording() -> bool:
    """Whether somebody wants to hear of calls."""
    return bool(RECORDERS)


def forced() -> str | None:
    """The name that this thread's ``use_backend``, or else the environment variable, asks for."""
    return getattr(_forced, "name", None) or OF_PROCESS


def by_priority() -> list[Backend]:
    """The backends, those that are tried first at the front."""
    return sorted(BACKENDS.values(), key=lambda backend: (-backend.priority, backend.name))


def choose(request: Request) -> Backend:
    """The backend that serves ``request``: the forced one, else the first by priority that can.

    Raises:
        ValueError: the forced backend refuses, or no backend can serve the request; the message
            lists every backend's reasons.
    """
    if wanted := forced():
        backend = get_backend(wanted)
        if reasons := backend.why_not(request):
            raise RefusedValue(f"backend {wanted!r} cannot serve {request}: {'; '.join(reasons)}")
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
