"""The command ``outerconv show RUN``: pictures, numbers and a page of a finished run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...basis import Basis
from ...errors import RefusedValue
from ...families.options import nested
from ...files import as_path
from ...nn import LabelTerms, OuterConv
from ...nn.models import evaluating
from ...plot import basis as of_basis
from ...plot import graph as of_graphs
from ...plot import runs as of_runs
from ...plot.canvas import rendered
from ...plot.layout import MAX_NODES
from ..data import Source
from ..pages import percent, points, render_page, share
from ..train import Trained, load_trained
from ..train.folder import CONFIG, write_files
from ..train.model import on_backend
from ..train.results import METRICS, draw_curves
from ..train.trained import watching

FOLDER = "show"  # below the run folder
NEIGHBOURS = 8  # of the node that is looked at by default, about


@dataclass
class Look:
    """What is shown of a run."""

    facts: dict[str, Any]
    pictures: dict[str, bytes] = field(default_factory=dict)


def show_run(asked: Any, source: Source | None) -> int:
    """Run ``outerconv show RUN``: write pictures, numbers and a page, and return the exit code.

    ``asked`` are its options, a ``Picture`` of ``cli/commands.py``; without a node a test node with
    few neighbours is looked at. ``source``: where a graph of one's own is now, if it was moved.
    """
    run = asked.run or ""
    folder = as_path(asked.out, "--out") if asked.out else as_path(run, "a run folder") / FOLDER
    if (folder / CONFIG).exists():  # its curves.png would be replaced
        raise RefusedValue("--out is a folder for pictures", "no run folder", folder)
    trained = load_trained(run, asked.root, source=source)
    instead = "curves.png of the run, outerconv compare or predict"
    trained.dataset.require_memory("a page of a run", instead)
    look = look_at(trained, asked.node, asked.label, asked.layout or "spring", asked.seed or 0)
    text = page(look.facts, list(look.pictures))
    files: dict[str, Any] = {**look.pictures, "show.json": look.facts}
    files["README.md"] = text.encode()
    write_files(folder, files)
    for name in files:
        print(shlex.quote(str(folder / name)))
    return 0


def look_at(
    trained: Trained,
    names: Sequence[str] = (),
    labels: Sequence[int] = (),
    layout: str = "spring",
    seed: int = 0,
) -> Look:
    """Measure and draw all that is shown of a run; see :func:`show_run`."""
    asked = [trained.dataset.node_number(name) for name in names]
    nodes = list(dict.fromkeys(asked)) or [_default_node(trained)]
    look = Look(_facts(trained, nodes))
    terms = layer_terms(trained)
    _add_basis(look, trained, terms, nodes, labels, layout, seed)
    _add_contributions(look, trained)
    _add_confusion(look, trained)
    _add_neighbourhoods(look, trained, terms, nodes)
    runs, settings = trained.folder.read_runs(), trained.settings
    title = f"{look.facts['model']} on {settings.dataset}"
    look.pictures["curves.png"] = draw_curves(runs, title, settings)
    return look


def _default_node(trained: Trained) -> int:
    """The test node whose number of edges is closest to ``NEIGHBOURS``, the first of equal ones."""
    data = trained.dataset.data
    counts = data.edge_index[1].bincount(minlength=int(data.num_nodes or 0))
    test = trained.split.test.nonzero().view(-1)
    return int(test[(counts[test] - NEIGHBOURS).abs().argmin()])


def _facts(trained: Trained, nodes: list[int]) -> dict[str, Any]:
    split, y = trained.split, trained.dataset.data.y
    predicted = trained.probabilities()
    metric = METRICS[trained.settings.metric]
    return {
        "model": trained.contender.name,
        "settings": trained.settings.as_dict(),
        "seed": trained.seed,
        "nodes": {
            part: int(getattr(split, part).sum()) for part in ("train", "validation", "test")
        },
        "metric": {
            part: metric(predicted[mask].log(), y[mask])
            for part, mask in (("validation", split.validation), ("test", split.test))
        },
        "recorded": trained.recorded,
        "shown_nodes": nodes,
        "node_names": [trained.dataset.node_name(node) for node in nodes],
    }


def _add_basis(
    look: Look,
    trained: Trained,
    terms: dict[str, LabelTerms],
    nodes: list[int],
    labels: Sequence[int],
    layout: str,
    seed: int,
) -> None:
    """The basis of the first layer around the nodes."""
    if not terms:
        return
    name, first = next(iter(terms.items()))
    data = trained.dataset.data
    options: dict[str, Any] = {
        "titles": first.conv.family.labels,
        "classes": data.y.cpu().numpy(),
        "around": nodes if int(data.num_nodes or 0) > MAX_NODES or len(nodes) > 1 else (),
        "layout": layout,
        "seed": seed,
    }
    if labels:
        options["labels"] = list(labels)
    look.pictures["basis.png"] = rendered(of_basis.draw(first.basis, "graph", None, options))
    look.facts["basis"] = {"layer": name, "learned": learns_values(first.conv)}


def _add_contributions(look: Look, trained: Trained) -> None:
    contributions = look.facts["contributions"] = [vars(one) for one in trained.contributions()]
    if contributions:
        title = "each label's term, and the validation nodes without it in one layer"
        figure = of_runs.bars(contributions, trained.settings.metric, title)
        look.pictures["contributions.png"] = rendered(figure)


def _add_confusion(look: Look, trained: Trained) -> None:
    test, y = trained.split.test, trained.dataset.data.y
    predicted = trained.probabilities()[test].argmax(-1)
    counts = confusion(predicted, y[test], trained.dataset.num_classes)
    look.facts["confusion"] = counts.tolist()
    look.facts["classes"] = by_class(counts)
    names = look.facts["class_names"] = class_names(trained)
    title = f"test nodes of seed {trained.seed}"
    look.pictures["confusion.png"] = rendered(of_runs.confusion(counts.numpy(), names, title))


def class_names(trained: Trained) -> list[str]:
    """The names of the classes: those of the data, or their numbers."""
    dataset = trained.dataset
    said = "" if dataset.classes else "class "
    return [said + dataset.class_name(label) for label in range(dataset.num_classes)]


def _add_neighbourhoods(
    look: Look, trained: Trained, terms: dict[str, LabelTerms], nodes: list[int]
) -> None:
    """Of each layer that learns its values, and each node."""
    look.facts["neighbourhoods"] = []
    classes: NDArray[np.int64] = trained.dataset.data.y.cpu().numpy()
    for layer, of_layer in terms.items():
        if not learns_values(of_layer.conv):
            continue
        titles = of_layer.conv.family.labels
        for node in nodes:
            values, present = column(of_layer.basis, node)
            name = f"values-{layer}-node-{node}.png"
            figure = of_graphs.neighbourhood(
                values, present, node, titles, classes=classes, said=layer
            )
            look.pictures[name] = rendered(figure)
            sources = of_graphs.strongest(values, present)
            look.facts["neighbourhoods"].append(
                {
                    "layer": layer,
                    "node": node,
                    "node_name": trained.dataset.node_name(node),
                    "picture": name,
                    "labels": list(titles),
                    "num_sources": int(present.any(0).sum()),
                    "sources": sources.tolist(),
                    "source_names": [trained.dataset.node_name(source) for source in sources],
                    "values": np.where(present, values, 0.0)[:, sources].T.tolist(),
                }
            )


def page(facts: dict[str, Any], pictures: Sequence[str]) -> str:
    """The page of what :func:`look_at` found."""
    metric, labels = facts["settings"]["metric"], dict[str, Any]()
    head = ("label", "norm", f"{metric} without it, %", "change, points", "change of cross entropy")
    for one in facts["contributions"]:
        numbers = f"{one['norm']:.4g}", percent(one["metric"]), points(one["change"])
        row = (one["name"], *numbers, f"{one['loss_change']:+.4f}")
        labels.setdefault(one["layer"], [head]).append(row)
    reached = facts["metric"]
    cells = map(percent, (reached["validation"], reached["test"], facts["recorded"]))
    titles = (f"{metric}, %", "validation", "test", "test, as training recorded it")
    of_classes = [
        (name, str(one["nodes"]), *(share(one[what]) for what in ("precision", "recall", "f1")))
        for name, one in zip(facts["class_names"], facts["classes"], strict=True)
    ]
    values: dict[str, Any] = {
        "facts": facts,
        "pictures": pictures,
        "metrics": [titles, ("", *cells)],
        "labels": labels,
        "neighbourhoods": [_neighbourhood(one) for one in facts["neighbourhoods"]],
        "classes": [("test nodes", "number", "precision", "recall", "F1"), *of_classes],
        "nodes": ", ".join(map(_called, facts["shown_nodes"], facts["node_names"])),
    }
    return render_page(Path(__file__).with_suffix(".jinja"), **values)


def _neighbourhood(one: dict[str, Any]) -> tuple[str, str, str, list[list[str]]]:
    """The title, the picture, what is said, and the table of a node and a layer."""
    sources = list(map(_called, one["sources"], one["source_names"]))
    rows = [
        [source, *(f"{value:.3f}" for value in values)]
        for source, values in zip(sources, one["values"], strict=True)
    ]
    said, shown, count = "Sources of the node", len(sources), one["num_sources"]
    if shown < count:
        said += f", the {shown} with the largest mean value of {count}"
    title = f"{one['layer']}, node {_called(one['node'], one['node_name'])}"
    return title, one["picture"], f"{said}:", [["source", *one["labels"]], *rows]


def _called(node: int, name: str) -> str:
    """A node by its number, and its name if it has one."""
    return name if name == str(node) else f"{node} ({name})"


# What is measured ---------------------------------------------------------------------------------


def layer_terms(trained: Trained) -> dict[str, LabelTerms]:
    """The terms of the labels of each ``OuterConv`` in a pass over the data, by the layer's name.

    Of a layer that is called several times those of the first call.
    """
    terms_by_layer: dict[str, LabelTerms] = {}
    parts = trained.model.named_modules()
    layers = {name: layer for name, layer in parts if isinstance(layer, OuterConv)}

    def note(name: str, terms: LabelTerms, out: Any) -> None:
        terms_by_layer.setdefault(name, terms)

    with evaluating(trained.model), on_backend(trained.settings), watching(layers, note):
        trained.model(*trained.whole_graph())
    return terms_by_layer


def learns_values(layer: OuterConv) -> bool:
    """Whether the values of a layer's basis depend on parameters or on features."""
    return any(part.learns for part in nested(layer.family))


def column(basis: Basis, target: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The values (K, M) of the edges to a target, and where edges are (K, M)."""
    chosen = basis.restricted(None, torch.tensor([target], device=basis.device))
    values = chosen.to_dense(torch.double).detach()
    present = np.asarray(chosen.support().cpu().numpy()[:, :, 0], dtype=bool)
    return np.asarray(values[:, :, 0].cpu().numpy()), present


def confusion(predicted: Tensor, wanted: Tensor, num_classes: int) -> Tensor:
    """The number of nodes of each true class (rows) that get each class (columns): (C, C)."""
    pairs = wanted * num_classes + predicted
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def by_class(counts: Tensor) -> list[dict[str, Any]]:
    """Nodes, precision, recall and F1 of each class; None where a quotient has nothing below."""
    right, true, predicted = counts.diagonal().double(), counts.sum(1), counts.sum(0)
    quotients = {
        "precision": right / predicted,
        "recall": right / true,
        "f1": 2 * right / (true + predicted),
    }
    columns: dict[str, Any] = {"class": range(len(counts)), "nodes": true.tolist()}
    for name, quotient in quotients.items():
        columns[name] = [None if isnan(one) else one for one in quotient.tolist()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
