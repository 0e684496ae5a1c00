"""Files whose checksum nobody knows: read in the layout of PyG's class, recorded, never run."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import raw_layouts
import torch
from torch_geometric import datasets as pyg_datasets

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import kinds
from pyg_outerconv.lab.data.recorded import record_of
from pyg_outerconv.lab.train import make_split

UNKNOWN = [
    name
    for name, entry in data.registry().items()
    if entry.files and entry.reader in raw_layouts._WRITERS and None in entry.files.values()
]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)


def test_every_entry_without_checksums_is_tried() -> None:
    entries = data.registry().values()
    unknown = {entry.name for entry in entries if None in entry.files.values()}
    assert unknown == {*UNKNOWN}
    assert len(UNKNOWN) > 30


@pytest.mark.slow(cases=14)
@pytest.mark.parametrize("name", UNKNOWN)
def test_the_layout_of_pygs_class_is_read(name: str, tmp_path: Path) -> None:
    known = data.entry(name)
    for module in known.requires:
        pytest.importorskip(module)
    raw_layouts.write(known, tmp_path)
    read = data.load(name, tmp_path)
    assert read.data.num_nodes == raw_layouts.NUM_NODES
    assert read.data.y.tolist() == raw_layouts.CLASSES.tolist()
    directed = set(zip(*(end.tolist() for end in raw_layouts.ENDS), strict=True))
    found = set(zip(*read.data.edge_index.tolist(), strict=True))
    assert found in (directed, directed | {(n, m) for m, n in directed})
    if known.splits[0] in ("public", "geom-gcn"):
        split = make_split(read.data, known.splits[0], 0)
        masks = {"train": split.train, "val": split.validation, "test": split.test}
        for part, mask in masks.items():
            assert mask.tolist() == raw_layouts.MASKS[f"{part}_mask"].tolist()
    if known.counts["features"]:
        assert read.data.x.dtype == torch.float32
        assert bool(read.data.x.any())


class Payload:
    """A pickle of this makes a folder in the working folder where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


HIDDEN = {
    "an object": lambda: np.array([Payload()], dtype=object),
    "in a dictionary": lambda: np.array({"train": [Payload()]}, dtype=object),
    "in an array": lambda: np.array([np.array([Payload()], dtype=object), 1], dtype=object),
    "a function": lambda: np.array([os.system], dtype=object),
}


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("name", ["CoraML", "Penn94"])
def test_pickled_arrays_that_name_code_are_refused(name: str, how: str, tmp_path: Path) -> None:
    known = data.entry(name)
    raw_layouts.write(known, tmp_path)
    path = known.home(tmp_path) / [*known.files][-1]
    if path.suffix == ".npy":
        np.save(path, HIDDEN[how](), allow_pickle=True)
    else:
        with np.load(path, allow_pickle=True) as arrays:
            np.savez(path, **{**dict(arrays), "class_names": HIDDEN[how]()})
    with pytest.raises(data.DataUnavailable, match="other objects could run code"):
        data.load(name, tmp_path)
    assert not Path("ran").exists()


@pytest.mark.parametrize("name", ["x.pt", "x.pkl", "x.nt.gz", "ind.cora.x"])
def test_other_kinds_are_not_read_without_a_checksum(name: str) -> None:
    with pytest.raises(RefusedValue, match=r"a kind that cannot run code.*\.npz or .npy or .json"):
        kinds.look_into(Path(name), b"anything")


DAMAGED = ["CoauthorCS", "WikiCS", "Flickr", "Reed98", "Genius", "PolBlogs", "TwitchPT"]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_truncated_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    known, draw = data.entry(name), random.Random(name)
    for file in known.files:
        raw_layouts.write(known, tmp_path)
        path = known.home(tmp_path) / file
        content = path.read_bytes()
        path.write_bytes(content[: draw.randrange(1, len(content) - 1)])
        with pytest.raises(data.DataUnavailable) as refused:
            data.load(name, tmp_path)
        assert "\n" not in str(refused.value)
        assert str(known.home(tmp_path)) in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*.pt"))


# What was downloaded ----------------------------------------------------------------------------


@pytest.fixture
def downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root into which Twitch's Portuguese streamers were downloaded."""

    def download(self: Any) -> None:
        raw_layouts.write(data.entry("TwitchPT"), Path(self.root).parent)

    monkeypatch.setattr(pyg_datasets.Twitch, "download", download)
    said: list[str] = []
    data.load("TwitchPT", tmp_path / "root", log=said.append)
    record = record_of(data.entry("TwitchPT"), tmp_path / "root")
    assert record.is_file()
    assert str(record) in said[-1]
    return tmp_path / "root"


def change(root: Path) -> None:
    path = root / "Twitch/PT/raw/PT.npz"
    with np.load(path) as arrays:
        np.savez(path, **{**dict(arrays), "target": 1 - raw_layouts.CLASSES})


def test_a_downloaded_file_is_compared_with_its_record(downloaded: Path, tmp_path: Path) -> None:
    assert data.verify("TwitchPT", downloaded) == {"PT/raw/PT.npz": "matches"}
    assert data.load("TwitchPT", downloaded).num_classes == 2
    change(downloaded)
    assert data.verify("TwitchPT", downloaded) == {"PT/raw/PT.npz": "differs"}
    with pytest.raises(data.DataUnavailable, match=r"as it was first downloaded.*checksums/Twitch"):
        data.load("TwitchPT", downloaded)
    (downloaded / "Twitch/PT/raw/PT.npz").unlink()
    assert data.load("TwitchPT", downloaded).num_classes == 2, "the same, downloaded again"


def test_another_download_is_not_used(downloaded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any) -> None:
        raw_layouts.write(data.entry("TwitchPT"), Path(self.root).parent)
        change(Path(self.root).parent)

    path = downloaded / "Twitch/PT/raw/PT.npz"
    path.unlink()
    monkeypatch.setattr(pyg_datasets.Twitch, "download", other)
    with pytest.raises(data.DataUnavailable, match=r"downloaded is not used.*first downloaded"):
        data.load("TwitchPT", downloaded)
    assert not path.exists()


def test_files_that_were_put_there_are_not_recorded(tmp_path: Path) -> None:
    raw_layouts.write(data.entry("TwitchPT"), tmp_path)
    data.load("TwitchPT", tmp_path)
    assert data.verify("TwitchPT", tmp_path) == {"PT/raw/PT.npz": "no checksum known"}
    change(tmp_path)
    assert data.load("TwitchPT", tmp_path).data.y.tolist() == [1, 0, 1, 0, 1, 0]


def test_a_damaged_record_is_refused(downloaded: Path) -> None:
    record_of(data.entry("TwitchPT"), downloaded).write_text("{")
    with pytest.raises(data.DataUnavailable, match="checksums of TwitchPT cannot be read"):
        data.load("TwitchPT", downloaded)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_said(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_layouts.write(data.entry("TwitchPT"), tmp_path)

    def full(path: Path, content: object) -> None:
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(sys.modules["pyg_outerconv.lab.data.load"], "save_tensors", full)
    with pytest.raises(data.DataUnavailable, match=os.strerror(code)) as refused:
        data.load("TwitchPT", tmp_path)
    assert data.CACHE_VARIABLE in str(refused.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_is_full_leaves_no_half_download(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any) -> None:
        raw_layouts.write(data.entry("TwitchPT"), Path(self.root).parent)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(pyg_datasets.Twitch, "download", full)
    with pytest.raises(data.DataUnavailable, match=os.strerror(code)):
        data.load("TwitchPT", tmp_path / "root", log=str)
    assert not list((tmp_path / "root").rglob("*"))


# The Open Graph Benchmark -----------------------------------------------------------------------


def test_ogb_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "ogb" else found(name)
    )
    with pytest.raises(data.DataUnavailable, match="is read with ogb.*pip install ogb"):
        data.load("ogbn-arxiv", tmp_path)


def test_the_archive_of_ogb_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = pytest.importorskip("ogb.utils.url")
    known = data.entry("ogbn-arxiv")

    def fetch(address: str, folder: str) -> str:
        raw_layouts.write(known, tmp_path / "made")
        base = tmp_path / "made" / "OGB"
        (base / "ogbn_arxiv").rename(base / "arxiv")
        Path(folder).mkdir(parents=True)
        return shutil.make_archive(str(Path(folder) / "arxiv"), "zip", base, "arxiv")

    monkeypatch.setattr(url, "download_url", fetch)
    read = data.load("ogbn-arxiv", tmp_path / "root", log=str)
    assert read.data.y.tolist() == raw_layouts.CLASSES.tolist()
    assert [path.name for path in (tmp_path / "root" / "OGB").iterdir()] == ["ogbn_arxiv"]
    assert set(data.verify("ogbn-arxiv", tmp_path / "root").values()) == {"matches"}
