"""Arrays in a folder, written in bounded memory and opened by memory map; graphs made of these.

A folder has one ``.npy`` file for each array, and ``header.json`` with their types, shapes and
checksums. The header is written last: a folder without it is none. What is made of a graph once is
kept beside it in such folders, too.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..basis import Basis
from ..basis.edge_sets import edge_sets, outline, with_edge_sets
from ..basis.edges import EdgeBasis
from ..basis.subpattern import of_rows
from ..errors import RefusedValue
from ..families import Family
from ..files import as_path, load_json, reserve, save_json, sweep, temporary_name
from ..graph import Graph
from ..signatures import typed
from .samples import Carried, partition

FORMAT = 1
HEADER = "header.json"
PARTS = ("none", "train", "validation", "test")
"""What the numbers in the array ``split`` of a graph mean."""

_BLOCK = 2**24  # bytes that are read at once for a checksum


class ArrayWriter:
    """Creates the arrays of a folder, to be filled part by part, and then its header.

    Args:
        folder: a new or empty folder.

    Raises:
        ValueError: there are files in the folder, or it cannot be written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = as_path(folder, "a folder of arrays")
        self._was_there = self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            occupied = any(self.folder.iterdir())
        except OSError as error:
            raise _unusable(self.folder, error) from error
        if occupied:
            raise RefusedValue("arrays get a folder of their own", "an empty one", self.folder)
        self._arrays: dict[str, Any] = {}

    def __enter__(self) -> ArrayWriter:
        """A block that fills the arrays; if it fails, what was written goes."""
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            return
        with suppress(OSError):
            for name in (HEADER, *(f"{name}.npy" for name in self._arrays)):
                (self.folder / name).unlink(missing_ok=True)
            if not self._was_there:
                self.folder.rmdir()

    @classmethod
    @contextmanager
    def at(cls, place: Path) -> Iterator[ArrayWriter]:
        """A block that writes a folder, which stands at its place once it is finished.

        What killed processes left there is removed. The folder of a faster process stays.
        """
        temporary = place.with_name(temporary_name(place.name))
        try:
            sweep(place.parent, [place.name])
            yield cls(temporary)
            os.rename(temporary, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise _unusable(place, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def create(self, name: str, dtype: str, *shape: int) -> Any:
        """A new array of zeros in a file that has its space, to be written by slices."""
        path, kind = self.folder / f"{name}.npy", np.dtype(dtype)
        self._arrays[name] = None
        header = {"descr": kind.str, "fortran_order": False, "shape": shape}
        try:
            with path.open("xb") as file:
                np.lib.format.write_array_header_1_0(file, header)
                file.flush()
                begin = file.tell()
                reserve(file, begin + kind.itemsize * math.prod(shape))
            array = np.memmap(path, kind, "r+", begin, shape)
        except OSError as error:
            raise _unusable(self.folder, error) from error
        self._arrays[name] = array
        return array

    def finish(self, facts: dict[str, Any]) -> None:
        """Write all to the disk, and then the header with checksums and some facts."""
        files = {}
        try:
            for name, array in self._arrays.items():
                array.flush()
                layout = {"dtype": array.dtype.str, "shape": list(array.shape)}
                files[name] = {**layout, "sha256": _sha256(self.folder / f"{name}.npy")}
            save_json(self.folder / HEADER, {"format": FORMAT, "files": files, "facts": facts})
        except OSError as error:
            raise _unusable(self.folder, error) from error
        self._arrays.clear()


class Arrays(dict[str, Tensor]):
    """The arrays of a folder by name, over mapped files, opened without reading them.

    Args:
        folder: what an :class:`ArrayWriter` has finished.
        verify: whether to read all files once and compare their checksums.

    Raises:
        ValueError: there is no header as a writer left it; a file is missing, is no plain file of
            the folder, has another size, type or shape than the header says, or, with ``verify``,
            another checksum.
    """

    def __init__(self, folder: str | Path, verify: bool = False) -> None:
        self.folder = as_path(folder, "a folder of arrays")
        try:
            header = load_json(self.folder / HEADER)
        except OSError as error:
            raise RefusedValue(
                f"{self.folder} must be a finished folder of arrays", HEADER, error.strerror
            ) from error
        if header.get("format") != FORMAT:
            rule = f"{self.folder / HEADER} must be of this version"
            raise RefusedValue(rule, f"format {FORMAT}", header.get("format"))
        self.facts: dict[str, Any] = header["facts"]
        self.checksums = {name: entry["sha256"] for name, entry in header["files"].items()}
        super().__init__({name: self._open(name, one) for name, one in header["files"].items()})
        if verify:
            self.verify(*self)

    def _open(self, name: str, entry: dict[str, Any]) -> Tensor:
        path = self.folder / f"{name}.npy"
        try:
            if not path.is_file() or path.resolve().parent != self.folder.resolve():
                raise OSError("no plain file of the folder")
            # torch has no read-only tensors: writes, which nothing does, would stay in memory.
            array = np.lib.format.open_memmap(path, mode="c")
            tensor = torch.from_numpy(array)
        except (OSError, ValueError, TypeError, OverflowError) as error:  # shorter than it says
            rule = f"{path} must be as it was written"
            raise RefusedValue(rule, f"{entry['dtype']} {entry['shape']}", str(error)) from error
        for what, value in (("dtype", array.dtype.str), ("shape", list(array.shape))):
            if value != entry[what]:
                raise RefusedValue(f"{path} must have its {what}", entry[what], value)
        return tensor

    def verify(self, *names: str) -> None:
        """Read some arrays once, and compare their checksums."""
        for name in names:
            path, expected = self.folder / f"{name}.npy", self.checksums[name]
            try:
                sha256 = _sha256(path)
            except OSError as error:
                raise RefusedValue(f"{path} must be readable", "a file", error.strerror) from error
            if sha256 != expected:
                raise RefusedValue(f"{path} must have its sha256", expected, sha256)


@dataclass(frozen=True)
class MappedGraph:
    """A graph in a folder: edges in rows of their targets, features, classes and a split.

    Attributes:
        arrays: the folder.
        ptr: (N + 1,) the edges into node n are ``ptr[n]:ptr[n + 1]``.
        source: (E,) their sources.
        x: (N, P) float32 or float16.
        y: (N,) classes, −1 where there is none.
        split: (N,) places in ``PARTS``.
    """

    arrays: Arrays
    ptr: Tensor
    source: Tensor
    x: Tensor
    y: Tensor
    split: Tensor

    @property
    def folder(self) -> Path:
        """Where it is."""
        return self.arrays.folder

    @property
    def fingerprint(self) -> str:
        """A checksum of all, made of those in the header: nothing else is read."""
        checksums = sorted(self.arrays.checksums.items())
        return hashlib.sha256(repr((checksums, self.num_classes)).encode()).hexdigest()

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.y.numel()

    @property
    def num_edges(self) -> int:
        """E, parallel edges counted each."""
        return self.source.numel()

    @property
    def num_classes(self) -> int:
        """C."""
        return int(self.arrays.facts["num_classes"])

    def nodes(self, part: str) -> Tensor:
        """The nodes that ``'train'``, ``'validation'`` or ``'test'``."""
        return (self.split == PARTS.index(part)).nonzero().view(-1)


def open_mapped(folder: str | Path, verify: bool = False) -> MappedGraph:
    """Open a graph without reading it.

    Raises:
        ValueError: the folder holds no graph, or a file is not as it was written.
    """
    arrays = Arrays(folder, verify)
    if lacking := [name for name in _KINDS if name not in arrays]:
        raise RefusedValue(f"{arrays.folder} must be a graph", ", ".join(_KINDS), f"no {lacking}")
    for name, (rank, kinds) in _KINDS.items():
        got = arrays[name]
        if got.dim() != rank or got.dtype not in kinds:
            rule = f"{arrays.folder / name}.npy must be an array of a graph"
            expected = f"{' or '.join(map(str, kinds))} with {rank} axes"
            raise RefusedValue(rule, expected, f"{got.dtype} {tuple(got.shape)}")
    ptr, source, x, y, split = (arrays[name] for name in _KINDS)
    sizes = (ptr.numel() - 1, x.size(0), split.numel())
    if set(sizes) != {y.numel()} or int(ptr[-1]) != source.numel():
        rule = f"the arrays in {arrays.folder} must be of one graph"
        expected = f"{y.numel()} nodes, and {source.numel()} edges as ptr ends by"
        raise RefusedValue(rule, expected, f"{sizes} and {ptr[-1:].tolist()}")
    classes = arrays.facts.get("num_classes")
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        rule = f"{arrays.folder / HEADER} must say how many classes there are"
        raise RefusedValue(rule, "num_classes among its facts, at least 1", classes)
    return MappedGraph(arrays, ptr, source, x, y, split)


_KINDS = {  # the number of axes and the types of each array
    "ptr": (1, (torch.int64,)),
    "source": (1, (torch.int32, torch.int64)),
    "x": (2, (torch.float32, torch.float16)),
    "y": (1, (torch.int64,)),
    "split": (1, (torch.uint8,)),
}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _unusable(folder: Path, error: OSError) -> RefusedValue:
    return RefusedValue("arrays must be written", f"a folder with space at {folder}", error)


# What is made of a graph, and kept beside it ------------------------------------------------------

Log = Callable[[str], None]


@typed
def carried_by(graph: MappedGraph, family: Family, log: Log | None = None) -> Carried:
    """The basis of a mapped graph, made in memory at the first call and mapped from then on.

    Its edges, labels and values are kept in a folder ``basis-…`` of the graph's folder. Making them
    takes some 60 bytes of memory for each edge; opening them reads none.

    Args:
        graph: the graph; its edges are compared with their checksums when the basis is made.
        family: the recipe of the basis.
        log: called with a line when the basis is made.

    Raises:
        ValueError: samples cannot carry the basis, see :class:`.Carried`; the family needs
            more than edges; or files are damaged, or cannot be written.
    """
    if not issubclass(Graph, family.reads):
        rule = "a graph in mapped files has edges"
        raise RefusedValue(rule, "a family that reads them", repr(family))
    place = graph.folder / f"basis-{zlib.crc32(repr(family).encode()):08x}"
    if not (place / HEADER).exists():
        if log is not None:
            log(f"makes the basis of {graph.num_edges} edges, to be kept in {place}")
        _write(place, graph, family)
    arrays, size = Arrays(place), (graph.num_nodes, graph.num_nodes)
    _require(arrays, {"family": repr(family), "graph": _edges_of(graph)})
    bare = Graph(torch.empty((2, 0), dtype=torch.long), size, is_bare=True)
    frame = family.basis_on(bare, torch.float32)
    labels = enumerate(arrays.facts["labels"])
    sets = [_opened(arrays, number, count, size) for number, count in labels]
    basis: Basis = with_edge_sets(frame, lambda old_sets: sets[: len(old_sets)])
    _require(arrays, {"outline": outline(basis)})
    return Carried(family, bare, basis, mapped=True)


@typed
def clusters_of(graph: MappedGraph, parts: int, log: Log | None = None) -> Tensor:
    """(N,) the clusters of a mapped graph by METIS, made at the first call, then mapped.

    They are kept in a folder ``clusters-…`` of the graph's folder. METIS reads the whole graph into
    memory, some 100 bytes for each edge.

    Raises:
        ValueError: pymetis is not installed, there are more parts than nodes, or files are damaged,
            or cannot be written.
    """
    place = graph.folder / f"clusters-{parts}"
    if not (place / HEADER).exists():
        if log is not None:
            log(f"finds {parts} clusters of {graph.num_edges} edges, to be kept in {place}")
        _check_edges(graph)
        clusters = partition([(graph.ptr, graph.source)], graph.num_nodes, parts)
        with ArrayWriter.at(place) as writer:
            _add(writer, "cluster", clusters)
            writer.finish({"graph": _edges_of(graph)})
    arrays = Arrays(place)
    _require(arrays, {"graph": _edges_of(graph)})
    return arrays["cluster"]


def _edges_of(graph: MappedGraph) -> str:
    """The checksums of the edges."""
    return ",".join(graph.arrays.checksums[name] for name in ("ptr", "source"))


def _require(arrays: Arrays, expected: dict[str, Any]) -> None:
    facts = {name: arrays.facts.get(name) for name in expected}
    if facts != expected:
        rule = f"{arrays.folder} must be of this graph; it can be removed, and is made again"
        raise RefusedValue(rule, expected, facts)


def _opened(arrays: Arrays, number: int, labels: int, size: tuple[int, int]) -> EdgeBasis:
    ptr, source = arrays[f"ptr-{number}"], arrays[f"source-{number}"]
    label, value = arrays.get(f"label-{number}"), arrays.get(f"value-{number}")
    return EdgeBasis(of_rows(ptr, source, label, size=size, num_labels=labels), value)


def _check_edges(graph: MappedGraph) -> None:
    """Raise ValueError unless the edges are as they were written, and between nodes."""
    graph.arrays.verify("ptr", "source")
    if int(graph.ptr[0]) or bool((graph.ptr.diff() < 0).any()):
        rule = f"{graph.folder / 'ptr.npy'} must point to the edges of each node"
        raise RefusedValue(rule, "numbers from 0 that ascend", "other ones")
    for node in graph.source.aminmax() if graph.num_edges else ():
        if not 0 <= int(node) < graph.num_nodes:
            rule = f"{graph.folder / 'source.npy'} must hold nodes"
            raise RefusedValue(rule, f"[0, {graph.num_nodes})", int(node))


def _write(place: Path, graph: MappedGraph, family: Family) -> None:
    _check_edges(graph)
    target = torch.arange(graph.num_nodes).repeat_interleave(graph.ptr.diff())
    size = (graph.num_nodes, graph.num_nodes)
    structure = Graph(torch.stack([graph.source.long(), target]), size)
    del target
    basis = family.basis_on(structure, torch.float32)
    Carried(family, structure, basis)  # refuses what samples cannot carry
    del structure
    labels = []
    with ArrayWriter.at(place) as writer:
        for number, edges in enumerate(edge_sets(basis)):
            value, pattern = edges.value, edges.pattern
            labels.append(edges.num_bases)
            parts = {"ptr": pattern.target_ptr.long(), "source": pattern.source, "value": value}
            parts["label"] = pattern.label if edges.num_bases > 1 else None
            for name, part in parts.items():
                if part is not None:
                    _add(writer, f"{name}-{number}", part)
        facts = {"family": repr(family), "graph": _edges_of(graph)}
        writer.finish({**facts, "labels": labels, "outline": outline(basis)})


def _add(writer: ArrayWriter, name: str, part: Tensor) -> None:
    writer.create(name, str(part.dtype).removeprefix("torch."), *part.shape)[:] = part.numpy()
