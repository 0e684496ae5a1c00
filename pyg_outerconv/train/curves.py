"""Learning curves as a picture."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from .contender import OURS

PANELS = {
    "cross entropy": (("train_loss", "training"), ("val_loss", "validation")),
    "accuracy": (
        ("train_accuracy", "training"),
        ("val_accuracy", "validation"),
        ("test_accuracy", "test"),
    ),
}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def draw(runs: Sequence[dict[str, Any]], title: str) -> bytes:
    """The loss and the accuracy of every seed of our model, a dot at each best epoch, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)  # draws without a display, and leaves pyplot's state alone
    figure.suptitle(title)
    for place, (label, curves) in enumerate(PANELS.items(), start=1):
        axes = figure.add_subplot(1, len(PANELS), place)
        for number, (key, name) in enumerate(curves):
            for run in (run for run in runs if run["model"] == OURS):
                values = run["history"][key]
                first = run["seed"] == 0
                axes.plot(
                    range(1, len(values) + 1),
                    values,
                    color=f"C{number}",
                    linewidth=0.8,
                    alpha=0.6,
                    label=name if first else None,
                )
                best = run["best_epoch"]
                axes.plot([best], [values[best - 1]], ".", color=f"C{number}", markersize=4)
        axes.set_xlabel("epoch")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        axes.legend()
    picture = BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    return picture.getvalue()
