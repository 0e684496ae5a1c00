"""Which class is taken for which: counts, and precision, recall and F1 of each class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def confusion(predicted: Tensor, wanted: Tensor, num_classes: int) -> Tensor:
    """The number of nodes of each true class (rows) that get each class (columns): (C, C).

    Args:
        predicted, wanted: (N,) classes.
        num_classes: C.
    """
    pairs = wanted * num_classes + predicted
    return torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)


def by_class(counts: Tensor) -> list[dict[str, Any]]:
    """Nodes, precision, recall and F1 of each class; None where a quotient has nothing below.

    Args:
        counts: (C, C), see :func:`confusion`.
    """
    right = counts.diagonal().tolist()
    true, predicted = counts.sum(1).tolist(), counts.sum(0).tolist()
    return [
        {
            "class": label,
            "nodes": true[label],
            "precision": _quotient(right[label], predicted[label]),
            "recall": _quotient(right[label], true[label]),
            "f1": _quotient(2 * right[label], true[label] + predicted[label]),
        }
        for label in range(len(right))
    ]


def _quotient(above: int, below: int) -> float | None:
    return above / below if below else None
