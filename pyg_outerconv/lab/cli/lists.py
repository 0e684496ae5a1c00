"""Commands that print lists: ``outerconv datasets``, ``explain``, ``families``, ``backends``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import RefusedValue
from ...files import data_root
from ..fields import flag_of, setting
from ..settings import Settings
from .options import Imports, Place, command

if TYPE_CHECKING:
    from ..data import Entry


@dataclass(frozen=True)
class Listed:
    """What is listed: one by its name, or all."""

    name: str | None = setting(None, argument=True)


@dataclass(frozen=True)
class Verified:
    """Whether files are compared."""

    verify: bool = setting(False, "Compare the files with their checksums", said="")


@command(Listed, Place, Verified)
def datasets(listed: Listed, place: Place, verified: Verified) -> int:
    """List the datasets that can be read, and where they are. With NAME, print the source, licence
    and files of one, and the options that outerconv train uses for it by default.
    """
    from .. import data

    name, folder = listed.name, data_root(place.root)
    known = list(data.registry()) if name is None else [data.entry(name).name]
    if verified.verify:
        return _verify(folder, known)
    if name is not None:
        print(_columns(_facts(data.entry(name), folder)))
        return 0
    rows: list[tuple[str, ...]] = [
        ("name", "graphs", "nodes", "edges", "features", "classes", "relations", "splits", "here")
    ]
    for name, entry in data.registry().items():
        counts = [str(entry.counts.get(key) or "-") for key in rows[0][1:7]]
        rows.append((name, *counts, ", ".join(entry.splits), _place(entry, folder)))
    print(f"data root: {folder}\n\n{_columns(rows)}")
    return 0


def _place(entry: Entry, root: Path) -> str:
    """Where a dataset is read from: its folder below the root, or the copy in the package."""
    splits: dict[str, list[str]] = {}
    for split in entry.splits:
        reading = entry.for_split(split)
        there = reading.folder if reading.folder and not reading.missing(root) else None
        embedded = reading.folder is None or reading.embedded
        if place := there or (embedded and "embedded"):
            splits.setdefault(place, []).append(split)
    if [*splits.values()] == [[*entry.splits]]:
        return next(iter(splits))
    return "; ".join(f"{place}, for {', '.join(names)}" for place, names in splits.items()) or "no"


def _facts(entry: Entry, root: Path) -> list[tuple[str, str]]:
    """What the registry has of one dataset, line by line."""
    counts = (f"{number} {what}" for what, number in entry.counts.items() if number)
    facts = [
        ("name", f"{entry.name}: {entry.about}"),
        ("holds", ", ".join(counts)),
        ("source", ", ".join(entry.source)),
        ("licence", entry.licence),
        ("here", _place(entry, root)),
        ("folder", str(entry.home(root)) if entry.folder else "none"),
        ("files", ", ".join(entry.files) or "none"),
        ("note", entry.note),
    ]
    for number, split in enumerate(entry.splits):
        options = (_option(*pair) for pair in entry.for_split(split).defaults.items())
        said = f"split {split}" + ("" if number else ", the default")
        facts.append((said, " ".join(options) or "defaults of outerconv train"))
    return [(title, fact) for title, fact in facts if fact]


def _option(setting: str, value: object) -> str:
    """A setting as the option of ``outerconv train`` that gives it."""
    (name,) = (flag_of(one) for one in fields(Settings) if one.name == setting)
    if isinstance(value, bool):
        return name if value else f"--no-{name[2:]}"
    return f"{name} {value}"


def _verify(root: Path, names: Sequence[str]) -> int:
    """Print the state of every file of some datasets."""
    from .. import data

    differ = []
    for name in names:
        entry, states = data.entry(name), data.verify(name, root)
        counts = {state: list(states.values()).count(state) for state in states.values()}
        summary = ", ".join(f"{number} {state}" for state, number in counts.items())
        print(f"{name}: {summary or 'embedded'}{f' ({entry.note})' if entry.note else ''}")
        for file, state in states.items():
            if state in ("differs", "cannot be read"):
                differ.append(f"{entry.home(root) / file}")
    if differ:
        rule = "files must have the sha256 of the registry"
        expected = "none that differs or cannot be read"
        raise RefusedValue(rule, expected, ", ".join(differ))
    return 0


@command(Listed)
def explain(listed: Listed) -> int:
    """List PyG's convolutions with their equations, or explain one as Y = Σ_k A_kᵀ X Θ_k.

    With NAME, such as GATv2Conv: its matrices A_k and Θ_k by the names that PyG gives to its
    parameters, and what it computes beside the sum.
    """
    from ...pyg import explain as explained
    from ...pyg.table import entries, example

    if listed.name is None:
        print(_columns([(entry.name, entry.kind, entry.text) for entry in entries()]))
    else:
        print(explained(example(listed.name)))
    return 0


@command(Listed, Imports)
def families(listed: Listed) -> int:
    """List the families with their equations, or describe one.

    With NAME: its equation, its options with types, defaults and meaning, and an example.
    """
    from ..family_options import describe_family, list_families

    if listed.name is None:
        print(_columns(list_families()))
        print(
            "\nOptions are written as in Python: --family \"walk(3, norm='sym')\". Families stand "
            'in families:\n--family "stack(gcn, walk(2))". Meaning of the options of one: '
            "outerconv families walk"
        )
    else:
        print(describe_family(listed.name))
    return 0


@command()
def backends() -> int:
    """List the backends that compute here, and why the others do not."""
    from ...kernels.dispatch import backends as table

    print(table())
    return 0


def _columns(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns; the last one is not padded."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    )
