"""Data sets by name: the registry, roots, caches, downloads, what the package has, real data."""

import errno
import hashlib
import importlib.util
import os
import re
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import raw_layouts
import torch
import write_cora
from torch_geometric import datasets as pyg_datasets
from torch_geometric.data import Data

from pyg_outerconv import files
from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import dataset, graph
from pyg_outerconv.lab.data.raw import record_of
from pyg_outerconv.lab.data.registry import shipped
from pyg_outerconv.lab.fields import read_toml
from pyg_outerconv.lab.train import Settings, make_split

ROOT = Path(__file__).resolve().parents[3]
SHARED = (ROOT.parent / "shared" / "data").resolve()
TWITCH = "Twitch/PT/raw/PT.npz"


@pytest.fixture
def texas(tmp_path):
    """A root with a small graph, whose checksums nobody knows, read-only."""
    raw_layouts.write(data.entry("texas"), tmp_path / "root")
    set_writable(tmp_path / "root", False)
    yield tmp_path / "root"
    set_writable(tmp_path / "root", True)


def set_writable(root, writable):
    for path in [root, *root.rglob("*")]:
        path.chmod(
            (0o755 if writable else 0o555) if path.is_dir() else 0o644 if writable else 0o444
        )


def downloads(monkeypatch, name, change=None):
    """What PyG's class of a data set downloads is its small graph; then something is done to it."""

    def download(self):
        raw_layouts.write(data.entry(name), Path(self.root).parent)
        if change is not None:
            change(Path(self.root).parent)

    reader = getattr(pyg_datasets, data.entry(name).reader)
    monkeypatch.setattr(reader, "download", download)


def other_labels(root):
    """The streamers of a root have other labels."""
    with np.load(root / TWITCH) as arrays:
        np.savez(root / TWITCH, **{**arrays, "target": 1 - raw_layouts.CLASSES})


def fails(code):
    def fail(*args):
        raise OSError(code, os.strerror(code))

    return fail


# The registry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", data.registry())
def test_an_entry_is_complete_and_its_files_are_those_pyg_asks_for(name, tmp_path):
    entry, asked = data.entry(name.upper()), list[str]()
    assert hasattr(pyg_datasets, entry.reader) or "ogb" in entry.requires
    counts = {"nodes", "edges", "features", "classes", "relations"}
    assert set(entry.counts) == counts | ({"graphs"} if entry.task == "graphs" else set())
    assert entry.source
    assert entry.licence
    assert entry.splits
    for reading in map(entry.for_split, entry.splits):
        assert set(reading.defaults) <= {setting.name for setting in fields(Settings)}
        assert all(sha is None or len(sha) == 64 for sha in reading.files.values())
        assert (reading.folder is None) == (not reading.files)
    if entry.folder is None or entry.reader not in vars(pyg_datasets):
        return

    def ask(self):
        asked.extend(self.raw_paths)
        raise OSError("no route to host")

    reader = getattr(pyg_datasets, entry.reader)
    with pytest.raises(OSError, match="no route"):
        type(reader.__name__, (reader,), {"download": ask})(str(tmp_path), **entry.arguments)
    wanted = {str(Path(path).relative_to(tmp_path)) for path in asked}
    # TUDataset asks for edges and graphs, and also reads the labels and attributes beside them.
    assert wanted < {*entry.files} if entry.reader == "TUDataset" else wanted == {*entry.files}


def test_the_readme_says_which_data_was_never_read():
    text = (ROOT / "datasets" / "README.md").read_text()
    section = text.partition("## Never read with the real files")[2].partition("\n\nThe sets")[0]
    unknown = {e.name for e in data.registry().values() if None in e.files.values()}
    assert set(re.findall(r"`([\w-]+)`", section)) == unknown


# Roots and caches ---------------------------------------------------------------------------------


def test_root_is_the_argument_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    assert data.data_root() == tmp_path / "cache" / "data"
    monkeypatch.setenv(data.ROOT_VARIABLE, str(tmp_path / "env"))
    assert data.data_root() == tmp_path / "env"
    assert data.data_root(tmp_path / "arg") == tmp_path / "arg"
    for root, words in (("a\0b", "NUL"), ("~nobody-at-all/x", "home folder")):
        with pytest.raises(ValueError, match=words):
            data.load("texas", root)


def test_a_root_is_read_and_never_written(texas, tmp_path):
    before = {path: path.stat() for path in texas.rglob("*")}
    listed = data.load("texas", texas)
    assert listed.data.y.tolist() == raw_layouts.CLASSES.tolist()
    assert listed.data.train_mask.shape == (6, 10)
    after = {path: path.stat() for path in texas.rglob("*")}
    assert [(p, s.st_size, s.st_mtime_ns) for p, s in after.items()] == [
        (p, s.st_size, s.st_mtime_ns) for p, s in before.items()
    ]
    assert list((tmp_path / "cache").rglob("*.pt"))
    both = data.load("texas", texas, undirected=True)
    assert torch.equal(both.data.edge_index[:, :6], listed.data.edge_index)
    assert torch.equal(both.data.edge_index[:, 6:], listed.data.edge_index.flip(0))
    assert both.fingerprint != listed.fingerprint == data.load("texas", texas).fingerprint


def test_a_kept_copy_is_used_again_and_follows_its_root(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    for root in (one, other):
        raw_layouts.write(data.entry("TwitchPT"), root)
    first = data.load("TwitchPT", one)
    with monkeypatch.context() as patch:
        patch.setattr(pyg_datasets.Twitch, "process", fails(errno.EIO))
        assert data.load("TwitchPT", one).fingerprint == first.fingerprint
    other_labels(one)
    assert data.load("TwitchPT", one).data.y.tolist() == [1, 0, 1, 0, 1, 0]
    assert len(list((tmp_path / "cache").rglob("*.pt"))) == 1
    assert data.load("TwitchPT", other).data.y.tolist() == first.data.y.tolist()
    assert data.load("TwitchPT", one).data.y.tolist() == [1, 0, 1, 0, 1, 0]
    assert data.verify("TwitchPT", one) == {"PT/raw/PT.npz": "no checksum known"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_is_said(code, texas, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "save_tensors", fails(code))
    with pytest.raises(data.DataUnavailable, match=os.strerror(code)) as refused:
        data.load("texas", texas)
    assert data.CACHE_VARIABLE in str(refused.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_verify_tells_states_apart(texas):
    assert set(data.verify("texas", texas).values()) == {"no checksum known"}
    set_writable(texas, True)
    raw_layouts.write(data.entry("Cornell"), texas)
    assert set(data.verify("Cornell", texas).values()) == {"differs"}
    assert set(data.verify("Wisconsin", texas).values()) == {"missing"}
    edges = texas / "WebKB" / "texas" / "raw" / "out1_graph_edges.txt"
    edges.unlink()
    os.mkfifo(edges)
    assert data.verify("texas", texas)["texas/raw/out1_graph_edges.txt"] == "cannot be read"


# Downloads ----------------------------------------------------------------------------------------


def test_absent_data_says_which_files_go_where(tmp_path, monkeypatch):
    def half(self):
        (Path(self.raw_dir) / "ind.citeseer.x").write_bytes(b"broken off")
        raise OSError("no route to host")

    monkeypatch.setattr(pyg_datasets.Planetoid, "download", half)
    with pytest.raises(data.DataUnavailable) as refused:
        data.load("CiteSeer", tmp_path / "root")
    files = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
    folder = tmp_path / "root" / "Planetoid" / "CiteSeer" / "raw"
    words = [*(f"ind.citeseer.{file}" for file in files), str(folder), "--root", data.ROOT_VARIABLE]
    for word in (*words, "no route to host"):
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not data.is_here("CiteSeer", tmp_path / "root")
    assert not (folder / "ind.citeseer.x").exists()


def test_what_was_downloaded_is_recorded_and_held_against_its_record(tmp_path, monkeypatch):
    root, said = tmp_path / "root", list[str]()
    record = record_of(data.entry("TwitchPT"), root)
    downloads(monkeypatch, "TwitchPT")
    assert not data.is_here("TwitchPT", root)
    read = data.load("TwitchPT", root, log=said.append)
    assert read.data.y.tolist() == raw_layouts.CLASSES.tolist()
    assert ["downloading" in said[0], f"recorded in {record}," in said[1], len(said)] == [1, 1, 2]
    assert data.verify("TwitchPT", root) == {"PT/raw/PT.npz": "matches"}
    other_labels(root)
    assert data.verify("TwitchPT", root) == {"PT/raw/PT.npz": "differs"}
    with pytest.raises(data.DataUnavailable, match=r"as it was first downloaded.*checksums/Twitch"):
        data.load("TwitchPT", root)
    (root / TWITCH).unlink()
    assert data.load("TwitchPT", root).fingerprint == read.fingerprint, "downloaded again"
    (root / TWITCH).write_text("")
    assert not data.is_here("TwitchPT", root), "without content"
    downloads(monkeypatch, "TwitchPT", other_labels)
    with pytest.raises(data.DataUnavailable, match=r"downloaded is not used.*first downloaded"):
        data.load("TwitchPT", root)
    record.write_text("{")
    with pytest.raises(data.DataUnavailable, match="checksums of TwitchPT cannot be read"):
        data.load("TwitchPT", root)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_what_is_not_whole_or_another_leaves_nothing(code, tmp_path, monkeypatch):
    for name, change, words in (
        ("TwitchPT", fails(code), os.strerror(code)),
        ("cornell", None, r"downloaded is not used: .* by its sha256"),
    ):
        downloads(monkeypatch, name, change)
        with pytest.raises(data.DataUnavailable, match=words):
            data.load(name, tmp_path / "root", log=str)
        assert not list((tmp_path / "root").iterdir())


INSTALLS = [("AIFB", "rdflib", r"'pyg_outerconv\[train\]'"), ("ogbn-arxiv", "ogb", "ogb")]


@pytest.mark.parametrize(("name", "module", "extra"), INSTALLS)
def test_a_missing_module_names_what_to_install(name, module, extra, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == module else find(name)
    )
    with pytest.raises(data.DataUnavailable, match=f"read with .*{module}.*pip install {extra}"):
        data.load(name, tmp_path)


def test_the_archive_of_ogb_is_unpacked(tmp_path, monkeypatch):
    url = pytest.importorskip("ogb.utils.url")
    arxiv_entry = data.entry("ogbn-arxiv")

    def fetch(address, folder):
        raw_layouts.write(arxiv_entry, tmp_path / "made")
        base = tmp_path / "made" / "OGB"
        (base / "ogbn_arxiv").rename(base / "arxiv")
        Path(folder).mkdir(parents=True)
        return shutil.make_archive(str(Path(folder) / "arxiv"), "zip", base, "arxiv")

    monkeypatch.setattr(url, "download_url", fetch)
    read = data.load("ogbn-arxiv", tmp_path / "root", log=str)
    assert read.data.y.tolist() == raw_layouts.CLASSES.tolist()
    assert [path.name for path in (tmp_path / "root" / "OGB").iterdir()] == ["ogbn_arxiv"]
    assert set(data.verify("ogbn-arxiv", tmp_path / "root").values()) == {"matches"}


# What comes with the package ----------------------------------------------------------------------


def test_the_default_needs_no_file():
    club = data.load(data.EMBEDDED, root="/nonexistent")
    assert (club.data.num_nodes, club.data.num_edges, club.num_classes) == (34, 156, 4)
    assert data.is_here(data.EMBEDDED, "/nonexistent")


@pytest.mark.parametrize("split", ["public", "random", "random-60-20-20", None])
def test_cora_serves_the_splits_without_files(split, tmp_path):
    said = []
    read = data.load("cora", tmp_path, split, said.append)
    assert (read.data.num_nodes, read.data.num_edges, read.num_classes) == (2708, 10556, 7)
    assert [int(read.data[f"{part}_mask"].sum()) for part in graph.PARTS] == [140, 500, 1000]
    assert ["the copy inside pyg_outerconv" in line for line in said] == [True]
    assert data.is_here("Cora", tmp_path, split)
    assert not list(tmp_path.rglob("*.pt")), "there is nothing to cache"


def test_cora_is_what_pyg_reads_and_small_and_without_pickles(shared_data):
    pyg = data.load("Cora", shared_data.resolve())  # by PyG's class, of files with known checksums
    ours = data.load("Cora", "/nonexistent", log=str)
    assert (pyg.root, ours.root) == (shared_data.resolve(), None)
    assert ours.fingerprint == pyg.fingerprint
    for key, value in pyg.data.to_dict().items():
        assert torch.equal(ours.data[key], value), key
        assert ours.data[key].dtype == value.dtype, key
    content, packed = write_cora.FILE.read_bytes(), write_cora.pack(ours.data)
    sha256 = hashlib.sha256(content).hexdigest()
    assert data.entry("Cora").embedded == {"file": "cora.npz", "sha256": sha256}
    assert len(content) < 200_000
    with np.load(write_cora.FILE, allow_pickle=False) as arrays:
        assert set(arrays.files) == set(packed)
        for name in arrays.files:
            np.testing.assert_array_equal(arrays[name], packed[name])
            assert arrays[name].dtype == packed[name].dtype


def test_the_splits_of_geom_gcn_need_files(tmp_path, monkeypatch):
    monkeypatch.setattr(pyg_datasets.Planetoid, "download", fails(errno.ENETUNREACH))
    assert not data.is_here("Cora", tmp_path, "geom-gcn")
    with pytest.raises(data.DataUnavailable, match="cora_split"):
        data.load("Cora", tmp_path, "geom-gcn", log=str)


def test_a_damaged_copy_is_refused(tmp_path, monkeypatch):
    (tmp_path / "cora.npz").write_bytes(write_cora.FILE.read_bytes()[:-1])
    monkeypatch.setattr(dataset, "shipped", lambda name: tmp_path / name)
    with pytest.raises(data.DataUnavailable, match=r"cora.npz must be as it comes"):
        data.load("Cora", tmp_path, log=str)
    (tmp_path / "cora.npz").unlink()
    with pytest.raises(data.DataUnavailable, match=r"cora.npz cannot be read"):
        data.load("Cora", tmp_path, log=str)


def test_a_wheel_carries_every_file_of_datasets():
    built = read_toml(ROOT / "pyproject.toml")["tool"]["hatch"]["build"]
    carried = built["targets"]["wheel"]["force-include"]
    for name in {path.name for path in (ROOT / "datasets").iterdir()} - {"README.md"}:
        assert carried[f"datasets/{name}"] == f"pyg_outerconv/_datasets/{name}"
    with pytest.raises(FileNotFoundError, match="_datasets/nothing.npz"):
        shipped("nothing.npz")


# Layouts and real data ----------------------------------------------------------------------------

UNKNOWN = [name for name, entry in data.registry().items() if None in entry.files.values()]


@pytest.mark.slow(cases=14)
@pytest.mark.parametrize("name", UNKNOWN)
def test_the_layout_of_pygs_class_is_read(name, tmp_path):
    entry = data.entry(name)
    for module in entry.requires:
        pytest.importorskip(module)
    raw_layouts.write(entry, tmp_path)
    read = data.load(name, tmp_path)
    assert read.data.num_nodes == raw_layouts.NUM_NODES
    assert read.data.y.tolist() == raw_layouts.CLASSES.tolist()
    directed = set(zip(*(end.tolist() for end in raw_layouts.ENDS), strict=True))
    edges = set(zip(*read.data.edge_index.tolist(), strict=True))
    assert edges in (directed, directed | {(n, m) for m, n in directed})
    if entry.splits[0] in ("public", "geom-gcn"):
        split = make_split(read.data, entry.splits[0], 0)
        parts = split.train, split.validation, split.test
        for mask, wanted in zip(parts, raw_layouts.MASKS.values(), strict=True):
            assert mask.tolist() == wanted.tolist()
    if entry.counts["features"]:
        assert read.data.x.dtype == torch.float32
        assert bool(read.data.x.any())


@pytest.fixture(scope="module")
def kept_cache(tmp_path_factory):
    """One cache for all tests of real data."""
    return str(tmp_path_factory.mktemp("cache"))


AIFB = "48e8b2b594e125bedc858482aee9b9c69494532aa48081aed00fc8a7608d7ce9"  # in any process


@pytest.mark.slow(cases=18)
@pytest.mark.parametrize("name", data.registry())
def test_real_data_is_as_the_registry_says(name, kept_cache, monkeypatch):
    entry = data.entry(name)
    monkeypatch.setenv(data.CACHE_VARIABLE, kept_cache)
    if not data.is_here(name, SHARED):
        pytest.skip(f"{name} is not in {SHARED}")
    for module in entry.requires:
        pytest.importorskip(module)
    read = data.load(name, SHARED)
    counts = read.num_nodes, read.num_edges, read.data.num_features, read.num_classes
    titles = "nodes", "edges", "features", "classes"
    assert counts == tuple(entry.counts[title] for title in titles)
    assert read.num_relations == (entry.counts["relations"] or 1)
    assert name != "AIFB" or read.fingerprint == AIFB
    embedded = entry.embedded is not None and entry.missing(SHARED)  # read from the package
    assert set(data.verify(name, SHARED).values()) <= {"missing" if embedded else "matches"}


# Parts of graphs ----------------------------------------------------------------------------------


def test_the_first_of_nodes_with_equal_class_and_targets_is_kept():
    #  0, 1 and 3 cite {4, 5}; 3 is of another class; 2 cites {4}; 4, 5 and 6 cite nobody
    edges = [(0, 4), (0, 5), (1, 5), (1, 4), (1, 4), (3, 4), (3, 5), (2, 4)]
    y, x = torch.tensor([0, 0, 0, 1, 2, 2, 2]), torch.arange(7.0).view(7, 1)
    masks = torch.arange(14).view(7, 2) % 3 == 0
    whole = Data(x=x, edge_index=torch.tensor(edges).t(), y=y, train_mask=masks)
    selected = graph.SELECTIONS["distinct"](whole)
    kept = [0, 2, 3, 4, 5, 6]
    assert selected.x.view(-1).tolist() == kept
    assert selected.y.tolist() == y[kept].tolist()
    assert torch.equal(selected.train_mask, masks[kept])
    wanted = {(kept.index(m), kept.index(n)) for m, n in edges if 1 not in (m, n)}
    assert set(map(tuple, selected.edge_index.t().tolist())) == wanted


def test_the_largest_component_is_kept_whatever_the_direction_of_edges():
    edges = torch.tensor([[0, 5, 2, 3], [4, 4, 3, 2]])
    whole = Data(x=torch.arange(6.0).view(6, 1), edge_index=edges, y=torch.arange(6))
    selected = graph.SELECTIONS["largest-component"](whole)
    assert (selected.x.view(-1).tolist(), selected.y.tolist()) == ([0, 4, 5], [0, 4, 5])
    assert sorted(selected.edge_index.t().tolist()) == [[0, 1], [2, 1]]
