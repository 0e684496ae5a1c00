"""Small graphs written in the raw layout of PyG's dataset classes, in place of the real files.

The graph has six nodes, edges n → n + 1 around a circle, two features (or as many as the layout
gives) and the classes 0, 1, 0, 1, 0, 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp

from pyg_outerconv.lab.data import Entry

NUM_NODES = 6
CLASSES = np.arange(NUM_NODES) % 2
ENDS = np.arange(NUM_NODES), (np.arange(NUM_NODES) + 1) % NUM_NODES
X = np.stack([CLASSES, 1 - CLASSES], axis=1).astype(np.float32)
PART = np.arange(NUM_NODES) // 2
MASKS = {f"{part}_mask": number == PART for number, part in enumerate(("train", "val", "test"))}
ADJACENCY = sp.csr_matrix((np.ones(NUM_NODES, np.float32), ENDS), (NUM_NODES, NUM_NODES))


def write(entry: Entry, root: Path) -> None:
    """Write the raw files of an entry below a root."""
    paths = {name: entry.home(root) / name for name in entry.files}
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
    _WRITERS[entry.reader]({path.name: path for path in paths.values()})


def _geom_gcn(paths: dict[str, Path], features: str = "0,1") -> None:
    for name, path in paths.items():
        if name.endswith(".npz"):
            np.savez(path, **MASKS)
        elif "edges" in name:
            _lines(path, ["from\tto", *(f"{m}\t{n}" for m, n in zip(*ENDS, strict=True))])
        else:
            rows = [f"{n}\t{features}\t{y}" for n, y in enumerate(CLASSES)]
            _lines(path, ["id\tfeature\tlabel", *rows])


def _gnn_benchmark(paths: dict[str, Path]) -> None:
    """With names of nodes as the published files have them, which are pickled."""
    (path,) = paths.values()
    arrays: dict[str, Any] = {"labels": CLASSES}
    arrays["idx_to_node"] = np.array({n: f"page {n}" for n in range(NUM_NODES)}, dtype=object)
    arrays["attr_names"] = np.array(["one", "two"], dtype=object)
    for name, matrix in (("adj", ADJACENCY), ("attr", sp.csr_matrix(X))):
        for part in ("data", "indices", "indptr", "shape"):
            arrays[f"{name}_{part}"] = getattr(matrix, part)
    np.savez(path, **arrays)


def _airports(paths: dict[str, Path]) -> None:
    for name, path in paths.items():
        if name.endswith(".edgelist"):
            _lines(path, [f"{m + 100} {n + 100}" for m, n in zip(*ENDS, strict=True)])
        else:
            _lines(path, ["node label", *(f"{n + 100} {y}" for n, y in enumerate(CLASSES))])


def _wiki_cs(paths: dict[str, Path]) -> None:
    masks = {f"{name}s": [MASKS[name].tolist()] * 20 for name in ("train_mask", "val_mask")}
    links = [[int(n)] for n in ENDS[1]]
    content = {"features": X.tolist(), "labels": CLASSES.tolist(), "links": links, **masks}
    content |= {"test_mask": MASKS["test_mask"].tolist(), "stopping_masks": masks["val_masks"]}
    paths["data.json"].write_text(json.dumps(content))


def _heterophilous(paths: dict[str, Path]) -> None:
    (path,) = paths.values()
    masks = {f"{name}s": np.stack([mask] * 10) for name, mask in MASKS.items()}
    edges = np.stack(ENDS, axis=1)
    np.savez(path, node_features=X, node_labels=CLASSES, edges=edges, **masks)


def _flickr(paths: dict[str, Path]) -> None:
    parts = ("data", "indices", "indptr", "shape")
    np.savez(paths["adj_full.npz"], **{part: getattr(ADJACENCY, part) for part in parts})
    np.save(paths["feats.npy"], X)
    paths["class_map.json"].write_text(json.dumps({str(n): int(y) for n, y in enumerate(CLASSES)}))
    roles = {"tr": [0, 1], "va": [2, 3], "te": [4, 5]}
    paths["role.json"].write_text(json.dumps(roles))


def _reddit(paths: dict[str, Path]) -> None:
    np.savez(paths["reddit_data.npz"], feature=X, label=CLASSES, node_types=PART + 1)
    sp.save_npz(paths["reddit_graph.npz"], ADJACENCY.tocoo())


def _pol_blogs(paths: dict[str, Path]) -> None:
    _lines(paths["adjacency.tsv"], [f"{m}\t{n}\t1" for m, n in zip(*ENDS, strict=True)])
    _lines(paths["labels.tsv"], [str(y) for y in CLASSES])


def _twitch(paths: dict[str, Path]) -> None:
    (path,) = paths.values()
    np.savez(path, features=X, target=CLASSES, edges=np.stack(ENDS, axis=1))


def _linkx(paths: dict[str, Path]) -> None:
    """Facebook's matrices: a person is unlabelled at 0; the split is a pickle of index arrays."""
    if "genius" in str(paths["data.mat"]):
        y = CLASSES[:, None]
        variables = {"edge_index": np.stack(ENDS), "node_feat": X, "label": y}
        scipy.io.savemat(paths["data.mat"], variables)
        return
    info = np.stack([CLASSES, CLASSES + 1, 1 - CLASSES], axis=1)
    scipy.io.savemat(paths["data.mat"], {"A": ADJACENCY.astype(float), "local_info": info})
    for name, path in paths.items():
        if name.endswith(".npy"):
            parts = {"train": np.arange(2), "valid": np.arange(2, 4), "test": np.arange(4, 6)}
            np.save(path, np.array([parts] * 5, dtype=object), allow_pickle=True)


def _ogb(paths: dict[str, Path]) -> None:
    def table(name: str, rows: Any) -> None:
        np.savetxt(paths[f"{name}.csv.gz"], rows, "%g", ",")

    table("edge", np.stack(ENDS, axis=1))
    table("node-feat", X + 0.5)
    table("node-label", CLASSES)
    table("num-node-list", [NUM_NODES])
    table("num-edge-list", [NUM_NODES])
    for name, nodes in (("train", [0, 1]), ("valid", [2, 3]), ("test", [4, 5])):
        table(name, nodes)


def _lines(path: Path, lines: list[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


_WRITERS = {
    "WebKB": _geom_gcn,
    "WikipediaNetwork": _geom_gcn,
    "Actor": _geom_gcn,
    **dict.fromkeys(("Amazon", "Coauthor", "CitationFull"), _gnn_benchmark),
    "Airports": _airports,
    "WikiCS": _wiki_cs,
    "HeterophilousGraphDataset": _heterophilous,
    "Flickr": _flickr,
    "Reddit": _reddit,
    "PolBlogs": _pol_blogs,
    "Twitch": _twitch,
    "LINKXDataset": _linkx,
    "NodePropPredDataset": _ogb,
}
