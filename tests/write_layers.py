"""``python tests/write_layers.py`` writes docs/pyg_layers.md: PyG's convolutions and options.

With ``--compile`` it compiles each class anew, which takes minutes; else it keeps that table.

The convolutions are those of :mod:`pyg_outerconv.pyg.table`, the options those that
``tests/pyg/test_parity.py`` compares with PyG.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyg.cases import CASES
from pyg.whole_graphs import line

from pyg_outerconv.pyg.table import NONE, entries

FILE = Path(__file__).resolve().parents[1] / "docs" / "pyg_layers.md"

HEAD = """# PyG's convolutions

Written by `python tests/write_layers.py`; a test compares it. A class of `pyg_outerconv.pyg` has
the signature, parameters and results of PyG's class of its name; `outerconv explain GCNConv` tells
its A_k and Θ_k.

*Equal* means that the layer computes Y = Σ_k A_kᵀ X Θ_k, and before and after it what PyG computes
there. *Equal with a trick* means that it does so in a rewritten form, which the last column tells.
The others cannot be written as this sum: `accelerate` leaves them as they are, and names them.
"""

OPTIONS = """
## Options

Each value is compared with PyG's own layer, values and gradients, on graphs with self-loops,
parallel edges, nodes without edges and the like (`tests/pyg/test_parity.py`). The values in the
last column have no equal form: with them PyG's own `forward` runs, and `layer.why_not()` says so.
It also runs under explainers, with hooks on messages, and on graphs so small that it is faster.
Dropout of attention between 0 and 1 runs by the contraction too; it drops other edges than PyG's
under the same seed, so that only 0 and 1 can be compared here.

| class | option | by the contraction | by PyG's own forward |
|---|---|---|---|
"""

COMPILED = """
## Compiled

Whether `torch.compile(layer, fullgraph=True, dynamic=True)` makes one graph of the layer with its
default options, on a graph with self-loops and parallel edges: PyG's class, ours by the
contraction, and ours on a graph so small that PyG's own `forward` runs.

| class | PyG's | ours | ours, small |
|---|---|---|---|
"""


def page(compiled: list[str] | None = None) -> str:
    """The text of the page, with these rows of compiled classes, else those that it has."""
    if compiled is None:
        _, _, rest = FILE.read_text(encoding="utf-8").partition(COMPILED)
        compiled = rest.splitlines(keepends=True)
    rows = entries()
    here = [row for row in rows if row.kind != NONE]
    absent = [row for row in rows if row.kind == NONE]
    lines = [HEAD, f"\n## Here: {len(here)}\n\n| class | is | as a convolution |\n|---|---|---|\n"]
    lines += [f"| `{row.name}` | {row.kind} | {_cell(row.text)} |\n" for row in here]
    lines += [f"\n## Without an equal form: {len(absent)}\n\n| class | because |\n|---|---|\n"]
    lines += [f"| `{row.name}` | {_cell(row.text)} |\n" for row in absent]
    return "".join([*lines, OPTIONS, *_options(), COMPILED, *compiled])


def _options() -> list[str]:
    rows = []
    for name in sorted(CASES, key=str.lower):
        case = CASES[name]
        for option, values in case.options.items():
            by_pyg = [value for value in values if case.runs_by_pyg({option: value})]
            ours = [value for value in values if not case.runs_by_pyg({option: value})]
            rows.append(f"| `{name}` | `{option}` | {_listed(ours)} | {_listed(by_pyg)} |\n")
    return rows


def _listed(values: list[Any]) -> str:
    return ", ".join(dict.fromkeys(f"`{_word(value)}`" for value in values)) or "–"


def _word(value: Any) -> str:
    """A value as it is written; objects by their class or function."""
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return _cell(repr(value).split("\n", maxsplit=1)[0])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    anew = "--compile" in sys.argv
    compiled = [line(name) for name in sorted(CASES, key=str.lower)] if anew else None
    FILE.write_text(page(compiled), encoding="utf-8")
