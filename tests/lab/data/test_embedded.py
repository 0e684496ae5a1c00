"""The copy of Cora that comes with the package."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import tomllib
import torch
import write_cora

from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import embedded
from pyg_outerconv.lab.data.registry import shipped

ROOT = Path(__file__).resolve().parents[3]
SHARED = (ROOT.parent / "shared" / "data").resolve()


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(data.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.delenv(data.ROOT_VARIABLE, raising=False)


def test_it_is_what_pyg_reads() -> None:
    if data.entry("Cora").missing(SHARED):
        pytest.skip(f"Cora is not in {SHARED}")
    pyg = data.load("Cora", SHARED)  # by PyG's class, of files with known checksums
    ours = data.load("Cora", "/nonexistent", log=str)
    assert pyg.root == SHARED
    assert ours.root is None
    assert set(ours.data.keys()) == set(pyg.data.keys())
    for key, value in pyg.data.to_dict().items():
        assert torch.equal(ours.data[key], value), key
        assert ours.data[key].dtype == value.dtype, key
    assert ours.fingerprint == pyg.fingerprint


def test_it_is_small_whole_and_without_pickles(tmp_path: Path) -> None:
    known = data.entry("Cora").embedded
    content = write_cora.FILE.read_bytes()
    assert known == {"file": "cora.npz", "sha256": hashlib.sha256(content).hexdigest()}
    assert len(content) < 200_000
    cora = data.load("Cora", tmp_path, log=str).data
    packed = write_cora.pack(cora)
    with np.load(write_cora.FILE, allow_pickle=False) as arrays:
        assert set(arrays.files) == set(packed)
        for name in arrays.files:
            assert np.array_equal(arrays[name], packed[name])
            assert arrays[name].dtype == packed[name].dtype


@pytest.mark.parametrize("split", ["public", "random", "random-60-20-20", None])
def test_it_serves_the_splits_without_files(split: str | None, tmp_path: Path) -> None:
    said: list[str] = []
    read = data.load("cora", tmp_path, split, said.append)
    assert (read.data.num_nodes, read.data.num_edges, read.num_classes) == (2708, 10556, 7)
    assert [int(read.data[f"{part}_mask"].sum()) for part in embedded.PARTS] == [140, 500, 1000]
    assert len(said) == 1
    assert "the copy inside pyg_outerconv" in said[0]
    assert data.is_here("Cora", tmp_path, split)
    assert not list(tmp_path.rglob("*.pt")), "there is nothing to cache"


def test_the_splits_of_geom_gcn_need_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(self: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr("torch_geometric.datasets.Planetoid.download", no_network)
    assert not data.is_here("Cora", tmp_path, "geom-gcn")
    with pytest.raises(data.DataUnavailable, match="cora_split"):
        data.load("Cora", tmp_path, "geom-gcn", log=str)


def test_a_damaged_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = write_cora.FILE.read_bytes()
    (tmp_path / "cora.npz").write_bytes(content[:-1])
    monkeypatch.setattr(embedded, "shipped", lambda name: tmp_path / name)
    with pytest.raises(data.DataUnavailable, match=r"cora.npz must be as it comes"):
        data.load("Cora", tmp_path, log=str)
    (tmp_path / "cora.npz").unlink()
    with pytest.raises(data.DataUnavailable, match=r"cora.npz cannot be read"):
        data.load("Cora", tmp_path, log=str)


def test_a_missing_file_of_the_package_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="_datasets/nothing.npz"):
        shipped("nothing.npz")


def test_a_wheel_carries_every_file_of_datasets() -> None:
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    carried = built["targets"]["wheel"]["force-include"]
    there = {path.name for path in (ROOT / "datasets").iterdir()} - {"README.md"}
    for name in there:
        assert carried[f"datasets/{name}"] == f"pyg_outerconv/_datasets/{name}"
