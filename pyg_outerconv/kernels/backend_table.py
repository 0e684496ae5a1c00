"""The backends and their abilities, as a table of text."""

from __future__ import annotations

from itertools import zip_longest

import torch

from .backend import Backend
from .dispatch import by_priority

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
                ["yes" if backend.deterministic else "no"],
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
