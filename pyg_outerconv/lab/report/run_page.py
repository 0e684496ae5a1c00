"""The page of a run, in Markdown beside its pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..train.results import code, markdown_table, percent, plain, points, share


def page(facts: dict[str, Any], pictures: Sequence[str]) -> str:
    """The page of what :func:`.show_run.look_at` found.

    Args:
        facts: as ``show.json`` has them.
        pictures: the names of the files beside the page.
    """
    family, facts = facts["settings"]["family"], plain(facts)
    lines = [*_head(facts, family), *_contributions(facts, pictures), *_neighbourhoods(facts)]
    lines += [*_confusion(facts), *_curves(), *_basis(facts, pictures)]
    return "\n".join(lines) + "\n"


def _head(facts: dict[str, Any], family: str) -> list[str]:
    settings, metric = facts["settings"], facts["metric"]
    counts = facts["nodes"]
    return [
        f"# {facts['model']} on {settings['dataset']}",
        "",
        f"Family {code(family)}, {settings['depth']} layers of {settings['hidden']} "
        f"channels, split {settings['split']}. The model is that of seed {facts['seed']}, the best "
        f"of the run on validation nodes: {counts['train']} training, {counts['validation']} "
        f"validation and {counts['test']} test nodes.",
        "",
        *markdown_table(
            (f"{settings['metric']}, %", "validation", "test", "test, as training recorded it"),
            [
                (
                    "",
                    percent(metric["validation"]),
                    percent(metric["test"]),
                    percent(facts["recorded"]),
                )
            ],
        ),
        "",
    ]


def _contributions(facts: dict[str, Any], pictures: Sequence[str]) -> list[str]:
    found = facts["contributions"]
    if not found:
        return []
    lines = ["## Labels", ""]
    if "contributions.png" in pictures:
        lines += ["![norms, and changes without a label](contributions.png)", ""]
    lines += [
        "The norm is ‖A_kᵀ X Θ_k‖ over all nodes and channels. The changes are those on the "
        "validation nodes when the label's matrix is empty in this layer alone, without training "
        "anew: without a label that helps, the metric falls and the cross entropy rises.",
        "",
    ]
    name = facts["settings"]["metric"]
    head = ("label", "norm", f"{name} without it, %", "change, points", "change of cross entropy")
    for layer in dict.fromkeys(one["layer"] for one in found):
        rows = [
            (
                one["name"],
                f"{one['norm']:.4g}",
                percent(one["metric"]),
                points(one["change"]),
                f"{one['loss_change']:+.4f}",
            )
            for one in found
            if one["layer"] == layer
        ]
        lines += [f"### {layer}", "", *markdown_table(head, rows), ""]
    return lines


def _neighbourhoods(facts: dict[str, Any]) -> list[str]:
    if not facts["neighbourhoods"]:
        return []
    lines = ["## Learned values", ""]
    for one in facts["neighbourhoods"]:
        count, shown = one["num_sources"], len(one["sources"])
        few = "" if shown == count else f", the {shown} with the largest mean value of {count}"
        rows = [
            (_called(source, name), *(f"{value:.3f}" for value in values))
            for source, name, values in zip(
                one["sources"], one["source_names"], one["values"], strict=True
            )
        ]
        lines += [
            f"### {one['layer']}, node {_called(one['node'], one['node_name'])}",
            "",
            f"![values of the edges that reach the node]({one['picture']})",
            "",
            f"Sources of the node{few}:",
            "",
            *markdown_table(("source", *one["labels"]), rows),
            "",
        ]
    return lines


def _called(node: int, name: str) -> str:
    """A node by its number, as in pictures, and by its name where it has another."""
    return name if name == str(node) else f"{node} ({name})"


def _confusion(facts: dict[str, Any]) -> list[str]:
    rows = [
        (
            facts["class_names"][one["class"]],
            str(one["nodes"]),
            share(one["precision"]),
            share(one["recall"]),
            share(one["f1"]),
        )
        for one in facts["classes"]
    ]
    return [
        "## Classes",
        "",
        "![true and predicted classes](confusion.png)",
        "",
        *markdown_table(("test nodes", "number", "precision", "recall", "F1"), rows),
        "",
    ]


def _curves() -> list[str]:
    return ["## Training", "", "![learning curves of all seeds](curves.png)", ""]


def _basis(facts: dict[str, Any], pictures: Sequence[str]) -> list[str]:
    if "basis.png" not in pictures:
        return []
    learned = ", with the values that it learned" if facts["basis"]["learned"] else ""
    nodes = ", ".join(map(_called, facts["shown_nodes"], facts["node_names"]))
    return [
        "## Basis",
        "",
        "![a panel for each matrix](basis.png)",
        "",
        f"The matrices A_k of the layer {facts['basis']['layer']}{learned}, around node {nodes}.",
    ]
