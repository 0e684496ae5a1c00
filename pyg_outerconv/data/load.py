"""Reading a dataset: from PyG's class, by way of the processed copy in the cache folder."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch_geometric
from torch import Tensor
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from ..places import CACHE_VARIABLE, cache_folder, data_root
from .download import download
from .reader import DataUnavailable, construct
from .registry import Entry, entry

EMBEDDED = "KarateClub"


@dataclass(frozen=True)
class Dataset:
    """A graph that was read.

    Attributes:
        entry: what the registry says.
        data: PyG ``Data`` with ``y`` (N,), −1 where a node has no label; masks as PyG has them.
        root: where it was read, None if embedded.
        fingerprint: sha256 over structure, features and labels.
    """

    entry: Entry
    data: Data
    root: Path | None
    fingerprint: str

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.data.y.max()) + 1

    @property
    def num_relations(self) -> int:
        """Number of edge types, 1 where edges have none."""
        types = self.data.get("edge_type")
        return 1 if types is None or not types.numel() else int(types.max()) + 1


def load(
    name: str,
    root: str | Path | None = None,
    split: str | None = None,
    log: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """Read a dataset; PyG downloads what is absent.

    Args:
        name: a name in the registry, in any case.
        root: see :func:`data_root`.
        split: the split protocol, which may have files of its own.
        log: told about downloads.

    Raises:
        ValueError: the name is unknown.
        DataUnavailable: files are absent and cannot be downloaded, are damaged, or the reader
            needs a module that is not installed.
    """
    known = entry(name).for_split(split)
    lacking = [module for module in known.requires if importlib.util.find_spec(module) is None]
    if lacking:
        raise DataUnavailable(
            f"{known.name} is read with {' and '.join(lacking)}, not installed "
            "here: pip install 'pyg_outerconv[train]'"
        )
    if known.folder is None:
        data, place = getattr(pyg_datasets, known.reader)(**known.arguments)[0], None
    else:
        place = data_root(root)
        if known.missing(place):
            log(f"{known.name} is not below {place}: downloading")
        data = _read(known, place)
    data = _with_labels(data)
    return Dataset(known, data, place, _fingerprint(data))


def _read(known: Entry, root: Path) -> Data:
    """Read the raw files with PyG's class, the processed copy being kept in the cache folder."""
    if known.missing(root):
        download(known, root)
    key = _processed_key(known, root)
    home = (
        cache_folder() / "processed" / "-".join([known.name, *map(str, known.arguments.values())])
    )
    final = home / key
    if final.is_dir():
        return construct(known, root, final)
    # Made under another name and moved: an interrupted or concurrent reader leaves no half copy.
    making = home / f"making-{uuid.uuid4().hex}"
    try:
        making.mkdir(parents=True)
    except OSError as error:
        raise DataUnavailable(
            f"the cache folder {home} cannot be written ({error.strerror}): "
            f"name another with {CACHE_VARIABLE}"
        ) from error
    try:
        data = construct(known, root, making)
        _replace_copies(home, making, final)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return data


def _replace_copies(home: Path, making: Path, final: Path) -> None:
    for other in home.glob(final.name.split("-")[0] + "-*"):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)  # of this root as it was before
    try:
        making.rename(final)
    except OSError:
        if not final.is_dir():  # else another process was first, with the same content
            raise


def _processed_key(known: Entry, root: Path) -> str:
    """A name that changes with the root, its raw files and the version of PyG that reads them."""
    stats = [(file, (known.home(root) / file).stat()) for file in known.files]
    state = [torch_geometric.__version__, *((f, s.st_size, s.st_mtime_ns) for f, s in stats)]
    parts = (str(known.home(root)), repr(state))
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


def _fingerprint(data: Data) -> str:
    digest = hashlib.sha256()
    for key in ("edge_index", "edge_type", "edge_weight", "x", "y"):
        value = data.get(key)
        if isinstance(value, Tensor):
            digest.update(f"{key}{tuple(value.shape)}{value.dtype}".encode())
            digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()
