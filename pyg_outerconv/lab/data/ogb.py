"""Node sets of the Open Graph Benchmark, by its package ``ogb``.

Of what ``ogb`` does only the readers of raw files, which are text, and the download are taken: its
dataset classes ask at the terminal, and load what they processed by pickle.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from .registry import Entry

READER = "NodePropPredDataset"


def read_ogb(known: Entry, place: Path) -> Data:
    """The graph below ``place``, with the masks of its split and ``y`` (N,)."""
    import pandas as pd
    from ogb.io.read_graph_raw import read_csv_graph_raw

    folder, meta = place / folder_of(known), _meta(known)
    with contextlib.redirect_stdout(io.StringIO()):
        inverse = meta["add_inverse_edge"] == "True"
        (graph,) = read_csv_graph_raw(str(folder / "raw"), add_inverse_edge=inverse)
    labels = pd.read_csv(folder / "raw" / "node-label.csv.gz", header=None)[0]
    data = Data(
        x=torch.from_numpy(graph["node_feat"]).float(),
        edge_index=torch.from_numpy(graph["edge_index"]),
        y=torch.from_numpy(labels.fillna(-1).to_numpy().astype("int64")),
        num_nodes=int(graph["num_nodes"]),
    )
    for part, file in (("train", "train"), ("val", "valid"), ("test", "test")):
        nodes = pd.read_csv(folder / "split" / meta["split"] / f"{file}.csv.gz", header=None)[0]
        mask = torch.zeros(int(graph["num_nodes"]), dtype=torch.bool)
        mask[torch.from_numpy(nodes.to_numpy().copy())] = True
        data[f"{part}_mask"] = mask
    return data


def download_ogb(known: Entry, home: Path) -> None:
    """Download and unpack the archive that ``ogb`` names into the folder ``home``."""
    from ogb.utils.url import download_url, extract_zip

    meta = _meta(known)
    with contextlib.redirect_stdout(io.StringIO()):
        archive = Path(download_url(meta["url"], str(home)))
        extract_zip(str(archive), str(home))
    archive.unlink()
    shutil.move(home / meta["download_name"], home / folder_of(known))


def folder_of(known: Entry) -> str:
    """The folder that ``ogb`` gives a dataset, such as ``ogbn_arxiv``."""
    return str(known.arguments["name"]).replace("-", "_")


def _meta(known: Entry) -> Any:
    """What ``ogb`` says of a dataset."""
    import ogb
    import pandas as pd

    table = Path(ogb.__file__).parent / "nodeproppred" / "master.csv"
    return pd.read_csv(table, index_col=0, keep_default_na=False)[known.arguments["name"]]
