"""``python tests/write_support.py`` runs tests/support.py and writes SUPPORT.md.

Only sections of devices that are here are written anew; others stay as they were recorded.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
from support import DERIVATIVES, DTYPES, Combination, of_backend, of_order, try_all

from pyg_outerconv.contract import ORDERS
from pyg_outerconv.kernels import BACKENDS

FILE = Path(__file__).resolve().parents[1] / "SUPPORT.md"
DEVICES = ("cpu", "cuda")
NOT_MEASURED = "Not measured: no such device has run `python tests/write_support.py` yet."

TYPES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
HEAD = f"""# What is supported

Written by `python tests/write_support.py`, which runs every combination on a small graph and
compares it with plain torch in float64; `tests/test_support.py` runs them again and compares with
this file. A cell says for which types a derivative is right: *yes* for all of these,
{", ".join(TYPES)}.

- *forward* is the value, *first* and *second* are gradients of reverse mode in every input
  (features, Θ or what it is made of, edge values), *vmap* is over each input alone and over all,
  *jacrev* is `torch.func.jacrev`, *forward-mode* is `torch.func.jvp`.
- A *reduction* is over the inputs of a label, and labels are summed; *max, then min* is over the
  inputs of a label, then over labels. Orders without such lines refuse to compare labels.
- An order's *basis* is the kind on which it was run; the contraction chooses among orders that fit.
- Backends that cannot run on a device without being asked for, such as Triton's interpreter on a
  CPU, have tests of their own.
"""


def here(device: str) -> bool:
    """Whether this machine has the device."""
    return device == "cpu" or torch.cuda.is_available()


def order_rows(order: str, device: str) -> list[str]:
    """Lines of the table of orders."""
    kind, tried = of_order(order, device)
    return [_row((order, kind, aggr), item) for aggr, item in tried.items()]


def backend_rows(backend: str, device: str) -> list[str]:
    """Lines of the table of primitives."""
    tried = of_backend(backend, device)
    return [_row((backend, *_words(name)), item) for name, item in tried.items()]


def _words(name: str) -> tuple[str, str]:
    primitive, *form = name.split()
    return primitive, " ".join(form) or "–"


def _row(labels: tuple[str, str, str], item: Combination | str) -> str:
    if isinstance(item, str):
        return _line((*labels, *("–" for _ in DERIVATIVES), item))
    states = {dtype: try_all(item, dtype) for dtype in DTYPES}
    cells, refusals = [], []
    for derivative in DERIVATIVES:
        types: dict[str, list[str]] = {}
        for dtype, name in zip(DTYPES, TYPES, strict=True):
            state, _, why = states[dtype][derivative].partition(": ")
            refusals += [why] if why else []
            types.setdefault(state, []).append(name)
        alone = len(types) == 1
        cells.append("; ".join(s if alone else f"{s}: {', '.join(t)}" for s, t in types.items()))
    return _line((*labels, *cells, "; ".join(dict.fromkeys(refusals))))


def _line(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def backends_to_try(device: str) -> list[str]:
    """Those that are installed, and serve the device without an interpreter."""
    return [
        name
        for name, backend in BACKENDS.items()
        if device in backend.devices
        and not backend.missing()
        and (backend.priority > 0 or name == "reference")
    ]


def section(device: str) -> str:
    """Everything that can be found about a device."""
    derivatives = (*DERIVATIVES, "refused because")
    orders = [_line(("order", "basis", "reduction", *derivatives))]
    orders.append(_line(("---",) * len(orders[0].split(" | "))))
    for order in sorted(ORDERS):
        orders += order_rows(order, device)
    primitives = [_line(("backend", "primitive", "form", *derivatives)), orders[1]]
    for backend in backends_to_try(device):
        primitives += backend_rows(backend, device)
    return "\n".join(["### Contraction orders", "", *orders, "", "### Primitives", "", *primitives])


def recorded() -> dict[str, str]:
    """The sections of the file by device."""
    if not FILE.exists():
        return {}
    parts = re.split(r"^## (\w+)$", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {device: text.strip() for device, text in zip(parts[1::2], parts[2::2], strict=True)}


def main() -> int:
    """Write the file."""
    torch.use_deterministic_algorithms(True)
    sections = dict.fromkeys(DEVICES, NOT_MEASURED) | recorded()
    for device in filter(here, DEVICES):
        sections[device] = section(device)
    parts = [f"## {device}\n\n{text}\n" for device, text in sections.items()]
    FILE.write_text("\n".join([HEAD, *parts]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
