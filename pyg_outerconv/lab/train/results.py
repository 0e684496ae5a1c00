"""Metrics, their means and paired differences over seeds, learning curves."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from ...errors import RefusedValue
from ..pages import percent, text_table
from ..settings import Settings
from .model import OURS, PEER

SMOOTHED = {key: f"smoothed_{key}" for key in ("test_metric", "val_metric")}
"""The names of metrics of corrected and smoothed predictions, beside those before it."""


def spread(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None of a single value."""
    return stdev(values) if len(values) > 1 else None


def paired_difference(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Our test metric minus the peer's, seed by seed: number of seeds, mean, standard error.

    The standard error is None for a single seed; without a common seed the result is None.
    """
    ours, theirs = (
        {run["seed"]: run["test_metric"] for run in runs if run["model"] == model}
        for model in (OURS, PEER)
    )
    return paired(ours, theirs)


def paired(values: dict[Any, float], others: dict[Any, float]) -> dict[str, Any] | None:
    """The difference of values by seed, over the seeds that both have; see above."""
    seeds = sorted(values.keys() & others.keys())
    if not seeds:
        return None
    return difference_of([values[seed] - others[seed] for seed in seeds])


def difference_of(differences: Sequence[float]) -> dict[str, Any]:
    """Of paired differences: their number, mean, and standard error, None for a single one."""
    deviation = spread(differences)
    return {
        "seeds": len(differences),
        "mean": mean(differences),
        "standard_error": None if deviation is None else deviation / math.sqrt(len(differences)),
    }


def summarise(runs: Sequence[dict[str, Any]], names: dict[str, str], metric: str) -> dict[str, Any]:
    """Means and standard deviations of every model and of the majority class, and the paired
    difference if there are two models.
    """
    summary: dict[str, Any] = {"metric": metric}
    for model, name in names.items():
        own = [run for run in runs if run["model"] == model]
        if own:
            summary[model] = {"name": name, "seeds": len(own)} | {
                key: {
                    "mean": mean(run[key] for run in own),
                    "std": spread([run[key] for run in own]),
                }
                for key in ("test_metric", "val_metric", "epochs", "seconds", *SMOOTHED.values())
                if key in own[0]
            }
    if runs:
        by_seed = {run["seed"]: run["majority"] for run in runs}
        values = list(by_seed.values())
        summary["majority"] = {"mean": mean(values), "std": spread(values)}
    difference = paired_difference(runs)
    return summary | ({"difference": difference} if difference else {})


def table(summary: dict[str, Any]) -> str:
    """The summary as text."""
    metric = summary["metric"]
    rows = [("model", "seeds", f"test {metric} %", "validation %", "epochs", "s/seed")]
    for model in (OURS, PEER):
        if statistics := summary.get(model):
            rows.append(
                (
                    statistics["name"],
                    str(statistics["seeds"]),
                    percent(**statistics["test_metric"]),
                    percent(**statistics["val_metric"]),
                    f"{statistics['epochs']['mean']:.0f}",
                    f"{statistics['seconds']['mean']:.1f}",
                )
            )
            if SMOOTHED["test_metric"] in statistics:
                test, val = (percent(**statistics[key]) for key in SMOOTHED.values())
                rows.append(("  corrected and smoothed", "", test, val, "", ""))
    if statistics := summary.get("majority"):
        rows.append(("majority class", "", percent(**statistics), "", "", ""))
    lines = [text_table(rows)]
    if difference := summary.get("difference"):
        lines.append(_difference(difference))
    return "\n".join(lines)


def _difference(difference: dict[str, Any]) -> str:
    """A paired difference in percentage points."""
    points = f"{100 * difference['mean']:.2f}".replace("-0.00", "0.00")
    if difference["standard_error"] is None:
        return f"ours − PyG: {points} points, 1 seed"
    error = f"{100 * difference['standard_error']:.2f}"
    return (
        f"ours − PyG: {points} ± {error} points (mean ± standard error), "
        f"{difference['seeds']} seeds"
    )


# Learning curves ----------------------------------------------------------------------------------

CURVES = {"training": ("train_loss", "train_metric"), "validation": ("val_loss", "val_metric")}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw_curves(runs: Sequence[dict[str, Any]], title: str, settings: Settings) -> bytes:
    """The loss and the metric of every seed of our model, a dot at each best epoch, as PNG."""
    from ...plot.canvas import new_figure, rendered

    figure = new_figure(10, 4)
    figure.suptitle(title)
    for place, label in enumerate(("cross entropy", settings.metric)):
        axes = figure.add_subplot(1, 2, place + 1)
        for number, (name, keys) in enumerate(CURVES.items()):
            for run in (run for run in runs if run["model"] == OURS):
                values = run["history"][keys[place]]
                epochs = settings.evaluated(run["epochs"])
                first = run["seed"] == 0
                axes.plot(
                    epochs,
                    values,
                    color=f"C{number}",
                    linewidth=0.8,
                    alpha=0.6,
                    label=name if first else None,
                )
                best = run["best_epoch"]
                at_best = values[epochs.index(best)]
                axes.plot([best], [at_best], ".", color=f"C{number}", markersize=4)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    return rendered(figure)


# Metrics ------------------------------------------------------------------------------------------


def accuracy(logits: Tensor, wanted: Tensor) -> float:
    """The share of nodes whose largest logit is that of their class."""
    return int((logits.argmax(-1) == wanted).sum()) / wanted.numel()


def auroc(logits: Tensor, wanted: Tensor) -> float:
    r"""The area under the ROC curve.

    .. math:: \frac{R_+ - n_+ (n_+ + 1) / 2}{n_+ n_-}

    for two classes, with R₊ the sum of the ranks of class 1 by z₁ − z₀ (equal values share their
    mean rank). For more classes, the mean over the classes that nodes have and lack, each by its
    probability against the others.
    """
    if logits.size(-1) == 2:
        areas = [_area(logits[:, 1] - logits[:, 0], wanted == 1)]
    else:
        shares = logits.softmax(-1)
        areas = [_area(shares[:, label], wanted == label) for label in range(logits.size(-1))]
    defined_areas = [area for area in areas if area is not None]
    if not defined_areas:
        raise RefusedValue(
            "the area under the ROC curve compares nodes of a class with others",
            "nodes of two classes in each part of the split",
            f"{wanted.numel()} nodes of class {sorted(set(wanted.tolist()))}",
        )
    return sum(defined_areas) / len(defined_areas)


def _area(values: Tensor, positive: Tensor) -> float | None:
    from scipy.stats import rankdata  # which takes a second to import

    number = int(positive.sum())
    others = positive.numel() - number
    if not number or not others:
        return None
    ranks = rankdata(values.detach().double().cpu().numpy())[positive.cpu().numpy()]
    return float((ranks.sum() - number * (number + 1) / 2) / (number * others))


def f1(logits: Tensor, wanted: Tensor) -> float:
    """F1 = 2 TP / (2 TP + FP + FN) of each class that nodes have or get, averaged (macro)."""
    predicted, count = logits.argmax(-1), logits.size(-1)
    right = torch.bincount(wanted[predicted == wanted], minlength=count).double()
    both = torch.bincount(wanted, minlength=count) + torch.bincount(predicted, minlength=count)
    return float((2 * right[both > 0] / both[both > 0]).mean())


METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": accuracy,
    "auroc": auroc,
    "f1": f1,
}


def majority(metric: str, train: Tensor, wanted: Tensor, num_classes: int) -> float:
    """The metric of a model that answers the most frequent class of the training nodes."""
    logits = torch.zeros(wanted.numel(), num_classes)
    logits[:, torch.bincount(train, minlength=num_classes).argmax()] = 1
    return METRICS[metric](logits, wanted.cpu())
