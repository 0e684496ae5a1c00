"""The command ``outerconv compare``: the table of a comparison as text, Markdown, JSON, picture."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import mean

from ...errors import RefusedValue
from ...files import as_path, replace, save_json
from ..train.results import can_draw, markdown_table, percent, plain, points, text_table
from .compare import Comparison, Group, Model, compare

NAME = "compare"


def compare_runs(runs: Sequence[str], out: str | None = None, against: str = "first") -> int:
    """Run ``outerconv compare``: print the tables, write files, and return the exit code.

    Args:
        runs: run folders.
        out: the folder of ``compare.md``, ``compare.json`` and ``compare.png``; None to print only.
        against: see :func:`.compare`.

    Raises:
        ValueError: a folder is no run, or is damaged; or files cannot be written.
    """
    found = compare(runs, against)
    print(text(found))
    if out is None:
        return 0
    folder = as_path(out, "--out")
    picture = draw(found) if can_draw() and found.groups else None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if picture is not None:
            replace(folder / f"{NAME}.png", picture)
        save_json(folder / f"{NAME}.json", found.as_dict())
        replace(folder / f"{NAME}.md", markdown(found, picture is not None).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise RefusedValue("--out must be a folder that can be written", folder, reason) from error
    endings = ["md", "json", *(["png"] if picture is not None else [])]
    print("\n" + "\n".join(shlex.quote(str(folder / f"{NAME}.{ending}")) for ending in endings))
    if not can_draw():
        print(
            f"{NAME}.png is not drawn: matplotlib is not installed "
            "(pip install 'pyg_outerconv[plot]')"
        )
    return 0


def text(found: Comparison) -> str:
    """The tables for a terminal."""
    parts = [
        f"{group.title}\n{text_table([_head(group), *_rows(group)])}\n{_majority(group)}"
        for group in found.groups
    ]
    return "\n\n".join([*parts, *(["\n".join(found.notes)] if found.notes else [])])


def markdown(found: Comparison, has_picture: bool) -> str:
    """The tables in Markdown, with the picture ``compare.png`` above if there is one."""
    lines = ["# Runs compared", ""]
    if has_picture:
        lines += [f"![means with standard errors and deviations]({NAME}.png)", ""]
    lines += [
        "Test metric: mean ± standard deviation over seeds, at the epoch that validation nodes "
        "choose. Difference: to the reference of the table, in points, mean ± standard error over "
        "the seeds (and so the splits) that both have.",
        "",
    ]
    for group in found.groups:
        lines += [f"## {plain(group.title)}", ""]
        lines += [*markdown_table(plain(_head(group)), plain(_rows(group))), ""]
        lines += [f"{_majority(group)}.", ""]
    lines += [f"- {note}" for note in plain(found.notes)]
    return "\n".join(lines).rstrip("\n") + "\n"


def draw(found: Comparison) -> bytes:
    """A panel for each group, as PNG."""
    from ...plot.canvas import rendered
    from ...plot.intervals import Row, intervals

    panels = []
    for group in found.groups:
        rows = [
            Row(_name(group, model), list(model.test.values()), place == group.reference)
            for place, model in enumerate(group.models)
        ]
        panels.append((f"{group.dataset}, split {group.split}", f"test {group.metric}, %", rows))
    return rendered(intervals(panels))


def _majority(group: Group) -> str:
    return f"majority class: {percent(group.majority)} %"


def _name(group: Group, model: Model) -> str:
    """A model in a picture: its run, and its name unless all are called so."""
    same = len({other.name for other in group.models}) == 1
    return model.run if same else f"{model.run}: {model.name}"


def _head(group: Group) -> tuple[str, ...]:
    head = [
        "run",
        "model",
        "seeds",
        f"test {group.metric} %",
        "difference",
        "validation %",
        "s/seed",
    ]
    return (*head, "settings that differ") if _differ(group) else tuple(head)


def _differ(group: Group) -> bool:
    return any(_settings(model) for model in group.models)


def _settings(model: Model) -> str:
    """The settings that differ, but for the family, which is in the model's name."""
    own = {name: value for name, value in model.differing.items() if name != "family"}
    return ", ".join(f"{name}={value}" for name, value in own.items())


def _rows(group: Group) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for place, model in enumerate(group.models):
        seeds = str(len(model.test))
        seeds += f" of {model.wanted}" if len(model.test) < model.wanted else ""
        row: tuple[str, ...] = (
            model.run,
            model.name,
            seeds,
            percent(model.mean, model.std),
            "reference" if place == group.reference else _difference(model),
            percent(mean(model.validation)),
            f"{mean(model.seconds):.1f}",
        )
        rows.append((*row, _settings(model)) if _differ(group) else row)
    return rows


def _difference(model: Model) -> str:
    """The paired difference, with its number of seeds where that is not the model's own."""
    found = model.difference
    if found is None:
        return "no common seed"
    said = points(found["mean"], found["standard_error"])
    return said if found["seeds"] == len(model.test) else f"{said} ({found['seeds']} seeds)"
