"""A graph of one's own as a dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from torch_geometric.data import Data

from ....errors import RefusedValue, unknown
from ..load import Dataset, fingerprint
from ..registry import Entry
from ..source import Source
from . import arrays, matrix_market, text
from .graphml import GraphML
from .join import Joined, join
from .mapped import load_mapped
from .parts import PART_NAMES, Edges, Features, Labels
from .pyg import checked, from_file, from_function

FORMATS = {
    **dict.fromkeys((*text.DELIMITERS, ".parquet"), text),
    ".npz": arrays,
    ".mtx": matrix_market,
}
GRAPHML = ".graphml"


def load_own(source: Source, log: Callable[[str], None] | None = None) -> Dataset:
    """Read a graph of one's own.

    Args:
        source: where it is; paths are kept as absolute ones.
        log: called with lines that count what a user should know of: parallel edges, nodes without
            edges or labels, columns that are not read; None for silence.

    Raises:
        ValueError, TypeError: a file cannot be read, or a row breaks a rule, with its line.
    """
    source = source.absolute()
    if source.data is not None and not source.is_function and Path(source.data).is_dir():
        return load_mapped(source, log)
    if source.data is not None:
        held = from_function(source.data) if source.is_function else from_file(Path(source.data))
        joined = checked(held, source.data, source.undirected)
    else:
        joined = _from_files(source)
    for note in joined.notes if log else ():
        assert log is not None
        log(f"{source.name}: {note}")
    data = joined.data
    return Dataset(
        _entry(source, joined),
        data,
        None,
        _fingerprint(joined),
        nodes=joined.nodes,
        classes=joined.classes,
        source=source,
    )


def _from_files(source: Source) -> Joined:
    path = Path(source.edges or "")
    options = source.edge_weight, source.edge_type
    edges: Edges
    features: Features | None = None
    labels: Labels | None = None
    if path.suffix == GRAPHML:
        graph = GraphML(path)
        edges, features, labels = graph.edges(*options), graph.features(), graph.labels()
    else:
        edges = _format(path, "edges").edges(path, *options)
    if source.features is not None:
        if features is not None:
            rule = "features are read from one file"
            raise RefusedValue(
                rule, f"those of the nodes of {path}", f"--features {source.features} too"
            )
        features = _format(Path(source.features), "features").features(Path(source.features))
    if source.labels is not None:
        if labels is not None:
            rule = "labels are read from one file"
            raise RefusedValue(
                rule, f"those of the nodes of {path}", f"--labels {source.labels} too"
            )
        labels = _format(Path(source.labels), "labels").labels(Path(source.labels))
    if labels is None:
        raise RefusedValue("nodes are classified by labels", "--labels FILE", "none")
    return join(edges, features, labels, source.undirected)


def _format(path: Path, kind: str) -> ModuleType:
    """The file of this folder that reads an extension."""
    if path.suffix not in FORMATS:
        known = [*FORMATS, *([GRAPHML] if kind == "edges" else [])]
        raise RefusedValue(f"{path}: " + unknown(f"format of {kind}", path.suffix, known))
    return FORMATS[path.suffix]


def _entry(source: Source, joined: Joined) -> Entry:
    data = joined.data
    split = ("public",) if "train_mask" in data else ()
    typed = {"family": "relation", "root_weight": True} if joined.edge_types else {}
    return Entry(
        name=source.name,
        reader="",
        arguments={},
        folder=None,
        about="a graph of one's own",
        source=(),
        licence="",
        counts={
            "nodes": len(joined.nodes),
            "edges": data.edge_index.size(1),
            "features": 0 if data.get("x") is None else data.x.size(1),
            "classes": len(joined.classes),
            "relations": len(joined.edge_types),
        },
        splits=(*split, "random-60-20-20"),
        files={},
        defaults=typed,
    )


def _fingerprint(joined: Joined) -> str:
    """sha256 over the graph, its split, and the names of nodes, classes and edge types."""
    data: Data = joined.data
    masks = tuple(f"{part}_mask" for part in PART_NAMES)
    digest = hashlib.sha256(fingerprint(data, masks).encode())
    for names in (joined.nodes, joined.classes, joined.edge_types):
        digest.update(repr(names).encode())
    return digest.hexdigest()
