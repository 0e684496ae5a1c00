"""The command ``outerconv show``: pictures of a basis."""

from __future__ import annotations

import re
import shlex
from typing import Any

from torch import Tensor

from ..basis import Basis
from ..errors import RefusedValue
from ..families import FAMILIES, Family
from ..files import as_path
from ..graph import Cells, Graph, edge_list_of
from ..plot.shapes import grids_of
from . import data
from .family_options import any_family, options, short_name

KINDS = ("matrices", "shift", "flattenings", "receptive-field", "graph")


def draw(asked: Any) -> int:
    """Run ``outerconv show``: draw a basis, print the file and its sizes, return the exit code.

    ``asked`` are its options, a ``Picture`` of ``cli/commands.py``.
    """
    family, shape, dataset, kind = asked.family, asked.shape, asked.dataset, asked.kind
    if shape is not None and dataset is not None:
        raise RefusedValue("a basis is drawn on one thing", "--shape or --dataset", "both")
    shifts = tuple(numbers(text, "--offset", ",") for text in asked.offset)
    cells = None if shape is None else numbers(shape, "--shape", "x")
    classes = None
    if cells is None:
        drawn_family, basis, place, classes = _on_graph(
            family or "gcn", shifts, dataset, asked.root
        )
    else:
        drawn_family, basis, place = _on_grid(family or "grid", shifts, cells)
    kind = kind or ("graph" if cells is None else "matrices")
    path = as_path(asked.out or f"{type(drawn_family).__name__.lower()}-{kind}.svg", "--out")
    options_of_kind = _picture_options(asked, kind, drawn_family, basis, cells)
    if kind == "graph":
        options_of_kind |= {"around": options_of_kind.pop("cell", ()), "classes": classes}
    basis.plot(kind, path, **options_of_kind)
    m, n = basis.size
    print(
        f"{shlex.quote(str(path))}: {kind} of {short_name(drawn_family)} on {place}: "
        f"M = {m}, N = {n}, K = {basis.num_bases}"
    )
    return 0


def _on_grid(
    text: str, shifts: tuple[tuple[int, ...], ...], shape: tuple[int, ...]
) -> tuple[Family, Basis, str]:
    """A family, its basis on a grid, and the grid in words."""
    chosen = _with_shifts(text, shifts)
    family_class = FAMILIES.find(text)
    if family_class is not None and "dim" in options(family_class):
        chosen["dim"] = len(shape)
    family = any_family(text, chosen)
    _require(issubclass(Cells, family.reads), family, "--shape")
    return family, family.basis(shape), f"a grid of {'x'.join(map(str, shape))}"


def _on_graph(
    text: str, shifts: tuple[tuple[int, ...], ...], dataset: str | None, root: str | None
) -> tuple[Family, Basis, str, Tensor]:
    """A family, its basis on a dataset, the name of the dataset, and the classes of its nodes."""
    family_class = FAMILIES.find(text)
    if family_class is not None and family_class.reads is Cells:  # before its options are asked for
        raise RefusedValue(f"{text} is drawn on a grid", "--shape such as 8x10", "none")
    loaded = data.load(dataset or data.EMBEDDED, root)
    family = any_family(text, _with_shifts(text, shifts), loaded.num_relations)
    _require(issubclass(Graph, family.reads), family, "a graph")
    basis = family.basis(edge_list_of(loaded.data))
    return family, basis, loaded.entry.name, loaded.data.y


def _with_shifts(text: str, shifts: tuple[tuple[int, ...], ...]) -> dict[str, Any]:
    """The options that ``--offset`` gives to a family that is named without options."""
    if shifts and not text.strip().isidentifier():
        raise RefusedValue(
            "offsets are given in the family's text or by --offset", "one of them", text
        )
    return {"offsets": shifts} if shifts else {}


def _require(fits: bool, family: Family, got: str) -> None:
    if not fits:
        ways = {Cells: "--shape such as 8x10", Graph: "--dataset"}
        expected = ways.get(family.reads, f"{family.reads.expects}, in Python")
        raise RefusedValue(f"{type(family).__name__} reads {family.reads.noun}", expected, got)


def _picture_options(
    asked: Any, kind: str, family: Family, basis: Basis, shape: tuple[int, ...] | None
) -> dict[str, Any]:
    """The keyword arguments of :meth:`Basis.plot`; see :func:`draw`."""
    cell, labels, nodes = asked.cell, asked.label, tuple(map(int, asked.node))
    if cell is not None and nodes:
        raise RefusedValue("a picture is of one cell", "--cell or --node", "both")
    if len(nodes) > 1 and kind != "graph":
        raise RefusedValue(f"a picture of {kind} is of one cell", "one --node", len(nodes))
    at = (list(nodes) if kind == "graph" else nodes[0]) if nodes else None
    for label in labels:
        if not -basis.num_bases <= label < basis.num_bases:
            expected = f"0 to {basis.num_bases - 1}"
            raise RefusedValue("--label is that of a matrix", expected, label)
    plot_arguments: dict[str, Any] = {
        "labels": list(labels) or None,
        "cell": at if cell is None else numbers(cell, "--cell", ","),
        "reach": asked.reach,
        "layout": asked.layout,
        "seed": asked.seed,
    }
    if asked.channels is not None:
        plot_arguments["channels"] = numbers(asked.channels, "--channels", "x")
    if kind in ("matrices", "shift", "graph"):
        plot_arguments["titles"] = family.labels
    is_square = basis.size[0] == basis.size[1]
    if kind == "receptive-field" and shape is not None and is_square and grids_of(basis) is None:
        plot_arguments["inputs"] = shape
    return {name: value for name, value in plot_arguments.items() if value is not None}


def numbers(text: str, flag: str, between: str) -> tuple[int, ...]:
    """Integers with a separator, such as ``8x10`` or ``-1,0``."""
    number = r"-?\d{1,18}"
    if not re.fullmatch(f"{number}({between}{number})*", text.strip(), flags=re.ASCII):
        example = between.join(("8", "10"))
        raise RefusedValue(
            f"{flag} is integers with {between!r} between them", f"such as {example}", text
        )
    return tuple(int(number) for number in text.split(between))
