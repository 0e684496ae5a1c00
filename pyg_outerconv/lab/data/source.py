"""Where a graph of one's own is read from: files, or a PyG ``Data``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ...errors import RefusedType, RefusedValue
from ...files import as_path

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
PATHS = ("edges", "features", "labels")
OF_FILES = (*PATHS, "edge_weight", "edge_type")


@dataclass(frozen=True)
class Source:
    """Files of a graph, or one ``Data``; plain text and flags, so that a run can keep it.

    Attributes:
        edges, features, labels: paths; the format is that of the extension. ``features`` may be
            absent, ``labels`` too where a GraphML file has both.
        data: in the place of files, a path ``file.pt``, a folder of mapped files, see
            :mod:`pyg_outerconv.scale.mapped`, or a function ``module:function`` without arguments
            that returns a ``Data``.
        undirected: edges go both ways.
        edge_weight, edge_type: the columns of weights and of types of edges; None for those that
            are called ``weight`` and ``type``, where there are any.

    Raises:
        ValueError: neither files nor a ``Data``, or both.
        TypeError: a value is of another type.
    """

    edges: str | None = None
    features: str | None = None
    labels: str | None = None
    data: str | None = None
    undirected: bool = False
    edge_weight: str | None = None
    edge_type: str | None = None

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            kind = bool if name == "undirected" else str
            if not (isinstance(value, kind) or (value is None and kind is str)):
                raise RefusedType(f"{name} has a type", kind.__name__, repr(value))
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, which :func:`source_from` reads."""
        return asdict(self)


# The options of commands, and what they say of a source.
OPTIONS = {name: name for name in (*OF_FILES, "data", "undirected")} | {"features_file": "features"}
del OPTIONS["features"]  # of which a run has another one


def source_of(options: dict[str, Any]) -> Source | None:
    """Take the options of a source out of the options of a command; None if none was given.

    ``undirected`` alone stays: it is a setting of a dataset by name.

    Raises:
        ValueError: they are not enough, or do not go together.
    """
    taken = {name: options.pop(option, None) for option, name in OPTIONS.items()}
    said = {name: value for name, value in taken.items() if value is not None}
    if set(said) == {"undirected"}:
        options |= said
        return None
    return Source(**said) if said else None


def source_from(values: Any, origin: str) -> Source:
    """A source that was written by :meth:`Source.as_dict`; what is left out is as by default.

    Raises:
        ValueError, TypeError: there are other keys, or values that no source has.
    """
    names = sorted(field.name for field in fields(Source))
    if not isinstance(values, dict) or not set(values) <= set(names):
        odd = (
            sorted(set(values) - set(names)) if isinstance(values, dict) else type(values).__name__
        )
        raise RefusedValue(f"{origin} must say where a graph is", ", ".join(names), odd)
    return Source(**values)
