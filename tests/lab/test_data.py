"""The registry, and reading: roots are left alone, absent data says what to put where."""

from __future__ import annotations

import errno
import importlib.util
import os
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch_geometric import datasets as pyg_datasets

from pyg_outerconv.lab import data
from pyg_outerconv.lab.train import Settings

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)


@pytest.fixture
def texas(tmp_path: Path) -> Iterator[Path]:
    """A root with a small graph, whose checksums nobody knows, read-only."""
    root = tmp_path / "root"
    write_texas(root, labels=[0, 1, 2, 3, 4, 0])
    set_writable(root, False)
    yield root
    set_writable(root, True)


def write_texas(root: Path, labels: list[int], name: str = "texas") -> None:
    raw = root / "WebKB" / name / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    rows = [f"{node}\t{node % 2},{1 - node % 2},1\t{label}" for node, label in enumerate(labels)]
    edges = [f"{node}\t{(node + 1) % len(labels)}" for node in range(len(labels))]
    (raw / "out1_node_feature_label.txt").write_text("\n".join(["id\tfeature\tlabel", *rows, ""]))
    (raw / "out1_graph_edges.txt").write_text("\n".join(["from\tto", *edges, ""]))
    part = np.arange(len(labels)) % 3
    for number in range(10):
        np.savez(
            raw / f"{name}_split_0.6_0.2_{number}.npz",
            train_mask=part == 0,
            val_mask=part == 1,
            test_mask=part == 2,
        )


def set_writable(root: Path, writable: bool) -> None:
    for folder, _, files in os.walk(root):
        os.chmod(folder, 0o755 if writable else 0o555)
        for file in files:
            os.chmod(Path(folder) / file, 0o644 if writable else 0o444)


def listing(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
    }


def no_network(*args: Any) -> None:
    raise OSError("no route to host")


@pytest.mark.parametrize("name", data.registry())
def test_an_entry_is_complete(name: str) -> None:
    entry = data.entry(name.upper())
    known = {setting.name for setting in fields(Settings)}
    assert hasattr(pyg_datasets, entry.reader) or "ogb" in entry.requires
    counts = {"nodes", "edges", "features", "classes", "relations"}
    assert set(entry.counts) == counts | ({"graphs"} if entry.task == "graphs" else set())
    assert entry.source
    assert entry.licence
    assert entry.splits
    for split in entry.splits:
        reading = entry.for_split(split)
        assert set(reading.defaults) <= known
        assert all(sha is None or len(sha) == 64 for sha in reading.files.values())
        assert (reading.folder is None) == (not reading.files)


@pytest.mark.parametrize("name", data.registry())
def test_files_of_the_registry_are_those_pyg_asks_for(name: str, tmp_path: Path) -> None:
    entry = data.entry(name)
    if entry.folder is None or entry.reader not in vars(pyg_datasets):
        return
    asked: list[str] = []

    def ask(self: Any) -> None:
        asked.extend(self.raw_paths)
        raise OSError("no route to host")

    reader = getattr(pyg_datasets, entry.reader)
    stub = type(reader.__name__, (reader,), {"download": ask})
    with pytest.raises(OSError, match="no route"):
        stub(str(tmp_path), **entry.arguments)
    wanted = {str(Path(path).relative_to(tmp_path)) for path in asked}
    # TUDataset asks for edges and graphs, and also reads the labels and attributes beside them.
    assert wanted < {*entry.files} if entry.reader == "TUDataset" else wanted == {*entry.files}


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'CiteSeer'"):
        data.load("Citeser")


def test_root_is_the_argument_then_the_environment_then_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.data_root() == tmp_path / "cache" / "data"
    monkeypatch.setenv(data.ROOT_VARIABLE, str(tmp_path / "env"))
    assert data.data_root() == tmp_path / "env"
    assert data.data_root(tmp_path / "arg") == tmp_path / "arg"


def test_the_embedded_default_needs_no_file() -> None:
    club = data.load(data.EMBEDDED, root="/nonexistent")
    assert (club.data.num_nodes, club.data.num_edges, club.num_classes) == (34, 156, 4)
    assert data.is_here(data.EMBEDDED, "/nonexistent")


def test_a_root_is_read_and_never_written(texas: Path, tmp_path: Path) -> None:
    before = listing(texas)
    read = data.load("texas", texas)
    assert read.data.y.tolist() == [0, 1, 2, 3, 4, 0]
    assert read.data.train_mask.shape == (6, 10)
    assert listing(texas) == before
    assert list((tmp_path / "cache").rglob("*.pt"))


def test_named_data_is_made_undirected(texas: Path) -> None:
    listed, both = (data.load("texas", texas, undirected=way) for way in (False, True))
    assert both.num_edges == 2 * listed.num_edges
    assert torch.equal(both.data.edge_index[:, :6], listed.data.edge_index)
    assert torch.equal(both.data.edge_index[:, 6:], listed.data.edge_index.flip(0))
    assert both.fingerprint != listed.fingerprint == data.load("texas", texas).fingerprint


def test_a_kept_copy_is_used_again(texas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.load("texas", texas)
    monkeypatch.setattr(pyg_datasets.WebKB, "process", no_network)
    assert data.load("texas", texas).fingerprint == first.fingerprint


def test_a_kept_copy_follows_its_root(texas: Path, tmp_path: Path) -> None:
    data.load("texas", texas)
    set_writable(texas, True)
    write_texas(texas, labels=[4, 3, 2, 1, 0, 1, 2])
    assert data.load("texas", texas).data.y.tolist() == [4, 3, 2, 1, 0, 1, 2]
    assert len(list((tmp_path / "cache").rglob("*.pt"))) == 1
    other = tmp_path / "other"
    write_texas(other, labels=[1, 1, 0])
    assert data.load("texas", other).data.y.tolist() == [1, 1, 0]
    assert data.load("texas", texas).data.y.tolist() == [4, 3, 2, 1, 0, 1, 2]


def test_absent_data_says_which_files_go_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Any) -> None:
        (Path(self.raw_dir) / "ind.citeseer.x").write_bytes(b"broken off")
        raise OSError("no route to host")

    monkeypatch.setattr(pyg_datasets.Planetoid, "download", half)
    with pytest.raises(data.DataUnavailable) as refused:
        data.load("CiteSeer", tmp_path / "root")
    message = str(refused.value)
    for file in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        assert f"ind.citeseer.{file}" in message
    assert str(tmp_path / "root" / "Planetoid" / "CiteSeer" / "raw") in message
    assert "--root" in message
    assert data.ROOT_VARIABLE in message
    assert "no route to host" in message
    assert "\n" not in message
    assert not data.is_here("CiteSeer", tmp_path / "root")
    assert not (tmp_path / "root" / "Planetoid" / "CiteSeer" / "raw" / "ind.citeseer.x").exists()


def test_what_pyg_downloads_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        pyg_datasets.WebKB,
        "download",
        lambda self: write_texas(Path(self.root).parent, [0, 1, 2, 3]),
    )
    read = data.load("texas", tmp_path / "root", log=told.append)
    assert read.data.y.tolist() == [0, 1, 2, 3]
    assert len(told) == 2
    assert "downloading" in told[0]
    assert "recorded in" in told[1]


def test_files_without_content_are_not_here(texas: Path) -> None:
    assert data.is_here("texas", texas)
    set_writable(texas, True)
    (texas / "WebKB" / "texas" / "raw" / "out1_graph_edges.txt").write_text("")
    assert not data.is_here("texas", texas)


def test_damaged_files_are_named_in_one_line(texas: Path, tmp_path: Path) -> None:
    set_writable(texas, True)
    (texas / "WebKB" / "texas" / "raw" / "texas_split_0.6_0.2_3.npz").write_text("no zip")
    with pytest.raises(data.DataUnavailable, match=r"_3.npz, .* must be whole") as refused:
        data.load("texas", texas)
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "cache").rglob("*"))


def test_a_missing_module_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "rdflib" else found(name)
    )
    with pytest.raises(data.DataUnavailable, match=r"rdflib.*pip install 'pyg_outerconv\[train\]'"):
        data.load("AIFB", tmp_path)


def test_verify_tells_states_apart(texas: Path) -> None:
    states = data.verify("texas", texas)
    assert set(states.values()) == {"no checksum known"}
    set_writable(texas, True)
    write_texas(texas, [0, 1, 2], "cornell")
    assert set(data.verify("Cornell", texas).values()) == {"differs"}
    assert set(data.verify("Wisconsin", texas).values()) == {"missing"}
    edges = texas / "WebKB" / "texas" / "raw" / "out1_graph_edges.txt"
    edges.unlink()
    os.mkfifo(edges)
    assert data.verify("texas", texas)["texas/raw/out1_graph_edges.txt"] == "cannot be read"


# What is not as it should be --------------------------------------------------------------------


class Payload:
    """A pickle of this makes a folder in the working folder where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def flip(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


SPOILT = {
    "flipped": flip,
    "cut off": lambda content, draw: content[: draw.randrange(1, len(content))],
    "longer": lambda content, draw: content + draw.randbytes(1),
    "exchanged": lambda content, draw: pickle.dumps(Payload()),
}


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_differ_are_refused_before_they_are_read(
    how: str, tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    draw, files = random.Random(how), [*data.entry("Cora").files]
    shutil.copytree(shared_data / "Planetoid" / "Cora" / "raw", tmp_path / "Planetoid/Cora/raw")
    for number in range(2 * len(files)):
        path = tmp_path / "Planetoid" / files[number % len(files)]
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(SPOILT[how](content, draw))
        with pytest.raises(data.DataUnavailable, match="by its sha256") as refused:
            data.load("Cora", tmp_path)
        assert str(path) in str(refused.value)
        path.write_bytes(content)
    assert not Path("ran").exists()


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_without_a_checksum_are_refused_or_fit(seed: int, texas: Path) -> None:
    draw = random.Random(seed)
    set_writable(texas, True)
    path = draw.choice([path for path in sorted(texas.rglob("*")) if path.is_file()])
    path.write_bytes(flip(path.read_bytes(), draw))
    try:
        read = data.load("texas", texas).data
    except data.DataUnavailable as error:
        assert str(texas) in str(error)  # noqa: PT017
    else:
        assert read.y.shape == (6,)
        assert read.y.max() < 6
        assert read.train_mask.shape == (6, 10)
        assert set(read.edge_index.flatten().tolist()) <= set(range(6))


def write_computers(root: Path, **changed: Any) -> Path:
    """A small graph in the layout of Amazon, with some arrays exchanged."""
    adjacency = sp.random(8, 8, 0.3, "csr", random_state=0)
    attributes = sp.random(8, 3, 0.5, "csr", random_state=0)
    arrays = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    path = root / "Amazon/Computers/raw/amazon_electronics_computers.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{"labels": np.arange(8) % 3, **arrays, **changed})
    return path


@pytest.mark.parametrize("seed", range(30))
def test_matrices_that_point_outside_are_refused(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    path = write_computers(tmp_path)
    with np.load(path) as arrays:
        name = draw.choice([f"{m}_{p}" for m in ("adj", "attr") for p in ("indices", "indptr")])
        array = arrays[name].copy()
    array[draw.integers(len(array))] = draw.choice([-1, -(2**31), 2**31 - 1, 10**6])
    write_computers(tmp_path, **{name: array})
    with pytest.raises(data.DataUnavailable, match="computers.npz"):
        data.load("Computers", tmp_path)


def test_files_without_a_checksum_hold_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_computers(tmp_path)
    assert data.load("Computers", tmp_path).data.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    write_computers(tmp_path, labels=np.array([Payload()] * 8))
    with pytest.raises(data.DataUnavailable, match="objects could run code"):
        data.load("Computers", tmp_path)
    assert not Path("ran").exists()


def test_pickles_without_a_checksum_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cora = data.entry("Cora")
    monkeypatch.setitem(data.registry(), "Cora", replace(cora, files=dict.fromkeys(cora.files)))
    (tmp_path / "Planetoid/Cora/raw").mkdir(parents=True)
    for name in cora.files:
        (tmp_path / "Planetoid" / name).write_bytes(pickle.dumps(Payload()))
    with pytest.raises(data.DataUnavailable, match="kind that cannot run code"):
        data.load("Cora", tmp_path)
    assert not Path("ran").exists()


def test_what_others_processed_is_not_loaded(
    texas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    set_writable(texas, True)
    processed = texas / "WebKB" / "texas" / "processed"
    processed.mkdir()
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Payload(), processed / name)
    first = data.load("texas", texas)
    assert first.data.y.tolist() == [0, 1, 2, 3, 4, 0]
    (kept,) = (tmp_path / "cache").rglob("*.pt")
    whole, said = kept.read_bytes(), []
    torch.save(Payload(), kept)
    assert data.load("texas", texas, log=said.append).fingerprint == first.fingerprint
    draw = random.Random(0)
    for how in ("flipped", "cut off", "longer", "exchanged"):
        kept.write_bytes(SPOILT[how](whole, draw))
        assert data.load("texas", texas, log=said.append).fingerprint == first.fingerprint
    assert len(said) == 5
    assert all(str(kept) in line and "raw files" in line for line in said)
    assert not Path("ran").exists()


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file_is_refused_at_once(kind: str, texas: Path) -> None:
    set_writable(texas, True)
    edges = texas / "WebKB" / "texas" / "raw" / "out1_graph_edges.txt"
    edges.unlink()
    make = {
        "pipe": os.mkfifo,
        "folder": os.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
    }
    make[kind](edges)
    with pytest.raises(data.DataUnavailable, match=r"edges.txt cannot be read .*regular file"):
        data.load("texas", texas)


def test_an_archive_that_unpacks_to_too_much_is_refused(texas: Path) -> None:
    set_writable(texas, True)
    path = texas / "WebKB" / "texas" / "raw" / "texas_split_0.6_0.2_3.npz"
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")  # the first file in the list at the end
    content[entry + 24 : entry + 28] = (2**32 - 2).to_bytes(4, "little")  # its size unpacked
    path.write_bytes(content)
    with pytest.raises(data.DataUnavailable, match="_3.npz.* is unpacked within a bound"):
        data.load("texas", texas)
    header = (
        np.lib.format.magic(1, 0)
        + b"\x76\x00"
        + (b"{'descr': '<f8', 'fortran_order': False, 'shape': (9000000000,), }".ljust(117) + b"\n")
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_mask.npy", header)
    with pytest.raises(data.DataUnavailable, match="train_mask.npy must be whole"):
        data.load("texas", texas)


UNFIT = {
    "an edge to -1": ("out1_graph_edges.txt", "0\t1", "0\t-1", "edges join the nodes"),
    "an edge to nowhere": ("out1_graph_edges.txt", "0\t1", "0\t6", "from 0 to 5, got '6'"),
    "an edge of three": ("out1_graph_edges.txt", "0\t1", "0\t1\t2", "cannot be read"),
    "a class that is none": ("out1_node_feature_label.txt", "1\t4", "1\t-2", "0 to 5, or -1"),
    "a class of millions": ("out1_node_feature_label.txt", "1\t4", "1\t7000000", "got 7000000"),
    "a node without a label": ("out1_node_feature_label.txt", "5\t1,0,1\t0\n", "", "graph_edges"),
    "a label cut off": ("out1_node_feature_label.txt", "0,1\t0\n", "0,1\t0", "a line break"),
    "a feature that is no number": ("out1_node_feature_label.txt", "1,0,1", "nan,0,1", "finite"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_graph_that_does_not_fit_names_the_file_and_the_rule(case: str, texas: Path) -> None:
    set_writable(texas, True)
    name, there, instead, words = UNFIT[case]
    path = texas / "WebKB" / "texas" / "raw" / name
    text = path.read_text()
    assert there in text
    at = text.rindex(there)
    path.write_text(text[:at] + instead + text[at + len(there) :])
    with pytest.raises(data.DataUnavailable) as refused:
        data.load("texas", texas)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("seed", range(6))
def test_masks_must_be_of_this_graph_and_disjoint(seed: int, texas: Path) -> None:
    draw = random.Random(seed)
    set_writable(texas, True)
    number, (one, other) = draw.randrange(10), draw.sample(["train", "val", "test"], 2)
    path = texas / "WebKB" / "texas" / "raw" / f"texas_split_0.6_0.2_{number}.npz"
    with np.load(path) as masks:
        masks = dict(masks)
    masks[f"{one}_mask"][masks[f"{other}_mask"].argmax()] = True
    np.savez(path, **masks)
    with pytest.raises(data.DataUnavailable, match=f"_{number}.npz: .* no node in common"):
        data.load("texas", texas)
    write_texas(texas, [0, 1, 2, 3, 4])
    for split in range(10):
        path = texas / "WebKB" / "texas" / "raw" / f"texas_split_0.6_0.2_{split}.npz"
        np.savez(path, **masks)
    with pytest.raises(data.DataUnavailable, match=r"split.* for each node: expected 5, got 6"):
        data.load("texas", texas)


def test_what_is_downloaded_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(self: Any) -> None:
        write_texas(Path(self.root).parent, [0, 1, 2], "cornell")

    monkeypatch.setattr(pyg_datasets.WebKB, "download", other)
    with pytest.raises(data.DataUnavailable, match=r"downloaded is not used: .* by its sha256"):
        data.load("cornell", tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


def test_an_unreadable_root_is_refused(texas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = Path.stat

    def denied(self: Path, **options: Any) -> os.stat_result:
        if "WebKB" in self.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", denied)
    with pytest.raises(data.DataUnavailable, match=r"cannot be read \(Permission denied\)"):
        data.load("texas", texas)


@pytest.mark.parametrize(("root", "words"), [("a\0b", "NUL"), ("~nobody-at-all/x", "home folder")])
def test_a_root_that_cannot_be_is_refused(root: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        data.load("texas", root)


@pytest.fixture(scope="module")
def kept_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One cache for all tests of real data."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("name", data.registry())
def test_real_data_is_as_the_registry_says(
    name: str, kept_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = data.entry(name)
    monkeypatch.setenv(data.CACHE_VARIABLE, kept_cache)
    if not data.is_here(name, SHARED):
        pytest.skip(f"{name} is not in {SHARED}")
    lacking = [module for module in entry.requires if importlib.util.find_spec(module) is None]
    if lacking:
        pytest.skip(f"{name} needs {lacking}")
    read = data.load(name, SHARED)
    counts = {
        "nodes": read.data.num_nodes,
        "edges": read.data.num_edges,
        "features": read.data.num_features,
        "classes": read.num_classes,
    }
    assert counts == {key: entry.counts[key] for key in counts}
    assert read.num_relations == (entry.counts["relations"] or 1)
    embedded = entry.embedded is not None and entry.missing(SHARED)  # read from the package
    assert set(data.verify(name, SHARED).values()) <= {"missing" if embedded else "matches"}


def test_entities_have_one_order(kept_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not data.is_here("AIFB", SHARED) or any(
        importlib.util.find_spec(module) is None for module in data.entry("AIFB").requires
    ):
        pytest.skip("AIFB, rdflib and pandas are needed")
    monkeypatch.setenv(data.CACHE_VARIABLE, kept_cache)
    in_another_process = "48e8b2b594e125bedc858482aee9b9c69494532aa48081aed00fc8a7608d7ce9"
    assert data.load("AIFB", SHARED).fingerprint == in_another_process


def test_the_readme_says_which_data_was_never_read() -> None:
    text = (Path(__file__).resolve().parents[2] / "datasets" / "README.md").read_text()
    section = text.partition("## Never read with the real files")[2].partition("\n\nThe sets")[0]
    said = set(re.findall(r"`([\w-]+)`", section))
    unknown = {e.name for e in data.registry().values() if None in e.files.values()}
    assert said == unknown
