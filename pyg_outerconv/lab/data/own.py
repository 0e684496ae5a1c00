"""Graphs of one's own as datasets: from tables, from a PyG ``Data``, from mapped files.

Nodes keep the names that the files give them, nothing is dropped, and a row that breaks a rule is
refused with its file and line.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric import data as pyg
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.graph_store import EdgeLayout
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from ...errors import RefusedType, RefusedValue
from ...files import UNPACKED_LIMIT, open_archive
from ...scale.mapped import PARTS as MAPPED_PARTS
from ...scale.mapped import open_mapped
from ..source import Source
from .dataset import Dataset
from .graph import MASKS, PARTS, check_graph, check_own, fingerprint, group_of, make_undirected
from .registry import Entry
from .tables import (
    GRAPHML,
    Table,
    Where,
    arrow,
    as_float32,
    as_numbers,
    as_text,
    content_of,
    read_graphml,
    read_table,
    refuse,
)

LABEL_TITLES = ("label", "class", "y")
UNLABELLED = ("", "-1")
_DIGITS = 1000  # of an integer; Python reads a few thousand


@dataclass
class _Graph:
    """A graph, where its parts stand, and names of nodes, classes and edge types, if it has any."""

    data: Data
    where: dict[str, Where]
    unread: dict[str, tuple[str, ...]]
    nodes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    both_ways: bool = False


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
    if source.data is None:
        graph = _joined(_tables(source), source)
    elif source.is_function:
        graph = _of_data(_from_function(source.data), source.data)
    elif Path(source.data).is_dir():
        return _mapped(source, log)
    else:
        graph = _of_data(_from_file(Path(source.data)), source.data)
    data = graph.data

    def broken(part: str, number: int, *rule: Any) -> RefusedValue:
        return refuse(graph.where[part](number), *rule)

    check_graph(data, broken)
    if not graph.nodes:
        counts = int(data.num_nodes or 0), _count(data.y), _count(data.get("edge_type"))
        names = (tuple(map(str, range(count))) for count in counts)
        graph.nodes, graph.classes, graph.types = names
    check_own(data, graph.classes, broken)
    if source.undirected or graph.both_ways:
        make_undirected(data, graph.where["edges"])
    for note in _notes(graph) if log else ():
        assert log is not None
        log(f"{source.name}: {note}")
    digest = hashlib.sha256(fingerprint(data, MASKS).encode())
    for named in (graph.nodes, graph.classes, graph.types):
        digest.update(repr(named).encode())
    entry = _entry(
        source,
        *(len(graph.nodes), data.num_edges, data.num_features),
        *(len(graph.classes), len(graph.types)),
        splits=(*(("public",) if "train_mask" in data else ()), "random-60-20-20"),
        defaults={"family": "relation", "root_weight": True} if graph.types else {},
    )
    return Dataset(entry, data, None, digest.hexdigest(), graph.nodes, graph.classes, source)


def _entry(source: Source, *counts: int, **further: Any) -> Entry:
    titles = "nodes", "edges", "features", "classes", "relations"
    counts_by_title = dict(zip(titles, counts, strict=True))
    return Entry(source.name, counts=counts_by_title, about="a graph of one's own", **further)


def _notes(graph: _Graph) -> list[str]:
    """What a user should know is in a graph."""
    data = graph.data
    index, num_nodes = data.edge_index, len(graph.nodes)
    parallel = index.size(1) - group_of(index, data.get("edge_type")).unique().numel()
    loops, alone = int((index[0] == index[1]).sum()), num_nodes - index.unique().numel()
    notes = [
        f"{index.size(1)} edges, of which {parallel} are parallel to another and {loops} are "
        f"self-loops; {alone} nodes without an edge"
    ]
    if unlabelled := int((data.y < 0).sum()):
        notes.append(f"{unlabelled} of {num_nodes} nodes have no label: they are in no part")
    if "train_mask" in data and "test_mask" not in data:
        notes.append(
            "the split has train nodes alone: of the other nodes with a label one half validates, "
            "the other tests, drawn by seed"
        )
    elif "train_mask" in data and "val_mask" not in data:
        notes.append("the split has no val nodes: a fifth of the train nodes, drawn by seed")
    unread = {of: ", ".join(titles) for of, titles in graph.unread.items() if titles}
    return notes + [f"not read{of}: {titles}" for of, titles in unread.items()]


# Tables -------------------------------------------------------------------------------------------


def _tables(source: Source) -> dict[str, Table]:
    """The tables of edges, of labels and, if there are any, of features."""
    path, columns = Path(source.edges or ""), (source.edge_weight, source.edge_type)
    if path.suffix == GRAPHML:
        tables = read_graphml(path, *columns)
    else:
        tables = {"edges": read_table(path, "edges", *columns)}
    for kind in ("features", "labels"):
        file = getattr(source, kind)
        if file is not None:
            if kind in tables:
                expected, got = f"those of the nodes of {path}", f"--{kind} {file} too"
                raise RefusedValue(f"{kind} are read from one file", expected, got)
            tables[kind] = read_table(Path(file), kind)
    if "labels" not in tables:
        raise RefusedValue("nodes are classified by labels", "--labels FILE", "none")
    return tables


def _joined(tables: dict[str, Table], source: Source) -> _Graph:
    """One graph. The features' rows are its nodes; without features, those of the labels are."""
    edges, features, labels = tables["edges"], tables.get("features"), tables["labels"]
    titles, further = _titles(edges, source)
    names = _names(labels if features is None else features, edges.first)
    if edges.num_nodes not in (None, len(names)):
        rule = "a matrix of edges has a row for each node"
        raise refuse(edges.where(-1), rule, f"{len(names)}, as there are nodes", edges.num_nodes)
    place = _rows(names, features, labels)
    y, classes, not_read = _classes(labels)
    data = Data(y=torch.full((len(names),), -1), num_nodes=len(names))
    data.y[place] = y
    _add_masks(data, labels, place)
    rule = "an edge joins nodes of the graph"
    data.edge_index = torch.stack([_places(names, end, edges.where, rule) for end in edges.ids])
    types: tuple[str, ...] = ()
    weight, edge_type = (None if title is None else edges.columns[title] for title in titles)
    if weight is not None:
        data.edge_weight = as_numbers(weight, edges.where, "an edge weight is a number")
    if edge_type is not None:
        words = as_text(edge_type)
        if (row := _row_of(words, "")) >= 0:
            expected = "a word or a number"
            raise refuse(edges.where(row), "every edge has a type", expected, "an empty cell")
        data.edge_type, types = _numbered(words)
    if features is not None:
        data.x = _features(features)
    labelled = torch.full((len(names),), -1)
    labelled[place] = torch.arange(len(place))
    where = {
        "edges": edges.where,
        "features": (features or labels).where,
        "labels": lambda node: labels.where(int(labelled[node])),
        "masks": lambda split: labels.where(-1),
    }
    unread = {
        " of edges": edges.unread + further,
        " of features": features.unread if features else (),
        " of labels": not_read,
    }
    nodes = tuple(names.to_pylist())
    return _Graph(data, where, unread, nodes, classes, types, edges.both_ways)


def _titles(edges: Table, source: Source) -> tuple[list[str | None], tuple[str, ...]]:
    """The columns of weights and types of edges, None where there is none, and all others."""
    titles = [
        edges.named(named, default)
        for named, default in zip((source.edge_weight, source.edge_type), edges.beside, strict=True)
    ]
    further = tuple(title for title in edges.columns if title not in titles)
    if further and not edges.titled:
        rule = "further columns have titles, or are named by --edge-weight and --edge-type"
        first = [*edges.ids, *map(edges.columns.get, further)]
        cells = ", ".join(repr(column[0].as_py()) for column in first)
        raise refuse(edges.where(0), rule, "source and target in the first line", cells)
    return titles, further


def _add_masks(data: Data, labels: Table, place: Tensor) -> None:
    """Put the masks of a table, whose rows are nodes at ``place``, into a graph."""
    masks = _masks(labels)
    splits = max((mask.shape[1] for mask in masks.values()), default=1)
    for key, mask in masks.items():
        if mask.shape[1] not in (1, splits or 1):
            expected = f"({len(labels)},), or ({len(labels)}, S) of S splits"
            raise refuse(
                f"{labels.where(-1)}, {key}", "masks are of the same splits", expected, mask
            )
        whole = torch.zeros(data.num_nodes, splits, dtype=torch.bool)
        whole[place] = torch.from_numpy(mask)
        if mask.any():
            data[key] = whole if splits > 1 else whole[:, 0]


def _row_of(column: Any, word: Any) -> int:
    """The first row of a column with a word, −1 without one."""
    return int(arrow().compute.index(column, value=word).as_py())


def _names(table: Table, first: int) -> Any:
    """The names of all nodes in their order; numbers where the files name none."""
    if not table.ids:
        return arrow().array(np.arange(first, first + len(table))).cast(arrow().string())
    _require_distinct(table)
    return table.ids[0]


def _require_distinct(table: Table) -> None:
    names = table.ids[0]
    codes = names.dictionary_encode()
    if len(codes.dictionary) < len(names):
        _, firsts, places = np.unique(codes.indices, return_index=True, return_inverse=True)
        row = int((firsts[places] != np.arange(len(names))).argmax())
        got = f"{names[row].as_py()!r} again, as in {table.where(int(firsts[places[row]]))}"
        raise refuse(table.where(row), "a node has one row", "each name once", got)
    if (row := _row_of(names, "")) >= 0:
        expected = "a name or a number"
        raise refuse(table.where(row), "a node has a name", expected, "an empty cell")


def _rows(names: Any, features: Table | None, labels: Table) -> Tensor:
    """The node of each row of the labels."""
    if labels.ids:
        if features is not None:
            _require_distinct(labels)
        rule = "a label is of a node with features"
        return _places(names, labels.ids[0], labels.where, rule)
    if features is not None and features.ids:
        rule = "labels without names go with features without names"
        raise refuse(labels.where(0), rule, "a name for each label", "features with names")
    if len(labels) != len(names):
        rule = "labels without names are of all nodes"
        raise refuse(labels.where(0), rule, len(names), f"{len(labels)} labels")
    return torch.arange(len(names))


def _places(names: Any, wanted: Any, where: Where, rule: str) -> Tensor:
    """The numbers of nodes by their names."""
    places = arrow().compute.index_in(wanted, value_set=names)
    if places.null_count:
        row = _row_of(places.is_null(), True)
        expected = f"one of {len(names)} names, such as {names[0].as_py()!r}"
        raise refuse(where(row), rule, expected, repr(wanted[row].as_py()))
    return torch.from_numpy(places.to_numpy().astype(np.int64))


def _features(table: Table) -> Tensor:
    if table.x is not None:
        return as_float32(table.x, table.where, "features are numbers")
    columns = [
        as_numbers(column, table.where, f"the feature {title!r} is a number")
        for title, column in table.columns.items()
    ]
    return torch.stack(columns, dim=1) if columns else torch.zeros(len(table), 0)


def _classes(labels: Table) -> tuple[Tensor, tuple[str, ...], tuple[str, ...]]:
    """The class of each row, −1 without one, the names of classes, and the titles not read."""
    titles = [title for name in LABEL_TITLES if (title := labels.title(name)) is not None]
    if not titles:
        rule = "a table of labels has a column of classes"
        raise refuse(labels.where(-1), rule, " or ".join(LABEL_TITLES), labels.shown())
    pa, words = arrow(), as_text(labels.columns[titles[0]])
    lacking = pa.compute.is_in(words, value_set=pa.array(UNLABELLED))
    y, classes = _numbered(pa.compute.if_else(lacking, None, words))
    for word in classes:
        if not _is_integer(word) and _is_real(word):
            rule, expected = "a class is a word or an integer", "such as 'physics' or 3"
            raise refuse(labels.where(_row_of(words, word)), rule, expected, repr(word))
    read = titles[0], labels.title("split")
    return y, classes, tuple(title for title in labels.columns if title not in read)


def _numbered(words: Any) -> tuple[Tensor, tuple[str, ...]]:
    """The number of each word, −1 of none, and the words in the order of the numbers.

    That order is the one of numbers if all are integers, else of the alphabet.
    """
    codes = words.dictionary_encode()
    distinct = codes.dictionary.to_pylist()
    key = (lambda word: (int(word), word)) if all(map(_is_integer, distinct)) else None
    ordered = sorted(distinct, key=key)
    number = {word: place for place, word in enumerate(ordered)}
    places = torch.tensor([*(number[word] for word in distinct), -1])
    rows = codes.indices.fill_null(len(distinct)).to_numpy().astype(np.int64)
    return places[torch.from_numpy(rows)], tuple(ordered)


def _is_integer(word: str) -> bool:
    return word.removeprefix("-").isdecimal() and len(word) <= _DIGITS


def _is_real(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _masks(labels: Table) -> dict[str, NDArray[np.bool_]]:
    """The masks (R, S) of the parts, (R, 1) of one that is said of every split."""
    title = labels.title("split")
    if title is None:
        return {
            key: mask[:, None] if mask.ndim == 1 else mask for key, mask in labels.masks.items()
        }
    pa, words = arrow(), as_text(labels.columns[title])
    row = _row_of(pa.compute.is_in(words, value_set=pa.array(["", *PARTS])), False)
    if row >= 0:
        rule, expected = "a part of the split has a name", f"{', '.join(PARTS)} or nothing"
        raise refuse(labels.where(row), rule, expected, repr(words[row].as_py()))
    named = words.to_numpy(zero_copy_only=False)
    return {key: (named == part)[:, None] for key, part in zip(MASKS, PARTS, strict=True)}


# A Data -------------------------------------------------------------------------------------------

# What the pickles of Data and HeteroData name, beside tensors.
SAFE = (
    *(Data, HeteroData, DataEdgeAttr, DataTensorAttr, EdgeLayout),
    *(BaseStorage, GlobalStorage, NodeStorage, EdgeStorage),
)


def _from_file(path: Path) -> Data:
    """The ``Data`` that ``torch.save`` wrote, or the only graph that PyG has processed."""
    content = content_of(path)
    try:
        listed = torch.serialization.get_safe_globals()  # what is listed already stays afterwards
        lacking = [kind for kind in SAFE if kind not in listed]
        with warnings.catch_warnings(), torch.serialization.safe_globals(lacking):
            warnings.simplefilter("ignore")  # torch warns of foreign files that it then refuses
            if content.startswith(b"PK"):  # other files hold their tensors as they are
                open_archive(content).close()
            loaded = torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"Unsupported (?:global|class)\S* (?:GLOBAL )?(\S+)", str(error))
        said = re.search(r"WeightsUnpickler error:\s*([^\n]+)", str(error))
        reason = named[1] if named else f"another pickle ({said[1] if said else error})"
        rule = f"{path} holds tensors and a Data only, as anything else could run code"
        raise RefusedValue(rule, "tensors, numbers and text", reason) from error
    except Exception as error:  # of a file that is damaged or no file of torch's
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise RefusedValue(f"{path} must be whole", "a file of torch.save", reason) from error
    if isinstance(loaded, tuple) and len(loaded) == 3 and isinstance(loaded[0], dict):  # by PyG
        loaded, slices, kind = loaded
        if slices is not None or kind is not Data:
            got = "a dataset of several, or another kind"
            raise RefusedType(f"{path} holds one graph", "a Data", got)
    return _one(Data.from_dict(loaded) if isinstance(loaded, dict) else loaded, str(path))


def _from_function(name: str) -> Data:
    """What ``module:function`` returns; the module is found as ``python -m`` finds it here."""
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        rule = "the module of a function can be imported"
        raise RefusedValue(rule, f"{module} in {here} or installed", "no such module") from error
    finally:
        sys.path.remove(here)
    maker = getattr(imported, function, None)
    if not callable(maker):
        raise RefusedValue(f"{module} has a function {function}", "a function", repr(maker))
    try:
        inspect.signature(maker).bind()
    except (TypeError, ValueError) as error:  # ValueError: of a builtin that does not say it
        rule = f"{name} is called without arguments"
        raise RefusedType(rule, "a function that needs none", str(error)) from None
    return _one(maker(), name)


def _one(loaded: Any, origin: str) -> Data:
    if isinstance(loaded, pyg.Dataset) and len(loaded) == 1:
        loaded = loaded[0]
    if isinstance(loaded, HeteroData):
        expected = "a Data, such as HeteroData.to_homogeneous() makes"
        raise RefusedType(f"{origin} has one type of nodes", expected, "a HeteroData")
    if not isinstance(loaded, Data):
        raise RefusedType(f"{origin} is one graph", "a Data", type(loaded).__name__)
    return loaded


# The tensors that are read: the number of their axes, and what they hold.
_READ = {
    "edge_index": ((2,), "integers"),
    "y": ((1,), "integers"),
    "x": ((2,), "real numbers"),
    "edge_weight": ((1,), "real numbers"),
    "edge_type": ((1,), "integers"),
    **dict.fromkeys(MASKS, ((1, 2), "booleans")),
}


def _of_data(loaded: Data, origin: str) -> _Graph:
    """The parts of a ``Data`` that training reads."""
    data = Data()
    for key in _READ:
        value = loaded.get(key)
        if value is not None:
            data[key] = _tensor(value, key, origin)
        elif key in ("edge_index", "y"):
            raise RefusedValue(f"{origin} has {key}", f"a tensor {key}", "none")
    data.num_nodes = loaded.num_nodes
    edge, node = (
        lambda row, what=what: f"{origin}, {what} {row}" if row >= 0 else origin
        for what in ("edge", "node")
    )
    where = {"edges": edge, "features": node, "labels": node, "masks": lambda split: origin}
    for key, place in (("x", node), ("edge_weight", edge)):
        if key in data:
            exact = data[key] if data[key].dtype == torch.float64 else data[key].float()
            data[key] = as_float32(exact.numpy(), place, f"{key} is finite")
    return _Graph(data, where, {"": tuple(sorted(set(loaded.keys()) - {*_READ, "num_nodes"}))})


def _count(numbers: Tensor | None) -> int:
    return 0 if numbers is None or not numbers.numel() else int(numbers.max()) + 1


def _tensor(value: Any, key: str, origin: str) -> Tensor:
    """The tensor without gradients, dense, and with its axes."""
    (axes, kind), rule = _READ[key], f"{key} of {origin} holds numbers"
    if not isinstance(value, Tensor):
        raise RefusedType(rule, "a tensor", type(value).__name__)
    for odd, has in (
        ("meta", value.is_meta),
        ("quantized", value.is_quantized),
        ("nested", value.is_nested),
        ("0-dimensional", not value.dim()),
    ):
        if has:
            raise RefusedType(rule, "rows with a number in each place", f"a {odd} tensor")
    is_strided, size = value.layout == torch.strided, value.numel() * value.element_size()
    if size > UNPACKED_LIMIT and not (is_strided and value.untyped_storage().nbytes() >= size):
        raise RefusedValue(f"{rule}, unpacked within a bound", f"<= {UNPACKED_LIMIT} bytes", size)
    dense = value if is_strided else value.to_dense()
    dense = dense.detach().resolve_conj().resolve_neg()
    if axes == (1,) and dense.dim() == 2 and dense.size(1) == 1:  # as OGB has classes
        dense = dense[:, 0]
    is_boolean, is_real = dense.dtype == torch.bool, not dense.is_complex()
    fits = {
        "integers": is_real and not is_boolean and not dense.is_floating_point(),
        "real numbers": is_real,
        "booleans": is_boolean and dense.numel() > 0,
    }
    if not fits[kind] or dense.dim() not in axes:
        expected = f"{kind} of {' or '.join(map(str, axes))} axes"
        raise RefusedType(f"{key} of {origin} holds {kind}", expected, dense)
    return dense.long() if kind == "integers" else dense


# Mapped files -------------------------------------------------------------------------------------


def _mapped(source: Source, log: Callable[[str], None] | None) -> Dataset:
    """A graph in mapped files: features and edges stay there, classes and the split are read."""
    if source.undirected:
        rule = "the edges of a graph in mapped files are those of the files"
        raise RefusedValue(rule, "no --undirected, but files that have both directions", "it")
    graph = open_mapped(Path(source.data or ""))
    graph.arrays.verify("y", "split")
    y, split, place = graph.y, graph.split, graph.folder
    _in_range(y, -1, graph.num_classes, f"{place / 'y.npy'}: a node has a class, or −1")
    _in_range(split, 0, len(MAPPED_PARTS), f"{place / 'split.npy'}: a node is in a part, or 0")
    masks = {key: split == number for number, key in enumerate(MASKS, 1)}
    for part, mask in zip(MAPPED_PARTS[1:], masks.values(), strict=True):  # before a basis is made
        if not bool(mask.any()):
            rule = f"{place / 'split.npy'}: every part of a split needs a node"
            raise RefusedValue(rule, f"{part} nodes", "none")
    data = Data(x=graph.x, y=y, num_nodes=graph.num_nodes, **masks)

    def broken(part: str, number: int, *rule: Any) -> RefusedValue:
        return refuse(f"{place}, node {number}" if part == "labels" else str(place), *rule)

    check_own(data, tuple(map(str, range(graph.num_classes))), broken)
    if log is not None and (lacking := int((y < 0).sum())):
        log(f"{source.name}: {lacking} of {graph.num_nodes} nodes have no label")
    counts = graph.num_nodes, graph.num_edges, graph.x.size(1), graph.num_classes, 0
    entry = _entry(source, *counts, splits=("public",), draws_splits=False)
    return Dataset(entry, data, None, graph.fingerprint, source=source, mapped=graph)


def _in_range(numbers: Tensor, least: int, count: int, rule: str) -> None:
    for number in (int(numbers.min()), int(numbers.max())) if numbers.numel() else ():
        if not least <= number < count:
            raise RefusedValue(rule, f"[{least}, {count})", number)
