"""What a search found: the filter that each of two questions about one grid asks for.

Every node of a grid draws three numbers, and its class is the largest of them: in the first
question after a low pass, of what neighbours share, in the second after a high pass, of what sets a
node apart. `outerconv search` sees numbers and classes, and is told neither filter. Above, how much
the layer that it found amplifies each frequency of the grid, a line for each seed of its final, and
dotted the filter that made the classes; below, how much the loss rises without each matrix.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import optuna
import torch
from torch_geometric.data import Data
from torch_geometric.utils import from_networkx, get_laplacian, to_dense_adj

from pyg_outerconv.lab import cli
from pyg_outerconv.plot.canvas import new_figure, save

SIDES = (16, 20)
QUESTIONS: dict[str, Callable[[Any], Any]] = {  # gains of frequencies λ from 0 to 2
    "what neighbours share": lambda frequency: (1 - frequency / 2) ** 2,
    "what sets a node apart": lambda frequency: (frequency / 2) ** 2,
}
SEARCH = "--trials 6 --portfolio none --max-depth 1 --epochs 150 --patience 30 --finalists 2 "
SEARCH += "--final-seeds 3 --test-seeds 2 --split random-60-20-20 --jobs 1"
PICTURES = {
    "found.svg": "Two columns, a question each. Above, curves of gain over frequency: the layer "
    "that was found for the first falls, that for the second rises, each beside a dotted curve of "
    "the filter that made the classes. Below, bars: what each matrix of the layer contributes.",
}


@cache
def winning_filters(question: str) -> dict[str, Any]:
    """What ``outerconv search`` sees in the models of its winner, by seed."""
    torch.manual_seed(0)
    edges = from_networkx(nx.grid_2d_graph(*SIDES)).edge_index
    index, weight = get_laplacian(edges, normalization="sym")
    frequencies, vectors = torch.linalg.eigh(to_dense_adj(index, edge_attr=weight)[0])
    x = torch.randn(SIDES[0] * SIDES[1], 3)
    filtered = vectors @ (QUESTIONS[question](frequencies)[:, None] * (vectors.T @ x))
    with tempfile.TemporaryDirectory() as folder:
        graph, out = Path(folder, "graph.pt"), Path(folder, "found")
        torch.save(Data(x=x, edge_index=edges, y=filtered.argmax(1)), graph)
        with Path(folder, "log.txt").open("w") as log, redirect_stdout(log):
            code = cli.main(["search", "--data", str(graph), *SEARCH.split(), "--out", str(out)])
        if code:
            raise SystemExit(code)
        storage = f"sqlite:///{out / 'study.db'}"
        return optuna.load_study(study_name="outerconv", storage=storage).user_attrs["seen"]


def response(seen: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The middles of bands of frequencies, and the gain of the layer in each, the largest 1."""
    (gains,) = seen["response"].values()
    values = np.array(gains, dtype=float)
    return (np.arange(len(values)) + 0.5) * 2 / len(values), values


def draw(folder: Path) -> None:
    """Draw the picture into a folder."""
    figure = new_figure(9.0, 5.6)
    above, below = figure.subplots(2, 2, height_ratios=(3, 2))
    for question, curve, bars in zip(QUESTIONS, above, below, strict=True):
        seeds = list(winning_filters(question).values())
        for seen in seeds:
            curve.plot(*response(seen), color="tab:blue", alpha=0.7, label="found")
        frequency = np.linspace(0, 2)
        curve.plot(frequency, QUESTIONS[question](frequency), "k:", label="made the classes")
        curve.set_title(f"The class is {question}", fontsize=10)
        curve.set_xlabel("frequency λ of the grid")
        curve.set_ylabel("gain, largest 1")
        handles, names = curve.get_legend_handles_labels()
        curve.legend(handles[-2:], names[-2:], fontsize=8)
        labels = seeds[0]["labels"]
        rises = np.mean([[one["loss_change"] for one in seen["labels"]] for seen in seeds], axis=0)
        bars.barh(range(len(labels)), rises, color="tab:orange", height=0.6)
        bars.set_yticks(range(len(labels)), [one["name"] for one in labels], fontsize=8)
        bars.invert_yaxis()
        bars.set_xlabel("rise of the validation loss without it")
    save(figure, folder / "found.svg")


if __name__ == "__main__":
    draw(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
