"""PyG's dataset classes, and ogb's readers: reading files that were checked, and downloads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ...errors import refusal
from ...files import ROOT_VARIABLE, sweep, temporary_name
from .graph import MASKS, SELECTIONS, check_graph, union_of
from .raw import read_one, record
from .registry import DataUnavailable, Entry


def read_raw(known: Entry, root: Path, contents: dict[str, bytes], place: Path) -> Data:
    """The graph of raw files, as PyG's class makes it, if its parts fit together.

    PyG loads what it finds processed beside raw files, and that can run code. So it reads copies,
    of the ``contents`` that :mod:`.raw` has checked, in a new folder ``place``.
    """
    _check_listed_edges(known, root, contents)
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    data = _with_labels(_construct(known, root, place))
    check_graph(data, partial(_refused, known, root), known.task == "graphs")
    return SELECTIONS[known.keeps](data) if known.keeps else data


def _construct(known: Entry, root: Path, place: Path) -> Data:
    if known.reader == "Entities":
        _process_in_child(known, root, place)
    try:
        with quiet():
            if known.reader == OGB:
                return _read_ogb(known, place)
            read = _reader(known, "download")(str(place), **known.arguments)
            data: Data = union_of(read) if known.task == "graphs" else read[0]
    except Exception as error:  # the reader's own formats fail in many ways
        raise _damaged(known, root, f"{type(error).__name__}: {error}") from error
    return data


def _reader(known: Entry, *skipped: str) -> Any:
    """PyG's class for a dataset, which skips some of its steps."""
    base = getattr(pyg_datasets, known.reader)
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


def _process_in_child(known: Entry, root: Path, place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, json.dumps([known.reader, str(place), known.arguments])],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise _damaged(known, root, lines[-1])


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


def _damaged(known: Entry, root: Path, reason: str) -> DataUnavailable:
    reason = " ".join(reason.split())
    return DataUnavailable(
        f"the files of {known.name} in {known.home(root)} cannot be read "
        f"({reason}): compare them by 'outerconv datasets --verify'"
    )


def _check_listed_edges(known: Entry, root: Path, contents: dict[str, bytes]) -> None:
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
            raise _refused(
                known, root, "edges", -1, rule, f"numbers from 0 to {num_nodes - 1}", got
            )


# Words in the names of the files of each part; without such a file, all files are named.
_NAMES = {
    "edges": ("edges", "graph", "stripped", "_A"),
    "features": ("feature", "allx", "node_attributes", "node_labels"),
    "labels": ("label", "ally"),
    "graphs": ("graph_indicator", "graph_labels"),
    "masks": ("split",),
}


def _refused(
    known: Entry, root: Path, part: str, number: int, rule: str, expected: object, got: object
) -> DataUnavailable:
    files = [name for name in known.files if any(word in name for word in _NAMES[part])]
    if part == "masks" and number >= 0:  # a split may have a file of its own
        files = [name for name in files if Path(name).stem.endswith(f"_{number}")] or files
    where = ", ".join(str(known.home(root) / name) for name in files or known.files)
    return DataUnavailable(f"{where}: {refusal(rule, expected, got)}")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without PyG's progress on stderr, and without warnings about its own code."""
    with contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch_geometric\.")
        yield


# Downloads ----------------------------------------------------------------------------------------

_CONNECT_SECONDS = 30.0


def download(known: Entry, root: Path) -> Path | None:
    """Let PyG download absent files, which are moved to their places when all are checked.

    The record of those whose checksum the registry does not know is returned, None without any.
    """
    absent = known.missing(root)
    names = [name for name in known.files if known.home(root) / name in absent]
    before = socket.getdefaulttimeout()
    staging = root / temporary_name("download")  # so that an incomplete download is never read
    home = known.home(staging)
    try:
        root.mkdir(parents=True, exist_ok=True)
        sweep(root, ["download"])
        socket.setdefaulttimeout(_CONNECT_SECONDS)
        with quiet():
            if known.reader == OGB:
                _download_ogb(known, home)
            else:
                # TUDataset reads what it has processed; its raw files are texts, which run nothing.
                skipped = () if known.reader == "TUDataset" else ("process", "load")
                _reader(known, *skipped)(str(home), **known.arguments)
        if gone := [name for name in names if not (home / name).is_file()]:
            raise FileNotFoundError(f"the source no longer has {', '.join(gone)}")
        contents = {name: read_one(known, root, name, home) for name in names}
        kept = record(known, root, contents)
        for name in names:
            (known.home(root) / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(home / name, known.home(root) / name)
        return kept
    except DataUnavailable as error:  # of a file in the staging folder, which is about to go
        raise DataUnavailable(f"what was downloaded is not used: {error}") from error
    except Exception as error:  # urllib, aiohttp, tarfile, the disk: each has its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise _absent(known, absent, reason) from error
    finally:
        socket.setdefaulttimeout(before)
        shutil.rmtree(staging, ignore_errors=True)


def _absent(known: Entry, paths: list[Path], reason: str) -> DataUnavailable:
    folders: dict[Path, list[str]] = {}
    for path in paths:
        folders.setdefault(path.parent, []).append(path.name)
    where = "; ".join(f"{', '.join(names)} into {folder}" for folder, names in folders.items())
    return DataUnavailable(
        f"{known.name} is not here and cannot be downloaded ({reason}): put "
        f"{where}; or name another root by --root or {ROOT_VARIABLE}"
    )


# Of ogb only the readers of raw files, which are text, and the download are taken: its dataset
# classes ask at the terminal, and load what they processed by pickle.
OGB = "NodePropPredDataset"


def _read_ogb(known: Entry, place: Path) -> Data:
    """The graph below ``place``, with the masks of its split and ``y`` (N,)."""
    import pandas as pd
    from ogb.io.read_graph_raw import read_csv_graph_raw

    def column(name: str) -> torch.Tensor:
        table = pd.read_csv(folder / f"{name}.csv.gz", header=None)[0]
        return torch.from_numpy(table.fillna(-1).to_numpy().astype("int64"))

    folder, meta = place / _ogb_folder(known), _ogb_meta(known)
    with contextlib.redirect_stdout(io.StringIO()):
        inverse = meta["add_inverse_edge"] == "True"
        (graph,) = read_csv_graph_raw(str(folder / "raw"), add_inverse_edge=inverse)
    num_nodes = int(graph["num_nodes"])
    files = (f"split/{meta['split']}/{part}" for part in ("train", "valid", "test"))
    return Data(
        x=torch.from_numpy(graph["node_feat"]).float(),
        edge_index=torch.from_numpy(graph["edge_index"]),
        y=column("raw/node-label"),
        num_nodes=num_nodes,
        **{key: _mask(num_nodes, column(file)) for key, file in zip(MASKS, files, strict=True)},
    )


def _download_ogb(known: Entry, home: Path) -> None:
    """Download and unpack the archive that ``ogb`` names into the folder ``home``."""
    from ogb.utils.url import download_url, extract_zip

    meta = _ogb_meta(known)
    with contextlib.redirect_stdout(io.StringIO()):
        archive = Path(download_url(meta["url"], str(home)))
        extract_zip(str(archive), str(home))
    archive.unlink()
    shutil.move(home / meta["download_name"], home / _ogb_folder(known))


def _ogb_folder(known: Entry) -> str:
    """The folder that ``ogb`` gives a dataset, such as ``ogbn_arxiv``."""
    return str(known.arguments["name"]).replace("-", "_")


def _ogb_meta(known: Entry) -> Any:
    """What ``ogb`` says of a dataset."""
    import ogb
    import pandas as pd

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    return pd.read_csv(table, index_col=0, keep_default_na=False)[known.arguments["name"]]
