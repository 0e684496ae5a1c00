"""Where a graph of one's own is read from: files, or a PyG ``Data``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import RefusedValue
from ..files import as_path
from .fields import check_settings, read_values, setting

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PATHS = ("edges", "features", "labels")
OF_FILES = (*PATHS, "edge_weight", "edge_type")


@dataclass(frozen=True)
class Source:
    """Files of a graph, or one ``Data``; plain text and flags, so that a run can keep it.

    ``data`` is, in the place of files, a path ``file.pt``, a folder of mapped files, see
    :mod:`pyg_outerconv.scale.mapped`, or a function ``module:function`` without arguments that
    returns a ``Data``. A GraphML file may have features and labels too.

    Raises:
        ValueError: neither files nor a ``Data``, or both.
        TypeError: a value is of another type.
    """

    edges: str | None = setting(
        None,
        "Edges of your own graph: CSV, TSV, text, Parquet, npz, MatrixMarket or GraphML",
        metavar="FILE",
        section="A graph of your own",
    )
    features: str | None = setting(
        None,
        "Features of its nodes, a row for each; without this option, nodes have none",
        metavar="FILE",
    )
    labels: str | None = setting(None, "Classes of its nodes, and their split", metavar="FILE")
    data: str | None = setting(
        None,
        "Instead of files: a saved PyG Data; a folder of mapped files, such as outerconv generate "
        "writes; or a function that returns a Data",
        metavar="FILE.pt|FOLDER|MODULE:FUNCTION",
    )
    edge_weight: str | None = setting(
        None, "The column of edge weights", metavar="COLUMN", said="weight"
    )
    edge_type: str | None = setting(None, "The column of edge types", metavar="COLUMN", said="type")
    undirected: bool = setting(False)

    def __post_init__(self) -> None:
        check_settings(self)
        of_files = [name for name in OF_FILES if getattr(self, name)]
        if self.data and of_files:
            got = ", ".join(["data", *of_files])
            raise RefusedValue("a graph is read from files or from a Data", "one of both", got)
        if not self.data and not self.edges:
            got = ", ".join(of_files) or "nothing"
            raise RefusedValue("a graph of one's own has edges", "edges or data", got)

    @property
    def is_function(self) -> bool:
        """Whether reading imports and calls code: the ``Data`` is returned by a function."""
        return bool(self.data and _FUNCTION.fullmatch(self.data))

    @property
    def name(self) -> str:
        """A short name for messages and folders."""
        if self.data and self.is_function:
            return self.data.replace(":", ".")
        return Path(self.data or self.edges or "").stem

    def absolute(self) -> Source:
        """The same with absolute paths, which mean the same wherever a run goes on."""
        named = PATHS if self.is_function else (*PATHS, "data")
        paths = {name: path for name in named if (path := getattr(self, name))}
        whole: dict[str, Any] = {
            name: str(as_path(path, name).resolve()) for name, path in paths.items()
        }
        return replace(self, **whole)

    def instead_of(self, before: Source) -> Source:
        """What is named here and, of a source of the same kind, all else as ``before`` has it."""
        if (self.data is None) != (before.data is None):
            return self
        return replace(before, **{name: value for name, value in vars(self).items() if value})

    def as_dict(self) -> dict[str, Any]:
        """Plain values, which :func:`source_from` reads."""
        return asdict(self)


def source_of(own: dict[str, Any], both_ways: dict[str, Any]) -> Source | None:
    """The source that options of a command name; None if they name none."""
    return Source(**own, **both_ways) if own else None


def moved(own: dict[str, Any], both_ways: dict[str, Any]) -> Source | None:
    """Where options of a command say that the graph of a run is now; None if they do not."""
    if both_ways and not own:
        rule = "a run knows whether its edges go both ways"
        raise RefusedValue(rule, "--undirected beside --edges or --data", "--undirected alone")
    return source_of(own, both_ways)


def source_from(values: Any, origin: str) -> Source:
    """A source that was written by :meth:`Source.as_dict`; what is left out is as by default."""
    fields_by_name = {one.name: one for one in fields(Source)}
    return Source(**read_values(fields_by_name, values, f"{origin}, source"))
