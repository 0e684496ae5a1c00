"""The command ``outerconv show``: pictures of a basis."""

from __future__ import annotations

import argparse
import re
import shlex
from typing import Any

from . import data
from .basis import Basis
from .errors import RefusedValue, refusal
from .families import FAMILIES, Family
from .files import as_path
from .graph import Cells, EdgeList, edge_list_of
from .plot.frames import frames
from .train import family_options

KINDS = ("matrices", "shift", "flattenings", "receptive-field", "graph")


class Show:
    """Draw a basis: its matrices, shifts, flattenings, a receptive field, or its edges by label."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Add the flags of this command; those not given are None."""
        add = parser.add_argument
        add(
            "--family",
            help='a family\'s name, or text such as "grid(kernel_size=(3, 3), padding=1)"; '
            "default grid with --shape, else gcn; an option whose flag means something else is "
            "given in the text: \"diffusion(kind='heat')\"",
        )
        add("--shape", metavar="8x10", help="draw on a grid with so many cells on each axis")
        add(
            "--dataset",
            help=f"draw on a graph that 'outerconv datasets' lists; default {data.EMBEDDED}, "
            "where there is no --shape",
        )
        add("--root", help=f"folder of the data; else {data.ROOT_VARIABLE}, else a cache folder")
        add(
            "--kind",
            help=f"{', '.join(KINDS)}; default matrices (one panel for each A_k) on a grid, "
            "graph (edges by label) on a graph",
        )
        add(
            "--offset",
            action="append",
            metavar="2,4",
            help="a shift d of the family grid; may come several times; as --offset=-1,0 where it "
            "begins with a minus",
        )
        add(
            "--cell",
            metavar="3,4",
            help="of receptive-field: the output, default the first; of shift: the input that "
            "arrows follow, default the middle",
        )
        add("--node", type=int, help="the same as a number, as nodes of graphs have")
        add("--reach", type=int, help="of receptive-field: so many layers; default 1")
        add("--label", type=int, action="append", help="draw A_k for this k; may come again")
        add("--channels", metavar="2x3", help="of flattenings: P and Q of a random Θ")
        add("--layout", help="of graphs: spring (the default) or circle")
        add("--seed", type=int, help="of the random Θ, and of the spring layout; default 0")
        add("--out", help="a PNG or SVG file, by its extension; default <family>-<kind>.svg")
        family_options.add_flags(parser, without=vars(parser.parse_args([])))

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        """Draw, and print where and what."""
        family, basis, place = subject(arguments)
        kind = arguments.kind or ("graph" if arguments.shape is None else "matrices")
        name = type(family).__name__.lower()
        out = as_path(arguments.out or f"{name}-{kind}.svg", "--out")
        basis.plot(kind, out, **options(arguments, kind, family, basis))
        m, n = basis.size
        print(
            f"{shlex.quote(str(out))}: {kind} of {family_options.short_name(family)} on {place}: "
            f"M = {m}, N = {n}, K = {basis.num_bases}"
        )
        return 0


def subject(arguments: argparse.Namespace) -> tuple[Family, Basis, str]:
    """The family, its basis, and what the basis is on, in words.

    Raises:
        ValueError, TypeError: a shape, a data set, a family or an option is refused.
    """
    if arguments.shape is not None and arguments.dataset is not None:
        raise RefusedValue(refusal("a basis is drawn on one thing", "--shape or --dataset", "both"))
    chosen = family_options.given(arguments)
    if arguments.offset:
        chosen["offsets"] = tuple(numbers(text, "--offset", ",") for text in arguments.offset)
    if arguments.shape is not None:
        return _on_grid(
            arguments.family or "grid", chosen, numbers(arguments.shape, "--shape", "x")
        )
    return _on_graph(arguments.family or "gcn", chosen, arguments)


def _on_grid(
    text: str, chosen: dict[str, Any], shape: tuple[int, ...]
) -> tuple[Family, Basis, str]:
    known = FAMILIES.get(text.strip().lower())
    if known is not None and "dim" in family_options.options(known):
        chosen.setdefault("dim", len(shape))
    family = family_options.any_family(text, chosen)
    _require(issubclass(Cells, family.reads), family, "--shape")
    return family, family.basis(shape), f"a grid of {'x'.join(map(str, shape))}"


def _on_graph(
    text: str, chosen: dict[str, Any], arguments: argparse.Namespace
) -> tuple[Family, Basis, str]:
    known = FAMILIES.get(text.strip().lower())
    if known is not None and known.reads is Cells:  # before its options are asked for
        raise RefusedValue(refusal(f"{text} is drawn on a grid", "--shape such as 8x10", "none"))
    dataset = data.load(arguments.dataset or data.EMBEDDED, arguments.root)
    family = family_options.any_family(text, chosen, dataset.num_relations)
    _require(issubclass(EdgeList, family.reads), family, "a graph")
    return family, family.basis(edge_list_of(dataset.data)), dataset.entry.name


def _require(fits: bool, family: Family, got: str) -> None:
    if not fits:
        ways = {Cells: "--shape such as 8x10", EdgeList: "--dataset"}
        expected = ways.get(family.reads, f"{family.reads.expects}, in Python")
        raise RefusedValue(
            refusal(f"{type(family).__name__} reads {family.reads.noun}", expected, got)
        )


def options(
    arguments: argparse.Namespace, kind: str, family: Family, basis: Basis
) -> dict[str, Any]:
    """The options of a picture that flags name."""
    if arguments.cell is not None and arguments.node is not None:
        raise RefusedValue(refusal("a picture is of one cell", "--cell or --node", "both"))
    for label in arguments.label or ():
        if not -basis.num_bases <= label < basis.num_bases:
            expected = f"0 to {basis.num_bases - 1}"
            raise RefusedValue(refusal("--label is that of a matrix", expected, label))
    if arguments.seed is not None and not 0 <= arguments.seed < 2**32:
        raise RefusedValue(refusal("--seed must be a seed", "[0, 2^32)", arguments.seed))
    found: dict[str, Any] = {
        "labels": arguments.label,
        "cell": arguments.node,
        "reach": arguments.reach,
        "layout": arguments.layout,
        "seed": arguments.seed,
    }
    if arguments.cell is not None:
        found["cell"] = numbers(arguments.cell, "--cell", ",")
    if arguments.channels is not None:
        found["channels"] = numbers(arguments.channels, "--channels", "x")
    if kind in ("matrices", "shift", "graph"):
        found["titles"] = family.labels
    if kind == "receptive-field" and arguments.shape is not None:
        knows = frames(basis, None, None) is not None
        if not knows and basis.size[0] == basis.size[1]:
            found["inputs"] = numbers(arguments.shape, "--shape", "x")
    return {name: value for name, value in found.items() if value is not None}


def numbers(text: str, flag: str, between: str) -> tuple[int, ...]:
    """Integers with a sign between them, such as ``8x10`` or ``-1,0``.

    Raises:
        ValueError: the text is something else.
    """
    if not re.fullmatch(rf"-?\d+({between}-?\d+)*", text.strip(), flags=re.ASCII):
        example = between.join(("8", "10"))
        raise RefusedValue(
            refusal(f"{flag} is integers with {between!r} between them", f"such as {example}", text)
        )
    return tuple(int(number) for number in text.split(between))
