"""Raw files of data sets: within bounds, held against checksums, read by PyG, downloaded.

A file that differs from its checksum, or that could run code (Planetoid's are pickles), never
reaches a reader. Where no checksum is known, kinds are read in which nothing can run; and of files
that were downloaded the checksum is recorded in the cache folder, and compared from then on.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import math
import os
import pickle
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ... import files
from ...errors import Refused, RefusedValue, refusal
from .graph import MASKS, SELECTIONS, check_graph, union_of
from .registry import DataUnavailable, Entry, entry

LIMIT = 2**31  # bytes of one raw file, packed or unpacked
TEXT_LIMIT = 2**34  # bytes of one text file, unpacked


def read_one(dataset_entry: Entry, root: Path, name: str, home: Path | None = None) -> bytes:
    """The content of a raw file of a dataset, if it may be read."""
    path, expected = (home or dataset_entry.home(root)) / name, dataset_entry.files[name]
    first = recorded(dataset_entry, root)
    try:
        content = files.read_bytes(path, LIMIT)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read ({error.strerror})") from error
    got = hashlib.sha256(content).hexdigest()
    if got == expected:
        return content
    if expected is not None and not dataset_entry.copies_differ:
        rule = (
            f"{path} must be the file that the registry knows of {dataset_entry.name}, "
            "by its sha256"
        )
        raise DataUnavailable(refusal(rule, expected, f"{got}: another, or a damaged one"))
    if expected is None and first.get(name, got) != got:
        rule = f"{path} must be as it was first downloaded, by its sha256 in"
        rule = f"{rule} {record_of(dataset_entry, root)}"
        raise DataUnavailable(refusal(rule, first[name], f"{got}: another, or a damaged one"))
    try:
        look_into(path, content)
    except Refused as error:
        raise DataUnavailable(f"{path}, whose checksum is not known: {error}") from error
    except Exception as error:  # numpy, zipfile and zlib, each with its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataUnavailable(f"{path} is damaged ({reason})") from error
    return content


def verify(name: str, root: str | Path | None = None) -> dict[str, str]:
    """Compare the raw files of a dataset, those of all its protocols, with their checksums."""
    dataset_entry, folder = entry(name), files.data_root(root)
    first, states = recorded(dataset_entry, folder), {}
    for reading in map(dataset_entry.for_split, dataset_entry.splits):
        for file, expected in reading.files.items():
            states[file] = _compare(reading.home(folder) / file, expected or first.get(file))
    return states


def _compare(path: Path, expected: str | None) -> str:
    try:
        got = hashlib.sha256(files.read_bytes(path, LIMIT)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except OSError:
        return "cannot be read"
    if expected is None:
        return "no checksum known"
    return "matches" if got == expected else "differs"


# Checksums of what was downloaded -----------------------------------------------------------------


def record_of(dataset_entry: Entry, root: Path) -> Path:
    """The record of a dataset below a root."""
    place = hashlib.sha256(str(dataset_entry.home(root)).encode()).hexdigest()[:16]
    return files.cache_folder() / "checksums" / f"{dataset_entry.name}-{place}.json"


def recorded(dataset_entry: Entry, root: Path) -> dict[str, str]:
    """The sha256 of files as they were downloaded, by their names below the dataset's folder."""
    try:
        checksums = files.load_json(record_of(dataset_entry, root)).get("files")
    except FileNotFoundError:
        return {}
    except (OSError, RefusedValue) as error:
        raise DataUnavailable(
            f"checksums of {dataset_entry.name} cannot be read: {error}"
        ) from error
    if not isinstance(checksums, dict):
        raise DataUnavailable(f"{record_of(dataset_entry, root)} must hold checksums of files")
    return checksums


def record(dataset_entry: Entry, root: Path, contents: dict[str, bytes]) -> Path | None:
    """Record the files whose checksum is not known; None where there are none."""
    before = recorded(dataset_entry, root)
    new = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in contents.items()
        if dataset_entry.files[name] is None and name not in before
    }
    if not new:
        return None
    path = record_of(dataset_entry, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.save_json(
        path,
        {
            "dataset": dataset_entry.name,
            "folder": str(dataset_entry.home(root)),
            "files": before | new,
        },
    )
    return path


# Files without a checksum -------------------------------------------------------------------------


def look_into(path: Path, content: bytes) -> None:
    """Refuse a file that could run code, is cut off, or has indices beyond its arrays.

    numpy, scipy, zipfile and zlib raise errors of their own for damaged files.
    """
    look = next((look for kind, look in _KINDS.items() if path.name.endswith(kind)), None)
    if look is None:
        rule = "only files of a kind that cannot run code are read without a checksum"
        raise RefusedValue(rule, " or ".join(_KINDS), path.name)
    look(path.name, content)


def _text(name: str, content: bytes) -> None:
    if not content.endswith(b"\n"):
        raise RefusedValue("a text must be whole", "a line break at its end", "none")


def _array(name: str, content: bytes) -> None:
    check_array(name, len(content), BytesIO(content))
    np.load(BytesIO(content), allow_pickle=True)


def _arrays(name: str, content: bytes) -> None:
    with files.open_archive(content, LIMIT) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                check_array(member.filename, member.file_size, file)
    with np.load(BytesIO(content), allow_pickle=True) as arrays:
        for one in arrays.files:
            arrays[one]  # a damaged one is found here
            if one.endswith("_indptr"):
                _check_sparse(arrays, one.removesuffix("_indptr"))


def _compressed(name: str, content: bytes) -> None:
    """Text: its checksum is found out by unpacking it, and its size."""
    unpacked = 0
    with gzip.open(BytesIO(content)) as file:
        while block := file.read(2**20):
            unpacked += len(block)
            if unpacked > TEXT_LIMIT:
                rule = f"{name} is unpacked within a bound"
                raise RefusedValue(rule, f"<= {TEXT_LIMIT} bytes", "more")


_KINDS: dict[str, Callable[[str, bytes], None]] = {
    ".npz": _arrays,
    ".npy": _array,
    **dict.fromkeys((".json", ".mat"), lambda name, content: None),  # of which readers run nothing
    ".csv.gz": _compressed,
    **dict.fromkeys((".txt", ".tsv", ".edgelist"), _text),
}

# What a pickle of numpy's arrays names. Readers load arrays of objects by pickle: one that names
# nothing else makes arrays, numbers, text, lists and dictionaries, and runs nothing.
_HARMLESS = {
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *(("numpy", name) for name in ("ndarray", "dtype")),
    ("_codecs", "encode"),
}


class _Harmless(pickle.Unpickler):
    """Loads a pickle that names nothing but what makes numpy's arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            rule = "arrays hold numbers, text, lists and dictionaries; other objects could run code"
            raise RefusedValue(rule, "nothing else", f"{module}.{name}")
        return super().find_class(module, name)


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def check_array(
    name: str, size: int, file: IO[bytes], objects: bool = True
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array in a file of a size, if it may be loaded.

    Its shape fits its bytes, so that nothing larger is allocated; its objects, where it may have
    any, are harmless.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise RefusedValue("an array has a readable format", "1.0 or 2.0", version)
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        if not objects:
            raise RefusedValue(f"{name} has no objects, which could run code", "numbers", dtype)
        _Harmless(file, encoding="latin1").load()
    elif math.prod(shape) * dtype.itemsize != (there := size - file.tell()):
        raise RefusedValue(f"{name} must be whole", f"{shape} of {dtype}", f"{there} bytes")
    return shape, dtype


def _check_sparse(arrays: np.lib.npyio.NpzFile, name: str) -> None:
    parts = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
    shape = tuple(int(extent) for extent in arrays[f"{name}_shape"])
    if math.prod(shape) * 8 > LIMIT and name == "attr":  # which readers make dense
        raise RefusedValue(f"{name} has a bound", f"<= {LIMIT} bytes", f"shape {shape}")
    sp.csr_matrix(tuple(parts), shape).check_format(full_check=True)


# PyG's dataset classes, and ogb's readers ---------------------------------------------------------


def read_raw(dataset_entry: Entry, root: Path, contents: dict[str, bytes], place: Path) -> Data:
    """The graph of raw files, as PyG's class makes it, if its parts fit together.

    PyG loads what it finds processed beside raw files, and that can run code. So it reads copies,
    of the ``contents`` that :mod:`.raw` has checked, in a new folder ``place``.
    """
    _check_listed_edges(dataset_entry, root, contents)
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    data = _with_labels(_construct(dataset_entry, root, place))

    def broken(part: str, number: int, *rule: Any) -> DataUnavailable:
        return _refused(dataset_entry, root, *rule)

    check_graph(data, broken, dataset_entry.task == "graphs")
    return SELECTIONS[dataset_entry.keeps](data) if dataset_entry.keeps else data


def _construct(dataset_entry: Entry, root: Path, place: Path) -> Data:
    if dataset_entry.reader == "Entities":
        _process_in_child(dataset_entry, root, place)
    try:
        with quiet():
            if dataset_entry.reader == OGB:
                return _read_ogb(dataset_entry, place)
            read = _reader(dataset_entry, "download")(str(place), **dataset_entry.arguments)
            data: Data = union_of(read) if dataset_entry.task == "graphs" else read[0]
    except Exception as error:  # the reader's own formats fail in many ways
        raise _damaged(dataset_entry, root, f"{type(error).__name__}: {error}") from error
    return data


def _reader(dataset_entry: Entry, *skipped: str) -> Any:
    """PyG's class for a dataset, which skips some of its steps."""
    base = getattr(pyg_datasets, dataset_entry.reader)
    return type(base.__name__, (base,), dict.fromkeys(skipped, lambda *args: None))


# PyG numbers the nodes, relations and classes of Entities in the order of Python sets, which hold
# hashes of strings and of random blank-node names: another order in every process. A child with
# fixed hashes and counted names makes it one order, so that a seed means the same everywhere.
_CHILD = """
import itertools, json, sys, uuid
names = itertools.count(1)
uuid.uuid4 = lambda: uuid.UUID(int=next(names))
from torch_geometric import datasets
reader, place, arguments = json.loads(sys.argv[1])
getattr(datasets, reader)(place, **arguments)
"""


def _process_in_child(dataset_entry: Entry, root: Path, place: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _CHILD,
            json.dumps([dataset_entry.reader, str(place), dataset_entry.arguments]),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _damaged(dataset_entry, root, lines[-1])


def _with_labels(data: Data) -> Data:
    """Entities name labelled nodes by index: give them ``y`` and masks as other datasets have."""
    if "train_idx" not in data:
        return data
    num_nodes = int(data.num_nodes or 0)
    data.y = torch.full((num_nodes,), -1, dtype=torch.long)
    for part in ("train", "test"):
        index = data[f"{part}_idx"]
        data.y[index] = data[f"{part}_y"]
        data[f"{part}_mask"] = _mask(num_nodes, index)
        del data[f"{part}_idx"], data[f"{part}_y"]
    return data


def _mask(num_nodes: int, index: torch.Tensor) -> torch.Tensor:
    return torch.zeros(num_nodes, dtype=torch.bool).index_fill_(0, index, True)


def _damaged(dataset_entry: Entry, root: Path, reason: str) -> DataUnavailable:
    reason = " ".join(reason.split())
    return DataUnavailable(
        f"the files of {dataset_entry.name} in {dataset_entry.home(root)} cannot be read "
        f"({reason}): compare them by 'outerconv datasets --verify'"
    )


def _check_listed_edges(dataset_entry: Entry, root: Path, contents: dict[str, bytes]) -> None:
    """Refuse a list of edges to nodes that are none.

    PyG numbers the edge m → n of N nodes as mN + n, and drops one of two with the same number: so
    an edge to node −1 or N may have gone when the graph is there.
    """
    by_name = {Path(name).name: content for name, content in contents.items()}
    if not {"out1_graph_edges.txt", "out1_node_feature_label.txt"} <= by_name.keys():
        return
    num_nodes = by_name["out1_node_feature_label.txt"].count(b"\n") - 1  # a line of titles
    _, _, lines = by_name["out1_graph_edges.txt"].partition(b"\n")
    for word in lines.split():
        if not word.isdigit() or len(word) > 18 or int(word) >= num_nodes:
            rule, got = "edges join the nodes of the graph", repr(word.decode())
            raise _refused(dataset_entry, root, rule, f"numbers from 0 to {num_nodes - 1}", got)


def _refused(
    dataset_entry: Entry, root: Path, rule: str, expected: object, got: object
) -> DataUnavailable:
    where = f"the files of {dataset_entry.name} in {dataset_entry.home(root)}"
    return DataUnavailable(f"{where}: {refusal(rule, expected, got)}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyG's progress on stderr, and without warnings about its own code."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch_geometric\.")
        yield


# Downloads ----------------------------------------------------------------------------------------

_CONNECT_SECONDS = 30.0


def download(dataset_entry: Entry, root: Path) -> Path | None:
    """Let PyG download absent files, which are moved to their places when all are checked.

    The record of those whose checksum the registry does not know is returned, None without any.
    """
    absent = dataset_entry.missing(root)
    names = [name for name in dataset_entry.files if dataset_entry.home(root) / name in absent]
    before = socket.getdefaulttimeout()
    staging = root / files.temporary_name(
        "download"
    )  # so that an incomplete download is never read
    home = dataset_entry.home(staging)
    try:
        root.mkdir(parents=True, exist_ok=True)
        files.sweep(root, ["download"])
        socket.setdefaulttimeout(_CONNECT_SECONDS)
        with quiet():
            if dataset_entry.reader == OGB:
                _download_ogb(dataset_entry, home)
            else:
                # TUDataset reads what it has processed; its raw files are texts, which run nothing.
                skipped = () if dataset_entry.reader == "TUDataset" else ("process", "load")
                _reader(dataset_entry, *skipped)(str(home), **dataset_entry.arguments)
        if gone := [name for name in names if not (home / name).is_file()]:
            raise FileNotFoundError(f"the source no longer has {', '.join(gone)}")
        contents = {name: read_one(dataset_entry, root, name, home) for name in names}
        kept = record(dataset_entry, root, contents)
        for name in names:
            (dataset_entry.home(root) / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(home / name, dataset_entry.home(root) / name)
        return kept
    except DataUnavailable as error:  # of a file in the staging folder, which is about to go
        raise DataUnavailable(f"what was downloaded is not used: {error}") from error
    except Exception as error:  # urllib, aiohttp, tarfile, the disk: each has its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise _absent(dataset_entry, absent, reason) from error
    finally:
        socket.setdefaulttimeout(before)
        shutil.rmtree(staging, ignore_errors=True)


def _absent(dataset_entry: Entry, paths: list[Path], reason: str) -> DataUnavailable:
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    where = "; ".join(f"{', '.join(names)} into {folder}" for folder, names in folders.items())
    return DataUnavailable(
        f"{dataset_entry.name} is not here and cannot be downloaded ({reason}): put "
        f"{where}; or name another root by --root or {files.ROOT_VARIABLE}"
    )


# Of ogb only the readers of raw files, which are text, and the download are taken: its dataset
# classes ask at the terminal, and load what they processed by pickle.
OGB = "NodePropPredDataset"


def _read_ogb(dataset_entry: Entry, place: Path) -> Data:
    """The graph below ``place``, with the masks of its split and ``y`` (N,)."""
    import pandas as pd
    from ogb.io.read_graph_raw import read_csv_graph_raw

    def column(name: str) -> torch.Tensor:
        table = pd.read_csv(folder / f"{name}.csv.gz", header=None)[0]
        return torch.from_numpy(table.fillna(-1).to_numpy().astype("int64"))

    folder, meta = place / _ogb_folder(dataset_entry), _ogb_meta(dataset_entry)
    with contextlib.redirect_stdout(io.StringIO()):
        inverse = meta["add_inverse_edge"] == "True"
        (graph,) = read_csv_graph_raw(str(folder / "raw"), add_inverse_edge=inverse)
    num_nodes = int(graph["num_nodes"])
    parts = (f"split/{meta['split']}/{part}" for part in ("train", "valid", "test"))
    return Data(
        x=torch.from_numpy(graph["node_feat"]).float(),
        edge_index=torch.from_numpy(graph["edge_index"]),
        y=column("raw/node-label"),
        num_nodes=num_nodes,
        **{key: _mask(num_nodes, column(file)) for key, file in zip(MASKS, parts, strict=True)},
    )


def _download_ogb(dataset_entry: Entry, home: Path) -> None:
    """Download and unpack the archive that ``ogb`` names into the folder ``home``."""
    from ogb.utils.url import download_url, extract_zip

    meta = _ogb_meta(dataset_entry)
    with contextlib.redirect_stdout(io.StringIO()):
        archive = Path(download_url(meta["url"], str(home)))
        extract_zip(str(archive), str(home))
    archive.unlink()
    shutil.move(home / meta["download_name"], home / _ogb_folder(dataset_entry))


def _ogb_folder(dataset_entry: Entry) -> str:
    """The folder that ``ogb`` gives a dataset, such as ``ogbn_arxiv``."""
    return str(dataset_entry.arguments["name"]).replace("-", "_")


def _ogb_meta(dataset_entry: Entry) -> Any:
    """What ``ogb`` says of a dataset."""
    import ogb
    import pandas as pd

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    return pd.read_csv(table, index_col=0, keep_default_na=False)[dataset_entry.arguments["name"]]
