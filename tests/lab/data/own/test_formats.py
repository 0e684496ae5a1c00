"""What a format could say otherwise than it is read: columns, sizes, descriptions twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pyg_outerconv.lab.data import Source, load_own

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LABELS = "node,label\na,x\nb,y\nc,x\n"
ENDS = [["a", "b"], ["b", "c"]]  # sources, targets


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("labels.csv").write_text(LABELS)


def table(suffix: str, columns: dict[str, list[Any]], name: str = "edges") -> str:
    path = name + suffix
    if suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    else:
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        Path(path).write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def refused(words: str, source: Source) -> None:
    with pytest.raises((ValueError, TypeError), match=words) as error:
        load_own(source)
    assert "\n" not in str(error.value)


# Columns are known by their titles ---------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "titles",
    [("source", "target"), ("src", "dst"), ("from", "to"), ("Source", "TARGET")],
)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_ends_of_edges_are_found_by_their_titles(
    suffix: str, titles: tuple[str, str], order: tuple[int, int, int]
) -> None:
    columns = [(titles[0], ENDS[0]), (titles[1], ENDS[1]), ("Weight", [0.5, 2.0])]
    path = table(suffix, dict(columns[place] for place in order))
    read = load_own(Source(path, labels="labels.csv")).data
    assert read.edge_index.tolist() == [[0, 1], [1, 2]]
    assert read.edge_weight.tolist() == [0.5, 2.0]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_titles_of_labels_may_be_in_capitals(suffix: str) -> None:
    parts = ["train", "val", "test"]
    columns = {"Node": list("abc"), "Split": parts, "Label": list("xyx")}
    labels = table(suffix, columns, "found")
    read = load_own(Source(table(".csv", {"source": ["a"], "target": ["b"]}), labels=labels))
    assert read.data.y.tolist() == [0, 1, 0]
    assert read.data.test_mask.tolist() == [False, False, True]


def test_classes_are_titled_label_rather_than_y() -> None:
    labels = table(".csv", {"node": list("abc"), "y": [1, 2, 3], "label": list("uvu")}, "found")
    said: list[str] = []
    source = Source(table(".csv", {"source": ["a"], "target": ["b"]}), labels=labels)
    assert load_own(source, said.append).classes == ("u", "v")
    assert any("not read of labels: y" in line for line in said)


def test_columns_of_other_titles_are_refused() -> None:
    first, second = ENDS
    edges = table(".parquet", {"citing": first, "cited": second})
    refused("ends of edges have titles.*'citing', 'cited'", Source(edges, labels="labels.csv"))
    edges = table(".csv", {"source": first, "target": second, "weight": [1, 1], "Weight": [2, 2]})
    refused("one column is titled weight", Source(edges, labels="labels.csv"))
    edges = table(".csv", {"source": first, "target": second})
    for suffix in (".csv", ".parquet"):
        columns = {"f": [1, 2, 3], "g": [1, 2, 3]}
        features = table(suffix, columns, "features")
        refused("begins with titles, the first node", Source(edges, features, "labels.csv"))
        labels = table(suffix, {"node": list("abc"), " label": list("xyx")}, "found")
        refused("'node', ' label'", Source(edges, labels=labels))


# Tables without rows or columns, and columns of other kinds ---------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_of_nodes_have_rows(suffix: str) -> None:
    edges = table(".csv", {"source": ["a"], "target": ["b"]})
    features = table(suffix, {"node": [], "f": []}, "features")
    refused("a table of nodes has rows.*got none", Source(edges, features, "labels.csv"))
    labels = table(suffix, {"node": [], "label": []}, "found")
    refused("a table of nodes has rows.*got none", Source(edges, labels=labels))
    edges = table(suffix, {"source": [], "target": []})
    assert load_own(Source(edges, labels="labels.csv")).data.num_edges == 0


def test_parquet_columns_of_other_kinds() -> None:
    edges = table(".csv", {"source": ["a"], "target": ["b"]})
    pq.write_table(pa.table({}), "none.parquet")
    refused("none.parquet has columns", Source(edges, "none.parquet", "labels.csv"))
    twice = pa.table([["a"], ["b"], ["c"]], names=["source", "target", "target"])
    pq.write_table(twice, "twice.parquet")
    refused("titles differ.*'target'", Source("twice.parquet", labels="labels.csv"))
    days = pa.array([0, 1, 2], pa.timestamp("s"))
    pq.write_table(pa.table({"node": list("abc"), "f": days}), "days.parquet")
    refused("'f' is a number.*timestamp", Source(edges, "days.parquet", "labels.csv"))
    for wrong in (np.inf, 1e30):
        labels = table(".parquet", {"node": list("abc"), "label": [0.0, 1.0, wrong]}, "found")
        refused("row 3: a class is a word or an integer", Source(edges, labels=labels))


LARGE = [2**53 + 1, -(2**63), 2**63 - 1, 2**64 - 1, 10**30]


@pytest.mark.parametrize("number", LARGE)
def test_parquet_columns_of_large_integers(number: int) -> None:
    kind = next(k for k in (pa.int64(), pa.uint64(), pa.decimal128(38)) if fits(number, k))
    column = pa.array([number, 0, 1], kind)
    edges = table(".csv", {"source": ["a"], "target": ["b"]})
    pq.write_table(pa.table({"node": list("abc"), "f": column}), "large.parquet")
    read = load_own(Source(edges, "large.parquet", "labels.csv")).data
    assert read.x.flatten().tolist() == torch.tensor([float(number), 0, 1]).tolist()
    weighted = {"source": list("abc"), "target": list("bca"), "weight": column}
    pq.write_table(pa.table(weighted), "weighted.parquet")
    read = load_own(Source("weighted.parquet", "large.parquet", "labels.csv")).data
    assert read.edge_weight.tolist() == read.x.flatten().tolist()


def fits(number: int, kind: pa.DataType) -> bool:
    try:
        pa.array([number], kind)
    except (OverflowError, pa.ArrowInvalid):
        return False
    return True


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_integers_that_python_does_not_read_are_refused(suffix: str) -> None:
    edges = table(".csv", {"source": ["a"], "target": ["b"]})
    labels = table(suffix, {"node": list("abc"), "label": ["0", "1", "9" * 5000]}, "long")
    refused("row 3|line 4.*a class is a word or an integer", Source(edges, labels=labels))
    typed = table(suffix, {"source": ["a"], "target": ["b"], "type": ["9" * 5000]}, "typed")
    assert load_own(Source(typed, labels="labels.csv")).data.edge_type.tolist() == [0]


def test_arrays_of_every_kind_of_number() -> None:
    for y in (np.array([0, 1, 0], np.float16), np.array([0, 1, 0], ">i8")):
        np.savez("graph.npz", edge_index=np.array([[0, 1], [1, 2]], ">i4"), y=y)
        read = load_own(Source("graph.npz", labels="graph.npz"))
        assert read.data.y.tolist() == [0, 1, 0]
        assert read.data.edge_index.tolist() == [[0, 1], [1, 2]]


def test_weights_fit_float32() -> None:
    edges = table(".csv", {"source": ENDS[0], "target": ENDS[1], "weight": [1, 1e300]})
    refused(
        "edges.csv, line 3: edge weights fit float32.*1e.300", Source(edges, labels="labels.csv")
    )


# MatrixMarket and GraphML -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 4])
def test_a_matrix_of_edges_has_a_row_for_each_node(size: int) -> None:
    Path("y.mtx").write_text("%%MatrixMarket matrix array integer general\n3 1\n0\n1\n0\n")
    text = "%%MatrixMarket matrix coordinate real general\n{0} {0} 1\n1 2 1\n"
    Path("a.mtx").write_text(text.format(3))
    assert load_own(Source("a.mtx", labels="y.mtx")).data.num_edges == 1
    Path("a.mtx").write_text(text.format(size))
    refused(f"a.mtx: .*row for each node: expected 3.*got {size}", Source("a.mtx", labels="y.mtx"))


@pytest.mark.parametrize("line", ["0 1", "1 0", "0 0 0"])
@pytest.mark.parametrize("kind", ["array", "coordinate"])
def test_a_matrix_without_rows_is_refused(line: str, kind: str) -> None:
    Path("x.mtx").write_text(f"%%MatrixMarket matrix {kind} real general\n% nothing\n\n{line}\n")
    edges = table(".csv", {"source": ["a"], "target": ["b"]})
    refused(f"x.mtx, line 4: .*got {line}", Source(edges, "x.mtx", "labels.csv"))


NODE = '<node id="{0}"><data key="k">{1}</data></node>'.format
EDGE = '<edge source="{0}" target="{1}"/>'.format
GRAPHML: dict[str, tuple[Callable[[str], str], str]] = {
    "a node twice": (lambda text: text.replace("</graph>", NODE("a", "y") + "</graph>"), "'a'"),
    "two graphs": (lambda text: text.replace("</graphml>", "<graph/></graphml>"), "one graph"),
    "a graph in a node": (
        lambda text: text.replace("</node>", f"<graph>{NODE('z', 'y')}</graph></node>", 1),
        "no graph in a node",
    ),
    "an edge to nowhere": (lambda text: text.replace('target="b"', 'target="d"'), "'d'"),
}


@pytest.mark.parametrize("case", GRAPHML)
def test_graphml_that_would_be_read_otherwise_is_refused(case: str) -> None:
    text = (
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        '<key id="k" for="node" attr.name="label" attr.type="string"/>'
        f'<graph edgedefault="directed">{NODE("a", "x")}{NODE("b", "y")}{EDGE("a", "b")}</graph>'
        "</graphml>"
    )
    Path("g.graphml").write_text(text)
    assert load_own(Source("g.graphml")).data.edge_index.tolist() == [[0], [1]]
    change, words = GRAPHML[case]
    Path("g.graphml").write_text(change(text))
    refused(f"g.graphml: .*{words}", Source("g.graphml"))
