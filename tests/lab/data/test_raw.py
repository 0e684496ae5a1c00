"""Raw files that are not as they should be: refused before they are read, and nothing runs."""

import errno
import os
import pickle
import random
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import raw_layouts
import scipy.sparse as sp
import torch

from pyg_outerconv.errors import RefusedValue
from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import raw

RAW = Path("WebKB/texas/raw")
SPLIT = RAW / "texas_split_0.6_0.2_3.npz"


@pytest.fixture(autouse=True)
def _texas(tmp_path):
    """The working folder is a root with a small graph, whose checksums nobody knows."""
    raw_layouts.write(data.entry("texas"), tmp_path)


def refused(*words, name="texas"):
    """The data set of this root is refused in one line with some words, and nothing was run."""
    with pytest.raises(data.DataUnavailable) as error:
        data.load(name, Path.cwd())
    for word in (str(Path.cwd()), *words):
        assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert not Path("ran").exists()


class Payload:
    """A pickle of this makes a folder in the working folder where it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def flip(content, draw):
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


SPOILT = {
    "flipped": flip,
    "cut off": lambda content, draw: content[: draw.randrange(1, len(content))],
    "longer": lambda content, draw: content + draw.randbytes(1),
    "exchanged": lambda content, draw: pickle.dumps(Payload()),
}


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_differ_are_refused_before_they_are_read(how, shared_data):
    draw, files = random.Random(how), [*data.entry("Cora").files]
    shutil.copytree(shared_data / "Planetoid" / "Cora" / "raw", "Planetoid/Cora/raw")
    for name in 2 * files:
        path = Path("Planetoid") / name
        content = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(SPOILT[how](content, draw))
        refused("by its sha256", name, name="Cora")
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bytes_without_a_checksum_are_refused_or_fit(seed):
    draw = random.Random(seed)
    path = draw.choice(sorted(RAW.iterdir()))
    path.write_bytes(flip(path.read_bytes(), draw))
    try:
        read = data.load("texas", Path.cwd()).data
    except data.DataUnavailable as error:
        assert str(Path.cwd() / "WebKB") in str(error)  # noqa: PT017
    else:
        assert read.y.shape == (6,)
        assert read.y.max() < 6
        assert read.train_mask.shape == (6, 10)
        assert set(read.edge_index.flatten().tolist()) <= set(range(6))


CUT = ["CoauthorCS", "WikiCS", "Flickr", "Reed98", "Genius", "PolBlogs", "TwitchPT"]


@pytest.mark.parametrize("name", CUT)
def test_a_file_that_is_cut_off_is_refused(name):
    entry, draw = data.entry(name), random.Random(name)
    for file in entry.files:
        raw_layouts.write(entry, Path.cwd())
        path = entry.home(Path.cwd()) / file
        content = path.read_bytes()
        path.write_bytes(content[: draw.randrange(1, len(content) - 1)])
        refused(str(entry.home(Path.cwd())), name=name)
    assert not list(Path("cache").rglob("*.pt"))


UNFIT = {
    "an edge to -1": ("out1_graph_edges.txt", "0\t1", "0\t-1", "edges join the nodes"),
    "an edge to nowhere": ("out1_graph_edges.txt", "0\t1", "0\t6", "from 0 to 5, got '6'"),
    "an edge of three": ("out1_graph_edges.txt", "0\t1", "0\t1\t2", "cannot be read"),
    "a class that is none": ("out1_node_feature_label.txt", "4\t0,1\t0", "4\t0,1\t-2", "or -1"),
    "a class of millions": ("out1_node_feature_label.txt", "\t1\n", "\t7000000\n", "got 7000000"),
    "a node without a label": ("out1_node_feature_label.txt", "5\t0,1\t1\n", "", "to 4, got '5'"),
    "a label cut off": ("out1_node_feature_label.txt", "0,1\t1\n", "0,1\t1", "a line break"),
    "no number": ("out1_node_feature_label.txt", "0,1\t1", "nan,1\t1", "features are finite"),
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_graph_that_does_not_fit_names_the_file_and_the_rule(case):
    name, there, instead, words = UNFIT[case]
    text = (RAW / name).read_text()
    assert there in text
    (RAW / name).write_text(instead.join(text.rsplit(there, 1)))
    refused(words)


@pytest.mark.parametrize("seed", range(6))
def test_masks_must_be_of_this_graph_and_disjoint(seed):
    draw = random.Random(seed)
    number, (one, other) = draw.randrange(10), draw.sample([*raw_layouts.MASKS], 2)
    masks = {name: mask.copy() for name, mask in raw_layouts.MASKS.items()}
    masks[one][masks[other].argmax()] = True
    np.savez(RAW / f"texas_split_0.6_0.2_{number}.npz", **masks)
    refused("the files of Texas in", "no node in common")
    for split in range(10):
        short = {name: mask[:5] for name, mask in raw_layouts.MASKS.items()}
        np.savez(RAW / f"texas_split_0.6_0.2_{split}.npz", **short)
    refused("for each node: expected 6, got 5")


def computers(**changed):
    """A small graph in the layout of Amazon, with some arrays exchanged."""
    adjacency = sp.random(8, 8, 0.3, "csr", random_state=0)
    attributes = sp.random(8, 3, 0.5, "csr", random_state=0)
    arrays = {
        f"{name}_{part}": getattr(matrix, part)
        for name, matrix in (("adj", adjacency), ("attr", attributes))
        for part in ("data", "indices", "indptr", "shape")
    }
    path = Path("Amazon/Computers/raw/amazon_electronics_computers.npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"labels": np.arange(8) % 3, **arrays, **changed}
    np.savez(path, **arrays)
    return arrays


@pytest.mark.parametrize("seed", range(30))
def test_matrices_that_point_outside_are_refused(seed):
    draw, arrays = np.random.default_rng(seed), computers()
    assert data.load("Computers", Path.cwd()).data.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    name = draw.choice([f"{m}_{p}" for m in ("adj", "attr") for p in ("indices", "indptr")])
    array = arrays[name].copy()
    array[draw.integers(len(array))] = draw.choice([-1, -(2**31), 2**31 - 1, 10**6])
    computers(**{name: array})
    refused("Computers", name="Computers")


# What could run code, and what is no file ---------------------------------------------------------

HIDDEN = {
    "an object": lambda: np.array([Payload()], dtype=object),
    "in a dictionary": lambda: np.array({"train": [Payload()]}, dtype=object),
    "in an array": lambda: np.array([np.array([Payload()], dtype=object), 1], dtype=object),
    "a function": lambda: np.array([os.system], dtype=object),
}


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("name", ["CoraML", "Penn94"])
def test_pickled_arrays_that_name_code_are_refused(name, how):
    entry = data.entry(name)
    raw_layouts.write(entry, Path.cwd())
    path = entry.home(Path.cwd()) / [*entry.files][-1]
    if path.suffix == ".npy":
        np.save(path, HIDDEN[how](), allow_pickle=True)
    else:
        with np.load(path, allow_pickle=True) as arrays:
            np.savez(path, **{**dict(arrays), "class_names": HIDDEN[how]()})
    refused("other objects could run code", name=name)


@pytest.mark.parametrize("name", ["x.pt", "x.pkl", "x.nt.gz", "ind.cora.x"])
def test_other_kinds_are_not_read_without_a_checksum(name, monkeypatch):
    with pytest.raises(RefusedValue, match=r"a kind that cannot run code.*\.npz or .npy or .json"):
        raw.look_into(Path(name), b"anything")
    cora = data.entry("Cora")
    monkeypatch.setitem(data.registry(), "Cora", replace(cora, files=dict.fromkeys(cora.files)))
    Path("Planetoid/Cora/raw").mkdir(parents=True)
    for file in cora.files:
        Path("Planetoid", file).write_bytes(pickle.dumps(Payload()))
    refused("kind that cannot run code", name="Cora")


def test_what_others_processed_and_a_damaged_copy_are_not_loaded():
    processed = RAW.parent / "processed"
    processed.mkdir()
    for name in ("data.pt", "pre_transform.pt", "pre_filter.pt"):
        torch.save(Payload(), processed / name)
    first = data.load("texas", Path.cwd())
    (kept,) = Path("cache").rglob("*.pt")
    whole, said, draw = kept.read_bytes(), list[str](), random.Random(0)
    for spoil in SPOILT.values():
        kept.write_bytes(spoil(whole, draw))
        assert data.load("texas", Path.cwd(), log=said.append).fingerprint == first.fingerprint
    torch.save(Payload(), kept)
    assert data.load("texas", Path.cwd(), log=said.append).fingerprint == first.fingerprint
    assert [str(kept) in line and "raw files" in line for line in said] == [True] * 5
    assert not Path("ran").exists()


MAKE = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", MAKE)
def test_what_is_no_regular_file_is_refused_at_once(kind):
    (RAW / "out1_graph_edges.txt").unlink()
    MAKE[kind](RAW / "out1_graph_edges.txt")
    refused("edges.txt cannot be read", "regular file")


def test_a_folder_that_may_not_be_read_is_refused(monkeypatch):
    stat = Path.stat

    def denied(self, **options):
        if "WebKB" in self.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", denied)
    refused("cannot be read (Permission denied)")


def test_an_archive_that_unpacks_to_too_much_is_refused():
    content = bytearray(SPLIT.read_bytes())
    place = content.index(b"PK\x01\x02")  # the first file in the list at the end
    content[place + 24 : place + 28] = (2**32 - 2).to_bytes(4, "little")  # its size unpacked
    SPLIT.write_bytes(content)
    refused("_3.npz", "is unpacked within a bound")
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9000000000,), }".ljust(117) + b"\n"
    with zipfile.ZipFile(SPLIT, "w") as archive:
        archive.writestr("train_mask.npy", np.lib.format.magic(1, 0) + b"\x76\x00" + text)
    refused("train_mask.npy must be whole")
    SPLIT.write_text("no zip")
    refused("_3.npz, ", "must be whole")
