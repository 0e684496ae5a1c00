"""Reading a dataset: by PyG's class, or from the copy of the graph in the cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch_geometric
from torch import Tensor
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ...errors import RefusedIndex, RefusedValue
from ...files import (
    CACHE_VARIABLE,
    cache_folder,
    data_root,
    load_tensors,
    save_tensors,
    sweep,
    temporary_name,
)
from ...scale.mapped import MappedGraph
from .checks import check_graph, check_listed_edges, read_checked
from .embedded import read_embedded
from .reader import construct, download
from .registry import DataUnavailable, Entry, entry
from .selections import SELECTIONS
from .source import Source
from .undirected import make_undirected

DEFAULT = "Cora"  # what is trained on where no dataset is named
EMBEDDED = "KarateClub"  # what is drawn where no dataset is named


@dataclass(frozen=True)
class Dataset:
    """A graph that was read.

    Attributes:
        entry: its entry in the registry.
        data: PyG ``Data`` with ``y`` (N,), −1 where a node has no label; masks as PyG has them. A
            set of graphs is their disjoint union, see :func:`.unions.union_of`.
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

    def require_memory(self, what: str, instead: str) -> None:
        """Refuse a graph in mapped files, for what reads a whole graph into memory.

        Raises:
            ValueError: naming what was to be done, and what works instead.
        """
        if self.mapped is not None:
            raise RefusedValue(f"{what} reads a whole graph into memory", instead, self.place)

    def node_name(self, node: int) -> str:
        """The name of a node."""
        return self.nodes[node] if self.nodes else str(node)

    def node_number(self, name: str) -> int:
        """The number of the node of a name.

        Raises:
            IndexError: the graph has no such node.
        """
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

    @property
    def place(self) -> str:
        """Where it was read, for messages."""
        if self.source is not None:
            named = self.source.data, self.source.edges, self.source.features, self.source.labels
            return ", ".join(filter(None, named))
        return "the package" if self.root is None else str(self.root)

    @property
    def num_relations(self) -> int:
        """Number of edge types, 1 where edges have none."""
        types = self.data.get("edge_type")
        return 1 if types is None or not types.numel() else int(types.max()) + 1


def load(
    name: str,
    root: str | Path | None = None,
    split: str | None = None,
    log: Callable[[str], None] | None = None,
    undirected: bool = False,
) -> Dataset:
    """Read a dataset; PyG downloads what is absent and does not come with the package.

    Files are compared with the checksums of the registry before anything reads them. One whose
    checksum is not known is read if nothing in a file of its kind can run code; see :mod:`.checks`.

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
    known = entry(name).for_split(split)
    lacking = [module for module in known.requires if importlib.util.find_spec(module) is None]
    if lacking:
        missing = "ogb" if "ogb" in lacking else "'pyg_outerconv[train]'"
        raise DataUnavailable(
            f"{known.name} is read with {' and '.join(lacking)}, not installed here: "
            f"pip install {missing}"
        )
    if known.folder is None:
        data, place = getattr(pyg_datasets, known.reader)(**known.arguments)[0], None
    elif known.embedded and known.missing(data_root(root)):
        log(f"{known.name} is not below {data_root(root)}: the copy inside pyg_outerconv is read")
        data, place = read_embedded(known), None
    else:
        place = data_root(root)
        data = _read(known, place, log)
    if undirected:
        make_undirected(data, known.name)
    return Dataset(known, data, place, fingerprint(data))


def _read(known: Entry, root: Path, log: Callable[[str], None]) -> Data:
    """The graph of the raw files; a copy is cached in the cache folder."""
    if known.missing(root):
        log(f"{known.name} is not below {root}: downloading")
        if record := download(known, root):
            log(
                f"{known.name}: files without a known checksum are recorded in {record}, and held "
                "against it from now on"
            )
    contents = read_checked(known, root)
    home = cache_folder() / "graphs" / "-".join([known.name, *map(str, known.arguments.values())])
    kept = home / f"{_key(known, root, contents)}.pt"
    try:
        home.mkdir(parents=True, exist_ok=True)
        sweep(home)
        return Data.from_dict(load_tensors(kept))
    except FileNotFoundError:
        pass
    except RefusedValue as error:  # damaged, or written by another version
        log(f"{error}; the graph is read from its raw files, and cached anew")
    except OSError as error:
        raise _unusable_cache(home, error) from error
    return _read_anew(known, root, contents, kept)


def _read_anew(known: Entry, root: Path, contents: dict[str, bytes], kept: Path) -> Data:
    check_listed_edges(known, root, contents)
    place = kept.with_name(temporary_name("reading"))
    try:
        for name, content in contents.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(content)
        data = _with_labels(construct(known, root, place))
        check_graph(known, root, data)
        if known.keeps:
            data = SELECTIONS[known.keeps](data)
        save_tensors(kept, data.to_dict())
    except OSError as error:
        raise _unusable_cache(kept.parent, error) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
    for other in kept.parent.glob(kept.name.split("-")[0] + "-*"):
        if other != kept:
            other.unlink(missing_ok=True)  # of this root as it was before
    return data


def _unusable_cache(home: Path, error: OSError) -> DataUnavailable:
    return DataUnavailable(
        f"the cache folder {home} cannot be used ({error.strerror}): name another with "
        f"{CACHE_VARIABLE}"
    )


def _key(known: Entry, root: Path, contents: dict[str, bytes]) -> str:
    """A name that changes with the root, its raw files and the version of PyG that reads them."""
    compared = {} if known.copies_differ else known.files  # when they were read
    files = {
        name: compared.get(name) or hashlib.sha256(content).hexdigest()
        for name, content in contents.items()
    }
    state = repr([torch_geometric.__version__, sorted(files.items())])
    parts = (str(known.home(root)), state)
    return "-".join(hashlib.sha256(part.encode()).hexdigest()[:16] for part in parts)


def _with_labels(data: Data) -> Data:
    """Entities name labelled nodes by index: give them ``y`` and masks as other datasets have."""
    if "train_idx" not in data:
        return data
    num_nodes = int(data.num_nodes or 0)
    data.y = torch.full((num_nodes,), -1, dtype=torch.long)
    for part in ("train", "test"):
        index = data[f"{part}_idx"]
        data.y[index] = data[f"{part}_y"]
        mask = torch.zeros(num_nodes, dtype=torch.bool)
        mask[index] = True
        data[f"{part}_mask"] = mask
        del data[f"{part}_idx"], data[f"{part}_y"]
    return data


def fingerprint(data: Data, further: tuple[str, ...] = ()) -> str:
    """The sha256 over structure, features and labels, and further tensors of a graph."""
    digest = hashlib.sha256()
    for key in ("edge_index", "edge_type", "edge_weight", "x", "y", "batch", *further):
        value = data.get(key)
        if isinstance(value, Tensor):
            digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()
