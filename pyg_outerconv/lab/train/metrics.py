"""How well classes are predicted: accuracy, area under the ROC curve, F1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.stats import rankdata
from torch import Tensor

from ...errors import RefusedValue


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
    known = [area for area in areas if area is not None]
    if not known:
        raise RefusedValue(
            "the area under the ROC curve compares nodes of a class with others",
            "nodes of two classes in each part of the split",
            f"{wanted.numel()} nodes of class {sorted(set(wanted.tolist()))}",
        )
    return sum(known) / len(known)


def _area(values: Tensor, positive: Tensor) -> float | None:
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
