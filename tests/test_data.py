"""The registry, and reading: roots are left alone, absent data says what to put where."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric import datasets as pyg_datasets

from pyg_outerconv import data
from pyg_outerconv.train import Settings

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)


@pytest.fixture
def cornell(tmp_path: Path) -> Iterator[Path]:
    """A root with a small graph in the layout of WebKB, read-only."""
    root = tmp_path / "root"
    write_cornell(root, labels=[0, 1, 2, 3, 4, 0])
    set_writable(root, False)
    yield root
    set_writable(root, True)


def write_cornell(root: Path, labels: list[int]) -> None:
    raw = root / "WebKB" / "cornell" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    rows = [f"{node}\t{node % 2},{1 - node % 2},1\t{label}" for node, label in enumerate(labels)]
    edges = [f"{node}\t{(node + 1) % len(labels)}" for node in range(len(labels))]
    (raw / "out1_node_feature_label.txt").write_text("\n".join(["id\tfeature\tlabel", *rows, ""]))
    (raw / "out1_graph_edges.txt").write_text("\n".join(["from\tto", *edges, ""]))
    part = np.arange(len(labels)) % 3
    for number in range(10):
        np.savez(
            raw / f"cornell_split_0.6_0.2_{number}.npz",
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
    assert hasattr(pyg_datasets, entry.reader)
    assert set(entry.counts) == {"nodes", "edges", "features", "classes", "relations"}
    assert entry.source
    assert entry.licence
    assert entry.splits
    for split in entry.splits:
        reading = entry.for_split(split)
        assert set(reading.defaults) <= known
        assert all(sha is None or len(sha) == 64 for sha in reading.files.values())
        assert (reading.folder is None) == (not reading.files)


def test_files_of_the_registry_are_those_pyg_asks_for(tmp_path: Path) -> None:
    for name, entry in data.registry().items():
        if entry.folder is None:
            continue
        reader = getattr(pyg_datasets, entry.reader)
        stub = type(reader.__name__, (reader,), {"download": no_network})
        with pytest.raises(OSError, match="no route"):
            stub(str(tmp_path / name), **entry.arguments)
        blank = reader.__new__(reader)
        blank.__dict__.update(
            name=entry.arguments.get("name", ""),
            split="public",
            root="",
            geom_gcn_preprocess=True,
            hetero=False,
        )
        if entry.reader != "Planetoid":
            blank.name = blank.name.lower()
        wanted = {str(Path(path)) for path in blank.raw_paths}
        assert wanted == {str(Path(file)) for file in entry.files}, name


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


def test_a_root_is_read_and_never_written(cornell: Path, tmp_path: Path) -> None:
    before = listing(cornell)
    read = data.load("cornell", cornell)
    assert read.data.y.tolist() == [0, 1, 2, 3, 4, 0]
    assert read.data.train_mask.shape == (6, 10)
    assert listing(cornell) == before
    assert list((tmp_path / "cache").rglob("data.pt"))


def test_a_processed_copy_is_used_again(cornell: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.load("cornell", cornell)
    monkeypatch.setattr(pyg_datasets.WebKB, "process", no_network)
    assert data.load("cornell", cornell).fingerprint == first.fingerprint


def test_a_processed_copy_follows_its_root(cornell: Path, tmp_path: Path) -> None:
    data.load("cornell", cornell)
    set_writable(cornell, True)
    write_cornell(cornell, labels=[4, 3, 2, 1, 0, 1, 2])
    assert data.load("cornell", cornell).data.y.tolist() == [4, 3, 2, 1, 0, 1, 2]
    assert len(list((tmp_path / "cache").rglob("data.pt"))) == 1
    other = tmp_path / "other"
    write_cornell(other, labels=[1, 1, 0])
    assert data.load("cornell", other).data.y.tolist() == [1, 1, 0]
    assert data.load("cornell", cornell).data.y.tolist() == [4, 3, 2, 1, 0, 1, 2]


def test_absent_data_says_which_files_go_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(self: Any) -> None:
        (Path(self.raw_dir) / "ind.cora.x").write_bytes(b"broken off")
        raise OSError("no route to host")

    monkeypatch.setattr(pyg_datasets.Planetoid, "download", half)
    with pytest.raises(data.DataUnavailable) as refused:
        data.load("Cora", tmp_path / "root")
    message = str(refused.value)
    for file in ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index"):
        assert f"ind.cora.{file}" in message
    assert str(tmp_path / "root" / "Planetoid" / "Cora" / "raw") in message
    assert "--root" in message
    assert data.ROOT_VARIABLE in message
    assert "no route to host" in message
    assert "\n" not in message
    assert not data.is_here("Cora", tmp_path / "root")
    assert not (tmp_path / "root" / "Planetoid" / "Cora" / "raw" / "ind.cora.x").exists()


def test_what_pyg_downloads_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(
        pyg_datasets.WebKB, "download", lambda self: write_cornell(tmp_path / "root", [0, 1, 2, 3])
    )
    read = data.load("cornell", tmp_path / "root", log=told.append)
    assert read.data.y.tolist() == [0, 1, 2, 3]
    assert len(told) == 1
    assert "downloading" in told[0]


def test_files_without_content_are_not_here(cornell: Path) -> None:
    assert data.is_here("cornell", cornell)
    set_writable(cornell, True)
    (cornell / "WebKB" / "cornell" / "raw" / "out1_graph_edges.txt").write_text("")
    assert not data.is_here("cornell", cornell)


def test_damaged_files_are_named_in_one_line(cornell: Path, tmp_path: Path) -> None:
    set_writable(cornell, True)
    (cornell / "WebKB" / "cornell" / "raw" / "cornell_split_0.6_0.2_3.npz").write_text("no zip")
    with pytest.raises(data.DataUnavailable, match=r"cannot be read .* --verify") as refused:
        data.load("cornell", cornell)
    assert "\n" not in str(refused.value)
    assert not list((tmp_path / "cache").rglob("making-*"))


def test_a_missing_module_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "rdflib" else found(name)
    )
    with pytest.raises(data.DataUnavailable, match=r"rdflib.*pip install 'pyg_outerconv\[train\]'"):
        data.load("AIFB", tmp_path)


def test_verify_tells_states_apart(cornell: Path) -> None:
    states = data.verify("cornell", cornell)
    assert set(states.values()) == {"differs"}
    assert set(data.verify("Texas", cornell).values()) == {"missing"}


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
    assert set(data.verify(name, SHARED).values()) <= {"matches"}


def test_entities_have_one_order(
    tmp_path: Path, kept_cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not data.is_here("AIFB", SHARED) or any(
        importlib.util.find_spec(module) is None for module in data.entry("AIFB").requires
    ):
        pytest.skip("AIFB, rdflib and pandas are needed")
    prints = set()
    for folder in (kept_cache, str(tmp_path / "other")):
        monkeypatch.setenv(data.CACHE_VARIABLE, folder)
        prints.add(data.load("AIFB", SHARED).fingerprint)
    assert len(prints) == 1
