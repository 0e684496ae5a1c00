"""The registry of datasets: reader, files, counts, splits and defaults of each."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import Refused, RefusedValue, unknown
from ...files import data_root


class DataUnavailable(Refused):
    """A known dataset cannot be read; the message names the missing files and their folders."""


@dataclass(frozen=True)
class Entry:
    """An entry of the registry, as one split protocol reads the dataset.

    Attributes:
        reader: name of PyG's class; ``arguments`` are its arguments beside the root.
        folder: the reader's folder below the root, None where nothing is on disk.
        files: raw files below that folder, each with its sha256 where one is known.
        splits: split protocols, the default first.
        defaults: training settings that the field uses on this dataset.
        requires: modules that the reader imports.
        keeps: the nodes that are kept, a word of :data:`.graph.SELECTIONS`; empty for all.
        copies_differ: the checksums are of one copy among several that are packed in other ways, so
            that a file with another checksum may be whole. It is read as one without checksum is.
        task: ``'nodes'`` or ``'graphs'``, whatever is classified.
        draws_splits: whether protocols that draw a split apply, beside those in ``splits``.
        embedded: ``file`` and ``sha256`` of a copy that comes with the package; None without one.
    """

    name: str
    counts: dict[str, int]
    splits: tuple[str, ...]
    about: str
    reader: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    folder: str | None = None
    source: tuple[str, ...] = ()
    licence: str = ""
    files: dict[str, str | None] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    note: str = ""
    copies_differ: bool = False
    keeps: str = ""
    task: str = "nodes"
    draws_splits: bool = True
    embedded: dict[str, str] | None = None
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)

    def for_split(self, split: str | None) -> Entry:
        """The same dataset as a split protocol reads it: some have files of their own."""
        variant = self.variants.get(split or self.splits[0])
        if variant is None:
            return self
        return replace(
            self,
            arguments={**self.arguments, **variant["arguments"]},
            defaults={**self.defaults, **variant.get("defaults", {})},
            files=variant["files"],
            embedded=None,
        )

    def home(self, root: Path) -> Path:
        """The folder that PyG's class takes as its root."""
        return root / self.folder if self.folder else root

    def missing(self, root: Path) -> list[Path]:
        """The raw files that are not below ``root``; an empty file counts as missing."""
        return [path for name in self.files if _is_absent(path := self.home(root) / name)]


def _is_absent(path: Path) -> bool:
    try:
        file_status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    return stat.S_ISREG(file_status.st_mode) and file_status.st_size == 0


@cache
def registry() -> dict[str, Entry]:
    """Every known dataset by name."""
    listed = json.loads(shipped("registry.json").read_text(encoding="utf-8"))["datasets"]
    entries = {}
    for name, own in listed.items():
        fields = listed.get(own.pop("base", None), {}) | own  # the base, but for what is its own
        for key in ("source", "splits", "requires"):
            fields[key] = tuple(fields.get(key, ()))
        entries[name] = Entry(name=name, **fields)
    return entries


def shipped(name: str) -> Path:
    """A file of the folder ``datasets``, which comes with the package."""
    package = Path(__file__).resolve().parents[2]
    installed, checkout = package / "_datasets" / name, package.parent / "datasets" / name
    for place in (installed, checkout):
        if place.is_file():
            return place
    raise FileNotFoundError(f"a file of the package is missing: expected at {installed}")


def entry(name: str) -> Entry:
    """The registry's entry of that name, in any case."""
    by_lower = {listed.lower(): one for listed, one in registry().items()}
    if name.lower() not in by_lower:
        raise RefusedValue(unknown("dataset", name, registry()))
    return by_lower[name.lower()]


def is_here(name: str, root: str | Path | None = None, split: str | None = None) -> bool:
    """Whether a dataset can be read without a network."""
    dataset_entry = entry(name).for_split(split)
    return dataset_entry.embedded is not None or not dataset_entry.missing(data_root(root))
