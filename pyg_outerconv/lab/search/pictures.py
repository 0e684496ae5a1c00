"""What a search shows: what is seen in a trained model, and the figures of its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch_geometric.utils import get_laplacian, to_dense_adj, to_undirected

from ...nn import LabelTerms, OuterConv
from ...nn.models import evaluating
from ..data import Dataset
from ..pages.figures import COLOURS, INK, drawing
from ..train import contributions
from ..train.inputs import WholeGraph
from ..train.loop import SeedRun
from ..train.results import METRICS
from ..train.trained import watching

if TYPE_CHECKING:
    from .report import Report
    from .work import Labels

MOST_NODES = 3000  # of a graph whose Laplacian is decomposed, which takes seconds then
BANDS = 24  # of frequencies
COLUMNS = 256  # of eigenvectors that are propagated at once
MOST_BARS = 24  # of a figure; tables have all


# What is seen in a trained model ------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What is seen in the model of one seed, on nodes whose labels this seed may see.

    Attributes:
        labels: what each label of each layer contributes, see :func:`..train.contributions`.
        homophily: of the edges as listed, by chance, and of each matrix of the first layer: the
            share of what nodes get that comes from their own class.
        response: of the first layer and the last, by bands of frequencies of the graph, 0 to 2:
            ‖Σ_k A_kᵀ u ⊗ Θ_k‖ of eigenvectors u of the Laplacian I − D^-1/2 W D^-1/2 of the edges
            in both directions. Empty for graphs too large for their eigenvectors.
    """

    labels: list[dict[str, Any]]
    homophily: list[tuple[str, float]]
    response: dict[str, list[float | None]]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def look_at(run: SeedRun, labels: Labels, dataset: Dataset) -> Seen:
    """Look at the model of a finished seed."""
    inputs, model, settings = run.contender.inputs, run.model, run.settings
    assert isinstance(inputs, WholeGraph)  # as searches train
    y, mask = (t.to(settings.device) for t in (labels.y, labels.split.validation))
    metric = METRICS[settings.metric]
    label_contributions = contributions(model, inputs.x, inputs.structure, y, mask, metric)
    layers = {name: part for name, part in model.named_modules() if isinstance(part, OuterConv)}
    terms: dict[str, LabelTerms] = {}

    def see(name: str, seen: LabelTerms, out: Any) -> None:
        terms[name] = seen

    with evaluating(model), watching(layers, see):
        model(inputs.x, inputs.structure)
        names = list(dict.fromkeys([*terms][:1] + [*terms][-1:]))
        homophily = homophilies(terms[names[0]], y, dataset.data.edge_index.to(y.device))
        response: dict[str, list[float | None]] = {}
        if dataset.num_nodes <= MOST_NODES:
            frequencies, vectors = eigenvectors(dataset)
            for name in names:
                gains = gain(terms[name], vectors.to(y.device)).cpu()
                response[name] = in_bands(frequencies, gains)
    rows = [{"layer": one.layer, "label": one.label, "name": one.name, "norm": one.norm,
             "change": one.change, "loss_change": one.loss_change}
            for one in label_contributions]  # fmt: skip
    return Seen(rows, homophily, response)


def homophilies(terms: LabelTerms, y: Tensor, edge_index: Tensor) -> list[tuple[str, float]]:
    """The share of what nodes get that is of their own class: by edges, chance, and each A_k.

    Of nodes with a label that is seen, and what they get from such nodes.
    """
    seen = y >= 0
    source, target = edge_index[:, seen[edge_index[0]] & seen[edge_index[1]]]
    same = (y[source] == y[target]).double().mean()
    counts = y[seen].bincount().double()
    rows = [("edges, as listed", float(same.nan_to_num())),
            ("by chance", float(((counts / counts.sum()) ** 2).sum()))]  # fmt: skip
    classes = torch.nn.functional.one_hot(y.clamp(min=0), int(counts.numel())) * seen[:, None]
    sent = terms.basis.propagate(classes.to(terms.theta.dtype)).abs().double()[seen]  # (N, K, C)
    own = sent.gather(2, y[seen][:, None, None].expand(-1, sent.size(1), 1)).sum((0, 2))
    shares = (own / sent.sum((0, 2))).nan_to_num().tolist()
    names = terms.conv.family.labels
    return rows + [(names[label], share) for label, share in enumerate(shares)]


def eigenvectors(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """λ (N,) and U (N, N) of the normalised Laplacian of the edges in both directions."""
    edges = to_undirected(dataset.data.edge_index, num_nodes=dataset.num_nodes)
    index, weight = get_laplacian(edges, normalization="sym", num_nodes=dataset.num_nodes)
    laplacian = to_dense_adj(index, edge_attr=weight, max_num_nodes=dataset.num_nodes)[0]
    eigenpairs: tuple[Tensor, Tensor] = torch.linalg.eigh(laplacian)
    return eigenpairs


def gain(terms: LabelTerms, vectors: Tensor) -> Tensor:
    """‖Σ_k A_kᵀ u ⊗ Θ_k‖ for each column u of U (N, J): (J,).

    By the products of matrices Θ with each other, so that no channel is computed.
    """
    theta = terms.theta.full().detach().flatten(1).double()
    products = theta @ theta.t()
    squared_gains = []
    for columns in vectors.split(COLUMNS, dim=1):
        sent = terms.basis.propagate(columns.to(terms.theta.dtype)).double()
        squared_gains.append(torch.einsum("nkj,nlj,kl->j", sent, sent, products))
    return torch.cat(squared_gains).clamp(min=0).sqrt()


def in_bands(frequencies: Tensor, gains: Tensor) -> list[float | None]:
    """The mean of gains over each band of frequencies, None where there is none, the largest 1."""
    band = (frequencies.clamp(0, 2) * (BANDS / 2)).long().clamp(max=BANDS - 1)
    means = [gains[band == number] for number in range(BANDS)]
    band_means = [float(one.mean()) if one.numel() else None for one in means]
    most = max(value for value in band_means if value is not None) or 1.0
    return [None if value is None else value / most for value in band_means]


# Figures ------------------------------------------------------------------------------------------


def trials_over_time(report: Report) -> str:
    """The best validation metric so far, after each trial, a line for each kind."""
    with drawing("trials", 7.4, 3.6) as picture:
        axes = picture.figure.add_subplot()
        for number, (name, title) in enumerate(report.titles.items()):
            values = [100 * trial["value"] for trial in report.trials[name]]
            at, colour = range(1, len(values) + 1), COLOURS[number % len(COLOURS)]
            style = "-" if number < len(COLOURS) else "--"
            axes.plot(at, values, ".", color=colour, ms=3, alpha=0.4)
            best = list(accumulate(values, max))
            axes.step(at, best, style, where="post", color=colour, linewidth=1.4, label=title)
        axes.set(xlabel="trial", ylabel=f"validation {report.metric}, %")
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return picture.svg


def marginals(report: Report) -> str:
    """The validation metric of trials by each choice of the basis, a panel for each."""
    groups = report.marginals()
    tallest = max(map(len, groups.values()), default=1)
    with drawing("marginals", 2.6 * max(1, len(groups)), 1.0 + 0.3 * tallest) as picture:
        for place, (title, values) in enumerate(groups.items(), start=1):
            axes = picture.figure.add_subplot(1, len(groups), place)
            for row, trials in enumerate(values.values()):
                reached = [100 * trial["value"] for trial in trials]
                axes.plot(reached, [row] * len(reached), "|", color=COLOURS[0], ms=9, alpha=0.7)
                axes.plot([max(reached)], [row], "o", color=COLOURS[1], ms=4)
            axes.set_yticks(range(len(values)), list(values))
            axes.set_ylim(-0.6, len(values) - 0.4)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel(f"validation {report.metric}, %")
    return picture.svg


def against_winner(report: Report) -> str:
    """The winner's test minus that of each kind, with 95 % intervals."""
    rows = report.differences()[::-1]
    with drawing("against", 7.4, 0.9 + 0.3 * len(rows)) as picture:
        axes = picture.figure.add_subplot()
        for place, (_, mean, half) in enumerate(rows):
            axes.errorbar(100 * mean, place, xerr=100 * half, fmt="o", color=COLOURS[0], ms=4)
        axes.axvline(0, color=INK, linewidth=0.6)
        axes.set_yticks(range(len(rows)), [title for title, _, _ in rows])
        axes.set_xlabel("test of the winner − its own, points, 95 % interval")
    return picture.svg


def labels(rows: Sequence[dict[str, Any]]) -> str:
    """‖A_kᵀ X Θ_k‖ of each layer and label, and the change of the loss without it; of many labels
    those with the largest norms.
    """
    least = sorted((row["norm"] for row in rows), reverse=True)[:MOST_BARS][-1]
    rows = [row for row in rows if row["norm"] >= least][::-1]
    names, at = [f"{row['layer']}: {row['name']}" for row in rows], range(len(rows))
    titles = {"norm": "‖A_kᵀ X Θ_k‖", "loss_change": "validation loss without it, change"}
    with drawing("labels", 9, 0.9 + 0.28 * len(rows)) as picture:
        for place, (key, title) in enumerate(titles.items()):
            axes = picture.figure.add_subplot(1, 2, place + 1)
            axes.barh(at, [row[key] for row in rows], color=COLOURS[place], height=0.6)
            axes.axvline(0, color=INK, linewidth=0.6)
            axes.set_yticks(at, [""] * len(rows) if place else names)
            axes.set_xlabel(title)
    return picture.svg


def homophily(rows: Sequence[tuple[str, float]]) -> str:
    """The share of its own class in what a node gets, by edges, by chance, and by each matrix."""
    rows = rows[:MOST_BARS][::-1]
    at = range(len(rows))
    with drawing("homophily", 7.4, 0.9 + 0.28 * len(rows)) as picture:
        axes = picture.figure.add_subplot()
        colours = [COLOURS[0]] * (len(rows) - 2) + [COLOURS[5]] * 2
        axes.barh(at, [100 * share for _, share in rows], color=colours, height=0.6)
        axes.set_yticks(at, [name for name, _ in rows])
        axes.set_xlabel("from nodes of its own class, %")
    return picture.svg


def response(layer_gains: dict[str, list[float | None]]) -> str:
    """The gain of layers by frequency."""
    with drawing("response", 7.4, 3.2) as picture:
        axes = picture.figure.add_subplot()
        for number, (name, gains) in enumerate(layer_gains.items()):
            points = [(2 * (band + 0.5) / BANDS, one) for band, one in enumerate(gains)]
            at, values = zip(*((x, one) for x, one in points if one is not None), strict=True)
            axes.plot(at, values, "o-", color=COLOURS[number], ms=3, linewidth=1.4, label=name)
        axes.set(xlabel="frequency λ of the graph", ylabel="gain, largest 1")
        axes.set_xlim(0, 2)
        axes.set_ylim(0, 1.05)
        axes.legend(frameon=False, fontsize=8)
    return picture.svg
