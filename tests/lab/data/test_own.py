"""Graphs of one's own: every format gives the same graph, and a row that breaks a rule is named."""

from __future__ import annotations

import io
import os
import pickle
import random
import warnings
import zipfile
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import to_undirected

from pyg_outerconv.lab import data
from pyg_outerconv.lab.data import Source, graph, load_own, tables
from pyg_outerconv.lab.train.splits import make_split

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def put(name, content):
    """A file: of text or bytes, or of columns or arrays by their names."""
    path, suffix = Path(name), Path(name).suffix
    if isinstance(content, str):
        path.write_text(content, errors="surrogateescape")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif suffix == ".npz":
        np.savez(path, **content)
    elif suffix == ".parquet":
        pq.write_table(content if isinstance(content, pa.Table) else pa.table(content), path)
    else:
        rows = [list(content), *zip(*content.values(), strict=True)]
        delimiter = "," if suffix == ".csv" else "\t"
        path.write_text("".join(delimiter.join(map(str, row)) + "\n" for row in rows))
    return name


def read(*names, **options):
    """The graph of files, each of the kind that its name begins with."""
    kinds = {
        kind: name
        for name in names
        for kind in ("edges", "features", "labels")
        if name.startswith(kind)
    }
    said = []
    dataset = load_own(Source(**kinds, **options), said.append)
    object.__setattr__(dataset, "said", "\n".join(said))
    return dataset


def refused(words, *names, **options):
    with pytest.raises((ValueError, TypeError)) as error:
        read(*names, **options)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


# Good files ---------------------------------------------------------------------------------------

# Five nodes; a → b twice, a self-loop, an isolated node; c without a label.
NODES = ["ann", "b 2", "c", "d", "7"]
ENDS = ["ann", "c", "ann", "d"], ["b 2", "ann", "b 2", "d"]
WEIGHTS, F, G = [0.5, 1.0, 2.0, 1.5], [1.0, 0.0, 2.0, 0.0, 3.0], [0.5, -1.0, 1e-3, 0.0, 4.0]
CLASSES, SPLIT = ["cat", "dog", "", "dog", "cat"], ["train", "train", "", "val", "test"]
EDGES = {"source": ENDS[0], "target": ENDS[1], "weight": WEIGHTS}
FEATURES = {"node": NODES, "f": F, "g": G}
LABELS = {"node": NODES, "label": CLASSES, "split": SPLIT}
X, INDEX = np.array([F, G]).T, np.array(ENDS)
ARRAYS = {
    "edges.npz": {"edge_index": INDEX, "edge_weight": np.array(WEIGHTS)},
    "features.npz": {"x": X, "nodes": np.array(NODES)},
    "labels.npz": {"y": np.array(CLASSES), "nodes": np.array(NODES), "split": np.array(SPLIT)},
}


MASKS = {f"{part}_mask": np.array([one == part for one in SPLIT]) for part in graph.PARTS}


def columns(suffix, **changed):
    parts = {"edges": EDGES, "features": FEATURES, "labels": LABELS, **changed}
    return {name + suffix: content for name, content in parts.items()}


def titled(first, second, *order):
    listed = [(first, ENDS[0]), (second, ENDS[1]), ("Weight", WEIGHTS)]
    return dict(listed[place] for place in order)


LINES = "ann,b 2,{0}.5\nc,ann,1\nann,b 2,2e0\nd,d,1.50\n".format
CODES = pa.array(ENDS[0]).dictionary_encode()
NAMES = np.array(NODES)
SAME = {
    "csv": columns(".csv"),
    "tsv": columns(".tsv"),
    "txt": columns(".txt"),
    "parquet": columns(".parquet"),
    "npz": ARRAYS,
    "several formats": columns(".csv")
    | {"edges.parquet": EDGES, "labels.npz": ARRAYS["labels.npz"]},
    "other titles": columns(".csv", edges=titled("src", "dst", 2, 0, 1)),
    "titles in capitals": columns(".parquet", edges=titled("From", "TO", 1, 0, 2)),
    "labels in capitals": columns(".csv", labels={"ID": NODES, "Split": SPLIT, "Class": CLASSES}),
    "another order": columns(".csv", labels={key: part[::-1] for key, part in LABELS.items()}),
    "unlabelled": columns(".csv", labels={**LABELS, "label": [one or "-1" for one in CLASSES]}),
    "comments": columns(".csv") | {"edges.csv": "# a\n#\nsource,target,weight\n" + LINES("")},
    "no titles": columns(".csv") | {"edges.csv": LINES("0")},
    "dictionaries": columns(".parquet", edges={**EDGES, "source": CODES}),
    "null": columns(".parquet", labels={**LABELS, "label": [one or None for one in CLASSES]}),
    "pairs": ARRAYS | {"edges.npz": {"edges": INDEX.T, "edge_weight": np.array(WEIGHTS, ">f4")}},
    "other arrays": ARRAYS
    | {"features.npz": {"features": X, "nodes": NAMES}}
    | {"labels.npz": {"labels": np.array(CLASSES), "nodes": NAMES, **MASKS}},
}


@pytest.mark.parametrize("name", SAME)
def test_every_format_gives_the_same_graph(name):
    options = {"edge_weight": "3"} if name == "no titles" else {}
    csv = read(*(put(*file) for file in SAME["csv"].items()))
    dataset = read(*(put(*file) for file in SAME[name].items()), **options)
    assert dataset.fingerprint == csv.fingerprint
    graph_data = dataset.data
    assert (dataset.nodes, dataset.classes) == (tuple(NODES), ("cat", "dog"))
    assert graph_data.edge_index.tolist() == [[0, 2, 0, 3], [1, 0, 1, 3]]
    assert graph_data.edge_weight.tolist() == WEIGHTS
    assert torch.equal(graph_data.x, torch.from_numpy(X).float())
    assert graph_data.y.tolist() == [0, 1, -1, 1, 0]
    for part, mask in MASKS.items():
        assert graph_data[part].tolist() == mask.tolist()
    assert list(dataset.entry.counts.values()) == [5, 4, 2, 2, 0]
    assert dataset.entry.splits[0] == "public"
    assert "4 edges, of which 1 are parallel to another and 1 are self-loops" in dataset.said
    assert "1 nodes without an edge" in dataset.said
    assert "1 of 5 nodes have no label" in dataset.said


def test_graphml_gives_the_same_graph_in_the_order_of_its_nodes():
    graph = nx.MultiDiGraph()
    for name, f, g, label, part in zip(NODES, F, G, CLASSES, SPLIT, strict=True):
        graph.add_node(name, f=f, g=g, label=label, split=part, note="text")
    graph.add_weighted_edges_from(zip(*EDGES.values(), strict=True))
    nx.write_graphml(graph, "edges.graphml")
    loaded, other = read("edges.graphml"), read(*(put(*file) for file in SAME["csv"].items()))
    for key in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(loaded.data[key], other.data[key])
    ordered = [
        sorted(zip(*one.edge_index.tolist(), one.edge_weight.tolist(), strict=True))
        for one in (loaded.data, other.data)
    ]
    assert ordered[0] == ordered[1]
    assert (loaded.nodes, loaded.classes) == (other.nodes, other.classes)
    assert "not read of features: note" in loaded.said
    nx.write_graphml(nx.path_graph(3), "edges.graphml")
    loaded = read("edges.graphml", put("labels.csv", "node,label\n0,a\n1,b\n2,a\n")).data
    assert loaded.edge_index.tolist() == [[0, 1, 1, 2], [1, 2, 0, 1]], "its edges go both ways"
    assert loaded.get("x") is None


CHANGES = {
    "edges.csv": (",0.5", ",0.25"),
    "features.csv": ("4.0", "4.5"),
    "labels.csv": ("ann,cat,train", "ann,dog,train"),
    "labels.csv ": ("d,dog,val", "d,dog,test"),
}


def test_another_graph_has_another_fingerprint():
    names = [put(*file) for file in SAME["csv"].items()]
    whole, fingerprints = (
        {name: Path(name).read_text() for name in names},
        {read(*names).fingerprint},
    )
    for name, (there, instead) in CHANGES.items():
        text = whole[name.strip()]
        assert there in text
        put(name.strip(), text.replace(there, instead, 1))
        fingerprints.add(read(*names).fingerprint)
        put(name.strip(), text)
    for name, text in whole.items():
        put(name, text.replace("ann", "eve"))
    fingerprints.add(read(*names).fingerprint)
    assert len(fingerprints) == 6


MATRIX = "%%MatrixMarket matrix {}\n{}\n".format
BIG = "9" * 5000
LARGE = {
    2**53 + 1: pa.int64(),
    -(2**63): pa.int64(),
    2**64 - 1: pa.uint64(),
    10**30: pa.decimal128(38),
}
READ = []


def reads(files, *wanted, **options):
    """A case: files, options, and parts of the Data or of the data set that they give.

    Without labels, the nodes are a, b and c.
    """
    READ.append(({"labels.csv": "node,label\na,x\nb,y\nc,x\n", **files}, options, *wanted))


reads(
    {
        "edges.mtx": MATRIX("coordinate real general", "4 4 3\n1 2 1\n3 1 2\n3 3 3"),
        "features.mtx": MATRIX("coordinate integer general", "4 2 3\n1 2 1\n2 1 2\n4 2 7"),
        "labels.mtx": MATRIX("array integer general", "4 1\n3\n5\n-1\n3"),
    },
    {"nodes": ("1", "2", "3", "4"), "classes": ("3", "5"), "y": [0, 1, -1, 0]}
    | {"edge_index": [[0, 2, 2], [1, 0, 2]], "edge_weight": [1, 2, 3]}
    | {"x": [[0, 1], [2, 0], [0, 0], [0, 7]]},
)
reads(
    {
        "edges.mtx": MATRIX("coordinate pattern symmetric", "4 4 2\n2 1\n3 3"),
        "features.mtx": MATRIX("array real general", "4 1\n1\n2\n3\n4"),
        "labels.csv": "node,label\n4,u\n1,v\n2,u\n3,\n",
    },
    {"edge_index": [[1, 2, 0], [0, 2, 1]], "y": [1, 0, -1, 0], "edge_weight": None},
)
reads(
    {"edges.txt": "# a\n# b\n10 2\n2 7\n", "labels.csv": "id,y,year\n10,3,1\n2,11,1\n7,3,2\n"},
    {"nodes": ("10", "2", "7"), "classes": ("3", "11"), "edge_index": [[0, 1], [1, 2]]}
    | {"x": None, "said": "not read of labels: year"},
)
reads(
    {"edges.csv": "a,b,0.5,k\nb,c,1,l\n"},
    {"edge_weight": [0.5, 1.0], "edge_type": [0, 1], "num_relations": 2},
    edge_weight="3",
    edge_type="4",
)
reads(
    {"edges.csv": "cost,source,target,type\n.5,a,b,10\n1,b,c,9\n"},
    {"edge_weight": [0.5, 1.0], "edge_type": [1, 0]},
    edge_weight="cost",
)
reads(
    {"edges.npz": {"edges": [["a", "b"]], "cost": [3], "kind": ["r"]}},
    {"edge_weight": [3.0], "edge_type": [0]},
    edge_weight="cost",
    edge_type="kind",
)
reads(
    {"edges.npz": {"edge_index": np.array([[0, 1], [1, 2]], ">i4")}}
    | {"labels.npz": {"y": np.array([0, 1, 0], np.float16)}},
    {"nodes": ("0", "1", "2"), "y": [0, 1, 0], "edge_index": [[0, 1], [1, 2]]},
)
reads(
    {"edges.csv": "source,target\na,b\n", "labels.csv": "node,y,label\na,1,u\nb,2,v\nc,3,u\n"},
    {"classes": ("u", "v"), "said": "not read of labels: y"},
)
reads({"edges.csv": "source,target\n"}, {"edge_index": [[], []]}, undirected=True)
reads({"edges.parquet": {"source": [], "target": []}}, {"edge_index": [[], []]})
reads({"edges.csv": "a,b\n", "features.csv": "node\na\nb\nc\n"}, {"x": [[], [], []]})
reads(
    {"edges.csv": "a,b\n", "labels.parquet": {"node": list("abc"), "label": [0.0, np.nan, 10.0]}},
    {"y": [0, -1, 1], "classes": ("0", "10")},
)
reads({"edges.csv": f"source,target,type\na,b,{BIG}\n"}, {"edge_type": [0]})
reads(
    {"edges.csv": "source,target,type\na,b,x\na,b,y\na,b,x\nb,a,y\n"},
    {"edge_type": [0, 1, 0, 1, 0, 0], "edge_index": [[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]]}
    | {"said": "6 edges, of which 2 are parallel"},
    undirected=True,
)
reads(
    {"edges.parquet": {"source": [2**53 + 1], "target": [2**53]}}
    | {"labels.parquet": {"id": [2**53, 2**53 + 1], "y": [1, 2**60]}},
    {"nodes": (str(2**53), str(2**53 + 1)), "edge_index": [[1], [0]], "classes": ("1", str(2**60))},
)
for number, kind in LARGE.items():
    numbers, rounded = pa.array([number, 0, 1], kind), torch.tensor([float(number), 0, 1])
    reads(
        {"edges.parquet": {"source": list("abc"), "target": list("bca"), "weight": numbers}}
        | {"features.parquet": {"node": list("abc"), "f": numbers}},
        {"edge_weight": rounded.tolist(), "x": rounded.view(3, 1).tolist()},
    )


@pytest.mark.parametrize("place", range(len(READ)))
def test_files_are_read(place):
    files, options, wanted = READ[place]
    dataset = read(*(put(*file) for file in files.items()), **options)
    for key, value in wanted.items():
        actual = getattr(dataset, key) if hasattr(dataset, key) else dataset.data.get(key)
        actual = actual.tolist() if isinstance(actual, Tensor) else actual
        assert value in actual if key == "said" else actual == value, key
    assert dataset.num_relations == max(1, dataset.entry.counts["relations"])
    assert ("relation" in dataset.entry.defaults.values()) == ("edge_type" in dataset.data)


@pytest.mark.parametrize("seed", range(20))
def test_undirected_edges_go_both_ways(seed):
    draw = random.Random(seed)
    count = draw.randint(2, 6)
    listed = [[draw.randrange(count), draw.randrange(count)] for _ in range(draw.randint(1, 12))]
    files = [
        put("edges.csv", "source,target\n" + "".join(f"{m},{n}\n" for m, n in listed)),
        put("labels.csv", "node,label\n" + "".join(f"{n},{n % 2}\n" for n in range(count))),
    ]
    graph_data = read(*files, undirected=True).data
    edges = list(zip(*graph_data.edge_index.tolist(), strict=True))
    assert edges[: len(listed)] == [tuple(edge) for edge in listed]
    for m in range(count):
        for n in range(count):
            assert edges.count((m, n)) == max(listed.count([m, n]), listed.count([n, m]))
    both = to_undirected(torch.tensor(listed).T.unique(dim=1), num_nodes=count)
    assert set(edges) == set(zip(*both.tolist(), strict=True))


# Bad files ----------------------------------------------------------------------------------------


class Payload:
    """A pickle of this makes a folder in the working folder where it is loaded."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


GOOD = {
    "edges.csv": "source,target,weight\na,b,1\nb,c,1\n",
    "features.csv": "node,f\na,1\nb,2\nc,3\n",
    "labels.csv": "node,label,split\na,x,train\nb,y,val\nc,x,test\n",
}
PAIRS = {"edge_index": np.array([[0, 1], [1, 2]])}


def header(shape, kind="<f8"):
    """An npz of one array x of which there is only a header, which says a shape."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", np.lib.format.magic(1, 0) + b"\x76\x00" + text.encode())
    return archive.getvalue()


# A line is a case: the file, what stands in the good one and what stands there instead (or all that
# stands in it), and parts of the message.
TEXT = (
    r"""
edges.csv | b,c => z,c | edges.csv, line 3: an edge joins & 'z'
edges.csv | a,b => a,B | edges.csv, line 2: an edge joins & 'B'
edges.csv | b,c,1 => b,c | edges.csv, line 3: every row & got 2
edges.csv | b,c,1 => b,c,1,2 | edges.csv, line 3: every row & expected 3
edges.csv | b,c => \nb,c | edges.csv, line 3: a line has cells & an empty line
edges.csv | b,c => "b\nb",c | edges.csv, line 3: a cell is on one line & quotes
edges.csv | b,c => \udcffb,c | edges.csv, line 3 & UTF
edges.csv | b,c,1 => b,c,one | edges.csv, line 3: an edge weight & 'one'
edges.csv | b,c,1 => b,c, | edges.csv, line 3: an edge weight & ''
edges.csv | b,c,1 => b,c,nan | edges.csv, line 3: an edge weight & finite number & got nan
edges.csv | b,c,1 => b,c,inf | edges.csv, line 3: an edge weight & finite number & got inf
edges.csv | b,c,1 => b,c,1e300 | edges.csv, line 3: an edge weight & float32 & got 1e+300
edges.csv | source,target,type\na,b,k\nb,c,\n | edges.csv, line 3: every edge has a type
edges.csv | source,target => citing,cited | line 1: further columns & 'citing', 'cited', 'weight'
edges.csv | target,weight => target,source | line 1: titles differ & 'source'
edges.csv | source,target,weight,Weight\na,b,1,2\n | one column is titled weight
edges.csv | a\nb\n | line 1: an edge has two ends
edges.csv |  | edges.csv must have content
edges.csv | # nothing\n | edges.csv has no rows
features.csv | b,2 => b,two | features.csv, line 3: the feature 'f' is & 'two'
features.csv | b,2 => b,NaN | features.csv, line 3: the feature 'f' is & finite number & got nan
features.csv | b,2 => b, | features.csv, line 3: the feature 'f' is & got ''
features.csv | b,2 => b,1e300 | features.csv, line 3 & float32
features.csv | c,3 => a,3 | features.csv, line 4: a node has one row & line 2
features.csv | c,3 => ,3 | features.csv, line 4: a node has a name
features.csv | node,f\n =>  | features.csv, line 1: a table of nodes & 'a,1'
features.csv | node,f\n | a table of nodes has rows & got none
labels.csv | c,x => b,x | labels.csv, line 4: a node has one row & line 3
labels.csv | c,x => d,x | labels.csv, line 4: a label is of & 'd'
labels.csv | c,x => c,1.5 | labels.csv, line 4: a class is a word & '1.5'
labels.csv | b,y => b,nan | labels.csv, line 3: a class is a word & 'nan'
labels.csv | label, => colour, | labels.csv, line 1: a table of labels & 'colour', 'split'
labels.csv | label, =>  label, | a column of classes & ' label'
labels.csv | b,y => b,x | classes to tell apart & at least 2 classes, got x
labels.csv | val => valid | labels.csv, line 3: a part of the split & 'valid'
labels.csv | c,x => c,-1 | labels.csv, line 4 & none, in test
labels.csv | a,x,train => a,x, | a split has train nodes
labels.csv | c,x,test => c,x, | a split that has val nodes has test nodes
edges.xlsx | a | unknown format of edges '.xlsx'
labels.graphml | a | unknown format of labels '.graphml'
edges.parquet | PK\x03\x04 | edges.parquet must be whole
edges.npz | PK\x03\x04 | edges.npz must be whole
edges.graphml | PK\x03\x04 | edges.graphml must be whole
edges.mtx | PK\x03\x04 | edges.mtx, line 1: a MatrixMarket file is whole
edges.mtx | %%H coordinate real general\n3 3 2\n1 2 1\n9 1 1\n | edges.mtx, line 4: & out of bounds
edges.mtx | %%H coordinate real general\n3 3 2\n1 2 1\n | edges.mtx: & Truncated
edges.mtx | %%H coordinate complex general\n3 3 1\n1 2 1 1\n | real or integer
edges.mtx | %%H array real general\n1 1\n1\n | coordinates, N × N & an array
edges.mtx | %%H coordinate real general\n3 4 1\n1 2 1\n | coordinates, N × N & (3, 4)
edges.mtx | %%H coordinate real general\n2 2 1\n1 2 1\n | row for each node: expected 3 & got 2
edges.mtx | %%H coordinate real general\n4 4 1\n1 2 1\n | row for each node: expected 3 & got 4
labels.mtx | %%H array integer general\n1 2\n1\n2\n | labels are one column
features.mtx | %%H array real general\n% nothing\n\n0 1\n | a matrix has rows & got 0 × 1
features.mtx | %%H array real general\n1 0\n | a matrix has rows & got 1 × 0
features.mtx | %%H coordinate real general\n% nothing\n0 0 0\n | a matrix has rows & got 0 × 0
features.mtx | %%H coordinate real general\n1 0 0\n | a matrix has rows & got 1 × 0
edges.graphml | <data key="k">x</data> => | labels are read from one file & too
edges.graphml | </graph> => <node id="a"/></graph> | a node is described once & 'a'
edges.graphml | </graphml> => <graph/></graphml> | a file has one graph
edges.graphml | <node id="b"> => <node id="b"><graph/> | no graph in a node
edges.graphml | target="b" => target="d" | an edge joins & 'd'
edges.graphml | <graphml => <!DOCTYPE g [<!ENTITY a "aa">]><graphml | declares no entities & 'a'
edges.graphml | </graph></graphml> => | edges.graphml must be whole
""".replace("%%H", "%%MatrixMarket matrix")
    .strip()
    .split("\n")
)
BASE = GOOD | {
    "edges.graphml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
    '<key id="k" for="node" attr.name="label" attr.type="string"/><graph edgedefault="directed">'
    '<node id="a"><data key="k">x</data></node><node id="b"><data key="k">y</data></node>'
    '<edge source="a" target="b"/></graph></graphml>'
}


@pytest.mark.parametrize("case", TEXT)
def test_a_text_that_breaks_a_rule_is_refused(case):
    name, content, words = case.split(" | ")
    content = content.replace("\\n", "\n").replace("\\udcff", "\udcff")
    there, changed, instead = content.partition(" =>")
    if changed:
        assert there in BASE[name]
        content = BASE[name].replace(there, instead[1:], 1)
    check_refused(name, content, words.split(" & "))


def check_refused(name, content, words):
    """A file is refused in the place of a good one."""
    assert read(*(put(*file) for file in GOOD.items())).num_classes == 2
    put(name, content)
    refused(words, name, *(one for one in GOOD if not one.startswith(name.partition(".")[0])))
    assert not Path("ran").exists()


def half(name):
    """The first half of a good file."""
    put(name, SAME[Path(name).suffix[1:]][name])
    return Path(name).read_bytes()[: Path(name).stat().st_size // 2]


ABC3, NAMED = {"node": list("abc")}, {"nodes": list("abc")}
SAID_TWICE = {"y": np.arange(3), "split": list("abc"), "val_mask": np.ones(3, bool)}
TWICE = pa.table([["a"], ["b"], ["c"]], names=["source", "target", "target"])
# The kind and the format, the content, and parts of the message.
OTHER = [
    ("features.csv", "node" + ",f" * 100_000, ["bound of columns"]),
    ("labels.csv", f"node,label\na,0\nb,1\nc,{BIG}\n", ["line 4: a class is a word or an integer"]),
    ("features.parquet", half, ["features.parquet must be whole"]),
    ("features.parquet", {**ABC3, "f": [None, 1, 2]}, ["row 1", "a number, got an empty cell"]),
    ("features.parquet", {}, ["features.parquet has columns"]),
    ("features.parquet", {**ABC3, "f": np.zeros(3, "M8[s]")}, ["'f' is a number", "timestamp"]),
    ("features.parquet", {**ABC3, "f": [[1], [2], [3]]}, ["a value in each row", "list"]),
    ("features.parquet", {"f": [1, 2, 3]}, ["begins with titles, the first node", "'f'"]),
    ("edges.parquet", TWICE, ["titles differ", "'target'"]),
    ("edges.parquet", {"citing": ["a"], "cited": ["b"]}, ["have titles", "'citing', 'cited'"]),
    ("labels.parquet", {"node": [], "label": []}, ["a table of nodes has rows"]),
    ("labels.parquet", {**ABC3, "label": [0, 1, np.inf]}, ["row 3: a class is a word"]),
    ("labels.parquet", {**ABC3, "label": [0, 1, 1e30]}, ["row 3: a class is a word"]),
    ("labels.npz", {"y": np.array([Payload()] * 3)}, ["labels.npz", "could run code"]),
    ("edges.npz", half, ["edges.npz must be whole"]),
    ("features.npz", header("(9000000000000000, 1)"), ["features.npz must be whole", "0 bytes"]),
    ("features.npz", header("(1152921504606846976, 1)", "<U0"), ["x: an array is of its kind"]),
    (
        "features.npz",
        {**NAMED, "x": [[1], [np.nan], [2]]},
        ["node 1: features are numbers", "got nan"],
    ),
    ("features.npz", {"nodes": list("abcd"), "x": np.eye(3)}, ["nodes: an array", "(3)", "(4,)"]),
    ("edges.npz", {"edge_index": np.zeros((3, 4), int)}, ["edge_index: an array", "(2, R)"]),
    ("edges.npz", {"edge_index": np.zeros((2, 4))}, ["edge_index: an", "integers or text"]),
    ("edges.npz", {**PAIRS, "edge_weight": np.ones(3)}, ["edge_weight: an array", "numbers (2)"]),
    ("edges.npz", {**PAIRS, "edge_weight": ["1", "2"]}, ["edge_weight: an array", "numbers (2)"]),
    ("edges.npz", {**PAIRS, "edges": np.eye(2, dtype=int)}, ["by its name", "edge_index, edges"]),
    ("edges.npz", {"y": np.arange(3)}, ["edge_index or edges, got y"]),
    ("labels.npz", {**NAMED, **SAID_TWICE}, ["a split is said once"]),
    ("labels.npz", {"y": np.arange(3)}, ["labels without names go with features"]),
]


@pytest.mark.parametrize("place", range(len(OTHER)))
def test_a_file_that_breaks_a_rule_is_refused(place):
    name, content, words = OTHER[place]
    check_refused(name, content(name) if callable(content) else content, words)


@pytest.mark.parametrize(("value", "words"), [("heavy", "'heavy'"), (float("inf"), "finite")])
def test_graphml_has_finite_weights_and_features_once(value, words):
    graph = nx.DiGraph([("a", "b", {"weight": value})])
    nx.set_node_attributes(graph, {"a": 1, "b": 2}, "label")
    nx.write_graphml(graph, "edges.graphml")
    refused(["edge 'a' to 'b': an edge weight is a number", words], "edges.graphml")
    graph = nx.DiGraph([("a", "b")])
    nx.set_node_attributes(graph, {"a": 1.0, "b": 2.0}, "f")
    nx.write_graphml(graph, "edges.graphml")
    names = [put(name, GOOD[name]) for name in ("features.csv", "labels.csv")]
    refused(["features are read from one file", "too"], "edges.graphml", *names)


def test_what_is_no_file_or_no_column_is_refused():
    names = [put(*file) for file in GOOD.items()]
    refused(["absent.csv must be readable"], "edges_absent.csv", *names[1:])
    os.mkfifo("edges_pipe.csv")
    refused(["pipe.csv must be readable", "no regular file"], "edges_pipe.csv", *names[1:])
    refused(["labels: expected --labels FILE, got none"], *names[:2])
    refused(["a column is one of the table", "'cost'"], *names, edge_weight="cost")
    put("edges.txt", "a b 1\n")
    refused(["a column is one of the table", "'3'", "'1'"], "edges.txt", *names[1:], edge_type="1")
    put("edges.mtx", MATRIX("coordinate real general", "3 3 1\n1 2 1"))
    refused(["no columns with names", "'w'"], "edges.mtx", *names[1:], edge_weight="w")
    put("edges.csv", "source,target,weight\na,b,1\nb,a,1\nb,a,3\na,b,2\n")
    refused(["line 5: an undirected edge", "3 as in", "line 4, got 2"], *names, undirected=True)


# What takes more than it says ---------------------------------------------------------------------

LONG = {
    "a text of every row": (
        "labels.parquet",
        {"node": list(map(str, range(4000))), "label": ["x" * 1000] * 4000},
    ),
    "a number of every row": ("features.parquet", {"node": ["a"] * 100_000, "f": [1] * 100_000}),
    "bytes that become numbers": ("features.npz", {"x": np.zeros((3, 300_000), np.uint8)}),
    "bytes that become names": ("labels.npz", {"y": np.zeros(500_000, np.uint8)}),
    "a dense matrix": ("features.mtx", MATRIX("array real general", "3000000 300000")),
    "a matrix made dense": (
        "features.mtx",
        MATRIX("coordinate real general", "3000000 300000 1\n1 1 1"),
    ),
    "a list of entries": ("edges.mtx", MATRIX("coordinate real general", "3 3 3000000000\n1 1 1")),
}


@pytest.mark.parametrize("case", LONG)
def test_what_is_read_takes_bounded_memory(case, monkeypatch):
    name, content = LONG[case]
    monkeypatch.setattr(tables, "UNPACKED_LIMIT", 2**20)
    put(name, content)
    assert Path(name).stat().st_size < 2**20
    others = [put(*file) for file in GOOD.items() if not file[0].startswith(name.partition(".")[0])]
    refused([name, "is unpacked within a bound"], name, *others)


def test_archives_are_unpacked_within_a_bound_and_what_nothing_reads_not_at_all():
    names = [put(*file) for file in ARRAYS.items()]
    whole = read(*names)
    for name in names:
        before = Path(name).read_bytes()
        with zipfile.ZipFile(name, "a") as archive:
            archive.writestr("unread.npy", bytes(100))
        unread = Path(name).read_bytes().replace(bytes(100), b"\1" * 100)  # against its checksum
        put(name, unread)
        assert read(*names).fingerprint == whole.fingerprint
        with zipfile.ZipFile(name, "a") as archive:
            archive.writestr("last.npy", b"")
            archive.infolist()[0].file_size = 2**33
        refused([f"{name} must be whole", "within a bound"], *names)
        put(name, before)


def test_masks_of_an_npz_are_ten_splits():
    names, draw = [put(*file) for file in ARRAYS.items()], np.random.default_rng(0)
    part = draw.permuted(np.tile([0, 1, 2, 0], (10, 1)), axis=1)  # of the nodes with a label
    ten = {name: np.zeros((5, 10), bool) for name in MASKS}
    for number, mask in enumerate(ten.values()):
        mask[[0, 1, 3, 4]] = (part == number).T
    arrays = {key: value for key, value in ARRAYS["labels.npz"].items() if key != "split"}
    put("labels.npz", {**arrays, **ten})
    graph = read(*names)
    assert graph.entry.splits[0] == "public"
    for seed in range(12):  # in a cycle
        split = make_split(graph.data, "public", seed)
        ours = split.train, split.validation, split.test
        for mask, one in zip(ten.values(), ours, strict=True):
            assert one.tolist() == mask[:, seed % 10].tolist()
    empty, nine = np.zeros((5, 10), bool), np.arange(10) < 9
    for changed, *words in (
        ({"train_mask": np.ones((4, 10), bool)}, "labels.npz, train_mask", "booleans (5, S)"),
        ({"val_mask": ten["val_mask"][:, :9]}, "labels.npz, val_mask", "of S splits"),
        ({"test_mask": ten["test_mask"].astype(int)}, "labels.npz, test_mask", "booleans"),
        ({"train_mask": np.zeros((5, 0), bool)}, "labels.npz, train_mask"),
        (dict.fromkeys(ten, np.zeros((5, 0), bool)), "labels.npz, train_mask"),
        ({"val_mask": ten["train_mask"]}, "have no node in common"),
        ({"train_mask": ~empty, "val_mask": empty, "test_mask": empty}, "node 2", "none, in train"),
        ({"test_mask": ten["test_mask"] & nine}, "has test nodes"),
        (
            {n: ten[n] & nine for n in ("val_mask", "test_mask")},
            "same parts",
            "train_mask in split 9",
        ),
    ):
        put("labels.npz", {**arrays, **ten, **changed})
        refused(words, *names)


# PyG's Data ---------------------------------------------------------------------------------------


def a_graph(**changed):
    parts = {
        "x": torch.eye(4),
        "edge_index": torch.tensor([[0, 1, 2, 2], [1, 2, 3, 2]]),
        "y": torch.tensor([0, 1, -1, 1]),
        "train_mask": torch.tensor([True, False, False, False]),
        "val_mask": torch.tensor([False, True, False, False]),
        "test_mask": torch.tensor([False, False, False, True]),
    }
    return Data(**{**parts, **changed})


def saved(contents, **options):
    torch.save(contents, "g.pt")
    return read(data="g.pt", **options)


def test_a_data_is_read_from_a_file():
    safe = set(torch.serialization.get_safe_globals())
    graph = saved(a_graph(edge_weight=torch.arange(4.0), edge_attr=torch.ones(4, 2)))
    assert graph.nodes == ("0", "1", "2", "3")
    assert graph.data.edge_weight.tolist() == [0, 1, 2, 3]
    assert graph.entry.splits[0] == "public"
    assert "not read: edge_attr" in graph.said
    assert set(torch.serialization.get_safe_globals()) == safe  # PyG's own among them
    processed = a_graph().to_dict(), None, Data  # as PyG's datasets do
    assert saved(processed).data.num_edges == 4
    undirected = saved(processed, undirected=True).data
    assert undirected.edge_index.tolist() == [[0, 1, 2, 2, 1, 2, 3], [1, 2, 3, 2, 0, 1, 2]]
    assert saved(a_graph(y=torch.tensor([[0], [1], [-1], [1]]))).data.y.tolist() == [0, 1, -1, 1]


def test_a_file_never_runs_code():
    for contents in (Payload(), a_graph(extra=Payload())):
        with pytest.raises(ValueError, match="could run code"):
            saved(contents)
    Path("g.pt").write_bytes(pickle.dumps(Payload()))
    refused(["g.pt", "another pickle (Unsupported operand"], data="g.pt")
    torch.save(a_graph(), "g.pt")
    with zipfile.ZipFile("g.pt", "a") as archive:
        archive.writestr("last", b"")
        archive.infolist()[0].file_size = 2**33
    refused(["g.pt must be whole", "within a bound"], data="g.pt")
    torch.save(a_graph(), "g.pt")
    Path("g.pt").write_bytes(Path("g.pt").read_bytes()[:-100])
    refused(["g.pt must be whole"], data="g.pt")
    assert not Path("ran").exists()


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch is about to leave them
    NESTED = torch.nested.nested_tensor([torch.ones(2)] * 4)
    QUANTIZED = torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.quint8)
SPARSE = torch.sparse_coo_tensor(size=(4, 10**10), check_invariants=True)
FAR = torch.tensor([1, 1, 1e300, 1], dtype=torch.float64)
UNFIT = {
    "no edges": ({"edge_index": None}, "a tensor edge_index"),
    "no labels": ({"y": None}, "a tensor y"),
    "real labels": ({"y": torch.rand(4)}, "g.pt holds integers"),
    "one class": ({"y": torch.tensor([0, 0, -1, 0])}, "classes to tell apart"),
    "a label of -2": ({"y": torch.tensor([0, 1, -2, 1])}, "classes are numbered"),
    "a label far off": ({"y": torch.tensor([0, 1, 10**12, 1])}, "0 to 3, or -1 for none"),
    "edges beyond": ({"edge_index": torch.tensor([[0], [4]])}, "0 to 3, got 4"),
    "three ends": ({"edge_index": torch.zeros(3, 2, dtype=torch.long)}, "pairs of nodes"),
    "NaN": ({"x": torch.full((4, 1), torch.nan)}, "g.pt, node 0: x is finite"),
    "rows": ({"x": torch.eye(3), "num_nodes": 4}, "every node has a row"),
    "complex features": ({"x": torch.eye(4).cfloat()}, "real numbers"),
    "a weight short": ({"edge_weight": torch.ones(3)}, "a weight for each edge"),
    "a weight beyond": ({"edge_weight": FAR}, r"edge 2: .* float32, got 1e\+300"),
    "complex weights": ({"edge_weight": torch.ones(4, dtype=torch.cfloat)}, "real numbers"),
    "weights in a list": ({"edge_weight": [1.0, 1.0, 1.0, 1.0]}, "got list"),
    "features in words": ({"x": "eye", "num_nodes": 4}, "got str"),
    "a mask in a list": ({"val_mask": [False, True, False, False]}, "got list"),
    "a type far off": ({"edge_type": torch.tensor([0, 1, 0, 10**12])}, "no more types .* 10{12}"),
    "a type short": ({"edge_type": torch.zeros(3, dtype=torch.long)}, "a type for each edge"),
    "a type below": ({"edge_type": torch.tensor([0, 1, 0, -1])}, "a type for each edge"),
    "masks of numbers": ({"train_mask": torch.ones(4)}, "booleans"),
    "masks that meet": ({"val_mask": torch.tensor([True, False, False, False])}, "in common"),
    "unlabelled in a mask": ({"test_mask": torch.tensor([False, False, True, False])}, "a label"),
    "no test mask": ({"test_mask": None}, "has test nodes"),
    "an empty mask": ({"test_mask": torch.zeros(0, dtype=torch.bool)}, "booleans"),
    "features of one number": ({"x": torch.ones(1, 1).expand(4, 10**10)}, "within a bound"),
    "features of none": ({"x": SPARSE}, "within a bound"),
    "quantized features": ({"x": QUANTIZED}, "x of .* holds numbers.* a quantized tensor"),
    "nested features": ({"x": NESTED}, "a nested tensor"),
    "types of nodes": (HeteroData(), "one type of nodes"),
    "a tensor": (torch.ones(2), "got Tensor"),
    "two graphs": ((a_graph().to_dict(), {"x": 1}, Data), "holds one graph"),
} | {
    f"{key} of {kind}": ({key: tensor, "num_nodes": 4}, f"{key} of .* holds numbers")
    for key in ("x", "y", "edge_index", "edge_weight", "train_mask")
    for kind, tensor in (("meta", torch.ones(4, 4, device="meta")), ("one number", torch.tensor(1)))
}


@pytest.mark.parametrize("case", UNFIT)
def test_a_data_that_does_not_fit_is_refused(case):
    contents, words = UNFIT[case]
    with pytest.raises((ValueError, TypeError), match=words) as error:
        saved(a_graph(**contents) if isinstance(contents, dict) else contents)
    assert "\n" not in str(error.value)


LIKE = {
    "a parameter": torch.nn.Parameter,
    "with a gradient": lambda x: x.requires_grad_(),
    "sparse": Tensor.to_sparse,
    "compressed": Tensor.to_sparse_csr,
    "with a negative bit": lambda x: torch._neg_view(-x),
    "in halves": Tensor.half,
    "in brain halves": Tensor.bfloat16,
}


@pytest.mark.parametrize("kind", LIKE)
@pytest.mark.parametrize("key", ["x", "edge_weight"])
def test_numbers_are_read_however_they_are_held(kind, key):
    plain = torch.eye(4) if key == "x" else torch.ones(4)
    if kind == "compressed" and key == "edge_weight":
        plain = torch.ones(4, 1)
    tensor = saved(a_graph(**{key: LIKE[kind](plain.clone())})).data[key]
    assert type(tensor) is Tensor
    assert not tensor.requires_grad
    torch.testing.assert_close(tensor, plain.view_as(tensor))
    assert tensor.numpy().any()


def test_a_function_is_called_where_it_is_named():
    code = (
        "from torch_geometric.datasets import KarateClub\n"
        "def club(): return KarateClub()\n"
        "def number(): return 3\n"
        "def broken(): return 1 / 0\n"
        "def wants(name): return KarateClub()\n"
    )
    put("my_graphs_here.py", code)
    source = Source(data="my_graphs_here:club")
    assert source.is_function
    graph = load_own(source)
    assert (graph.data.num_nodes, graph.source) == (34, source)
    assert source.name == "my_graphs_here.club"
    for name, *words in (
        ("my_graphs_here:none", "has a function none"),
        ("my_graphs_here:number", "one graph: expected a Data, got int"),
        ("my_graphs_here:wants", "called without arguments", "'name'"),
        ("builtins:max", "called without arguments"),
        ("builtins:dict", "called without arguments"),
        ("no_such_module_here:f", "can be imported"),
    ):
        refused(words, data=name)
    with pytest.raises(ZeroDivisionError):  # a bug of the user's own shows as one
        load_own(Source(data="my_graphs_here:broken"))


# The source ---------------------------------------------------------------------------------------


def test_a_source_is_plain_and_absolute(tmp_path):
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
        ([], "names with values"),
    ],
)
def test_a_source_that_says_nothing_is_refused(values, words):
    with pytest.raises((ValueError, TypeError), match=words):
        data.source_from(values, "config.json")


def test_pyarrow_is_named_where_it_is_missing(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    names = [put(*file) for file in GOOD.items()]
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name)
    )
    refused(["pip install 'pyg_outerconv[train]'"], *names)
