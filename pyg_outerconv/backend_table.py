"""What is there, for people: the backends as a table."""

from __future__ import annotations

from itertools import zip_longest

import torch

from .kernels.backend import Backend
from .kernels.dispatch import by_priority

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
    """A table of the backends: what each can do, and below it why the rest is not to be had here.

    State is 'here', 'missing' (something has to be installed), or 'no device'. Tolerance is against
    ``reference`` in float32, relative to the largest entry.
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
    """One word, and why."""
    if missing := backend.missing():
        return "missing", missing
    if not any(_is_here(device) for device in backend.devices):
        return "no device", [f"there is no {' or '.join(sorted(backend.devices))} device here"]
    return "here", []


def _is_here(device: str) -> bool:
    module = {"cuda": torch.cuda, "mps": torch.backends.mps, "xpu": torch.xpu}.get(device)
    return device == "cpu" or (module is not None and bool(module.is_available()))
