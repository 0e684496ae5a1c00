"""Graphs of one's own: every format gives the same graph, and a row that breaks a rule is named."""

from __future__ import annotations

import os
import pickle
import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected

from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import Source, load_own
from pyg_outerconv.lab.train.splits import make_split

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# Five nodes; a → b twice, a self-loop, an isolated node; c without a label.
NODES = ["ann", "b 2", "c", "d", "7"]
EDGES = [("ann", "b 2", 0.5), ("c", "ann", 1.0), ("ann", "b 2", 2.0), ("d", "d", 1.5)]
X = np.array([[1, 0.5], [0, -1], [2, 1e-3], [0, 0], [3, 4]])
LABELS = ["cat", "dog", "", "dog", "cat"]
PARTS = ["train", "train", "", "val", "test"]
NUMBER = {name: place for place, name in enumerate(NODES)}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_text(suffix: str, delimiter: str) -> Source:
    def table(name: str, rows: list[list[Any]]) -> str:
        Path(name + suffix).write_text(
            "".join(delimiter.join(map(str, row)) + "\n" for row in rows)
        )
        return name + suffix

    rows = [["node", "f", "g"], *([n, *row] for n, row in zip(NODES, X.tolist(), strict=True))]
    labels = [["node", "label", "split"], *map(list, zip(NODES, LABELS, PARTS, strict=True))]
    return Source(
        table("edges", [["source", "target", "weight"], *map(list, EDGES)]),
        table("features", rows),
        table("labels", labels[:1] + labels[:0:-1]),  # in another order
    )


def write_parquet() -> Source:
    def table(name: str, columns: dict[str, Any]) -> str:
        pq.write_table(pa.table(columns), name)
        return name

    first, second, weight = zip(*EDGES, strict=True)
    ends = {"source": pa.array(first).dictionary_encode(), "target": second, "weight": weight}
    labels = [label or None for label in LABELS]
    return Source(
        table("edges.parquet", ends),
        table("features.parquet", {"node": NODES, "f": X[:, 0], "g": X[:, 1]}),
        table("labels.parquet", {"node": NODES, "label": labels, "split": PARTS}),
    )


def write_npz() -> Source:
    first, second, weight = zip(*EDGES, strict=True)
    np.savez("edges.npz", edge_index=np.array([first, second]), edge_weight=np.array(weight))
    np.savez("features.npz", x=X, nodes=np.array(NODES))
    np.savez("labels.npz", y=np.array(LABELS), nodes=np.array(NODES), split=np.array(PARTS))
    return Source("edges.npz", "features.npz", "labels.npz")


def write_graphml() -> Source:
    graph = nx.MultiDiGraph()
    for name, row, label, part in zip(NODES, X.tolist(), LABELS, PARTS, strict=True):
        held = {"f": row[0], "g": row[1], "label": label, "split": part}
        graph.add_node(name, **held)
    graph.add_weighted_edges_from(EDGES)
    nx.write_graphml(graph, "graph.graphml")
    return Source("graph.graphml")


FORMATS = {
    "csv": lambda: write_text(".csv", ","),
    "tsv": lambda: write_text(".tsv", "\t"),
    "txt": lambda: write_text(".txt", "\t"),
    "parquet": write_parquet,
    "npz": write_npz,
    "graphml": write_graphml,
}


def edges_of(read: data.Dataset) -> list[tuple[str, str, float]]:
    index = read.data.edge_index.tolist()
    weights = read.data.edge_weight.tolist()
    return [(read.nodes[m], read.nodes[n], w) for m, n, w in zip(*index, weights, strict=True)]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_graph(name: str) -> None:
    said: list[str] = []
    read = load_own(FORMATS[name](), said.append)
    assert read.nodes == tuple(NODES)
    assert read.classes == ("cat", "dog")
    assert sorted(edges_of(read)) == sorted(EDGES)
    if name != "graphml":
        assert edges_of(read) == EDGES
    assert torch.equal(read.data.x, torch.from_numpy(X).float())
    assert read.data.y.tolist() == [0, 1, -1, 1, 0]
    for part in ("train", "val", "test"):
        assert read.data[f"{part}_mask"].tolist() == [one == part for one in PARTS]
    assert read.entry.counts == {
        "nodes": 5,
        "edges": 4,
        "features": 2,
        "classes": 2,
        "relations": 0,
    }
    assert read.entry.splits[0] == "public"
    text = "\n".join(said)
    assert "4 edges, of which 1 are parallel to another and 1 are self-loops" in text
    assert "1 nodes without an edge" in text
    assert "1 of 5 nodes have no label" in text


def test_the_same_graph_has_the_same_fingerprint_and_another_has_another() -> None:
    csv = load_own(write_text(".csv", ","))
    assert csv.fingerprint == load_own(write_parquet()).fingerprint
    assert csv.fingerprint == load_own(write_npz()).fingerprint
    found = {csv.fingerprint}
    changes = {
        "edges.csv": (",0.5", ",0.25"),
        "features.csv": ("4.0", "4.5"),
        "labels.csv": ("ann,cat,train", "ann,dog,train"),
    }
    whole = {name: Path(name).read_text() for name in changes}
    for name, (there, instead) in changes.items():
        assert there in whole[name]
        Path(name).write_text(whole[name].replace(there, instead, 1))
        found.add(load_own(csv.source).fingerprint)
        Path(name).write_text(whole[name])
    Path("labels.csv").write_text(whole["labels.csv"].replace("d,dog,val", "d,dog,test"))
    found.add(load_own(csv.source).fingerprint)
    for name in whole:
        Path(name).write_text(whole[name].replace("ann,", "eve,").replace(",ann", ",eve"))
    found.add(load_own(csv.source).fingerprint)
    assert len(found) == 6


def test_matrices_are_numbered_from_one() -> None:
    matrix = sp.coo_array(([1.0, 2.0, 3.0], ([0, 2, 2], [1, 0, 2])), (4, 4))
    scipy.io.mmwrite("a.mtx", matrix)
    scipy.io.mmwrite("x.mtx", sp.coo_array(np.arange(8).reshape(4, 2)))
    scipy.io.mmwrite("y.mtx", np.array([[3], [5], [-1], [3]]))
    read = load_own(Source("a.mtx", "x.mtx", "y.mtx"))
    assert read.nodes == ("1", "2", "3", "4")
    assert sorted(edges_of(read)) == [("1", "2", 1.0), ("3", "1", 2.0), ("3", "3", 3.0)]
    assert read.data.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert read.classes == ("3", "5")
    assert read.data.y.tolist() == [0, 1, -1, 0]
    Path("y.csv").write_text("node,label\n4,u\n1,v\n2,u\n3,\n")  # by name, in another order
    assert load_own(Source("a.mtx", "x.mtx", "y.csv")).data.y.tolist() == [1, 0, -1, 0]
    scipy.io.mmwrite(
        "s.mtx", sp.coo_array(([1, 1], ([1, 2], [0, 2])), (4, 4)), symmetry="symmetric"
    )
    read = load_own(Source("s.mtx", labels="y.mtx"))
    assert sorted(zip(*read.data.edge_index.tolist(), strict=True)) == [(0, 1), (1, 0), (2, 2)]
    assert read.data.get("x") is None


def test_plain_edge_lists_and_numbers() -> None:
    Path("edges.txt").write_text("# from a site\n# FromNodeId ToNodeId\n10 2\n2 7\n")
    Path("labels.csv").write_text("id,y,year\n10,3,1999\n2,11,1999\n7,3,1999\n")
    said: list[str] = []
    read = load_own(Source("edges.txt", labels="labels.csv"), said.append)
    assert read.nodes == ("10", "2", "7")
    assert read.classes == ("3", "11"), "in the order of numbers"
    assert read.data.edge_index.tolist() == [[0, 1], [1, 2]]
    assert "not read of labels: year" in "\n".join(said)
    Path("edges.csv").write_text("10,2,0.5,a\n2,7,1,b\n")
    source = Source("edges.csv", labels="labels.csv", edge_weight="3", edge_type="4")
    read = load_own(source)
    assert read.data.edge_weight.tolist() == [0.5, 1.0]
    assert read.data.edge_type.tolist() == [0, 1]
    assert read.num_relations == read.entry.counts["relations"] == 2
    assert read.entry.defaults["family"] == "relation"


@pytest.mark.parametrize("seed", range(20))
def test_undirected_edges_go_both_ways(seed: int) -> None:
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    listed = [[draw.randrange(count), draw.randrange(count)] for _ in range(draw.randint(1, 12))]
    Path("e.csv").write_text("source,target\n" + "".join(f"{m},{n}\n" for m, n in listed))
    Path("l.csv").write_text("node,label\n" + "".join(f"{n},{n % 2}\n" for n in range(count)))
    read = load_own(Source("e.csv", labels="l.csv", undirected=True)).data
    edges = list(zip(*read.edge_index.tolist(), strict=True))
    assert edges[: len(listed)] == [tuple(edge) for edge in listed]
    for m in range(count):
        for n in range(count):
            there, back = listed.count([m, n]), listed.count([n, m])
            assert edges.count((m, n)) == max(there, back)
    simple = torch.tensor(listed).T.unique(dim=1)
    both = to_undirected(simple, num_nodes=count)
    assert set(edges) == set(zip(*both.tolist(), strict=True))


def test_equal_edges_are_known_by_their_types_too() -> None:
    Path("e.csv").write_text("source,target,type\na,b,x\na,b,y\na,b,x\nb,a,y\n")
    Path("l.csv").write_text("node,label\na,0\nb,1\n")
    said: list[str] = []
    read = load_own(Source("e.csv", labels="l.csv", undirected=True), said.append)
    assert "6 edges, of which 2 are parallel" in said[0]
    assert read.data.edge_type.tolist() == [0, 1, 0, 1, 0, 0]
    assert read.data.edge_index.tolist() == [[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]]


def test_an_undirected_edge_has_one_weight() -> None:
    Path("e.csv").write_text("source,target,weight\na,b,1\nb,a,1\nb,a,3\na,b,2\n")
    Path("l.csv").write_text("node,label\na,0\nb,1\n")
    with pytest.raises(ValueError, match=r"line 5: an undirected edge.*3 as in .*line 4, got 2"):
        load_own(Source("e.csv", labels="l.csv", undirected=True))


def test_an_undirected_graphml_file_goes_both_ways() -> None:
    graph = nx.path_graph(3)
    nx.set_node_attributes(graph, {0: "a", 1: "b", 2: "a"}, "label")
    nx.write_graphml(graph, "g.graphml")
    read = load_own(Source("g.graphml")).data
    assert read.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]]
    assert read.get("x") is None


GOOD = {
    "edges.csv": "source,target,weight\na,b,1\nb,c,1\n",
    "features.csv": "node,f\na,1\nb,2\nc,3\n",
    "labels.csv": "node,label,split\na,x,train\nb,y,val\nc,x,test\n",
}
# The file, what stands there, what stands there instead, and the words of the error.
BAD = {
    "an unknown source": ("edges.csv", "b,c", "z,c", "edges.csv, line 3: an edge joins", "'z'"),
    "an unknown target": ("edges.csv", "a,b", "a,B", "edges.csv, line 2: an edge joins", "'B'"),
    "too few cells": ("edges.csv", "b,c,1", "b,c", "edges.csv, line 3: every row", "got 2"),
    "too many cells": ("edges.csv", "b,c,1", "b,c,1,2", "edges.csv, line 3: every", "expected 3"),
    "an empty line": ("edges.csv", "b,c", "\nb,c", "edges.csv, line 3: a line has cells", "empty"),
    "a cell of lines": ("edges.csv", "b,c", '"b\nb",c', "edges.csv, line 3: a cell is", "quotes"),
    "a weight of words": ("edges.csv", "b,c,1", "b,c,one", "edges.csv, line 3: an edge w", "'one'"),
    "no weight": ("edges.csv", "b,c,1", "b,c,", "edges.csv, line 3: an edge weight", "''"),
    "a weight NaN": ("edges.csv", "b,c,1", "b,c,nan", "edges.csv, line 3", "finite number"),
    "a weight inf": ("edges.csv", "b,c,1", "b,c,inf", "edges.csv, line 3", "got inf"),
    "other titles": (
        "edges.csv",
        "source,target",
        "citing,cited",
        "line 1: further columns",
        "'citing', 'cited', 'weight'",
    ),
    "titles twice": ("edges.csv", "target,weight", "target,source", "titles differ", "'source'"),
    "a feature of words": ("features.csv", "b,2", "b,two", "features.csv, line 3", "'f'", "'two'"),
    "a feature NaN": ("features.csv", "b,2", "b,NaN", "line 3", "finite number, got nan"),
    "no feature": ("features.csv", "b,2", "b,", "features.csv, line 3", "got ''"),
    "beyond float32": ("features.csv", "b,2", "b,1e300", "features.csv, line 3", "float32"),
    "a node twice": (
        "features.csv",
        "c,3",
        "a,3",
        "features.csv, line 4: a node has one",
        "line 2",
    ),
    "no name": ("features.csv", "c,3", ",3", "features.csv, line 4: a node has a name"),
    "no titles": (
        "features.csv",
        "node,f\n",
        "",
        "features.csv, line 1: a table of nodes",
        "'a,1'",
    ),
    "a label twice": (
        "labels.csv",
        "c,x",
        "b,x",
        "labels.csv, line 4: a node has one row",
        "line 3",
    ),
    "an unknown label": ("labels.csv", "c,x", "d,x", "labels.csv, line 4: a label is of", "'d'"),
    "half a class": (
        "labels.csv",
        "c,x",
        "c,1.5",
        "labels.csv, line 4: a class is a word",
        "'1.5'",
    ),
    "no classes": (
        "labels.csv",
        "label,",
        "colour,",
        "labels.csv, line 1: a table of labels",
        "col",
    ),
    "one class": ("labels.csv", "b,y", "b,x", "classes to tell apart", "at least 2 classes, got x"),
    "an odd part": ("labels.csv", "val", "valid", "labels.csv, line 3: a part", "'valid'"),
    "a part unlabelled": ("labels.csv", "c,x", "c,-1", "labels.csv, line 4", "none, in test"),
    "nobody trains": ("labels.csv", "a,x,train", "a,x,", "a split has train nodes"),
    "no test": ("labels.csv", "c,x,test", "c,x,", "a split that has val nodes has test nodes"),
    "bytes": ("edges.csv", "b,c", "\udcffb,c", "edges.csv, line 3", "UTF"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_row_that_breaks_a_rule_is_refused_with_its_line(case: str) -> None:
    name, there, instead, *words = BAD[case]
    for file, text in GOOD.items():
        Path(file).write_text(text)
    source = Source("edges.csv", "features.csv", "labels.csv")
    assert load_own(source).num_classes == 2
    assert there in GOOD[name]
    Path(name).write_text(GOOD[name].replace(there, instead, 1), errors="surrogateescape")
    with pytest.raises(ValueError) as refused:
        load_own(source)
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_no_tables_are_refused() -> None:
    for file, text in GOOD.items():
        Path(file).write_text(text)
    source = Source("edges.csv", "features.csv", "labels.csv").as_dict()

    def refused(words: str, **change: Any) -> None:
        with pytest.raises(ValueError, match=words) as error:
            load_own(Source(**{**source, **change}))
        assert "\n" not in str(error.value)

    refused("absent.csv must be readable", edges="absent.csv")
    Path("empty.csv").write_text("")
    refused("empty.csv must have content", edges="empty.csv")
    Path("comments.csv").write_text("# nothing\n")
    refused("comments.csv has no rows", edges="comments.csv")
    refused("unknown format of edges '.xlsx'", edges="a.xlsx")
    refused("unknown format of labels '.graphml'", labels="a.graphml")
    refused("labels: expected --labels FILE, got none", labels=None)
    refused("a column is one of the table.*'cost'", edge_weight="cost")
    for suffix in ("parquet", "npz", "mtx", "graphml"):
        Path(f"a.{suffix}").write_bytes(b"PK\x03\x04 no such thing")
        refused(f"a.{suffix}", edges=f"a.{suffix}")
    Path("a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1\n9 1 1\n")
    refused(r"a.mtx, line 4: .*out of bounds", edges="a.mtx")
    Path("a.mtx").write_text("%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1\n")
    refused(r"a.mtx: .*Truncated", edges="a.mtx")
    whole = write_parquet()
    nothing = pa.table({"node": NODES, "f": [None, *X[1:, 0].tolist()]})
    pq.write_table(nothing, "nothing.parquet")
    refused("row 1.*expected a number, got an empty cell", features="nothing.parquet")
    content = Path("features.parquet").read_bytes()
    Path("features.parquet").write_bytes(content[: len(content) // 2])
    refused("features.parquet must be whole", features=whole.features)
    os.mkfifo("pipe.csv")
    refused("pipe.csv must be readable.*no regular file", edges="pipe.csv")


class Payload:
    """A pickle of this makes a folder in the working folder where it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("ran",)


def test_arrays_are_refused_by_name() -> None:
    write_npz()
    source = Source("edges.npz", "features.npz", "labels.npz").as_dict()

    def refused(words: str, name: str, **arrays: Any) -> None:
        before = Path(name).read_bytes()
        with np.load(name) as held:
            np.savez(name, **{**dict(held), **arrays})
        with pytest.raises(ValueError, match=words) as error:
            load_own(Source(**source))
        assert "\n" not in str(error.value)
        Path(name).write_bytes(before)

    refused(
        "objects, which could run code", "labels.npz", y=np.array([Payload()] * 5, dtype=object)
    )
    assert not Path("ran").exists()
    refused("node 1: features are numbers", "features.npz", x=np.where(X == -1, np.nan, X))
    refused(r"nodes has an entry for each row.*\(5,\)", "features.npz", nodes=np.arange(4))
    refused("edge_index are pairs", "edges.npz", edge_index=np.zeros((3, 4), int))
    refused("edge_index are pairs", "edges.npz", edge_index=np.zeros((2, 4)))
    refused("edge_weight has an entry", "edges.npz", edge_weight=np.zeros(3))
    refused("by its name.*edge_index, edges", "edges.npz", edges=np.zeros((4, 2), int))
    refused("a split is said once", "labels.npz", train_mask=np.zeros(5, bool))


def test_arrays_that_nothing_reads_are_not_unpacked() -> None:
    write_npz()
    source = Source("edges.npz", "features.npz", "labels.npz")
    whole = load_own(source)
    for name in ("edges.npz", "features.npz", "labels.npz"):
        with zipfile.ZipFile(name, "a") as archive:
            archive.writestr("unread.npy", bytes(100))
        content = Path(name).read_bytes()
        Path(name).write_bytes(content.replace(bytes(100), b"\1" * 100))  # against its checksum
    again = load_own(source)
    assert again.fingerprint == whole.fingerprint


def test_arrays_are_unpacked_within_a_bound() -> None:
    write_npz()
    for name in ("edges.npz", "features.npz", "labels.npz"):
        before = Path(name).read_bytes()
        with zipfile.ZipFile(name, "a") as archive:
            archive.writestr("last.npy", b"")
            archive.infolist()[0].file_size = 2**33
        with pytest.raises(ValueError, match=f"{name} must be whole.*within a bound"):
            load_own(Source("edges.npz", "features.npz", "labels.npz"))
        Path(name).write_bytes(before)


def test_masks_of_an_npz_are_ten_splits() -> None:
    write_npz()
    source, draw = Source("edges.npz", "features.npz", "labels.npz"), np.random.default_rng(0)
    part = draw.permuted(np.tile([0, 1, 2, 0], (10, 1)), axis=1)  # of the nodes with a label
    masks = {f"{name}_mask": np.zeros((5, 10), bool) for name in ("train", "val", "test")}
    for number, mask in enumerate(masks.values()):
        mask[[0, 1, 3, 4]] = (part == number).T
    arrays = {"y": np.array(LABELS), "nodes": np.array(NODES)}
    np.savez("labels.npz", **arrays, **masks)
    read = load_own(source)
    assert read.entry.splits[0] == "public"
    for seed in range(12):  # in a cycle
        split = make_split(read.data, "public", seed)
        for mask, ours in zip(
            masks.values(), (split.train, split.validation, split.test), strict=True
        ):
            assert ours.tolist() == mask[:, seed % 10].tolist()

    def refused(words: str, **changed: Any) -> None:
        np.savez("labels.npz", **{**arrays, **masks, **changed})
        with pytest.raises(ValueError, match=words):
            load_own(source)

    refused(
        "train_mask says.*booleans .5,., or .5, S. of S splits", train_mask=np.ones((4, 10), bool)
    )
    refused("val_mask says", val_mask=masks["val_mask"][:, :9])
    refused("test_mask says", test_mask=masks["test_mask"].astype(int))
    refused("train_mask says", train_mask=np.zeros((5, 0), bool))
    refused("have no node in common", val_mask=masks["train_mask"])
    empty = np.zeros((5, 10), bool)
    unlabelled = {"train_mask": ~empty, "val_mask": empty, "test_mask": empty}
    refused("has a label: expected a class, got none, in train", **unlabelled)
    none_in_last = masks["test_mask"] & (np.arange(10) < 9)
    refused("has test nodes", test_mask=none_in_last)
    refused(
        "same parts.*train_mask in split 9",
        **{name: mask & (np.arange(10) < 9) for name, mask in masks.items() if "train" not in name},
    )


# PyG's Data -------------------------------------------------------------------------------------


def a_graph(**changed: Any) -> Data:
    parts = {
        "x": torch.eye(4),
        "edge_index": torch.tensor([[0, 1, 2, 2], [1, 2, 3, 2]]),
        "y": torch.tensor([0, 1, -1, 1]),
        "train_mask": torch.tensor([True, False, False, False]),
        "val_mask": torch.tensor([False, True, False, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    }
    return Data(**{**parts, **changed})


def test_a_data_is_read_from_a_file() -> None:
    safe = set(torch.serialization.get_safe_globals())
    torch.save(a_graph(edge_weight=torch.arange(4.0), edge_attr=torch.ones(4, 2)), "g.pt")
    said: list[str] = []
    read = load_own(Source(data="g.pt"), said.append)
    assert read.nodes == ("0", "1", "2", "3")
    assert read.data.edge_weight.tolist() == [0, 1, 2, 3]
    assert read.entry.splits[0] == "public"
    assert any("not read: edge_attr" in line for line in said)
    assert set(torch.serialization.get_safe_globals()) == safe  # PyG's own among them
    torch.save((a_graph().to_dict(), None, Data), "processed.pt")  # as PyG's datasets do
    assert load_own(Source(data="processed.pt")).data.num_edges == 4
    torch.save(a_graph(y=torch.tensor([[0], [1], [-1], [1]])), "column.pt")
    assert load_own(Source(data="column.pt")).data.y.tolist() == [0, 1, -1, 1]
    undirected = load_own(Source(data="processed.pt", undirected=True)).data
    assert undirected.edge_index.tolist() == [[0, 1, 2, 2, 1, 2, 3], [1, 2, 3, 2, 0, 1, 2]]


def test_a_file_never_runs_code() -> None:
    for name, held in {"pickle.pt": Payload(), "data.pt": a_graph(extra=Payload())}.items():
        torch.save(held, name)
        with pytest.raises(ValueError, match="could run code"):
            load_own(Source(data=name))
    Path("bare.pt").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match=r"bare.pt.*another pickle \(Unsupported operand"):
        load_own(Source(data="bare.pt"))
    torch.save(a_graph(), "cut.pt")
    Path("cut.pt").write_bytes(Path("cut.pt").read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"cut.pt must be whole"):
        load_own(Source(data="cut.pt"))
    assert not Path("ran").exists()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch is about to leave them
    NESTED = torch.nested.nested_tensor([torch.ones(2)] * 4)
    QUANTIZED = torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.quint8)
UNFIT: dict[str, tuple[dict[str, Any], str]] = {
    "no edges": ({"edge_index": None}, "a tensor edge_index"),
    "no labels": ({"y": None}, "a tensor y"),
    "real labels": ({"y": torch.rand(4)}, "g.pt holds integers"),
    "one class": ({"y": torch.tensor([0, 0, -1, 0])}, "classes to tell apart"),
    "a label of -2": ({"y": torch.tensor([0, 1, -2, 1])}, "classes are numbered"),
    "edges beyond": ({"edge_index": torch.tensor([[0], [4]])}, "0 to 3, got 4"),
    "three ends": ({"edge_index": torch.zeros(3, 2, dtype=torch.long)}, "pairs of nodes"),
    "NaN": ({"x": torch.full((4, 1), torch.nan)}, "features are finite"),
    "rows": ({"x": torch.eye(3), "num_nodes": 4}, "every node has a row"),
    "a weight short": ({"edge_weight": torch.ones(3)}, "a weight for each edge"),
    "a weight beyond": (
        {"edge_weight": torch.tensor([1, 1, 1e300, 1], dtype=torch.float64)},
        r"finite in float32: expected numbers, got 1e\+300 of edge 2",
    ),
    "complex weights": ({"edge_weight": torch.ones(4, dtype=torch.cfloat)}, "real numbers"),
    "weights in a list": ({"edge_weight": [1.0, 1.0, 1.0, 1.0]}, "got list"),
    "features in words": ({"x": "eye", "num_nodes": 4}, "got str"),
    "a mask in a list": ({"val_mask": [False, True, False, False]}, "got list"),
    "a type far off": ({"edge_type": torch.tensor([0, 1, 0, 10**6])}, "no more types .* 1000000"),
    "a type short": ({"edge_type": torch.zeros(3, dtype=torch.long)}, "a type for each edge"),
    "masks of numbers": ({"train_mask": torch.ones(4)}, "booleans"),
    "masks that meet": ({"val_mask": torch.tensor([True, False, False, False])}, "in common"),
    "unlabelled in a mask": ({"test_mask": torch.tensor([False, False, True, False])}, "a label"),
    "no test mask": ({"test_mask": None}, "has test nodes"),
    "an empty mask": ({"test_mask": torch.zeros(0, dtype=torch.bool)}, "booleans"),
    "quantized features": ({"x": QUANTIZED}, "x of .* holds numbers.* a quantized tensor"),
    "nested features": ({"x": NESTED}, "a nested tensor"),
} | {
    f"{key} of {kind}": ({key: made, "num_nodes": 4}, f"{key} of .* holds numbers")
    for key in ("x", "y", "edge_index", "edge_weight", "train_mask")
    for kind, made in (("meta", torch.ones(4, 4, device="meta")), ("one number", torch.tensor(1)))
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_data_that_does_not_fit_is_refused(case: str) -> None:
    changed, words = UNFIT[case]
    torch.save(a_graph(**changed), "g.pt")
    with pytest.raises((ValueError, TypeError), match=words) as refused:
        load_own(Source(data="g.pt"))
    assert "\n" not in str(refused.value)


LIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "a parameter": torch.nn.Parameter,
    "with a gradient": lambda x: x.requires_grad_(),
    "sparse": Tensor.to_sparse,
    "compressed": Tensor.to_sparse_csr,
    "with a negative bit": lambda x: torch._neg_view(-x),
    "in halves": Tensor.half,
}


@pytest.mark.parametrize("kind", LIKE)
@pytest.mark.parametrize("key", ["x", "edge_weight"])
def test_numbers_are_read_however_they_are_held(kind: str, key: str) -> None:
    plain = torch.eye(4) if key == "x" else torch.ones(4)
    if kind == "compressed" and key == "edge_weight":
        plain = torch.ones(4, 1)
    torch.save(a_graph(**{key: LIKE[kind](plain.clone())}), "g.pt")
    held = load_own(Source(data="g.pt")).data[key]
    assert type(held) is Tensor
    assert not held.requires_grad
    torch.testing.assert_close(held, plain.view_as(held))
    assert held.numpy().any()


def test_other_kinds_of_graphs_are_refused() -> None:
    for held, words in ((HeteroData(), "one type of nodes"), (torch.ones(2), "got Tensor")):
        torch.save(held, "g.pt")
        with pytest.raises((ValueError, TypeError), match=words):
            load_own(Source(data="g.pt"))
    torch.save((a_graph().to_dict(), {"x": 1}, Data), "g.pt")
    with pytest.raises(TypeError, match="holds one graph"):
        load_own(Source(data="g.pt"))


def test_a_function_is_called_where_it_is_named(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom torch_geometric.datasets import KarateClub\n"
        "def club(): return KarateClub()\n"
        "def number(): return 3\n"
        "def broken(): return 1 / 0\n"
        "def wants(name): return KarateClub()\n"
    )
    Path("my_graphs_here.py").write_text(code)
    source = Source(data="my_graphs_here:club")
    assert source.is_function
    read = load_own(source)
    assert read.data.num_nodes == 34
    assert read.source == source
    assert source.name == "my_graphs_here.club"
    for name, words in {
        "my_graphs_here:none": "has a function none",
        "my_graphs_here:number": "one graph: expected a Data, got int",
        "my_graphs_here:wants": "called without arguments.*'name'",
        "builtins:max": "called without arguments",
        "builtins:dict": "called without arguments",
        "no_such_module_here:f": "can be imported",
    }.items():
        with pytest.raises((ValueError, TypeError), match=words):
            load_own(Source(data=name))
    with pytest.raises(ZeroDivisionError):  # a bug of the user's own shows as one
        load_own(Source(data="my_graphs_here:broken"))


# The source -------------------------------------------------------------------------------------


def test_a_source_is_plain_and_absolute(tmp_path: Path) -> None:
    source = Source("edges.csv", None, "l.csv", undirected=True, edge_weight="w")
    whole = source.absolute()
    assert whole.edges == str(tmp_path / "edges.csv")
    assert whole.labels == str(tmp_path / "l.csv")
    assert whole.absolute() == whole
    assert data.source_from(whole.as_dict(), "config.json") == whole
    assert source.name == "edges"
    assert Source(data="a/b.pt").absolute().data == str(tmp_path / "a/b.pt")
    assert Source(data="a:b").absolute().data == "a:b"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "has edges"),
        ({"labels": "l.csv"}, "edges or data, got labels"),
        ({"edges": "e.csv", "data": "d.pt"}, "one of both, got data, edges"),
        ({"edges": 3}, "edges has a type"),
        ({"edges": "e.csv", "undirected": "yes"}, "undirected has a type"),
        ({"edges": "e.csv", "colour": "red"}, "colour"),
        ([], "list"),
    ],
)
def test_a_source_that_says_nothing_is_refused(values: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        data.source_from(values, "config.json")


def test_pyarrow_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found = importlib.util.find_spec
    source = write_text(".csv", ",")
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    with pytest.raises(ValueError, match=r"pip install 'pyg_outerconv\[train\]'"):
        load_own(source)
