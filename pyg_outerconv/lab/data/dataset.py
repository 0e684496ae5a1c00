"""Reading a dataset: by PyG's class, or from the copy of the graph in the cache folder."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
import torch_geometric
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ... import files
from ...errors import RefusedIndex, RefusedValue, refusal
from ...scale.mapped import MappedGraph
from ..fields import require_modules
from ..source import Source
from .graph import MASKS, fingerprint, make_undirected
from .raw import download, read_one, read_raw
from .registry import DataUnavailable, Entry, entry, shipped

DEFAULT = "Cora"  # what is trained on where no dataset is named
EMBEDDED = "KarateClub"  # what is drawn where no dataset is named


@dataclass(frozen=True)
class Dataset:
    """A graph that was read.

    Attributes:
        entry: its entry in the registry.
        data: PyG ``Data`` with ``y`` (N,), −1 where a node has no label; masks as PyG has them. A
            set of graphs is their disjoint union, see :func:`.graph.union_of`.
        root: folder of the data, None for an embedded dataset and for a graph of one's own.
        fingerprint: sha256 over structure, features and labels; of a graph of one's own also over
            its split and names.
        nodes, classes: their names in a graph of one's own; else empty, and numbers are names.
        source: where a graph of one's own was read.
        mapped: the graph whose features and edges stay in mapped files; ``data`` has no edges then,
            and its ``x`` is the mapped array.
    """

    entry: Entry
    data: Data
    root: Path | None
    fingerprint: str
    nodes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    source: Source | None = None
    mapped: MappedGraph | None = None

    @property
    def num_nodes(self) -> int:
        """N."""
        return int(self.data.num_nodes or 0)

    @property
    def num_edges(self) -> int:
        """E, parallel edges counted each."""
        return int(self.data.num_edges) if self.mapped is None else self.mapped.num_edges

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.data.y.max()) + 1 if self.mapped is None else self.mapped.num_classes

    @property
    def num_relations(self) -> int:
        """Number of edge types, 1 where edges have none."""
        types = self.data.get("edge_type")
        return 1 if types is None or not types.numel() else int(types.max()) + 1

    @property
    def place(self) -> str:
        """Where it was read, for messages."""
        if self.source is not None:
            named = self.source.data, self.source.edges, self.source.features, self.source.labels
            return ", ".join(filter(None, named))
        return "the package" if self.root is None else str(self.root)

    def require_memory(self, what: str, instead: str) -> None:
        """Refuse a graph in mapped files, for what reads a whole graph into memory."""
        if self.mapped is not None:
            raise RefusedValue(f"{what} reads a whole graph into memory", instead, self.place)

    def node_name(self, node: int) -> str:
        """The name of a node."""
        return self.nodes[node] if self.nodes else str(node)

    def node_number(self, name: str) -> int:
        """The number of the node of a name."""
        if self.nodes:
            if name in self.nodes:
                return self.nodes.index(name)
            shown = ", ".join(map(repr, self.nodes[:3]))
            expected = f"one of {self.num_nodes} names, such as {shown}"
            raise RefusedIndex(f"a node of {self.entry.name} has a name", expected, repr(name))
        if not name.isdecimal() or int(name) >= self.num_nodes:
            rule = f"a node of {self.entry.name} has a number"
            raise RefusedIndex(rule, f"[0, {self.num_nodes})", name)
        return int(name)

    def class_name(self, label: int) -> str:
        """The name of a class."""
        return self.classes[label] if self.classes else str(label)


def load(
    name: str,
    root: str | Path | None = None,
    split: str | None = None,
    log: Callable[[str], None] | None = None,
    undirected: bool = False,
) -> Dataset:
    """Read a dataset; PyG downloads what is absent and does not come with the package.

    Files are compared with the checksums of the registry before anything reads them. One whose
    checksum is not known is read if nothing in a file of its kind can run code; see :mod:`.raw`.

    Args:
        name: a name in the registry, in any case.
        root: see :func:`data_root`.
        split: the split protocol, which may have files of its own.
        log: called with a line on a download or a damaged cached copy; None writes to stderr.
        undirected: add the reverse of each edge that is listed one way only.

    Raises:
        ValueError: the name is unknown; or an undirected edge has two weights.
        DataUnavailable: files are absent and cannot be downloaded, are not those that the registry
            knows, or are damaged; or the reader needs a module that is not installed.
    """
    log = log or partial(print, file=sys.stderr)
    dataset_entry = entry(name).for_split(split)
    extra = "ogb" if "ogb" in dataset_entry.requires else "'pyg_outerconv[train]'"
    require_modules(
        f"{dataset_entry.name} is read with", dataset_entry.requires, extra, DataUnavailable
    )
    if dataset_entry.folder is None:
        data, place = (
            getattr(pyg_datasets, dataset_entry.reader)(**dataset_entry.arguments)[0],
            None,
        )
    elif dataset_entry.embedded and dataset_entry.missing(files.data_root(root)):
        below = files.data_root(root)
        log(f"{dataset_entry.name} is not below {below}: the copy inside pyg_outerconv is read")
        data, place = _embedded(dataset_entry.embedded), None
    else:
        place = files.data_root(root)
        data = _read(dataset_entry, place, log)
    if undirected:
        make_undirected(data, lambda row: f"{dataset_entry.name}, edge {row}")
    return Dataset(dataset_entry, data, place, fingerprint(data))


def _read(dataset_entry: Entry, root: Path, log: Callable[[str], None]) -> Data:
    """The graph of the raw files; a copy is cached in the cache folder."""
    if dataset_entry.missing(root):
        log(f"{dataset_entry.name} is not below {root}: downloading")
        if record := download(dataset_entry, root):
            log(
                f"{dataset_entry.name}: files without a known checksum are recorded in {record}, "
                "and held against it from now on"
            )
    contents = {name: read_one(dataset_entry, root, name) for name in dataset_entry.files}
    home = (
        files.cache_folder()
        / "graphs"
        / "-".join([dataset_entry.name, *map(str, dataset_entry.arguments.values())])
    )
    kept, place = (
        home / f"{_key(dataset_entry, root, contents)}.pt",
        home / files.temporary_name("reading"),
    )
    try:
        home.mkdir(parents=True, exist_ok=True)
        files.sweep(home)
        try:
            return Data.from_dict(files.load_tensors(kept))
        except FileNotFoundError:
            pass
        except RefusedValue as error:  # damaged, or written by another version
            log(f"{error}; the graph is read from its raw files, and cached anew")
        data = read_raw(dataset_entry, root, contents, place)
        files.save_tensors(kept, data.to_dict())
    except OSError as error:
        raise DataUnavailable(
            f"the cache folder {home} cannot be used ({error.strerror}): name another with "
            f"{files.CACHE_VARIABLE}"
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for other in home.glob(kept.name.split("-")[0] + "-*"):
        if other != kept:
            other.unlink(missing_ok=True)  # of this root as it was before
    return data


def _key(dataset_entry: Entry, root: Path, contents: dict[str, bytes]) -> str:
    """A name that changes with the root, its raw files and the version of PyG that reads them."""
    compared = {} if dataset_entry.copies_differ else dataset_entry.files  # when they were read
    sums = {
        name: compared.get(name) or hashlib.sha256(content).hexdigest()
        for name, content in contents.items()
    }
    state = repr([torch_geometric.__version__, sorted(sums.items())])
    parts = (str(dataset_entry.home(root)), state)
    return "-".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts)


def _embedded(file: dict[str, str]) -> Data:
    """A graph that comes with the package, as PyG's class makes it of the published files.

    The file holds ``x_counts`` (N,) and ``x_columns``, the non-zeros of binary features row by row,
    ``x_width`` P, ``edge_index`` (2, E), ``y`` (N,) and ``part`` (N,), the place of the part of a
    node in ``PARTS`` from 1 on, 0 for none, in the integers that fit.
    """
    path = shipped(file["file"])
    try:
        content = files.read_bytes(path)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    got = hashlib.sha256(content).hexdigest()
    if got != file["sha256"]:
        rule = f"{path} must be as it comes with the package, by its sha256"
        again = f"{got}: install the package again"
        raise DataUnavailable(refusal(rule, file["sha256"], again))
    with np.load(BytesIO(content), allow_pickle=False) as arrays:
        packed = {name: torch.from_numpy(arrays[name].astype(np.int64)) for name in arrays.files}
    counts = packed["x_counts"]
    x = torch.zeros(counts.numel(), int(packed["x_width"]))
    x[torch.arange(counts.numel()).repeat_interleave(counts), packed["x_columns"]] = 1
    masks = {key: packed["part"] == place for place, key in enumerate(MASKS, start=1)}
    return Data(x=x, edge_index=packed["edge_index"], y=packed["y"], **masks)
